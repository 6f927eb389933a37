"""The interpreter itself: worked examples of docs/decisions.md#12."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model import documents
from tests.model.interpreter import Flow, Person, told
from tests.model.possible import TooMany, outline, settled

CHAIN = [{"id": 1, "type": "emit_event", "event_name": "m_one", "forward_event_data": True}]


def flow(number: int, *steps: dict[str, Any], **more: Any) -> Flow:
    """Return a flow that begins with `m_one`."""
    return Flow(number, more.pop("event", "m_one"), steps, **more)


def lived(flows: list[Flow], people: list[Person], hour: int = 0) -> list[Person]:
    """Let everything happen that can at an hour."""
    return settled(people, {one.id: one for one in flows}, hour)


def test_waits_and_branches_rejoin() -> None:
    """A wait lasts from when somebody came; behind a branch everybody goes on with the step after it."""
    email = {"id": 4, "type": "email"}
    split = {"id": 2, "type": "split", "filters": [{"name": "event.n", "predicate": "eq", "value": 1}],
             "yes": ({"id": 3, "type": "contact_update", "data_merge": {"seen": 1}},), "no": ()}  # fmt: skip
    one = flow(7, {"id": 1, "type": "wait", "duration": 7200}, split, email)
    (before,) = lived([one], [told(Person({}), "m_one", {"n": 1})])
    assert outline(before, ())["runs"] == [(7, "live", None, (), (1, 0))]
    (still,) = lived([one], [before], 1)
    (after,) = lived([one], [still], 2)
    trail = ((1, "on", None, 0, 2), (2, "yes", None, 2, 2), (3, "on", None, 2, 2), (4, "on", None, 2, 2))
    assert (still, outline(after, ())["runs"]) == (before, [(7, "completed", None, trail, None)])
    assert (after.data, [mail.status for mail in after.mails]) == ({"seen": 1}, ["sent"])


def test_a_flow_that_starts_itself_ends_by_its_depth() -> None:
    """At five an event is recorded and starts nothing; while somebody is inside, a second start is ignored."""
    ends = lived([flow(7, *CHAIN)], [told(Person({}), "m_one", {})])
    outcomes = [[run.reason for run in person.runs] for person in ends]
    assert [None, None, None, None, None, "depth"] in outcomes
    assert all(reasons[-1] in ("depth", "already_inside") for reasons in outcomes) and len(outcomes) > 1


def test_an_event_about_a_flow_does_not_start_it() -> None:
    """A flow that begins where runs end begins at the ends of others alone."""
    first, second = flow(7), flow(8, event="flow_exit")
    (person,) = lived([first, second], [told(Person({}), "m_one", {})])
    assert [run.flow for run in person.runs] == [7, 8]


def test_goals_pauses_and_consent() -> None:
    """A goal ends a run where it stands; nobody goes on in a paused flow; who opted out gets service messages alone."""
    steps = [{"id": 1, "type": "wait", "duration": 3600}, {"id": 2, "type": "email"},
             {"id": 3, "type": "email", "transactional": True}]  # fmt: skip
    one = flow(7, *steps, goal="m_two")
    (inside,) = lived([one], [told(Person({}, subscribed=False), "m_one", {})])
    (paid,) = lived([one], [told(inside, "m_two", {})])
    (paused,) = lived([one._replace(status="paused")], [told(inside, "m_one", {})], 5)
    (through,) = lived([one], [paused], 6)
    assert (paid.runs[0].status, paid.runs[0].reason, paid.runs[0].trail[0][1:3]) == (
        "completed",
        "goal",
        ("exited", "goal"),
    )
    assert paused.runs == inside.runs
    assert [(mail.status, mail.reason) for mail in through.mails] == [("skipped", "unsubscribed"), ("sent", None)]


def test_how_often() -> None:
    """Once is once ever; a gap lies between two beginnings; every time is every time."""
    found = {}
    for often in ("once", "every_time", 2):
        one, people = flow(7, frequency=often), [Person({})]
        for hour in (0, 1, 2):
            people = lived([one], [told(person, "m_one", {}) for person in people], hour)
        found[often] = [run.reason for run in people[0].runs]
    assert found == {"once": [None, "frequency", "frequency"], "every_time": [None] * 3, 2: [None, "frequency", None]}


def numbered(steps: list[dict[str, Any]], first: list[int]) -> tuple[dict[str, Any], ...]:
    """Give steps their ids."""
    found = []
    for step in steps:
        first[0] += 1
        inner = {key: numbered(step[key], first) for key in ("yes", "no") if key in step}
        found.append(step | {"id": first[0]} | inner)
    return tuple(found)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.lists(documents.documents([1, 2]), min_size=2, max_size=2), documents.acts(1))
def test_the_shorter_search_finds_all_that_may_be(made: list[dict[str, Any]], acts: list[documents.Act]) -> None:
    """Leaving out orders that make no difference leaves out nothing that may be."""
    flows = {
        index: Flow(index, one["trigger"]["event"], numbered(one["steps"], [0]), goal=one["goal"],
                    list_id=one["trigger"].get("contact_list_id"))
        for index, one in enumerate(made)
    }  # fmt: skip
    person = Person({"n": 1})
    for act in acts[:2]:
        person = told(person, act.name, {"n": act.n})
    names = (*documents.NAMES, "flow_exit", "list_add", "email_sent")
    try:
        ends = [settled([person], flows, 0, every) for every in (True, False)]
    except TooMany:
        return
    whole, short = ({repr(outline(one, names)) for one in some} for some in ends)
    assert short == whole
