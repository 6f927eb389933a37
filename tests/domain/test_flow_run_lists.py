"""Runs of a flow by step: each number of a report equals the length of the list it links to."""

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
REMOVED_STEP = {"id": 6, "type": "wait", "duration": 7200}
OUTCOMES = {
    1: [("on", None)], 2: [("yes", None), ("no", None)], 3: [("on", None), ("skipped", "unsubscribed")],
    4: [("exited", "exit_step")], 5: [("on", None), ("exited", "taken_out")], 6: [("on", None)],
}  # fmt: skip


def create_flow_with_runs(home: Home, seed: int, size: int = 60) -> Flow:
    """Create a flow with random runs: test runs, old runs, and runs in a step that was removed."""
    rng = random.Random(seed)
    flow = flow_rows.insert_flow(home, steps=STEPS, version=2)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps([*STEPS, REMOVED_STEP]), {})
    transactions.write(versions.write_plan, flow.id, 2, versions.compile_steps(STEPS), {})
    contacts = [home.contact(f"person{number}@example.org").id for number in range(size)]
    transactions.write(lambda: [_insert_random_run(flow, contact, rng) for contact in contacts])
    return Flow.get_by_id(flow.id)


def _insert_random_run(flow: Flow, contact_id: int, rng: random.Random) -> None:
    entered_at = clock.now_ms() - rng.choice([0, 3, 20, 50]) * DAY_MS - rng.randrange(1000)
    is_test = rng.random() < 0.1
    common = {"account": flow.account_id, "flow": flow, "version": 1, "contact": contact_id, "test": is_test}
    run = Run.create(**common, action_id=1, due_at=entered_at, created_at=entered_at, updated_at=entered_at)
    if rng.random() < 0.1:
        Run.update(status="ignored", exit_reason="frequency", action_id=None, due_at=None).where(
            Run.id == run.id
        ).execute()
        return
    if not is_test:
        Flow.update(entered_count=Flow.entered_count + 1).where(Flow.id == flow.id).execute()
    for step in (1, 2, 3, 5, 6) if rng.random() < 0.7 else (1, 2, 4):
        outcome, reason = rng.choice([*OUTCOMES[step], (None, None)])
        step_visit = StepVisit.create(
            run=run, flow=flow, action_id=step, test=is_test, entered_at=entered_at + step,
            left_at=None if outcome is None else entered_at + step, outcome=outcome, reason=reason,
        )  # fmt: skip
        if step == 3:
            _insert_message(run, entered_at + step, outcome, rng)
        fields = {"action_id": step, "step_visit_id": step_visit.id if outcome is None else None}
        Run.update(**fields).where(Run.id == run.id).execute()
        if outcome is None:
            return
        if outcome == "exited":
            run_ends.end_runs([run.id], "exited", reason, entered_at + step)
            return
    run_ends.end_runs([run.id], "completed", None, entered_at + 9)


def _insert_message(run: Run, at: int, outcome: str | None, rng: random.Random) -> None:
    status = "skipped" if outcome == "skipped" else rng.choice(["queued", "sent", "delivered", "failed", "bounced"])
    opened = at if status == "delivered" else None
    Message.create(
        account=run.account_id, contact=run.contact_id, flow=run.flow_id, run=run.id, step_id=3, channel="email",
        status=status, skip_reason="unsubscribed" if status == "skipped" else None, source_type="flow",
        provider="capture", test=run.test, opened_at=opened, clicked_at=opened if rng.random() < 0.5 else None,
        created_at=at, updated_at=at,
    )  # fmt: skip


def linked_numbers(value: Any) -> Iterator[tuple[int, str]]:
    """Yield each number of a report with the path of its list."""
    if isinstance(value, dict):
        if "people" in value and "count" in value:
            yield value["count"], value["people"]
        for inner in value.values():
            yield from linked_numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from linked_numbers(inner)


def list_run_ids(home: Home, flow: Flow, **query: Any) -> list[int]:
    """Return the ids on a page of the flow's runs."""
    return [row.id for row in flow_runs.list_runs(home.account_id, flow.id, validation.read(RunQuery, query)).rows]


def steps_by_id(flow_report: FlowReport) -> dict[int, StepFigures]:
    """Return the steps of a report by their ids."""
    return {step.id: step for step in flow_report.steps}


@pytest.mark.parametrize("span", ["all", "30d", "7d"])
@pytest.mark.parametrize("seed", [1, 2])
def test_each_number_of_a_report_equals_its_list(seed: int, span: Any, home: Home) -> None:
    """Each number equals its list's total for any time span; at each step entered is waiting, gone on and left."""
    flow = create_flow_with_runs(home, seed)
    flow_report = report.build_report(flow, span)
    checked = 0
    for count, path in linked_numbers(msgspec.to_builtins(flow_report)):
        query = validation.read(RunQuery, dict(parse_qsl(urlsplit(path).query, keep_blank_values=True)), loose=True)
        page = flow_runs.list_runs(home.account_id, flow.id, query)
        assert (page.total, min(page.total, 50)) == (count, len({row.id for row in page.rows})), path
        checked += count > 0
    assert checked > 25
    for step in flow_report.steps:
        assert step.entered.count == step.waiting.count + step.went_on.count + step.left.count
        branch_count = sum(branch.count for branch in (step.yes, step.no) if branch is not None)
        assert step.went_on.count >= branch_count + step.skipped.count
        assert step.waiting_now.count >= step.waiting.count
        assert step.messages is None or sum(step.messages.terms.values()) == step.messages.audience.count
    runs = flow_report.runs
    assert runs.entered.count == runs.active.count + runs.completed.count + runs.exited.count
    stats = flow_report.stats
    assert stats.entered == stats.active + stats.completed + stats.exited
    if span == "all":
        assert (runs.entered.count, runs.active.count, runs.exited.count) == (stats.entered, stats.active, stats.exited)


def test_a_report_lists_steps_in_document_order(home: Home) -> None:
    """Each step has its path and summary; a removed step comes last."""
    flow_report = report.build_report(create_flow_with_runs(home, 1))
    assert [(step.id, step.path, step.removed) for step in flow_report.steps] == [
        (1, "steps[0]", False), (2, "steps[1]", False), (3, "steps[1].yes[0]", False), (4, "steps[1].no[0]", False),
        (5, "steps[2]", False), (6, None, True),
    ]  # fmt: skip
    steps = steps_by_id(flow_report)
    assert (steps[1].summary, steps[6].summary) == ("Wait 1 hour", "Wait 2 hours")
    assert steps[3].messages is not None and steps[1].messages is None
    assert steps[2].yes is not None and steps[1].yes is None


def test_the_report_of_an_empty_flow_is_zero(home: Home) -> None:
    """A flow without runs has a report with all steps and zeros, and empty lists."""
    flow = flow_rows.insert_flow(home, steps=STEPS, status="draft", version=0)
    flow_report = report.build_report(flow)
    assert {count for count, _ in linked_numbers(msgspec.to_builtins(flow_report))} == {0}
    assert [step.id for step in flow_report.steps] == [1, 2, 3, 4, 5]
    assert list_run_ids(home, flow) == []


def test_runs_are_listed_newest_first(home: Home) -> None:
    """Filters narrow the list; ignored runs need a filter; invalid filters and hidden or deleted flows are rejected."""
    flow = flow_rows.insert_flow(home)
    first_contact, second_contact = home.contact("one@example.org").id, home.contact("two@example.org").id
    first, second = flow_rows.insert_run(home, flow, first_contact), flow_rows.insert_run(home, flow, second_contact)
    ignored = flow_rows.insert_run(home, flow, first_contact, status="ignored", exit_reason="frequency")
    assert list_run_ids(home, flow) == [second.id, first.id]
    assert list_run_ids(home, flow, contact_id=first_contact) == [first.id]
    assert list_run_ids(home, flow, status="ignored") == [ignored.id]
    assert list_run_ids(home, flow, limit=1, page=2) == [first.id]
    contact_runs = flow_runs.list_contact_runs(home.account_id, first_contact, ContactRunQuery())
    assert [(row.id, row.flow_name) for row in contact_runs.rows] == [(first.id, "Welcome")]
    for query in ({"outcome": "waiting"}, {"message": "any"}, {"step": 1, "outcome": "on", "message": "any"},
                    {"since": "soon"}):  # fmt: skip
        with pytest.raises(Invalid):
            list_run_ids(home, flow, **query)
    for change in ({"hidden": True}, {"hidden": False, "deleted_at": 5}):
        transactions.write(lambda change=change: Flow.update(**change).where(Flow.id == flow.id).execute())
        with pytest.raises(NotFound):
            list_run_ids(home, flow)
    assert flow_runs.list_contact_runs(home.account_id, first_contact, ContactRunQuery()).total == 0


def test_moving_a_run_on_or_taking_it_out(home: Home) -> None:
    """A moved run is due now; a run taken out exits and its messages are cancelled; an ended run is rejected."""
    flow = flow_rows.insert_flow(home)
    live_run = flow_rows.insert_run(home, flow, home.contact("one@example.org").id, step=3)
    transactions.write(_insert_message, Run.get_by_id(live_run.id), clock.now_ms(), "on", random.Random(4))
    transactions.write(execute, "UPDATE message SET status = 'held'")
    moved_run = transactions.write(
        flow_runs.act_on_run, home.account_id, flow.id, live_run.id, "move_on", Actor("key:1")
    )
    assert (moved_run.status, moved_run.due_at) == ("live", moved_run.updated_at)
    ended_run = transactions.write(
        flow_runs.act_on_run, home.account_id, flow.id, live_run.id, "take_out", Actor("key:1")
    )
    assert (ended_run.status, ended_run.exit_reason, ended_run.due_at) == ("exited", "taken_out", None)
    assert Message.get().status == "cancelled"
    for action in ("move_on", "take_out"):
        with pytest.raises(Invalid) as error_info:
            transactions.write(flow_runs.act_on_run, home.account_id, flow.id, live_run.id, action, Actor("key:1"))
        assert error_info.value.reason == "invalid_transition"
    assert [(row.action, row.subject) for row in Audit.select().where(Audit.subject.startswith("run:"))] == [
        ("flow_run_move_on", f"run:{live_run.id}"), ("flow_run_take_out", f"run:{live_run.id}"),
    ]  # fmt: skip
    assert Flow.get_by_id(flow.id).exited_count == 1


def test_acting_on_many_runs_by_step_or_id(home: Home) -> None:
    """Runs elsewhere or ended are ignored; a selection needs either a step or ids."""
    flow, other = flow_rows.insert_flow(home), flow_rows.insert_flow(home, "Other")
    contacts = [home.contact(f"p{number}@example.org").id for number in range(4)]
    in_step, in_other_step = (
        flow_rows.insert_run(home, flow, contacts[0], step=3),
        flow_rows.insert_run(home, flow, contacts[1], step=5),
    )
    ended = flow_rows.insert_run(home, flow, contacts[2], step=3)
    in_other_flow = flow_rows.insert_run(home, other, contacts[3], step=3)
    transactions.write(run_ends.end_runs, [ended.id], "exited", "taken_out", 5)
    assert flow_runs.resolve_runs(home.account_id, flow.id, RunSelection(step=3)) == [in_step.id]
    selected = flow_runs.resolve_runs(
        home.account_id,
        flow.id,
        RunSelection(run_ids=[in_other_step.id, ended.id, in_other_flow.id, 99, in_other_step.id]),
    )
    assert transactions.write(flow_runs.act_on_runs, flow.id, selected, "move_on") == [in_other_step.id]
    assert transactions.write(flow_runs.act_on_runs, flow.id, selected, "take_out") == [in_other_step.id]
    assert Run.get_by_id(in_other_flow.id).status == "live" and Run.get_by_id(in_step.id).status == "live"
    for selection in (RunSelection(), RunSelection(run_ids=[1], step=3), RunSelection(run_ids=None)):
        with pytest.raises(Invalid):
            flow_runs.resolve_runs(home.account_id, flow.id, selection)


def test_visited_steps_of_a_run(home: Home) -> None:
    """Steps are listed as its version has them, with the message sent."""
    flow = create_flow_with_runs(home, 1)
    row = next(row for row in Message.select().order_by(Message.id) if row.status != "skipped")
    visits = flow_runs.list_visited_steps(flow_runs.get_run(home.account_id, flow.id, row.run_id))
    assert [(visit.visit.action_id, visit.type) for visit in visits][:3] == [(1, "wait"), (2, "split"), (3, "email")]
    assert (visits[2].message_id, visits[2].message_status) == (row.id, row.status)
    assert visits[0].summary == "Wait 1 hour"


def test_erasure_and_merge_keep_the_report_figures(home: Home) -> None:
    """Entered counts stay; each ended run lowers the active count by one."""
    flow = create_flow_with_runs(home, 3)
    before = report.build_report(flow)
    inside = Run.select().where(Run.status == "live", ~Run.test).order_by(Run.id)
    erased_id, survivor_id, merged_id = [row.contact_id for row in inside[:3]]
    transactions.write(removal.erase, home.account_id, erased_id, BY_API)
    transactions.write(removal.merge, home.account_id, survivor_id, merged_id, BY_API)
    after = report.build_report(flow)
    assert after.stats.entered == before.stats.entered and after.stats.active == before.stats.active - 2
    reasons = {reason.reason for reason in after.runs.exited.reasons}
    assert {"contact_deleted", "contact_merged"} <= reasons
    for step in before.steps:
        assert steps_by_id(after)[step.id].entered.count == step.entered.count
