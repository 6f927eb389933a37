"""Mirrors of segments: the accounts take turns, and a mirror that costs too much is put off while others follow."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.audience import lists, mirrors
from appliance.audience.lists import ListCreate
from appliance.audience.segments import store as segments
from appliance.audience.segments.condition_budget import Cost
from appliance.audience.segments.store import SegmentCreate, SegmentPatch
from appliance.storage import transactions
from appliance.storage.models import ContactList
from tests.domain.home import Home
from tests.domain.test_flow_condition_limits import never_seen, record_views

_EVERYBODY = [{"name": "contact_email", "predicate": "present", "value": True}]
_LONG_HISTORY = 3_000


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limit an ordinary mirror to about the cost of reading a thousand events, and a slow one to that of 20,000."""
    monkeypatch.setattr(mirrors, "MAX_ORDINARY", Cost(60_000, 60.0))
    monkeypatch.setattr(mirrors, "MAX_SLOW", Cost(1_200_000, 60.0))
    yield
    for memory in (mirrors._last_refreshes, mirrors._postponed, mirrors._pending, mirrors._slow):
        memory.clear()


def create_mirror(account_id: int, name: str, filters: list[dict[str, Any]]) -> ContactList:
    """Create a segment and a list that mirrors it, and return the list."""
    segment = transactions.write(segments.create, account_id, SegmentCreate(name=name, filters=filters))
    return transactions.write(lists.create, account_id, ListCreate(name=name, segment_id=segment.id))


def count(mirror: ContactList) -> int:
    """Return the number of members of a mirror."""
    return int(lists.get(mirror.account_id, mirror.id).contacts_count)


def test_accounts_take_turns(home: Home) -> None:
    """The only mirror of one account is populated before the second of another, whose first one came earlier."""
    home.contact("ann@example.org")
    own = [create_mirror(home.account_id, f"M{number}", _EVERYBODY) for number in range(3)]
    other_account = transactions.write(lambda: int(accounts.create("Other").id))
    other = create_mirror(other_account, "Theirs", _EVERYBODY)
    assert mirrors.find_stale_mirrors() == (True, False)
    mirrors.refresh_ordinary_mirrors()
    order = sorted(mirrors._last_refreshes, key=lambda list_id: mirrors._last_refreshes[list_id].at)
    assert order.index(other.id) <= 1 and len(order) == 4
    assert [count(mirror) for mirror in (*own, other)] == [1, 1, 1, 0]
    assert mirrors.find_stale_mirrors() == (False, False)


def test_a_mirror_that_costs_too_much_is_put_off(home: Home) -> None:
    """It keeps its members, is tried less and less often, and at once after an edit of its segment."""
    contact_id = home.contact("ann@example.org").id
    costly, cheap = (
        create_mirror(home.account_id, "Costly", never_seen(24)),
        create_mirror(home.account_id, "Cheap", []),
    )
    mirrors.find_stale_mirrors()
    mirrors.refresh_ordinary_mirrors()
    mirrors.refresh_slow_mirrors()
    assert (count(costly), count(cheap)) == (1, 1) and not mirrors.is_postponed(costly.id)
    home.contact("bob@example.org")
    record_views(home, contact_id, _LONG_HISTORY)
    mirrors._last_refreshes.clear()
    rests = []
    for _ in range(2):
        mirrors.find_stale_mirrors()
        mirrors.refresh_ordinary_mirrors()
        mirrors.refresh_slow_mirrors()
        assert (count(costly), count(cheap)) == (1, 2)
        assert mirrors.is_postponed(costly.id) and not mirrors.is_postponed(cheap.id)
        assert costly.id not in mirrors._pending and mirrors.find_stale_mirrors()[1] is False
        rests.append(mirrors._postponed[costly.id].seconds)
        mirrors._postponed[costly.id] = mirrors._postponed[costly.id]._replace(until=0.0)
    assert rests == [120.0, 240.0]
    mirrors._postponed[costly.id] = mirrors._postponed[costly.id]._replace(until=1e12)
    home.advance(1)
    transactions.write(segments.update, home.account_id, costly.segment_id, SegmentPatch(filters=_EVERYBODY))
    assert mirrors.find_stale_mirrors() == (False, True)
    mirrors.refresh_slow_mirrors()
    assert count(costly) == 2 and not mirrors.is_postponed(costly.id) and costly.id not in mirrors._slow


def test_a_slow_mirror_is_compared_in_its_own_thread(home: Home) -> None:
    """A mirror that costs too much for the ordinary thread is left to the other one, which populates it."""
    contact_id = home.contact("ann@example.org").id
    record_views(home, contact_id, 200)
    slow = create_mirror(home.account_id, "Slow", never_seen(24))
    assert mirrors.find_stale_mirrors() == (True, False)
    mirrors.refresh_ordinary_mirrors()
    assert count(slow) == 0 and slow.id in mirrors._slow and not mirrors.is_postponed(slow.id)
    assert mirrors.find_stale_mirrors() == (False, True)
    mirrors.refresh_slow_mirrors()
    assert count(slow) == 1 and not mirrors.is_postponed(slow.id)
