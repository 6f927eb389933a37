"""`segment_enter` and `segment_exit`: of watched segments, by the difference, and of nobody who was in before."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.audience.segments import store
from appliance.audience.segments.store import SegmentCreate, SegmentPatch
from appliance.core import validation
from appliance.flows import segment_events
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.flows_home import happen, live_flow, runs, take_in
from tests.domain.home import Home


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What a process remembers of its looks belongs to one test."""
    yield
    segment_events._last_checks.clear()
    segment_events._due_segments.clear()
    segment_events._segment_retry_at.clear()


def segment(home: Home, *filters: tuple[str, str, Any], name: str = "VIPs") -> int:
    """Make a segment, and answer its id."""
    body = {"name": name, "filters": [dict(zip(("name", "predicate", "value"), one, strict=True)) for one in filters]}
    return int(transactions.write(store.create, home.account_id, validation.read(SegmentCreate, body)).id)


def ask(home: Home, segment_id: int, *filters: tuple[str, str, Any]) -> None:
    """Let a segment ask something else."""
    body = {"filters": [dict(zip(("name", "predicate", "value"), one, strict=True)) for one in filters]}
    transactions.write(store.update, home.account_id, segment_id, validation.read(SegmentPatch, body))


def look(home: Home, later: float = 61) -> None:
    """Do as the process does when a minute has passed."""
    home.advance(later)
    segment_events.is_segment_check_due()
    segment_events.check_segments()


def told() -> list[tuple[str, int]]:
    """Return who came and went, in the order in which it was told."""
    return rows("SELECT event, contact_id FROM event WHERE event LIKE 'segment_%' ORDER BY id")


VIP = ("contact_tag", "eq", "vip")


def tag(home: Home, contact_id: int, *tags: str) -> None:
    """Give a person exactly these tags."""
    home.patch(contact_id, data={"tags": list(tags)})


def test_who_comes_and_goes_is_told_of_once(home: Home) -> None:
    """Who was in before did not enter; the others enter the flow that waits for it, and leave the one for leaving."""
    anna, ben, cleo = (home.contact(f"{name}@example.org").id for name in ("anna", "ben", "cleo"))
    tag(home, anna, "vip")
    vips = segment(home, VIP)
    enter = live_flow(home, {"segment_id": vips})
    leave = live_flow(home, {"event": "segment_exit", "segment_id": vips})
    look(home, 0)
    tag(home, ben, "vip")
    look(home, 30)
    assert told() == []
    look(home)
    tag(home, anna)
    tag(home, cleo, "vip")
    look(home)
    look(home)
    assert told() == [("segment_enter", ben), ("segment_enter", cleo), ("segment_exit", anna)]
    take_in()
    assert [row[0] for row in runs(enter)] == [ben, cleo]
    assert [row[0] for row in runs(leave)] == [anna]
    assert rows("SELECT DISTINCT resource_uid, resource_name, data FROM event WHERE event = 'segment_enter'") == [
        (f"segment:{vips}", "VIPs", f'{{"segment_id":{vips}}}')
    ]


def test_another_question_tells_of_nobody(home: Home) -> None:
    """A segment, or one that it names, that asks something else is the beginning of a new watch."""
    anna = home.contact("anna@example.org").id
    tag(home, anna, "vip")
    inner = segment(home, ("contact_tag", "eq", "nobody"), name="inner")
    outer = segment(home, ("contact_segment", "eq", inner), name="outer")
    live_flow(home, {"segment_id": outer})
    look(home, 0)
    ask(home, inner, VIP)
    look(home)
    assert told() == []
    assert scalar("SELECT count(*) FROM segment_member") == 1
    tag(home, anna)
    look(home)
    assert told() == [("segment_exit", anna)]


def test_only_what_somebody_waits_for_is_watched(home: Home) -> None:
    """Without a flow or a webhook nobody is kept; a flow that stands still forgets, and begins anew."""
    anna, ben = home.contact("anna@example.org").id, home.contact("ben@example.org").id
    vips, _ = segment(home, VIP), segment(home, name="everybody")
    look(home)
    assert not rows("SELECT 1 FROM segment_watch") and not segment_events.is_segment_check_due()
    flow = live_flow(home, {"segment_id": vips})
    look(home)
    tag(home, anna, "vip")
    look(home)
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow,))
    look(home)
    assert not rows("SELECT 1 FROM segment_watch") and not rows("SELECT 1 FROM segment_member")
    tag(home, ben, "vip")
    transactions.write(run, "UPDATE flow SET status = 'active' WHERE id = ?", (flow,))
    look(home)
    look(home)
    assert told() == [("segment_enter", anna)]


@pytest.mark.parametrize(
    "end", ["UPDATE flow SET status = 'paused'", "UPDATE trigger SET segment_id = NULL; DELETE FROM segment"]
)
def test_a_watch_that_ends_while_it_is_due_leaves_nothing_to_do(home: Home, end: str) -> None:
    """Where nobody waits for a segment any more that the pulse found due, or it is gone, the machine rests."""
    live_flow(home, {"segment_id": segment(home, VIP)})
    look(home)
    home.contact("anna@example.org")
    home.advance(61)
    assert segment_events.is_segment_check_due()
    for statement in end.split(";"):
        transactions.write(run, statement)
    segment_events.check_segments()
    assert not rows("SELECT 1 FROM segment_watch") and not segment_events.is_segment_check_due()


def test_a_webhook_that_names_them_watches_all_segments(home: Home) -> None:
    """Of its account, while it is enabled."""
    first, second = segment(home, VIP), segment(home, name="everybody")
    transactions.write(
        run,
        "INSERT INTO webhook (account_id, url, events, enabled, secret, after_event_id, created_at, updated_at) "
        "VALUES (?, 'https://x.example', '[\"segment_enter\"]', 1, x'00', 0, 1, 1)",
        (home.account_id,),
    )
    look(home)
    anna = home.contact("anna@example.org", data={"tags": ["vip"]}).id
    look(home)
    assert told() == [("segment_enter", anna)] * 2
    assert {row[0] for row in rows("SELECT segment_id FROM segment_watch")} == {first, second}
    transactions.write(run, "UPDATE webhook SET enabled = 0")
    look(home)
    assert not rows("SELECT 1 FROM segment_watch")


def test_deleted_people_are_nobody_who_left(home: Home) -> None:
    """A person who is gone takes what was kept of them along."""
    anna = home.contact("anna@example.org").id
    live_flow(home, {"segment_id": segment(home)})
    look(home, 0)
    transactions.write(run, "DELETE FROM contact WHERE id = ?", (anna,))
    look(home)
    assert told() == [] and not rows("SELECT 1 FROM segment_member")


def test_who_comes_by_an_import_starts_nothing(home: Home) -> None:
    """What starts no flow starts none by way of a segment: it is told of, and whoever does more themselves enters."""
    anna, ben = home.contact("anna@example.org").id, home.contact("ben@example.org").id
    flow = live_flow(home, {"segment_id": segment(home, VIP)})
    look(home, 0)
    for person in (anna, ben):
        tag(home, person, "vip")
    transactions.write(run, "UPDATE event SET quiet = 1")
    happen(home, "order_paid", ben)
    look(home)
    take_in()
    assert told() == [("segment_enter", anna), ("segment_enter", ben)]
    assert runs(flow) == [(ben, "live", None)]


def test_who_was_in_as_somebody_else_did_not_enter(home: Home) -> None:
    """Of two merged people one was in: the person did not enter, and is told of when they leave."""
    stays, goes, third = (home.contact(f"{name}@example.org").id for name in ("anna", "ben", "cleo"))
    vips = segment(home, VIP)
    tag(home, goes, "vip")
    tag(home, third, "vip")
    live_flow(home, {"segment_id": vips})
    look(home, 0)
    transactions.write(removal.merge, home.account_id, stays, goes, Evidence("api"))
    look(home)
    assert told() == []
    other = home.contact("dora@example.org", data={"tags": []}).id
    transactions.write(removal.merge, home.account_id, other, third, Evidence("api"))
    tag(home, other)
    look(home)
    assert told() == [("segment_exit", other)]


def test_a_circle_of_flows_comes_to_its_end(home: Home) -> None:
    """Who enters because a flow changed something stands as deep in the chain as that change."""
    anna, ben = home.contact("anna@example.org").id, home.contact("ben@example.org").id
    vips = segment(home, VIP)
    flow = live_flow(home, {"segment_id": vips, "data": {"frequency": "every_time"}})
    look(home, 0)
    for person, depth in ((anna, 5), (ben, 3)):
        tag(home, person, "vip")
        happen(home, "contact_update", person, chain_depth=depth)
    look(home)
    take_in()
    assert sorted(runs(flow)) == [(anna, "ignored", "depth"), (ben, "live", None)]
    assert rows("SELECT chain_depth FROM run WHERE status = 'live'") == [(3,)]


def test_a_circle_comes_to_its_end_whatever_the_clock_says(home: Home) -> None:
    """A clock that was set back, a click told of late, or a look that was broken off hides no step of a circle."""
    anna = home.contact("anna@example.org").id
    vips = segment(home, VIP)
    flow = live_flow(home, {"segment_id": vips, "data": {"frequency": "every_time"}})
    look(home, 0)
    tag(home, anna, "vip")
    event = happen(home, "contact_update", anna, chain_depth=5)
    transactions.write(run, "UPDATE event SET created_at = created_at - 3600000 WHERE id = ?", (event,))
    transactions.write(
        run, "CREATE TRIGGER broken BEFORE INSERT ON segment_member BEGIN SELECT RAISE(ABORT, 'broken'); END"
    )
    look(home)
    transactions.write(run, "DROP TRIGGER broken")
    look(home)
    take_in()
    assert runs(flow) == [(anna, "ignored", "depth")]


def test_a_new_process_holds_nothing_old_against_people(home: Home) -> None:
    """Nobody knows when it was looked at last: what happened a minute ago and more is not why somebody enters."""
    anna = home.contact("anna@example.org", data={"tags": ["vip"]}).id
    flow = live_flow(home, {"segment_id": segment(home, VIP)})
    happen(home, "contact_update", anna, chain_depth=5)
    look(home, 0)
    transactions.write(run, "DELETE FROM segment_member")
    segment_events._last_checks.clear()
    look(home)
    take_in()
    assert runs(flow) == [(anna, "live", None)]


def test_time_alone_changes_who_is_in(home: Home) -> None:
    """A window moves while nobody writes."""
    anna = home.contact("anna@example.org").id
    live_flow(home, {"event": "segment_exit",
                     "segment_id": segment(home, ("contact_created_at", "within_days", 1))})  # fmt: skip
    look(home, 0)
    look(home, 2 * 86_400)
    assert told() == [("segment_exit", anna)]


def test_a_segment_that_cannot_be_looked_at_stops_no_other(home: Home) -> None:
    """It is tried again in a minute; the others are looked at, and it goes on as if nothing had been."""
    broken, whole = segment(home, VIP), segment(home, VIP, name="whole")
    live_flow(home, {"segment_id": broken})
    live_flow(home, {"segment_id": whole})
    said = scalar("SELECT filters FROM segment WHERE id = ?", (broken,))
    transactions.write(run, "UPDATE segment SET filters = '[1]' WHERE id = ?", (broken,))
    look(home, 0)
    assert rows("SELECT segment_id, definition NOT NULL FROM segment_watch") == [(broken, 0), (whole, 1)]
    assert not segment_events.is_segment_check_due()
    transactions.write(run, "UPDATE segment SET filters = ? WHERE id = ?", (said, broken))
    look(home)
    anna = home.contact("anna@example.org", data={"tags": ["vip"]}).id
    look(home)
    assert told() == [("segment_enter", anna)] * 2
