"""When a key was used last: known at once, written once a minute at most."""

from appliance.accounts import keys, users
from appliance.core import clock
from appliance.storage import work
from appliance.storage.models import ApiKey
from tests.domain.home import Home


def test_a_use_is_known_at_once_and_written_now_and_then(home: Home) -> None:
    """Asking writes nothing; of many uses in a minute one is written, and a restart forgets no more than that."""
    used, other = (work.write(keys.create, home.account_id, name) for name in ("Shop", "Rest"))
    for _ in range(3):
        assert keys.find(used) is not None
    shown = {row.name: keys.last_used(row) for row in users.keys(home.account_id)}
    assert shown["Rest"] is None and abs((shown["Shop"] or 0) - clock.now_ms()) < 60_000
    assert [row.last_used_at for row in ApiKey.select()] == [None, None]
    work.write(keys.note_used, keys.unwritten())
    assert keys.find(used) is not None
    assert keys.unwritten() == {}
    keys._used.clear()
    shown = {row.name: keys.last_used(row) for row in users.keys(home.account_id)}
    assert shown["Shop"] is not None and shown["Rest"] is None and other
