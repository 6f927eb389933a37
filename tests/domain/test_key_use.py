"""When a key was used last: known at once, written once a minute at most."""

from appliance.accounts import access, users
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.models import ApiKey
from tests.domain.home import Home


def test_a_use_is_known_at_once_and_written_now_and_then(home: Home) -> None:
    """Asking writes nothing; of many uses in a minute one is written, and a restart forgets no more than that."""
    used, other = (transactions.write(access.issue_key, home.account_id, name) for name in ("Shop", "Rest"))
    for _ in range(3):
        assert access.find_credential(used) is not None
    shown = {row.name: access.last_used_at(row) for row in users.list_keys(home.account_id)}
    assert shown["Rest"] is None and abs((shown["Shop"] or 0) - clock.now_ms()) < 60_000
    assert [row.last_used_at for row in ApiKey.select()] == [None, None]
    transactions.write(access.write_last_uses, access.collect_last_uses())
    assert access.find_credential(used) is not None
    assert access.collect_last_uses() == {}
    access._last_uses.clear()
    shown = {row.name: access.last_used_at(row) for row in users.list_keys(home.account_id)}
    assert shown["Shop"] is not None and shown["Rest"] is None and other
