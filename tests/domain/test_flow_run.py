"""The flow engine: what it records for runs, how runs end, and that an error ends one run only."""

from typing import Any

import pytest

from appliance.accounts import users
from appliance.core import clock
from appliance.flows import engine, versions
from appliance.flows.steps import BY_TYPE, notify
from appliance.flows.steps.base import ActiveRun
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.database import run as execute
from appliance.storage.models import Channel, Flow, Run
from tests.domain import flow_rows
from tests.domain.home import Home


def create_live_flow(
    home: Home, steps: list[dict[str, Any]], messages: dict[int, dict[str, Any]] | None = None, **more: Any
) -> Flow:
    """Create an active flow with these steps, compiled as version 1."""
    flow = flow_rows.insert_flow(home, steps=steps, **more)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps(steps), messages or {})
    return flow


def start_runs(home: Home, flow: Flow, *contact_ids: int | None, **more: Any) -> list[int]:
    """Start runs of contacts as a trigger does, and return the run ids."""

    def insert() -> list[int]:
        now = clock.now_ms()
        run_ids = [
            Run.create(
                account=home.account_id, flow=flow, contact=contact_id,
                **{"version": 1, "action_id": 1, "due_at": now, **more}, created_at=now, updated_at=now,
            ).id
            for contact_id in contact_ids
        ]  # fmt: skip
        Flow.update(entered_count=Flow.entered_count + len(run_ids)).where(Flow.id == flow.id).execute()
        return run_ids

    return transactions.write(insert)


def advance_until_idle() -> None:
    """Advance runs until none is due."""
    while engine.advance_due_runs():
        pass


def step_history(run_id: int) -> list[tuple[Any, ...]]:
    """Return (step id, outcome, reason) of the steps a run visited."""
    return rows("SELECT action_id, outcome, reason FROM step_visit WHERE run_id = ? ORDER BY id", (run_id,))


def recorded_events(event: str) -> list[tuple[Any, ...]]:
    """Return (contact id, chain depth, is test) of the events with this name."""
    return rows("SELECT contact_id, chain_depth, test FROM event WHERE event = ? ORDER BY id", (event,))


SPLIT = [
    {"id": 1, "type": "wait", "duration": 60},
    {"id": 2, "type": "split", "filters": [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}],
     "yes": [{"id": 3, "type": "emit_event", "event_name": "is_ann", "event_data": {"b": 2},
              "forward_event_data": True}],
     "no": [{"id": 4, "type": "exit"}]},
    {"id": 5, "type": "emit_event", "event_name": "after", "event_data": {}, "forward_event_data": False},
]  # fmt: skip


def test_runs_pass_wait_split_emit_and_exit(home: Home) -> None:
    """Runs wait, branch, and rejoin or exit; their events are one deeper in the chain."""
    flow = create_live_flow(home, SPLIT)
    ann, bob = home.contact("ann@acme.test", first_name="Ann").id, home.contact("bob@acme.test").id
    first, second = start_runs(home, flow, ann, bob, event_data={"a": 1, "b": 1}, chain_depth=2)
    advance_until_idle()
    assert [step_history(first), step_history(second)] == [[(1, None, None)]] * 2 and not engine.is_due()
    home.advance(59)
    assert not engine.advance_due_runs()
    home.advance(2)
    assert engine.is_due()
    advance_until_idle()
    assert step_history(first) == [(1, "on", None), (2, "yes", None), (3, "on", None), (5, "on", None)]
    assert step_history(second) == [(1, "on", None), (2, "no", None), (4, "exited", "exit_step")]
    assert rows("SELECT status, exit_reason, action_id, step_visit_id, due_at FROM run ORDER BY id") == [
        ("completed", None, 5, None, None), ("exited", "exit_step", 4, None, None)
    ]  # fmt: skip
    assert recorded_events("is_ann") == recorded_events("after") == [(ann, 3, 0)]
    assert rows("SELECT data FROM event WHERE event = 'is_ann'") == [('{"a":1,"b":2}',)]
    assert sorted(recorded_events("flow_exit")) == [(ann, 3, 0), (bob, 3, 0)]
    assert rows("SELECT entered_count, completed_count, exited_count FROM flow") == [(2, 1, 1)]


def test_runs_of_an_inactive_flow_do_not_advance(home: Home) -> None:
    """Runs of a paused, archived or deleted flow stay where they are, and go on with the flow."""
    flow = create_live_flow(home, SPLIT)
    (run,) = start_runs(home, flow, home.contact("ann@acme.test", first_name="Ann").id)
    for fields in ({"status": "paused"}, {"status": "archived"}, {"status": "active", "deleted_at": 1}):
        transactions.write(lambda changes=fields: Flow.update(**changes).execute())
        assert not engine.is_due() and not engine.advance_due_runs() and step_history(run) == []
        assert transactions.write(engine.advance_flow, flow.id, 10) == (0, 0.0)
    transactions.write(lambda: Flow.update(deleted_at=None).execute())
    advance_until_idle()
    home.advance(61)
    advance_until_idle()
    assert len(step_history(run)) == 4


def test_a_resume_can_end_overdue_runs(home: Home) -> None:
    """Runs due before `drop_before` exit; later ones go on."""
    flow = create_live_flow(home, SPLIT)
    ann, bob = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    start_runs(home, flow, ann)
    home.advance(1000)
    drop_before = clock.now_ms()
    start_runs(home, flow, bob)
    transactions.write(lambda: Flow.update(drop_before=drop_before).execute())
    advance_until_idle()
    assert rows("SELECT status, exit_reason FROM run ORDER BY id") == [("exited", "overdue_on_resume"), ("live", None)]


def test_an_error_ends_only_its_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that raises for one contact is rolled back for that run, and the others go on."""
    flow = create_live_flow(
        home, [{"id": 1, "type": "emit_event", "event_name": "x", "event_data": {}, "forward_event_data": True}]
    )
    contact_ids = [home.contact(f"p{n}@acme.test").id for n in range(5)]
    run_step = BY_TYPE["emit_event"].run

    def fail_for_one(node: Any, active_runs: list[ActiveRun], context: Any) -> Any:
        result = run_step(node, active_runs, context)
        if contact_ids[2] in [active_run.contact_id for active_run in active_runs]:
            raise ValueError("bad")
        return result

    monkeypatch.setattr(BY_TYPE["emit_event"], "run", fail_for_one)
    run_ids = start_runs(home, flow, *contact_ids)
    advance_until_idle()
    assert [row[0] for row in recorded_events("x")] == [
        contact_id for contact_id in contact_ids if contact_id != contact_ids[2]
    ]
    assert [row[0] for row in rows("SELECT exit_reason FROM run ORDER BY id")] == [None, None, "failed", None, None]
    assert step_history(run_ids[2]) == [(1, "exited", "failed")]
    assert rows("SELECT completed_count, exited_count FROM flow") == [(4, 1)]


@pytest.mark.parametrize("fails", [False, True])
def test_notices_of_one_transaction_stay_within_the_limit(
    fails: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague gets 20 emails an hour, also if a step is executed in parts, or for each run after an error."""
    user = transactions.write(users.create, home.account_id, users.NewUser("p@example.org", "P", "x"), "owner")
    flow = create_live_flow(home, [{"id": 1, "type": "notify", "user_id": user.id, "note": ""}])
    contact_ids = [home.contact(f"p{n}@acme.test").id for n in range(30)]
    name_contact = notify._name_contact

    def fail_for_one(active_run: ActiveRun) -> str:
        if fails and active_run.contact_id == contact_ids[2]:
            raise ValueError("bad")
        return name_contact(active_run)

    monkeypatch.setattr(notify, "_name_contact", fail_for_one)
    start_runs(home, flow, *contact_ids[:15])
    start_runs(home, flow, *contact_ids[15:], chain_depth=0 if fails else 1)
    advance_until_idle()
    assert rows("SELECT count(*) FROM message WHERE source_type = 'system'") == [(20,)]
    expected = [("exited", "failed", 1)] * fails + [("on", None, 20), ("skipped", "too_many_notices", 10 - fails)]
    assert rows("SELECT outcome, reason, count(*) FROM step_visit GROUP BY 1, 2 ORDER BY 1") == expected


def test_runs_without_contact_or_step_end(home: Home) -> None:
    """A run without contact exits, one in an unknown step fails, one after the last step completes."""
    flow = create_live_flow(home, SPLIT)
    ann = home.contact("ann@acme.test").id
    start_runs(home, flow, None)
    start_runs(home, flow, ann, action_id=77)
    bob = home.contact("bob@acme.test").id
    start_runs(home, flow, bob, action_id=None)
    advance_until_idle()
    assert rows("SELECT status, exit_reason FROM run ORDER BY id") == [
        ("exited", "contact_deleted"), ("exited", "failed"), ("completed", None)
    ]  # fmt: skip


def test_many_steps_are_run_in_several_transactions(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run through 200 steps yields the writer in between, and each step is done once."""
    monkeypatch.setattr(engine, "_MAX_SECONDS", 0.0)
    flow = create_live_flow(home, [
        {"id": n, "type": "emit_event", "event_name": f"step_{n}", "event_data": {}, "forward_event_data": False}
        for n in range(1, 201)
    ])  # fmt: skip
    contact_ids = [home.contact(f"p{n}@acme.test").id for n in range(3)]
    run_ids = start_runs(home, flow, *contact_ids)
    assert engine.advance_due_runs()
    assert len(step_history(run_ids[0])) == 1
    advance_until_idle()
    assert [row[0] for row in step_history(run_ids[1])] == list(range(1, 201))
    assert rows("SELECT DISTINCT count(*) FROM event WHERE event LIKE 'step!_%' ESCAPE '!' GROUP BY event") == [(3,)]


def test_list_and_contact_update_steps(home: Home) -> None:
    """Lists are joined and left, data is merged, and invalid steps are skipped with a reason."""
    news_id = home.list_of().id
    flow = create_live_flow(home, [
        {"id": 1, "type": "list_add", "contact_list_id": news_id},
        {"id": 2, "type": "contact_update", "data_merge": {"plan": "pro", "old": None, "tags": ["vip"]}},
        {"id": 3, "type": "contact_update", "data_merge": {"tags": "no list"}},
        {"id": 4, "type": "list_add", "contact_list_id": 999},
        {"id": 5, "type": "wait", "duration": 5},
        {"id": 6, "type": "list_remove", "contact_list_id": news_id},
    ])  # fmt: skip
    ann = home.contact("ann@acme.test", data={"old": 1, "city": "Bath"})
    (run,) = start_runs(home, flow, ann.id)
    advance_until_idle()
    assert rows("SELECT contact_id FROM membership") == [(ann.id,)]
    assert rows("SELECT data FROM contact") == [('{"city":"Bath","plan":"pro","tags":["vip"]}',)]
    assert (
        recorded_events("list_add")
        == recorded_events("tag_add")
        == recorded_events("contact_update")
        == [(ann.id, 1, 0)]
    )
    home.advance(6)
    advance_until_idle()
    assert rows("SELECT contact_id FROM membership") == []
    assert step_history(run) == [
        (1, "on", None), (2, "on", None), (3, "skipped", "invalid_data"), (4, "skipped", "list_deleted"),
        (5, "on", None), (6, "on", None),
    ]  # fmt: skip


def test_unsubscribe_steps(home: Home) -> None:
    """The addresses of the channel are opted out with the flow as evidence; nobody is ever opted in."""
    flow = create_live_flow(home, [
        {"id": 1, "type": "unsubscribe", "channel": "email"}, {"id": 2, "type": "unsubscribe", "channel": "email"},
        {"id": 3, "type": "unsubscribe", "channel": "sms"},
    ])  # fmt: skip
    ann = home.contact("ann@acme.test")
    bea = home.contact("bea@acme.test")
    home.opt_out("bea@acme.test")
    lou = home.contact("lou@acme.test", opt_in=False)
    before = {row.key: row for row in Channel.select()}
    run_ids = start_runs(home, flow, ann.id, bea.id, lou.id)
    advance_until_idle()
    histories = [step_history(run_id) for run_id in run_ids]
    assert histories == [
        [(1, "on", None), (2, "skipped", "unsubscribed"), (3, "skipped", "no_channel")],
        [(1, "skipped", "unsubscribed"), (2, "skipped", "unsubscribed"), (3, "skipped", "no_channel")],
        [(1, "skipped", "no_consent"), (2, "skipped", "no_consent"), (3, "skipped", "no_channel")],
    ]
    after = {row.key: row for row in Channel.select()}
    assert (after["ann@acme.test"].subscribed, after["ann@acme.test"].opted_out_by) == (False, "operator")
    for key in ("bea@acme.test", "lou@acme.test"):
        assert after[key].__data__ == before[key].__data__
    sql = "SELECT act, by, source, actor FROM consent WHERE contact_id = ? ORDER BY id DESC LIMIT 1"
    assert rows(sql, (ann.id,)) == [("opt_out", "operator", "flow", f"flow:{flow.id}")]
    assert recorded_events("opt_out")[-1] == (ann.id, 1, 0)


def test_a_wait_of_zero_seconds_passes_at_once(home: Home) -> None:
    """With `duration: 0` the run goes on at once."""
    flow = create_live_flow(home, [{"id": 1, "type": "wait", "duration": 0}])
    (run,) = start_runs(home, flow, home.contact("ann@acme.test").id)
    assert engine.advance_due_runs() and step_history(run) == [(1, "on", None)]
    assert rows("SELECT status FROM run") == [("completed",)]


def test_a_test_run_is_not_counted(home: Home) -> None:
    """Events of a test run are marked as test, and no counter changes."""
    flow = create_live_flow(home, [{**SPLIT[-1], "id": 1}])
    ann = home.contact("ann@acme.test").id
    start_runs(home, flow, ann, test=True)
    advance_until_idle()
    assert recorded_events("after") == recorded_events("flow_exit") == [(ann, 1, 1)]
    assert rows("SELECT completed_count FROM flow") == [(0,)]


def test_events_of_test_runs_are_test_events(home: Home) -> None:
    """Events of a test run's steps are marked as test, also beside real runs."""
    news_id = home.list_of().id
    flow = create_live_flow(home, [
        {"id": 1, "type": "list_add", "contact_list_id": news_id},
        {"id": 2, "type": "contact_update", "data_merge": {"tags": ["vip"]}},
    ])  # fmt: skip
    ann, bob = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    start_runs(home, flow, ann, test=True)
    start_runs(home, flow, bob)
    advance_until_idle()
    for event in ("list_add", "contact_update", "tag_add"):
        assert sorted(recorded_events(event)) == [(ann, 1, 1), (bob, 1, 0)]


def test_a_broken_flow_does_not_stop_others(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A flow whose steps cannot be read is logged, and other flows advance."""
    broken_flow = create_live_flow(home, SPLIT)
    other_flow = create_live_flow(home, SPLIT)
    ann = home.contact("ann@acme.test", first_name="Ann").id
    start_runs(home, broken_flow, ann)
    start_runs(home, other_flow, ann)
    transactions.write(execute, "UPDATE step SET data = '[' WHERE flow_id = ?", (broken_flow.id,))
    versions._plan_cache.clear()
    assert engine.advance_due_runs() and not engine.advance_due_runs()
    assert f"flow={broken_flow.id}" in caplog.text
    assert rows("SELECT flow_id, step_visit_id NOT NULL FROM run ORDER BY id") == [
        (broken_flow.id, 0),
        (other_flow.id, 1),
    ]


def test_invalid_event_data_fails_only_its_run(home: Home) -> None:
    """A run whose event data is not an object fails; other runs go on."""
    flow = create_live_flow(home, SPLIT)
    start_runs(home, flow, home.contact("ann@acme.test").id, event_data=["no object"])
    start_runs(home, flow, home.contact("bob@acme.test").id)
    advance_until_idle()
    assert rows("SELECT status, exit_reason FROM run ORDER BY id") == [("exited", "failed"), ("live", None)]


def test_failing_runs_are_spread_over_transactions(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the time of a transaction is over, remaining runs wait for the next one."""
    monkeypatch.setattr(engine, "_MAX_SECONDS", 0.0)
    flow = create_live_flow(
        home, [{"id": 1, "type": "emit_event", "event_name": "x", "event_data": {}, "forward_event_data": True}]
    )
    monkeypatch.delattr(type(BY_TYPE["emit_event"]), "run")
    run_ids = start_runs(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(4)))
    for failed_count in range(1, 5):
        assert engine.advance_due_runs()
        assert rows("SELECT count(*) FROM run WHERE exit_reason = 'failed'") == [(failed_count,)]
    assert (
        not engine.advance_due_runs()
        and [step_history(run_id) for run_id in run_ids] == [[(1, "exited", "failed")]] * 4
    )


def test_slow_steps_are_spread_over_transactions(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Contacts are updated in batches of ten once the time of a transaction is over."""
    flow = create_live_flow(home, [{"id": 1, "type": "contact_update", "data_merge": {"plan": "pro"}}])
    start_runs(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(25)))
    monkeypatch.setattr(engine, "_MAX_SECONDS", 0.0)
    for changed_count in (10, 20, 25):
        assert engine.advance_due_runs()
        assert len(recorded_events("contact_update")) == changed_count
    assert not engine.advance_due_runs() and rows("SELECT DISTINCT status FROM run") == [("completed",)]


def test_a_rolled_back_version_is_not_cached(home: Home) -> None:
    """A plan written in a rolled-back transaction is not returned for the version with the same number later."""
    flow = flow_rows.insert_flow(home)

    def write_and_fail() -> None:
        versions.write_plan(flow.id, 1, versions.compile_steps([{"id": 1, "type": "exit"}]), {})
        assert versions.load_plan(flow.id, 1).nodes[1].kind == "exit"
        raise KeyError

    with pytest.raises(KeyError):
        transactions.write(write_and_fail)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps(SPLIT), {})
    assert transactions.write(versions.load_plan, flow.id, 1).nodes[1].kind == "wait"
    assert versions.load_plan(flow.id, 1) is versions.load_plan(flow.id, 1)
