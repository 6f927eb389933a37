"""Who stands where in a flow: every number of a report counts exactly the people that its path lists."""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.core import clock, validation
from appliance.core.errors import Invalid, NotFound
from appliance.flows import report, run_ends, versions
from appliance.flows import runs as flow_runs
from appliance.flows.report import FlowReport, StepFigures
from appliance.flows.runs import ContactRunQuery, RunQuery, RunSelection
from appliance.storage import transactions
from appliance.storage.database import run as execute
from appliance.storage.models import Audit, Flow, Message, Run, StepVisit
from tests.domain import flow_rows
from tests.domain.home import BY_API, Home

DAY_MS = 86_400_000
STEPS: list[dict[str, Any]] = [
    {"id": 1, "type": "wait", "duration": 3600},
    {
        "id": 2, "type": "split", "filters": [{"name": "contact_email", "predicate": "present"}],
        "yes": [{"id": 3, "type": "email", "template_id": None, "transactional": False}],
        "no": [{"id": 4, "type": "exit"}],
    },
    {"id": 5, "type": "wait", "duration": 60},
]  # fmt: skip
BEFORE = {"id": 6, "type": "wait", "duration": 7200}
HOW = {
    1: [("on", None)], 2: [("yes", None), ("no", None)], 3: [("on", None), ("skipped", "unsubscribed")],
    4: [("exited", "exit_step")], 5: [("on", None), ("exited", "taken_out")], 6: [("on", None)],
}  # fmt: skip


def crowd(home: Home, seed: int, size: int = 60) -> Flow:
    """Make a flow with people anywhere in it, some of them tests, some of long ago, some in a step that is no more."""
    dice = random.Random(seed)
    flow = flow_rows.flow(home, steps=STEPS, version=2)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps([*STEPS, BEFORE]), {})
    transactions.write(versions.write_plan, flow.id, 2, versions.compile_steps(STEPS), {})
    contacts = [home.contact(f"person{number}@example.org").id for number in range(size)]
    transactions.write(lambda: [_person(flow, contact, dice) for contact in contacts])
    return Flow.get_by_id(flow.id)


def _person(flow: Flow, contact_id: int, dice: random.Random) -> None:
    came = clock.now_ms() - dice.choice([0, 3, 20, 50]) * DAY_MS - dice.randrange(1000)
    is_test = dice.random() < 0.1
    common = {"account": flow.account_id, "flow": flow, "version": 1, "contact": contact_id, "test": is_test}
    run = Run.create(**common, action_id=1, due_at=came, created_at=came, updated_at=came)
    if dice.random() < 0.1:
        Run.update(status="ignored", exit_reason="frequency", action_id=None, due_at=None).where(
            Run.id == run.id
        ).execute()
        return
    if not is_test:
        Flow.update(entered_count=Flow.entered_count + 1).where(Flow.id == flow.id).execute()
    for step in (1, 2, 3, 5, 6) if dice.random() < 0.7 else (1, 2, 4):
        outcome, reason = dice.choice([*HOW[step], (None, None)])
        passage = StepVisit.create(
            run=run, flow=flow, action_id=step, test=is_test, entered_at=came + step,
            left_at=None if outcome is None else came + step, outcome=outcome, reason=reason,
        )  # fmt: skip
        if step == 3:
            _message(run, came + step, outcome, dice)
        waits = {"action_id": step, "step_visit_id": passage.id if outcome is None else None}
        Run.update(**waits).where(Run.id == run.id).execute()
        if outcome is None:
            return
        if outcome == "exited":
            run_ends.end_runs([run.id], "exited", reason, came + step)
            return
    run_ends.end_runs([run.id], "completed", None, came + 9)


def _message(run: Run, at: int, outcome: str | None, dice: random.Random) -> None:
    status = "skipped" if outcome == "skipped" else dice.choice(["queued", "sent", "delivered", "failed", "bounced"])
    opened = at if status == "delivered" else None
    Message.create(
        account=run.account_id, contact=run.contact_id, flow=run.flow_id, run=run.id, step_id=3, channel="email",
        status=status, skip_reason="unsubscribed" if status == "skipped" else None, source_type="flow",
        provider="capture", test=run.test, opened_at=opened, clicked_at=opened if dice.random() < 0.5 else None,
        created_at=at, updated_at=at,
    )  # fmt: skip


def numbers(value: Any) -> Iterator[tuple[int, str]]:
    """Yield every number of a report with the path to its people."""
    if isinstance(value, dict):
        if "people" in value and "count" in value:
            yield value["count"], value["people"]
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)


def listed(home: Home, flow: Flow, **chosen: Any) -> list[int]:
    """Return the ids that a list of runs has on its first page."""
    return [row.id for row in flow_runs.list_runs(home.account_id, flow.id, validation.read(RunQuery, chosen)).rows]


def by_id(made: FlowReport) -> dict[int, StepFigures]:
    """Return the steps of a report by their ids."""
    return {step.id: step for step in made.steps}


@pytest.mark.parametrize("span", ["all", "30d", "7d"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_number_lists_the_people_it_counts(seed: int, span: Any, home: Home) -> None:
    """Whatever the range; and at each step who came is who waits, who went on and who left."""
    flow = crowd(home, seed)
    made = report.build_report(flow, span)
    checked = 0
    for count, path in numbers(msgspec.to_builtins(made)):
        query = validation.read(RunQuery, dict(parse_qsl(urlsplit(path).query, keep_blank_values=True)), loose=True)
        page = flow_runs.list_runs(home.account_id, flow.id, query)
        assert (page.total, min(page.total, 50)) == (count, len({row.id for row in page.rows})), path
        checked += count > 0
    assert checked > 25
    for step in made.steps:
        assert step.entered.count == step.waiting.count + step.went_on.count + step.left.count
        ways = sum(way.count for way in (step.yes, step.no) if way is not None)
        assert step.went_on.count >= ways + step.skipped.count
        assert step.waiting_now.count >= step.waiting.count
        assert step.messages is None or sum(step.messages.terms.values()) == step.messages.audience.count
    runs = made.runs
    assert runs.entered.count == runs.active.count + runs.completed.count + runs.exited.count
    stats = made.stats
    assert stats.entered == stats.active + stats.completed + stats.exited
    if span == "all":
        assert (runs.entered.count, runs.active.count, runs.exited.count) == (stats.entered, stats.active, stats.exited)


def test_steps_come_in_the_order_of_the_document(home: Home) -> None:
    """Each with its place and what it does; one that the flow has no more comes last, as it was."""
    made = report.build_report(crowd(home, 1))
    assert [(step.id, step.path, step.removed) for step in made.steps] == [
        (1, "steps[0]", False), (2, "steps[1]", False), (3, "steps[1].yes[0]", False), (4, "steps[1].no[0]", False),
        (5, "steps[2]", False), (6, None, True),
    ]  # fmt: skip
    found = by_id(made)
    assert (found[1].summary, found[6].summary) == ("Wait 1 hour", "Wait 2 hours")
    assert found[3].messages is not None and found[1].messages is None
    assert found[2].yes is not None and found[1].yes is None


def test_a_flow_that_nobody_entered_has_zeros(home: Home) -> None:
    """Its report has all its steps, its lists are empty."""
    flow = flow_rows.flow(home, steps=STEPS, status="draft", version=0)
    made = report.build_report(flow)
    assert {count for count, _ in numbers(msgspec.to_builtins(made))} == {0}
    assert [step.id for step in made.steps] == [1, 2, 3, 4, 5]
    assert listed(home, flow) == []


def test_runs_are_listed_newest_first_and_by_person(home: Home) -> None:
    """Ignored triggers only if asked for; of another account, hidden or deleted flows there is nothing."""
    flow = flow_rows.flow(home)
    one, two = home.contact("one@example.org").id, home.contact("two@example.org").id
    first, second = flow_rows.run(home, flow, one), flow_rows.run(home, flow, two)
    ignored = flow_rows.run(home, flow, one, status="ignored", exit_reason="frequency")
    assert listed(home, flow) == [second.id, first.id]
    assert listed(home, flow, contact_id=one) == [first.id]
    assert listed(home, flow, status="ignored") == [ignored.id]
    assert listed(home, flow, limit=1, page=2) == [first.id]
    mine = flow_runs.list_contact_runs(home.account_id, one, ContactRunQuery())
    assert [(row.id, row.flow_name) for row in mine.rows] == [(first.id, "Welcome")]
    for refused in ({"outcome": "waiting"}, {"message": "any"}, {"step": 1, "outcome": "on", "message": "any"},
                    {"since": "soon"}):  # fmt: skip
        with pytest.raises(Invalid):
            listed(home, flow, **refused)
    for change in ({"hidden": True}, {"hidden": False, "deleted_at": 5}):
        transactions.write(lambda change=change: Flow.update(**change).where(Flow.id == flow.id).execute())
        with pytest.raises(NotFound):
            listed(home, flow)
    assert flow_runs.list_contact_runs(home.account_id, one, ContactRunQuery()).total == 0


def test_a_person_is_moved_on_or_taken_out(home: Home) -> None:
    """Who waits is due now, who is taken out has left, with what was still to be sent; whoever has left stays out."""
    flow = flow_rows.flow(home)
    one = flow_rows.run(home, flow, home.contact("one@example.org").id, step=3)
    transactions.write(_message, Run.get_by_id(one.id), clock.now_ms(), "on", random.Random(4))
    transactions.write(execute, "UPDATE message SET status = 'held'")
    moved = transactions.write(flow_runs.act_on_run, home.account_id, flow.id, one.id, "move_on", Actor("key:1"))
    assert (moved.status, moved.due_at) == ("live", moved.updated_at)
    gone = transactions.write(flow_runs.act_on_run, home.account_id, flow.id, one.id, "take_out", Actor("key:1"))
    assert (gone.status, gone.exit_reason, gone.due_at) == ("exited", "taken_out", None)
    assert Message.get().status == "cancelled"
    for act in ("move_on", "take_out"):
        with pytest.raises(Invalid) as refused:
            transactions.write(flow_runs.act_on_run, home.account_id, flow.id, one.id, act, Actor("key:1"))
        assert refused.value.reason == "invalid_transition"
    assert [(row.action, row.subject) for row in Audit.select().where(Audit.subject.startswith("run:"))] == [
        ("flow_run_move_on", f"run:{one.id}"), ("flow_run_take_out", f"run:{one.id}"),
    ]  # fmt: skip
    assert Flow.get_by_id(flow.id).exited_count == 1


def test_many_are_moved_by_their_step_or_by_name(home: Home) -> None:
    """All that wait in a step, or those named; whoever is elsewhere or has left is left alone."""
    flow, other = flow_rows.flow(home), flow_rows.flow(home, "Other")
    contacts = [home.contact(f"p{number}@example.org").id for number in range(4)]
    here, there = flow_rows.run(home, flow, contacts[0], step=3), flow_rows.run(home, flow, contacts[1], step=5)
    left = flow_rows.run(home, flow, contacts[2], step=3)
    elsewhere = flow_rows.run(home, other, contacts[3], step=3)
    transactions.write(run_ends.end_runs, [left.id], "exited", "taken_out", 5)
    assert flow_runs.resolve_runs(home.account_id, flow.id, RunSelection(step=3)) == [here.id]
    named = flow_runs.resolve_runs(
        home.account_id, flow.id, RunSelection(run_ids=[there.id, left.id, elsewhere.id, 99, there.id])
    )
    assert transactions.write(flow_runs.act_on_runs, flow.id, named, "move_on") == [there.id]
    assert transactions.write(flow_runs.act_on_runs, flow.id, named, "take_out") == [there.id]
    assert Run.get_by_id(elsewhere.id).status == "live" and Run.get_by_id(here.id).status == "live"
    for wrong in (RunSelection(), RunSelection(run_ids=[1], step=3), RunSelection(run_ids=None)):
        with pytest.raises(Invalid):
            flow_runs.resolve_runs(home.account_id, flow.id, wrong)


def test_a_run_tells_its_way(home: Home) -> None:
    """The steps it came to as its version had them, with the message it wrote, also after the flow was changed."""
    flow = crowd(home, 1)
    row = next(row for row in Message.select().order_by(Message.id) if row.status != "skipped")
    found = flow_runs.list_visited_steps(flow_runs.get_run(home.account_id, flow.id, row.run_id))
    assert [(one.visit.action_id, one.type) for one in found][:3] == [(1, "wait"), (2, "split"), (3, "email")]
    assert (found[2].message_id, found[2].message_status) == (row.id, row.status)
    assert found[0].summary == "Wait 1 hour"


def test_who_is_erased_or_merged_stays_counted(home: Home) -> None:
    """The figures of a flow that had them are what they were, less one who waits for each that left."""
    flow = crowd(home, 3)
    before = report.build_report(flow)
    inside = Run.select().where(Run.status == "live", ~Run.test).order_by(Run.id)
    gone, one, two = [row.contact_id for row in inside[:3]]
    transactions.write(removal.erase, home.account_id, gone, BY_API)
    transactions.write(removal.merge, home.account_id, one, two, BY_API)
    after = report.build_report(flow)
    assert after.stats.entered == before.stats.entered and after.stats.active == before.stats.active - 2
    reasons = {reason.reason for reason in after.runs.exited.reasons}
    assert {"contact_deleted", "contact_merged"} <= reasons
    for step in before.steps:
        assert by_id(after)[step.id].entered.count == step.entered.count
