"""Hypothesis strategies for flows, in the form in which an API client sends them."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.model.answers import STATUSES, get_url
from tests.model.interpreter import map_branches

SENT = ("m_one", "m_two")  # events that clients send
NAMES = (*SENT, "m_own")  # `m_own` is emitted by steps only
HOURS = st.integers(0, 4)
numbers = st.integers(0, 2)
KINDS_WITHOUT_TYPE = {"wait", "emit_event", "split", "email"}


class Act(NamedTuple):
    """An event that a client sends."""

    contact: int
    name: str
    n: int


def acts(contacts: int) -> st.SearchStrategy[list[Act]]:
    """Return a strategy of events of several contacts."""
    act = st.builds(Act, st.integers(0, contacts - 1), st.sampled_from(SENT), numbers)
    return st.lists(act, min_size=2, max_size=6)


def json_filters(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of filters on a number in JSON data."""
    return st.fixed_dictionaries(
        {"name": st.just(name), "predicate": st.sampled_from(["eq", "not_eq", "gt", "lt"]), "value": numbers}
    )


def filters(lists: list[int]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return a strategy of the filters of a split."""
    condition = st.one_of(
        json_filters("event.n"), json_filters("contact_data.n"), json_filters("contact_data.seen"),
        st.fixed_dictionaries({"name": st.just("contact_list"), "predicate": st.sampled_from(["eq", "not_eq"]),
                               "value": st.sampled_from(lists)}),
        st.sampled_from([{"name": "contact_subscribed_email", "predicate": "true"},
                         {"name": "contact_subscribed_email", "predicate": "false"}]),
        st.sampled_from([{"name": "event", "predicate": predicate, "value": {"event": "m_own"}}
                         for predicate in ("performed", "not_performed")]),
    )  # fmt: skip
    return st.lists(condition, min_size=1, max_size=2)


def unbranched_steps(lists: list[int]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of one step without branches, of any kind."""
    list_id = st.sampled_from(lists)
    emitted = {"type": st.just("emit_event"), "event_name": st.sampled_from(NAMES)}
    wait = st.builds(lambda hours: {"type": "wait", "duration": hours * 3600}, HOURS)
    return st.one_of(
        wait, wait, st.builds(lambda hour: {"type": "wait_until", "until": "time", "hour": hour}, st.integers(0, 5)),
        st.fixed_dictionaries(emitted, optional={"event_data": st.fixed_dictionaries({"n": st.integers(1, 2)}),
                                                 "forward_event_data": st.just(True)}),
        st.fixed_dictionaries({"type": st.just("email"), "subject": st.just("Hello {{ first_name }}"),
                               "body": st.just("<p>Hello</p>"), "from_email": st.just("ana@bakery.example")},
                              optional={"transactional": st.just(True)}),
        st.fixed_dictionaries({"type": st.just("list_add"), "contact_list_id": list_id}),
        st.fixed_dictionaries({"type": st.just("list_remove"), "contact_list_id": list_id}),
        st.builds(lambda n: {"type": "contact_update", "data_merge": {"seen": n}}, numbers),
        st.just({"type": "unsubscribe"}), st.just({"type": "notify", "user_id": 1}),
        st.sampled_from([{"type": "tag_add", "tag": "vip"}, {"type": "tag_remove", "tag": "vip"}]),
    )  # fmt: skip


def steps(
    lists: list[int], depth: int = 2, max_size: int = 5, min_size: int = 1
) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return a strategy of nested steps; a branch may end in an exit."""
    step = unbranched_steps(lists)
    if depth:
        branch = steps(lists, depth - 1, 2, 0)
        split = st.fixed_dictionaries(
            {"type": st.just("split"), "filters": filters(lists), "yes": branch, "no": branch}
        )
        date = st.fixed_dictionaries(
            {"type": st.just("wait_until"), "until": st.just("date"), "path": st.just("data.renewal"), "yes": branch,
             "no": branch}
        )  # fmt: skip
        values = st.permutations(["0", "1", "2"]).map(list)
        split_value = st.builds(
            lambda field, values, first, second, other: {
                "type": "split_value", "field": field, "else": other,
                "branches": [{"values": values[:1], "steps": first}, {"values": values[1:2], "steps": second}],
            },
            st.sampled_from(["event.n", "data.n", "data.seen"]), values, branch, branch, branch,
        )  # fmt: skip
        random_split = st.builds(
            lambda share, first, second: {
                "type": "random_split",
                "branches": [{"share": share, "steps": first}, {"share": 100 - share, "steps": second}],
            },
            st.integers(1, 99), branch, branch,
        )  # fmt: skip
        event = st.builds(
            lambda name, hours, yes, no: {
                "type": "wait_until", "until": "event", "event_name": name, "timeout": hours * 3600, "yes": yes,
                "no": no,
            },
            st.sampled_from(NAMES), st.integers(1, 4), branch, branch,
        )  # fmt: skip
        request = st.fixed_dictionaries(
            {"type": st.just("http_request"), "answer": st.sampled_from([*STATUSES]), "yes": branch, "no": branch}
        )
        step = st.one_of(step, step, split, split, split_value, random_split, date, event, request)
    ending = st.sampled_from([[], [], [], [], [], [{"type": "exit"}]])
    return st.builds(lambda some, end: some + end, st.lists(step, min_size=min_size, max_size=max_size), ending)


def triggers(lists: list[int], by_client_alone: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of triggers; `by_client_alone` allows only events that clients send."""
    frequency = st.sampled_from(
        [None, "once", "every_time", {"min_gap_seconds": 2 * 3600}, {"min_gap_seconds": 3 * 3600}]
    )
    by_client = st.builds(
        lambda name, often, where: {"event": name, "data": {"where": where} | ({"frequency": often} if often else {})},
        st.sampled_from((*SENT, *NAMES)), frequency, st.lists(json_filters("event.n"), max_size=1),
    )  # fmt: skip
    by_list = st.builds(
        lambda name, group, often: {"event": name, "contact_list_id": group}
        | ({"data": {"frequency": often}} if often else {}),
        st.sampled_from(["list_add", "list_remove"]), st.sampled_from(lists), frequency,
    )  # fmt: skip
    by_client, by_list = (
        st.builds(lambda trigger, held: trigger | {"data": trigger.get("data", {}) | held}, each, holdouts)
        for each in (by_client, by_list)
    )
    by_flows = st.sampled_from([{"event": name} for name in ("email_sent", "email_skipped", "flow_exit", "flow_enter")])
    return by_client if by_client_alone else st.one_of(by_client, by_list, by_flows)


holdouts = st.sampled_from([{}, {}, {}, {"holdout": 0.3}])


def documents(lists: list[int], by_client: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of whole flows."""
    goal = st.sampled_from([None, None, None, *NAMES])
    flow_steps = st.one_of(steps(lists), with_wait(lists), with_wait(lists), with_loop(lists))
    return st.fixed_dictionaries({"trigger": triggers(lists, by_client), "steps": flow_steps, "goal": goal})


def with_wait(lists: list[int]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return a strategy of steps with a wait for all runs, so that events can happen during a run."""
    wait = st.builds(lambda hours: {"type": "wait", "duration": hours * 3600}, st.integers(1, 3))
    return st.builds(
        lambda before, wait_step, after: [*before, wait_step, *after], steps(lists, 1, 2, 0), wait, steps(lists, 2, 3)
    )


# The id of a step as it is sent, which no step of a flow has.
SENT_ID = 900_000


def with_loop(lists: list[int]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return a strategy of steps with a wait to which each run comes back once or twice."""
    return st.builds(
        lambda before, hours, inner, jumps, after: [
            *before, {"type": "wait", "id": SENT_ID, "duration": hours * 3600}, *inner,
            {"type": "go_to", "step_id": SENT_ID, "max_jumps": jumps}, *after,
        ],
        steps(lists, 1, 1, 0), st.integers(1, 2), steps(lists, 1, 2, 0), st.integers(1, 2), steps(lists, 1, 2, 0),
    )  # fmt: skip


def as_sent(step: dict[str, Any], begun: int) -> dict[str, Any]:
    """Return a step as it is sent: an hour of the example as the time of day in its middle; `begun` is that of hour 0.

    The middle is far from the moments at which the clock stands. The answer to a request is part of its URL.
    """
    if "answer" in step:
        sent = {key: value for key, value in step.items() if key != "answer"}
        return sent | {"url": get_url(step["answer"]), "save_to_contact": {"seen": "seen"}}
    if "hour" not in step:
        return step
    moment = datetime.fromtimestamp(begun / 1000 + step["hour"] * 3600 + 1800, UTC)
    sent = {key: value for key, value in step.items() if key != "hour"}
    return sent | {"at": f"{moment:%H:%M}", "time_zone": "account"}


def without_types(document: list[dict[str, Any]], leave_out: bool, begun: int) -> list[dict[str, Any]]:
    """Return steps as they are sent: `type` may be omitted where the keys imply it; `begun` is as in `as_sent`."""
    sent = []
    for step in document:
        keys = map_branches(as_sent(step, begun), lambda nested: without_types(nested, leave_out, begun))
        if leave_out and step["type"] in KINDS_WITHOUT_TYPE:
            del keys["type"]
        sent.append(keys)
    return sent


def with_ids(document: list[dict[str, Any]], response: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the sent steps with the ids of the response, matched by position."""
    assert [step["type"] for step in document] == [step["type"] for step in response], (document, response)
    return tuple(_with_ids(step, returned) for step, returned in zip(document, response, strict=True))


def _with_ids(step: dict[str, Any], returned: dict[str, Any]) -> dict[str, Any]:
    numbered = step | {"id": returned["id"]} | ({"step_id": returned["step_id"]} if step["type"] == "go_to" else {})
    numbered |= {key: with_ids(step[key], returned[key]) for key in ("yes", "no", "else") if key in step}
    if "branches" in step:
        numbered["branches"] = [
            item | {"key": other["key"], "steps": with_ids(item["steps"], other["steps"])}
            for item, other in zip(step["branches"], returned["branches"], strict=True)
        ]
    return numbered
