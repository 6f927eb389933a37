"""Steps of a flow rearranged as a tree: whatever is done to it, no step is lost, doubled or put within itself."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from appliance.flows import tree
from appliance.flows.document import walk
from appliance.flows.tree import Spot

Steps = list[dict[str, Any]]


def _numbered(shapes: list[Any]) -> Steps:
    """Give shapes (None: a step; a pair: a branch with what is in its ways) ids in the order in which they stand."""
    ids = iter(range(1, 10_000))

    def made(shape: Any) -> dict[str, Any]:
        number = next(ids)
        if shape is None:
            return {"id": number, "type": "wait", "duration": number}
        return {"id": number, "type": "split", "yes": [*map(made, shape[0])], "no": [*map(made, shape[1])]}

    return [made(shape) for shape in shapes]


def _forks(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.lists(inner, max_size=3), st.lists(inner, max_size=3))


TREES = st.lists(st.recursive(st.none(), _forks, max_leaves=8), max_size=5).map(_numbered)


def ids(steps: Steps) -> list[int]:
    """Return the ids in the order in which the steps stand."""
    return [step["id"] for _, step in walk(steps)]


@given(TREES, st.data())
def test_a_moved_step_keeps_everything(steps: Steps, data: st.DataObject) -> None:
    """Every place that is offered takes the step with its branches; nothing else changes its order."""
    if not steps:
        return
    step_id = data.draw(st.sampled_from(ids(steps)))
    before = str(steps)
    for one in tree.valid(steps, step_id):
        moved = tree.moved(steps, step_id, one.where)
        assert moved is not None and moved != steps
        assert sorted(ids(moved)) == sorted(ids(steps))
        assert tree.find(moved, step_id) == tree.find(steps, step_id)
        assert tree.without(moved, step_id) == tree.without(steps, step_id)
        assert tree.spot(str(one.where)) == one.where
    assert str(steps) == before


@given(TREES, st.data())
def test_a_step_goes_up_and_down_among_its_siblings(steps: Steps, data: st.DataObject) -> None:
    """Down and up again is where it was; at an end it goes no further."""
    if not steps:
        return
    step_id = data.draw(st.sampled_from(ids(steps)))
    place = tree.place(steps, step_id)
    assert place is not None
    down = tree.shifted(steps, step_id, 1)
    assert (down is None) == (place.at == len(place.siblings) - 1)
    if down is not None:
        assert tree.shifted(down, step_id, -1) == steps


@given(TREES, st.data())
def test_a_step_never_stands_within_itself(steps: Steps, data: st.DataObject) -> None:
    """A branch cannot be moved into its own ways, nor behind what stands there."""
    if not steps:
        return
    step = tree.find(steps, data.draw(st.sampled_from(ids(steps))))
    assert step is not None
    for inner in [step, *tree.below(step)]:
        for how in ("after", "yes", "no"):
            assert tree.moved(steps, step["id"], Spot(how, inner["id"])) is None


@given(TREES, st.data())
def test_a_copy_has_ids_of_its_own(steps: Steps, data: st.DataObject) -> None:
    """A copy stands behind the first, is shaped alike, and shares no id with anything."""
    if not steps:
        return
    step = tree.find(steps, data.draw(st.sampled_from(ids(steps))))
    assert step is not None
    fresh = iter(range(50_000, 60_000))
    changed = tree.put(steps, Spot("after", step["id"]), tree.copy(step, lambda: next(fresh)))
    assert changed is not None
    assert len(set(ids(changed))) == len(ids(changed)) == len(ids(steps)) + 1 + len(tree.below(step))


def test_places_are_read_from_addresses() -> None:
    """What is no place is none."""
    assert tree.spot("start") == Spot("start") and tree.spot("yes-12") == Spot("yes", 12)
    assert [tree.spot(text) for text in ("", "after", "after-", "after-x", "maybe-1", "after-99999999999")] == [
        None
    ] * 6


def test_the_way_to_a_step_takes_its_waits() -> None:
    """Waits before it count, of branches that were passed the shorter way."""

    def wait(number: int, seconds: int) -> dict[str, Any]:
        return {"id": number, "type": "wait", "duration": seconds}

    split = {"id": 2, "type": "split", "yes": [wait(3, 100), wait(4, 5)], "no": [wait(5, 7)]}
    steps = [wait(1, 10), split, wait(6, 1_000), wait(7, 1)]
    assert [tree.seconds_before(steps, number) for number in (1, 2, 3, 4, 5, 6, 7)] == [0, 10, 10, 110, 10, 17, 1_017]
