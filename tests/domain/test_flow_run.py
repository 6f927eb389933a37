"""Runs taken from step to step: what is written about them, who ends, and that a fault stops one of them only."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.flows import engine, versions
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import ActiveRun
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.database import run as execute
from appliance.storage.models import Flow, Run
from tests.domain import flow_rows
from tests.domain.home import Home


def live(
    home: Home, steps: list[dict[str, Any]], messages: dict[int, dict[str, Any]] | None = None, **more: Any
) -> Flow:
    """Make an active flow of these steps, compiled as its first version."""
    made = flow_rows.flow(home, steps=steps, **more)
    transactions.write(versions.write_plan, made.id, 1, versions.compile_steps(steps), messages or {})
    return made


def enter(home: Home, flow: Flow, *contact_ids: int | None, **more: Any) -> list[int]:
    """Let people enter a flow as a trigger does; answers their runs."""

    def make() -> list[int]:
        now = clock.now_ms()
        made = [
            Run.create(
                account=home.account_id, flow=flow, version=1, contact=contact_id,
                **{"action_id": 1, "due_at": now, **more}, created_at=now, updated_at=now,
            ).id
            for contact_id in contact_ids
        ]  # fmt: skip
        Flow.update(entered_count=Flow.entered_count + len(made)).where(Flow.id == flow.id).execute()
        return made

    return transactions.write(make)


def until_still() -> None:
    """Take everybody on until nobody is due."""
    while engine.advance_due_runs():
        pass


def passed(run_id: int) -> list[tuple[Any, ...]]:
    """Return the steps that a run came to, and how it left each."""
    return rows("SELECT action_id, outcome, reason FROM step_visit WHERE run_id = ? ORDER BY id", (run_id,))


def told(event: str) -> list[tuple[Any, ...]]:
    """Return whom an event was recorded for, at which depth, and whether as a test."""
    return rows("SELECT contact_id, chain_depth, test FROM event WHERE event = ? ORDER BY id", (event,))


SPLIT = [
    {"id": 1, "type": "wait", "duration": 60},
    {"id": 2, "type": "split", "filters": [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}],
     "yes": [{"id": 3, "type": "emit_event", "event_name": "is_ann", "event_data": {"b": 2},
              "forward_event_data": True}],
     "no": [{"id": 4, "type": "exit"}]},
    {"id": 5, "type": "emit_event", "event_name": "after", "event_data": {}, "forward_event_data": False},
]  # fmt: skip


def test_a_way_through_wait_split_emit_and_exit(home: Home) -> None:
    """People wait, part at the branch, and meet behind it; what was done is told one deeper in the chain."""
    flow = live(home, SPLIT)
    ann, bob = home.contact("ann@acme.test", first_name="Ann").id, home.contact("bob@acme.test").id
    first, second = enter(home, flow, ann, bob, event_data={"a": 1, "b": 1}, chain_depth=2)
    until_still()
    assert [passed(first), passed(second)] == [[(1, None, None)]] * 2 and not engine.is_due()
    home.advance(59)
    assert not engine.advance_due_runs()
    home.advance(2)
    assert engine.is_due()
    until_still()
    assert passed(first) == [(1, "on", None), (2, "yes", None), (3, "on", None), (5, "on", None)]
    assert passed(second) == [(1, "on", None), (2, "no", None), (4, "exited", "exit_step")]
    assert rows("SELECT status, exit_reason, action_id, step_visit_id, due_at FROM run ORDER BY id") == [
        ("completed", None, 5, None, None), ("exited", "exit_step", 4, None, None)
    ]  # fmt: skip
    assert told("is_ann") == told("after") == [(ann, 3, 0)]
    assert rows("SELECT data FROM event WHERE event = 'is_ann'") == [('{"a":1,"b":2}',)]
    assert sorted(told("flow_exit")) == [(ann, 3, 0), (bob, 3, 0)]
    assert rows("SELECT entered_count, completed_count, exited_count FROM flow") == [(2, 1, 1)]


def test_nobody_moves_in_a_flow_that_is_paused_or_deleted(home: Home) -> None:
    """Everybody stays where they are, and goes on when the flow does, whatever fell due meanwhile."""
    flow = live(home, SPLIT)
    (run,) = enter(home, flow, home.contact("ann@acme.test", first_name="Ann").id)
    for fields in ({"status": "paused"}, {"status": "archived"}, {"status": "active", "deleted_at": 1}):
        transactions.write(lambda found=fields: Flow.update(**found).execute())
        assert not engine.is_due() and not engine.advance_due_runs() and passed(run) == []
        assert transactions.write(engine.advance_flow, flow.id, 10) == (0, 0.0)
    transactions.write(lambda: Flow.update(deleted_at=None).execute())
    until_still()
    home.advance(61)
    until_still()
    assert len(passed(run)) == 4


def test_a_resume_without_what_is_overdue_ends_those_runs(home: Home) -> None:
    """Whoever was due before the moment from which a resume lets go is out; the others go on."""
    flow = live(home, SPLIT)
    ann, bob = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    enter(home, flow, ann)
    home.advance(1000)
    moment = clock.now_ms()
    enter(home, flow, bob)
    transactions.write(lambda: Flow.update(drop_before=moment).execute())
    until_still()
    assert rows("SELECT status, exit_reason FROM run ORDER BY id") == [("exited", "overdue_on_resume"), ("live", None)]


def test_a_run_that_fails_ends_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a step does wrong for one person, all of that is taken back, and the others go on."""
    flow = live(
        home, [{"id": 1, "type": "emit_event", "event_name": "x", "event_data": {}, "forward_event_data": True}]
    )
    people = [home.contact(f"p{n}@acme.test").id for n in range(5)]
    ran = BY_TYPE["emit_event"].run

    def broken(node: Any, goings: list[ActiveRun], here: Any) -> Any:
        moves = ran(node, goings, here)
        if people[2] in [going.contact_id for going in goings]:
            raise ValueError("bad")
        return moves

    monkeypatch.setattr(BY_TYPE["emit_event"], "run", broken)
    ids = enter(home, flow, *people)
    until_still()
    assert [row[0] for row in told("x")] == [one for one in people if one != people[2]]
    assert [row[0] for row in rows("SELECT exit_reason FROM run ORDER BY id")] == [None, None, "failed", None, None]
    assert passed(ids[2]) == [(1, "exited", "failed")]
    assert rows("SELECT completed_count, exited_count FROM flow") == [(4, 1)]


def test_runs_without_a_person_or_a_step_end(home: Home) -> None:
    """Whose person is gone ends for that, who stands nowhere as failed, and who is behind the last step is done."""
    flow = live(home, SPLIT)
    ann = home.contact("ann@acme.test").id
    enter(home, flow, None)
    enter(home, flow, ann, action_id=77)
    bob = home.contact("bob@acme.test").id
    enter(home, flow, bob, action_id=None)
    until_still()
    assert rows("SELECT status, exit_reason FROM run ORDER BY id") == [
        ("exited", "contact_deleted"), ("exited", "failed"), ("completed", None)
    ]  # fmt: skip


def test_a_long_way_is_taken_in_stretches(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred steps for many people do not keep the writer; each step is still done once for each."""
    monkeypatch.setattr(engine, "_MAX_SECONDS", 0.0)
    flow = live(home, [
        {"id": n, "type": "emit_event", "event_name": f"step_{n}", "event_data": {}, "forward_event_data": False}
        for n in range(1, 201)
    ])  # fmt: skip
    people = [home.contact(f"p{n}@acme.test").id for n in range(3)]
    ids = enter(home, flow, *people)
    assert engine.advance_due_runs()
    assert len(passed(ids[0])) == 1
    until_still()
    assert [row[0] for row in passed(ids[1])] == list(range(1, 201))
    assert rows("SELECT DISTINCT count(*) FROM event WHERE event LIKE 'step!_%' ESCAPE '!' GROUP BY event") == [(3,)]


def test_steps_about_lists_and_data(home: Home) -> None:
    """Lists are joined and left, data is merged, and what cannot be is skipped with its reason."""
    news = home.list_of().id
    flow = live(home, [
        {"id": 1, "type": "list_add", "contact_list_id": news},
        {"id": 2, "type": "contact_update", "data_merge": {"plan": "pro", "old": None, "tags": ["vip"]}},
        {"id": 3, "type": "contact_update", "data_merge": {"tags": "no list"}},
        {"id": 4, "type": "list_add", "contact_list_id": 999},
        {"id": 5, "type": "wait", "duration": 5},
        {"id": 6, "type": "list_remove", "contact_list_id": news},
    ])  # fmt: skip
    ann = home.contact("ann@acme.test", data={"old": 1, "city": "Bath"})
    (run,) = enter(home, flow, ann.id)
    until_still()
    assert rows("SELECT contact_id FROM membership") == [(ann.id,)]
    assert rows("SELECT data FROM contact") == [('{"city":"Bath","plan":"pro","tags":["vip"]}',)]
    assert told("list_add") == told("tag_add") == told("contact_update") == [(ann.id, 1, 0)]
    home.advance(6)
    until_still()
    assert rows("SELECT contact_id FROM membership") == []
    assert passed(run) == [
        (1, "on", None), (2, "on", None), (3, "skipped", "invalid_data"), (4, "skipped", "list_deleted"),
        (5, "on", None), (6, "on", None),
    ]  # fmt: skip


def test_a_wait_of_nothing_is_no_wait(home: Home) -> None:
    """`duration: 0` lets everybody through at once."""
    flow = live(home, [{"id": 1, "type": "wait", "duration": 0}])
    (run,) = enter(home, flow, home.contact("ann@acme.test").id)
    assert engine.advance_due_runs() and passed(run) == [(1, "on", None)]
    assert rows("SELECT status FROM run") == [("completed",)]


def test_a_test_run_counts_for_nobody(home: Home) -> None:
    """What a test does is marked as one and stands in no sum."""
    flow = live(home, [{**SPLIT[-1], "id": 1}])
    ann = home.contact("ann@acme.test").id
    enter(home, flow, ann, test=True)
    until_still()
    assert told("after") == told("flow_exit") == [(ann, 1, 1)]
    assert rows("SELECT completed_count FROM flow") == [(0,)]


def test_what_a_test_run_does_starts_nothing_real(home: Home) -> None:
    """All that is told of the steps of a test is a test, also beside runs that are real; or it would mail somebody."""
    news = home.list_of().id
    flow = live(home, [
        {"id": 1, "type": "list_add", "contact_list_id": news},
        {"id": 2, "type": "contact_update", "data_merge": {"tags": ["vip"]}},
    ])  # fmt: skip
    ann, bob = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    enter(home, flow, ann, test=True)
    enter(home, flow, bob)
    until_still()
    for event in ("list_add", "contact_update", "tag_add"):
        assert sorted(told(event)) == [(ann, 1, 1), (bob, 1, 0)]


def test_a_flow_that_breaks_keeps_no_other(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """What one flow cannot do is said in the log, nothing of it is done, and the runs of others go on."""
    broken = live(home, SPLIT)
    well = live(home, SPLIT)
    ann = home.contact("ann@acme.test", first_name="Ann").id
    enter(home, broken, ann)
    enter(home, well, ann)
    transactions.write(execute, "UPDATE step SET data = '[' WHERE flow_id = ?", (broken.id,))
    versions.clear_plan_cache()
    assert engine.advance_due_runs() and not engine.advance_due_runs()
    assert f"flow={broken.id}" in caplog.text
    assert rows("SELECT flow_id, step_visit_id NOT NULL FROM run ORDER BY id") == [(broken.id, 0), (well.id, 1)]


def test_what_started_a_run_and_cannot_be_read_ends_that_run(home: Home) -> None:
    """Data that is no object stops one person, and nobody else."""
    flow = live(home, SPLIT)
    enter(home, flow, home.contact("ann@acme.test").id, event_data=["no object"])
    enter(home, flow, home.contact("bob@acme.test").id)
    until_still()
    assert rows("SELECT status, exit_reason FROM run ORDER BY id") == [("exited", "failed"), ("live", None)]


def test_a_step_that_fails_for_many_does_not_keep_the_writer(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes after the time of a transaction stands where they stood, and is asked in the next."""
    monkeypatch.setattr(engine, "_MAX_SECONDS", 0.0)
    flow = live(
        home, [{"id": 1, "type": "emit_event", "event_name": "x", "event_data": {}, "forward_event_data": True}]
    )
    monkeypatch.delattr(type(BY_TYPE["emit_event"]), "run")
    ids = enter(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(4)))
    for gone in range(1, 5):
        assert engine.advance_due_runs()
        assert rows("SELECT count(*) FROM run WHERE exit_reason = 'failed'") == [(gone,)]
    assert not engine.advance_due_runs() and [passed(one) for one in ids] == [[(1, "exited", "failed")]] * 4


def test_a_step_that_takes_long_for_each_does_not_keep_the_writer(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """People are changed one by one: however many came here together, the time of a transaction is kept to."""
    flow = live(home, [{"id": 1, "type": "contact_update", "data_merge": {"plan": "pro"}}])
    enter(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(25)))
    monkeypatch.setattr(engine, "_MAX_SECONDS", 0.0)
    for changed in (10, 20, 25):
        assert engine.advance_due_runs()
        assert len(told("contact_update")) == changed
    assert not engine.advance_due_runs() and rows("SELECT DISTINCT status FROM run") == [("completed",)]


def test_a_version_that_was_taken_back_is_not_remembered(home: Home) -> None:
    """Steps that were written and never committed are not taken for those that get their number later."""
    flow = flow_rows.flow(home)

    def undone() -> None:
        versions.write_plan(flow.id, 1, versions.compile_steps([{"id": 1, "type": "exit"}]), {})
        assert versions.load_plan(flow.id, 1).nodes[1].kind == "exit"
        raise KeyError

    with pytest.raises(KeyError):
        transactions.write(undone)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps(SPLIT), {})
    assert transactions.write(versions.load_plan, flow.id, 1).nodes[1].kind == "wait"
    assert versions.load_plan(flow.id, 1) is versions.load_plan(flow.id, 1)
