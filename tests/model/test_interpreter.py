"""The reference interpreter itself: worked examples of docs/decisions.md#12."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model import documents
from tests.model.interpreter import Contact, Flow, Run, map_branches, record_event
from tests.model.possible import TooManyStates, final_states, outline, states_before_event

CHAIN = [{"id": 1, "type": "emit_event", "event_name": "m_one", "forward_event_data": True}]


def flow(number: int, *steps: dict[str, Any], **options: Any) -> Flow:
    """Return a flow that is triggered by `m_one`."""
    return Flow(number, options.pop("event", "m_one"), steps, **options)


def run_all(flows: list[Flow], contacts: list[Contact], hour: int = 0) -> list[Contact]:
    """Return the final states of contacts at an hour."""
    return final_states(contacts, {single_flow.id: single_flow for single_flow in flows}, hour)


def test_waits_and_branches_rejoin() -> None:
    """A wait lasts from when the run entered it; after a split both branches go on with the next step."""
    email = {"id": 4, "type": "email"}
    split = {"id": 2, "type": "split", "filters": [{"name": "event.n", "predicate": "eq", "value": 1}],
             "yes": ({"id": 3, "type": "contact_update", "data_merge": {"seen": 1}},), "no": ()}  # fmt: skip
    wait_flow = flow(7, {"id": 1, "type": "wait", "duration": 7200}, split, email)
    (waiting,) = run_all([wait_flow], [record_event(Contact({}), "m_one", {"n": 1})])
    assert outline(waiting, ())["runs"] == [(7, "live", None, (), (1, 0))]
    (unchanged,) = run_all([wait_flow], [waiting], 1)
    (after,) = run_all([wait_flow], [unchanged], 2)
    trail = ((1, "on", None, 0, 2), (2, "yes", None, 2, 2), (3, "on", None, 2, 2), (4, "on", None, 2, 2))
    assert (unchanged, outline(after, ())["runs"]) == (waiting, [(7, "completed", None, trail, None)])
    assert (after.data, [mail.status for mail in after.mails]) == ({"seen": 1}, ["sent"])


def test_a_flow_that_triggers_itself_stops_at_depth_five() -> None:
    """At depth five an event starts no run; during a run another start is ignored."""
    ends = run_all([flow(7, *CHAIN)], [record_event(Contact({}), "m_one", {})])
    outcomes = [[run.reason for run in contact.runs] for contact in ends]
    assert [None, None, None, None, None, "depth"] in outcomes
    assert all(reasons[-1] in ("depth", "already_inside") for reasons in outcomes) and len(outcomes) > 1


def test_a_flow_is_not_triggered_by_its_own_runs() -> None:
    """A flow that is triggered by `flow_exit` starts at the ends of other flows' runs only."""
    first, second = flow(7), flow(8, event="flow_exit")
    (contact,) = run_all([first, second], [record_event(Contact({}), "m_one", {})])
    assert [run.flow for run in contact.runs] == [7, 8]


def test_goals_pauses_and_consent() -> None:
    """A goal ends a run, a paused flow does not advance, and an opt-out leaves only transactional mail."""
    steps = [{"id": 1, "type": "wait", "duration": 3600}, {"id": 2, "type": "email"},
             {"id": 3, "type": "email", "transactional": True}]  # fmt: skip
    goal_flow = flow(7, *steps, goal="m_two")
    (inside,) = run_all([goal_flow], [record_event(Contact({}, subscribed=False), "m_one", {})])
    (reached,) = run_all([goal_flow], [record_event(inside, "m_two", {})])
    (paused,) = run_all([goal_flow._replace(status="paused")], [record_event(inside, "m_one", {})], 5)
    (finished,) = run_all([goal_flow], [paused], 6)
    assert (reached.runs[0].status, reached.runs[0].reason, reached.runs[0].trail[0][1:3]) == (
        "completed",
        "goal",
        ("exited", "goal"),
    )
    assert paused.runs == inside.runs
    assert [(mail.status, mail.reason) for mail in finished.mails] == [("skipped", "unsubscribed"), ("sent", None)]


def test_frequency() -> None:
    """`once` allows one run, a gap is counted between starts, and `every_time` always starts a run."""
    reasons = {}
    for frequency in ("once", "every_time", 2):
        repeated, contacts = flow(7, frequency=frequency), [Contact({})]
        for hour in (0, 1, 2):
            contacts = run_all([repeated], [record_event(contact, "m_one", {}) for contact in contacts], hour)
        reasons[frequency] = [run.reason for run in contacts[0].runs]
    assert reasons == {"once": [None, "frequency", "frequency"], "every_time": [None] * 3, 2: [None, "frequency", None]}


def numbered(steps: list[dict[str, Any]], counter: list[int]) -> tuple[dict[str, Any], ...]:
    """Return steps with ids, counted up in `counter[0]`."""
    result = []
    for step in steps:
        counter[0] += 1
        result.append(
            with_keys(
                map_branches(
                    step | {"id": counter[0], "sent": step.get("id")}, lambda nested: numbered(nested, counter)
                )
            )
        )
    return tuple(result)


def with_targets(steps: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return steps whose jumps, which all lead to the same wait at the top level, have its id."""
    targets = [step["id"] for step in steps if step.get("sent") == documents.SENT_ID]
    return tuple(step | {"step_id": targets[0]} if step["type"] == "go_to" else step for step in steps)


def with_keys(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step whose listed branches have keys."""
    if "branches" not in step:
        return step
    return step | {"branches": [item | {"key": f"b{index}"} for index, item in enumerate(step["branches"], 1)]}


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.lists(documents.documents([1, 2]), min_size=2, max_size=2), documents.acts(1))
def test_the_reduced_search_finds_all_outcomes(drawn: list[dict[str, Any]], acts: list[documents.Act]) -> None:
    """The search that skips equivalent orders finds the same outcomes as the search of all orders."""
    flows = {
        index: Flow(index, document["trigger"]["event"], with_targets(numbered(document["steps"], [0])),
                    goal=document["goal"], list_id=document["trigger"].get("contact_list_id"))
        for index, document in enumerate(drawn)
    }  # fmt: skip

    def search(every: bool) -> set[str]:
        contacts = [Contact({"n": 1})]
        for act in acts[:2]:
            contacts = states_before_event(contacts, flows, 0, act.name, every)
            contacts = [record_event(contact, act.name, {"n": act.n}) for contact in contacts]
        ends = final_states(contacts, flows, 0, every)
        return {repr(outline(contact, (*documents.NAMES, "flow_exit", "list_add", "email_sent"))) for contact in ends}

    try:
        whole, short = search(every=True), search(every=False)
    except TooManyStates:
        return
    assert short == whole


def test_the_reduced_search_counts_steps_of_runs_whose_flow_was_edited() -> None:
    """The order of steps matters also if one of them is only in the run, and no longer in its flow."""
    join = {"id": 2, "type": "list_add", "contact_list_id": 9}
    leave = {"id": 3, "type": "list_remove", "contact_list_id": 9}
    flows = {7: flow(7), 8: flow(8, leave, join)}
    contact = Contact({}, runs=(Run(7, {}, 0, 0, (join,)), Run(8, {}, 0, 0, (leave, join))))
    outcomes = [
        {tuple(event.name for event in end.past if event.name.startswith("list")) for end in ends}
        for ends in (final_states([contact], flows, 0), final_states([contact], flows, 0, every=True))
    ]
    assert outcomes[0] == outcomes[1] == {("list_add",), ("list_add", "list_add", "list_remove")}
