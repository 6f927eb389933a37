"""When an API key was last used: shown at once, written to the database later."""

from appliance.accounts import access, users
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.models import ApiKey
from tests.domain.home import Home


def test_last_use_of_a_key_is_shown_before_it_is_written(home: Home) -> None:
    """A lookup writes nothing; the last use is shown at once, written in a batch, and survives a restart."""
    used, unused = (transactions.write(access.issue_key, home.account_id, name) for name in ("Shop", "Rest"))
    for _ in range(3):
        assert access.find_credential(used) is not None
    last_uses = {row.name: access.last_used_at(row) for row in users.list_keys(home.account_id)}
    assert last_uses["Rest"] is None and abs((last_uses["Shop"] or 0) - clock.now_ms()) < 60_000
    assert [row.last_used_at for row in ApiKey.select()] == [None, None]
    transactions.write(access.write_last_uses, access.collect_last_uses())
    assert access.find_credential(used) is not None
    assert access.collect_last_uses() == {}
    access._last_uses.clear()
    last_uses = {row.name: access.last_used_at(row) for row in users.list_keys(home.account_id)}
    assert last_uses["Shop"] is not None and last_uses["Rest"] is None and unused
