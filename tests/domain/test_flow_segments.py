"""The events `segment_enter` and `segment_exit` of watched segments."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.audience.segments import store
from appliance.audience.segments.store import SegmentCreate, SegmentPatch
from appliance.core import validation
from appliance.core.limited_process import FairShares
from appliance.flows import segment_events
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.flows_home import live_flow, process_events, record_event, runs
from tests.domain.home import Home


@pytest.fixture(autouse=True)
def clear_check_state() -> Iterator[None]:
    """Clear what the process remembers of segment checks after each test."""
    yield
    segment_events._last_checks.clear()
    segment_events._due_segments.clear()
    segment_events._segment_retry_at.clear()


def create_segment(home: Home, *filters: tuple[str, str, Any], name: str = "VIPs") -> int:
    """Create a segment and return its id."""
    body = {
        "name": name,
        "filters": [dict(zip(("name", "predicate", "value"), condition, strict=True)) for condition in filters],
    }
    return int(transactions.write(store.create, home.account_id, validation.read(SegmentCreate, body)).id)


def update_segment(home: Home, segment_id: int, *filters: tuple[str, str, Any]) -> None:
    """Change the filters of a segment."""
    body = {"filters": [dict(zip(("name", "predicate", "value"), condition, strict=True)) for condition in filters]}
    transactions.write(store.update, home.account_id, segment_id, validation.read(SegmentPatch, body))


def check_segments_after(home: Home, seconds: float = 61) -> None:
    """Advance the clock, and check segments as the process does."""
    home.advance(seconds)
    segment_events.is_segment_check_due()
    segment_events.check_segments()


def recorded_events() -> list[tuple[str, int]]:
    """Return (event, contact id) of the segment events in order."""
    return rows("SELECT event, contact_id FROM event WHERE event LIKE 'segment_%' ORDER BY id")


VIP = ("contact_tag", "eq", "vip")


def set_tags(home: Home, contact_id: int, *tags: str) -> None:
    """Set a contact's tags."""
    home.patch(contact_id, data={"tags": list(tags)})


def test_accounts_take_turns(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only segment of an account is checked after one of another account's three, not after all of them (T11)."""
    own_account = home.account_id
    home.account_id = other_account = int(transactions.write(lambda: accounts.create("Other").id))
    busy = [create_segment(home, VIP, name=f"VIPs {number}") for number in range(3)]
    for segment_id in busy:
        live_flow(home, {"segment_id": segment_id})
    first = home.contact("anna@example.org").id
    home.account_id = own_account
    live_flow(home, {"segment_id": create_segment(home, VIP)})
    second = home.contact("ben@example.org").id
    check_segments_after(home, 0)
    set_tags(home, second, "vip")
    home.account_id = other_account
    set_tags(home, first, "vip")
    # What the first checks took, which are counted too, is not the same for both accounts
    monkeypatch.setattr(segment_events, "_shares", FairShares())
    check_segments_after(home)
    entered = [contact_id for _, contact_id in recorded_events()]
    assert sorted(entered) == sorted([first, first, first, second])
    assert entered.index(second) <= 1


def test_entering_and_leaving_give_one_event_each(home: Home) -> None:
    """Earlier members do not enter; entering and leaving start the flows that wait for them."""
    anna_id, ben_id, cleo_id = (home.contact(f"{name}@example.org").id for name in ("anna", "ben", "cleo"))
    set_tags(home, anna_id, "vip")
    segment_id = create_segment(home, VIP)
    enter_flow = live_flow(home, {"segment_id": segment_id})
    exit_flow = live_flow(home, {"event": "segment_exit", "segment_id": segment_id})
    check_segments_after(home, 0)
    set_tags(home, ben_id, "vip")
    check_segments_after(home, 30)
    assert recorded_events() == []
    check_segments_after(home)
    set_tags(home, anna_id)
    set_tags(home, cleo_id, "vip")
    check_segments_after(home)
    check_segments_after(home)
    assert recorded_events() == [("segment_enter", ben_id), ("segment_enter", cleo_id), ("segment_exit", anna_id)]
    process_events()
    assert [row[0] for row in runs(enter_flow)] == [ben_id, cleo_id]
    assert [row[0] for row in runs(exit_flow)] == [anna_id]
    assert rows("SELECT DISTINCT resource_uid, resource_name, data FROM event WHERE event = 'segment_enter'") == [
        (f"segment:{segment_id}", "VIPs", f'{{"segment_id":{segment_id}}}')
    ]


def test_changed_filters_give_no_events(home: Home) -> None:
    """A change of a watched segment's filters, or of a nested segment's, starts a new watch without events."""
    anna_id = home.contact("anna@example.org").id
    set_tags(home, anna_id, "vip")
    inner = create_segment(home, ("contact_tag", "eq", "nobody"), name="inner")
    outer = create_segment(home, ("contact_segment", "eq", inner), name="outer")
    live_flow(home, {"segment_id": outer})
    check_segments_after(home, 0)
    update_segment(home, inner, VIP)
    check_segments_after(home)
    assert recorded_events() == []
    assert scalar("SELECT count(*) FROM segment_member") == 1
    set_tags(home, anna_id)
    check_segments_after(home)
    assert recorded_events() == [("segment_exit", anna_id)]


def test_only_segments_of_active_flows_are_watched(home: Home) -> None:
    """Without an active flow no members are stored; after a pause watching starts anew."""
    anna_id, ben_id = home.contact("anna@example.org").id, home.contact("ben@example.org").id
    segment_id, _ = create_segment(home, VIP), create_segment(home, name="everybody")
    check_segments_after(home)
    assert not rows("SELECT 1 FROM segment_watch") and not segment_events.is_segment_check_due()
    flow = live_flow(home, {"segment_id": segment_id})
    check_segments_after(home)
    set_tags(home, anna_id, "vip")
    check_segments_after(home)
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow,))
    check_segments_after(home)
    assert not rows("SELECT 1 FROM segment_watch") and not rows("SELECT 1 FROM segment_member")
    set_tags(home, ben_id, "vip")
    transactions.write(run, "UPDATE flow SET status = 'active' WHERE id = ?", (flow,))
    check_segments_after(home)
    check_segments_after(home)
    assert recorded_events() == [("segment_enter", anna_id)]


@pytest.mark.parametrize(
    "statements", ["UPDATE flow SET status = 'paused'", "UPDATE trigger SET segment_id = NULL; DELETE FROM segment"]
)
def test_a_watch_that_ends_while_due_is_removed(home: Home, statements: str) -> None:
    """If the flow is paused or the segment deleted when a check is due, the watch is removed."""
    live_flow(home, {"segment_id": create_segment(home, VIP)})
    check_segments_after(home)
    home.contact("anna@example.org")
    home.advance(61)
    assert segment_events.is_segment_check_due()
    for statement in statements.split(";"):
        transactions.write(run, statement)
    segment_events.check_segments()
    assert not rows("SELECT 1 FROM segment_watch") and not segment_events.is_segment_check_due()


def test_a_webhook_watches_all_segments(home: Home) -> None:
    """An enabled webhook for segment events watches all segments of its account."""
    first, second = create_segment(home, VIP), create_segment(home, name="everybody")
    transactions.write(
        run,
        "INSERT INTO webhook (account_id, url, events, enabled, secret, after_event_id, created_at, updated_at) "
        "VALUES (?, 'https://x.example', '[\"segment_enter\"]', 1, x'00', 0, 1, 1)",
        (home.account_id,),
    )
    check_segments_after(home)
    anna_id = home.contact("anna@example.org", data={"tags": ["vip"]}).id
    check_segments_after(home)
    assert recorded_events() == [("segment_enter", anna_id)] * 2
    assert {row[0] for row in rows("SELECT segment_id FROM segment_watch")} == {first, second}
    transactions.write(run, "UPDATE webhook SET enabled = 0")
    check_segments_after(home)
    assert not rows("SELECT 1 FROM segment_watch")


def test_a_deleted_contact_does_not_leave_a_segment(home: Home) -> None:
    """Deleting a contact gives no `segment_exit` event."""
    anna_id = home.contact("anna@example.org").id
    live_flow(home, {"segment_id": create_segment(home)})
    check_segments_after(home, 0)
    transactions.write(run, "DELETE FROM contact WHERE id = ?", (anna_id,))
    check_segments_after(home)
    assert recorded_events() == [] and not rows("SELECT 1 FROM segment_member")


def test_quiet_changes_start_no_flow_by_segment(home: Home) -> None:
    """Contacts with quiet events only give `segment_enter`, but start no run."""
    anna_id, ben_id = home.contact("anna@example.org").id, home.contact("ben@example.org").id
    flow = live_flow(home, {"segment_id": create_segment(home, VIP)})
    check_segments_after(home, 0)
    for contact_id in (anna_id, ben_id):
        set_tags(home, contact_id, "vip")
    transactions.write(run, "UPDATE event SET quiet = 1")
    record_event(home, "order_paid", ben_id)
    check_segments_after(home)
    process_events()
    assert recorded_events() == [("segment_enter", anna_id), ("segment_enter", ben_id)]
    assert runs(flow) == [(ben_id, "live", None)]


def test_a_merge_gives_no_segment_enter(home: Home) -> None:
    """A contact merged with a member does not enter, and gives an event when leaving."""
    survivor_id, member_id, second_member_id = (
        home.contact(f"{name}@example.org").id for name in ("anna", "ben", "cleo")
    )
    segment_id = create_segment(home, VIP)
    set_tags(home, member_id, "vip")
    set_tags(home, second_member_id, "vip")
    live_flow(home, {"segment_id": segment_id})
    check_segments_after(home, 0)
    transactions.write(removal.merge, home.account_id, survivor_id, member_id, Evidence("api"))
    check_segments_after(home)
    assert recorded_events() == []
    other_id = home.contact("dora@example.org", data={"tags": []}).id
    transactions.write(removal.merge, home.account_id, other_id, second_member_id, Evidence("api"))
    set_tags(home, other_id)
    check_segments_after(home)
    assert recorded_events() == [("segment_exit", other_id)]


def test_segment_events_continue_the_chain(home: Home) -> None:
    """`segment_enter` has the chain depth of the change that caused it, so a loop of flows ends."""
    anna_id, ben_id = home.contact("anna@example.org").id, home.contact("ben@example.org").id
    segment_id = create_segment(home, VIP)
    flow = live_flow(home, {"segment_id": segment_id, "data": {"frequency": "every_time"}})
    check_segments_after(home, 0)
    for contact_id, depth in ((anna_id, 5), (ben_id, 3)):
        set_tags(home, contact_id, "vip")
        record_event(home, "contact_update", contact_id, chain_depth=depth)
    check_segments_after(home)
    process_events()
    assert sorted(runs(flow)) == [(anna_id, "ignored", "depth"), (ben_id, "live", None)]
    assert rows("SELECT chain_depth FROM run WHERE status = 'live'") == [(3,)]


def test_chain_depth_survives_clock_steps_and_failed_checks(home: Home) -> None:
    """An event dated earlier and a failed check do not reset the chain depth."""
    anna_id = home.contact("anna@example.org").id
    segment_id = create_segment(home, VIP)
    flow = live_flow(home, {"segment_id": segment_id, "data": {"frequency": "every_time"}})
    check_segments_after(home, 0)
    set_tags(home, anna_id, "vip")
    event = record_event(home, "contact_update", anna_id, chain_depth=5)
    transactions.write(run, "UPDATE event SET created_at = created_at - 3600000 WHERE id = ?", (event,))
    transactions.write(
        run, "CREATE TRIGGER broken BEFORE INSERT ON segment_member BEGIN SELECT RAISE(ABORT, 'broken'); END"
    )
    check_segments_after(home)
    transactions.write(run, "DROP TRIGGER broken")
    check_segments_after(home)
    process_events()
    assert runs(flow) == [(anna_id, "ignored", "depth")]


def test_a_new_process_ignores_old_chain_depths(home: Home) -> None:
    """After a restart an event of more than a minute ago does not set the chain depth."""
    anna_id = home.contact("anna@example.org", data={"tags": ["vip"]}).id
    flow = live_flow(home, {"segment_id": create_segment(home, VIP)})
    record_event(home, "contact_update", anna_id, chain_depth=5)
    check_segments_after(home, 0)
    transactions.write(run, "DELETE FROM segment_member")
    segment_events._last_checks.clear()
    check_segments_after(home)
    process_events()
    assert runs(flow) == [(anna_id, "live", None)]


def test_time_alone_can_end_membership(home: Home) -> None:
    """A contact leaves a segment with a time window without any write."""
    anna_id = home.contact("anna@example.org").id
    live_flow(home, {"event": "segment_exit",
                     "segment_id": create_segment(home, ("contact_created_at", "within_days", 1))})  # fmt: skip
    check_segments_after(home, 0)
    check_segments_after(home, 2 * 86_400)
    assert recorded_events() == [("segment_exit", anna_id)]


def test_a_broken_segment_does_not_stop_others(home: Home) -> None:
    """A segment that cannot be evaluated is tried again after a minute; the others are checked."""
    broken_id, other_id = create_segment(home, VIP), create_segment(home, VIP, name="whole")
    live_flow(home, {"segment_id": broken_id})
    live_flow(home, {"segment_id": other_id})
    filters = scalar("SELECT filters FROM segment WHERE id = ?", (broken_id,))
    transactions.write(run, "UPDATE segment SET filters = '[1]' WHERE id = ?", (broken_id,))
    check_segments_after(home, 0)
    assert rows("SELECT segment_id, definition NOT NULL FROM segment_watch") == [(broken_id, 0), (other_id, 1)]
    assert not segment_events.is_segment_check_due()
    transactions.write(run, "UPDATE segment SET filters = ? WHERE id = ?", (filters, broken_id))
    check_segments_after(home)
    anna_id = home.contact("anna@example.org", data={"tags": ["vip"]}).id
    check_segments_after(home)
    assert recorded_events() == [("segment_enter", anna_id)] * 2
