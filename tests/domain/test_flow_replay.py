"""A replay of a live flow gives what was really sent, and compares it with a changed flow in people and money."""

import random
from typing import Any

import pytest

from appliance.core import clock, validation
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.events import submit
from appliance.events.submit import EventWrite
from appliance.flows import engine, replays, triggers
from appliance.flows.replay_events import Feed, FeedRequest
from appliance.flows.replay_result import PersonRow, ReplayResult
from appliance.flows.replay_simulator import FlowReplay, ReplayVersion, SentMessage
from appliance.flows.replays import ReplayRequest
from appliance.sending.messages.ledger import Outcome
from appliance.storage import models, transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow, Trigger
from tests.domain import flows_home
from tests.domain.flows_rehearsed import create_flow
from tests.domain.home import Home, record_and_claim

MINUTE, HOUR, DAY = 60, 3_600, 86_400
ORDERED = {"name": "event", "predicate": "performed", "value": {"event": "order", "since": "flow_start"}}
MAILED = {"name": "event", "predicate": "performed", "value": {"event": "email_sent", "since": "flow_start"}}
TOTAL = {"name": "event.total", "predicate": "gt", "value": 10}
MAIL = {"subject": "Your cart", "body": "<p>x</p>"}


def random_steps(rng: random.Random, depth: int = 0) -> list[dict[str, Any]]:
    """Return steps whose way depends on the events of a contact only."""
    steps: list[dict[str, Any]] = []
    for _ in range(rng.randint(2, 4 if depth == 0 else 3)):
        kind = rng.choice(["wait", "wait", "email", "email", "split", "event", "time", "emit", "exit"])
        nested = depth < 2
        if kind == "split" and nested:
            filters = rng.sample([ORDERED, MAILED, TOTAL], rng.randint(1, 2))
            steps.append({"filters": filters, "yes": random_steps(rng, depth + 1), "no": random_steps(rng, depth + 1)})
        elif kind == "event" and nested:
            steps.append({
                "type": "wait_until", "until": "event", "event_name": "order", "timeout": rng.randint(2, 40) * HOUR,
                "yes": random_steps(rng, depth + 1), "no": random_steps(rng, depth + 1),
            })  # fmt: skip
        elif kind == "time":
            steps.append({"type": "wait_until", "until": "time", "at": f"{rng.randint(0, 23):02d}:00"})
        elif kind == "emit":
            steps.append({"event_name": "seen_it"})
        elif kind == "exit" and depth and rng.random() < 0.3:
            steps.append({"type": "exit"})
        elif kind == "email":
            steps.append({"subject": "Hi", "body": "<p>x</p>"})
        else:
            steps.append({"duration": rng.choice([0, 10 * MINUTE, 3 * HOUR, 30 * HOUR])})
    return steps


def live_through(home: Home, flow: Flow, happenings: list[tuple[int, int, str]], until: int) -> None:
    """Record events at their times, and advance the flow and send its messages as soon as they are due."""
    remaining = sorted(happenings)
    while True:
        while remaining and remaining[0][0] <= clock.now_ms():
            _, contact_id, event = remaining.pop(0)
            if event == "opt_out":
                home.opt_out(f"p{contact_id}@example.org")
            else:
                submit_event(home, event, contact_id)
            settle()
        settle()
        moments = [remaining[0][0]] if remaining else []
        due = scalar("SELECT min(due_at) FROM run WHERE status = 'live' AND flow_id = ?", (flow.id,))
        held = scalar("SELECT min(due_at) FROM message WHERE status = 'held'")
        moments += [moment for moment in (due, held) if moment is not None]
        if not moments or min(moments) >= until:
            home.advance((until - clock.now_ms()) / 1000)
            return
        home.advance(max((min(moments) - clock.now_ms()) / 1000, 0) + 0.001)


def submit_event(home: Home, event: str, contact_id: int, **more: Any) -> None:
    """Submit an event of a contact as the API does."""
    body = {"event": event, "contact_id": contact_id, "data": {"total": 5 * contact_id}, "amount": 40.0, **more}
    request = validation.read(EventWrite, body)
    transactions.write(submit.submit, home.account_id, submit.prepare(request))


def settle() -> None:
    """Process events and due runs, and send due messages, until nothing more is due."""
    for _ in range(20):
        flows_home.process_events()
        advanced = False
        while engine.advance_due_runs():
            advanced = True
        while (row := record_and_claim(None, want=True)) is not None:
            advanced = True
            record_and_claim(Outcome(row, subject="Hi", sender="a@example.org"), want=False)
        if not advanced:
            return


def replay(home: Home, flow: Flow, **body: Any) -> tuple[ReplayResult, list[PersonRow]]:
    """Request a replay as the API does, and run it in this process."""
    prepared = replays.prepare(home.account_id, flow.id, validation.read(ReplayRequest, body))
    transactions.write(run, "DELETE FROM flow_replay")
    row = transactions.write(replays.start, prepared, "user:1")
    return replays.run_replay(models.FlowReplay.get_by_id(row.id), lambda share: None)


def play(flow: Flow, interval_minutes: int) -> list[SentMessage]:
    """Return the messages of the live version in the stored replay, with intervals of a length."""
    row = models.FlowReplay.get()
    spec = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
    start = row.until - row.days * clock.DAY_MS
    goals = [flow.goal] if flow.goal else []
    feed = Feed(FeedRequest(row.account_id, flow.id, start, row.until, row.seed, [spec], [flow.steps], goals))
    version = ReplayVersion(None, spec, flow.goal)
    return FlowReplay(flow, version, feed, interval_minutes * 60_000, 1, lambda share: None).run().messages


def list_really_sent(flow: Flow) -> list[tuple[int, int, str, int]]:
    """Return contact, step, skip reason and minute of the messages of a flow."""
    sent = rows(
        "SELECT contact_id, step_id, skip_reason, coalesce(sent_at, created_at) FROM message WHERE flow_id = ? "
        "AND status IN ('sent', 'skipped')",
        (flow.id,),
    )
    return sorted((contact, step, str(reason), round(at / 60_000)) for contact, step, reason, at in sent)


def list_replayed(people: list[PersonRow]) -> list[tuple[int, int, str, int]]:
    """Return the same of the live version in a replay."""
    return sorted(
        (row.contact_id, row.step_id, str(row.live_reason), round(row.live_at / 60_000))
        for row in people
        if row.live_at is not None
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_of_the_live_flow_gives_what_was_really_sent(home: Home, seed: int) -> None:
    """Messages, skip reasons and times are the same in reality and in the replay, in short and in long intervals."""
    home.configure(email__allow_unverified_domains=True)
    rng = random.Random(seed)
    people = [home.contact(f"p{number}@example.org").id for number in range(1, 7)]
    assert people == [1, 2, 3, 4, 5, 6]
    quiet = {"quiet_hours": {"from": "21:00", "to": "08:00"}} if seed % 3 == 0 else {}
    frequency = rng.choice(["every_time", "once", {"min_gap_seconds": 4 * DAY}])
    flow = create_flow(
        home, random_steps(rng), {"event": "cart_add", "data": {"frequency": frequency}}, status="active",
        goal="order" if seed % 2 else None, data=quiet,
    )  # fmt: skip
    start = clock.now_ms()
    happenings = [
        (start + rng.randrange(12 * DAY) * 1000, contact_id, event)
        for contact_id in people
        for event in ["cart_add"] * rng.randint(1, 3) + ["order"] * rng.randint(0, 2) + ["opt_out"] * (contact_id == 6)
    ]
    live_through(home, flow, happenings, start + 20 * DAY * 1000)
    result, compared = replay(home, flow, days=30)
    replayed, sent = list_replayed(compared), list_really_sent(flow)
    assert [row[:3] for row in replayed] == [row[:3] for row in sent]
    assert all(abs(first[3] - second[3]) <= 1 for first, second in zip(replayed, sent, strict=True))
    assert result.live is not None and not result.is_changed
    ended = dict(rows("SELECT status, count(*) FROM run WHERE flow_id = ? GROUP BY 1", (flow.id,)))
    assert (result.live.completed, result.live.exited, result.live.live) == tuple(
        ended.get(status, 0) for status in ("completed", "exited", "live")
    )
    assert {row.change for row in compared} <= {"same"}
    minutes = [(message.contact_id, message.step_id, message.at) for message in play(flow, interval_minutes=1)]
    longer = play(flow, interval_minutes=30 if quiet else 1_440)
    assert [(message.contact_id, message.step_id, message.at) for message in longer] == minutes


def test_changes_are_compared_in_people_and_money(home: Home) -> None:
    """Contacts who gain, lose or get other messages, and the orders that followed, are told apart."""
    home.configure(email__allow_unverified_domains=True)
    for number in range(1, 5):
        home.contact(f"p{number}@example.org")
    flow = create_flow(home, [{"filters": [TOTAL], "yes": [MAIL], "no": []}], status="active", goal="order")
    start = clock.now_ms()
    happenings = [(start + 1_000, contact_id, "cart_add") for contact_id in range(1, 5)]
    happenings += [(start + DAY * 1_000, contact_id, "order") for contact_id in (1, 4)]
    live_through(home, flow, happenings, start + 10 * DAY * 1_000)
    small = {**TOTAL, "predicate": "lt", "value": 16}
    split = flow.steps[0]
    changed = {"id": split["id"], "filters": [small], "yes": [{"id": split["yes"][0]["id"], **MAIL}], "no": []}
    result, people = replay(home, flow, days=20, steps=[changed])
    assert result.is_changed and result.live is not None
    assert (result.draft.emails, result.live.emails, result.gained, result.lost, result.changed) == (3, 2, 2, 1, 0)
    assert (result.orders.orders, result.orders_gained.people, result.orders_lost.people) == (1, 1, 1)
    assert (result.orders_gained.amount, result.orders_lost.amount) == (40.0, 40.0)
    assert [row.contact_id for row in people if row.change == "removed"] == [4]
    assert {person.contact_id for person in result.sample} == {1, 2, 4}
    assert rows("SELECT count(*) FROM message WHERE flow_id = ?", (flow.id,)) == [(2,)]


def test_the_frequency_cap_and_earlier_messages_count(home: Home) -> None:
    """What the cap would have stopped is counted, with the messages that others really sent in that time."""
    home.configure(email__allow_unverified_domains=True)
    home.contact("p1@example.org")
    cap = '{"messages": 2, "days": 7}'
    transactions.write(run, "UPDATE account SET frequency_cap = ?", (cap,))
    other = create_flow(home, [MAIL], {"event": "order"}, status="active", name="Other")
    start = clock.now_ms()
    live_through(home, other, [(start + 3 * DAY * 1_000, 1, "order"), (start + 4 * DAY * 1_000, 1, "cart_add")],
                 start + 10 * DAY * 1_000)  # fmt: skip
    flow = create_flow(home, [MAIL, {"duration": HOUR}, MAIL])
    result, people = replay(home, flow, days=20)
    assert (result.draft.emails, result.draft.capped, result.draft.unsent) == (1, 1, {"frequency_cap": 1})
    assert [row.draft_reason for row in people] == [None, "frequency_cap"]
    assert result.live is None and result.is_changed


def test_contacts_who_were_inside_at_the_start_do_not_enter(home: Home) -> None:
    """A run that had begun before keeps its contact from entering until it really ended."""
    home.configure(email__allow_unverified_domains=True)
    home.contact("p1@example.org")
    flow = create_flow(home, [{"duration": 4 * DAY}, MAIL], status="active")
    start = clock.now_ms()
    happenings = [(start + days * DAY * 1_000 + 1, 1, "cart_add") for days in (0, 3, 6)]
    live_through(home, flow, happenings, start + 12 * DAY * 1_000)
    result, _ = replay(home, flow, days=11)
    assert result.live is not None
    assert (result.live.entered, result.live.refused, result.live.emails) == (1, {"already_inside": 1}, 1)


def test_more_entries_than_the_limit_are_a_sample_by_seed(home: Home) -> None:
    """A feed with a lower limit has so many events at most; the seed chooses the contacts."""
    start = clock.now_ms()
    for number in range(1, 21):
        home.contact(f"p{number}@example.org")
        submit_event(home, "cart_add", number)
    flow = create_flow(home, [MAIL])
    home.advance(DAY)

    def read(seed: int) -> Feed:
        spec = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
        request = FeedRequest(home.account_id, flow.id, start - 1, clock.now_ms(), seed, [spec], [flow.steps], [])
        return Feed(request, max_runs=6)

    first = read(1)
    assert (first.matching_contacts, len(first.contact_ids), first.trigger_count) == (20, 6, 6)
    assert read(1).contact_ids == first.contact_ids != read(2).contact_ids


def test_a_running_replay_and_an_incomplete_flow_are_refused(home: Home) -> None:
    """A second start is a conflict; a flow without trigger and steps has all errors at once; a cancelled one ends."""
    flow = create_flow(home, [MAIL])
    prepared = replays.prepare(home.account_id, flow.id, ReplayRequest())
    transactions.write(replays.start, prepared, "user:1")
    with pytest.raises(Conflict):
        transactions.write(replays.start, prepared, "user:1")
    assert replays.is_due()
    assert transactions.write(replays.cancel, home.account_id, flow.id).state == "cancelled"
    assert not replays.is_due()
    assert replays.get_people(home.account_id, flow.id) == []
    with pytest.raises(NotFound):
        replays.get_people(home.account_id, flow.id + 1)
    empty = create_flow(home, [], {"event": "manual"})
    with pytest.raises(Invalid) as error:
        replays.prepare(home.account_id, empty.id, ReplayRequest())
    assert error.value.fields.keys() == {"trigger.event", "steps"}
    home.advance(15 * DAY)
    assert replays.list_expired(10) and transactions.write(replays.delete, replays.list_expired(10)) == 1


def test_sms_are_counted_in_parts_with_their_cost(home: Home) -> None:
    """Parts come from rendered SMS, and the price is that of the request."""
    for number in range(1, 4):
        home.contact(f"p{number}@example.org", phone=f"+1202555010{number}", opt_in=True)
        submit_event(home, "cart_add", number)
    flow = create_flow(home, [{"type": "sms", "body": "Hello " + "x" * 170}])
    home.advance(DAY)
    result, _ = replay(home, flow, days=3, sms_price=0.04)
    assert (result.draft.sms, result.draft.sms_parts, result.draft.sms_cost) == (3, 6, 0.24)
    assert not result.draft.sms_parts_estimated
