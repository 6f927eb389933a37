"""Steps of a flow rearranged as a tree: whatever is done to it, no step is lost, doubled or put within itself."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from appliance.flows import document
from appliance.flows.document import Position, walk

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
    for one in document.list_move_targets(steps, step_id):
        moved = document.move_step(steps, step_id, one.position)
        assert moved is not None and moved != steps
        assert sorted(ids(moved)) == sorted(ids(steps))
        assert document.find_step(moved, step_id) == document.find_step(steps, step_id)
        assert document.remove_step(moved, step_id) == document.remove_step(steps, step_id)
        assert document.parse_position(str(one.position)) == one.position
    assert str(steps) == before


@given(TREES, st.data())
def test_a_step_goes_up_and_down_among_its_siblings(steps: Steps, data: st.DataObject) -> None:
    """Down and up again is where it was; at an end it goes no further."""
    if not steps:
        return
    step_id = data.draw(st.sampled_from(ids(steps)))
    place = document.locate_step(steps, step_id)
    assert place is not None
    down = document.shift_step(steps, step_id, 1)
    assert (down is None) == (place.at == len(place.siblings) - 1)
    if down is not None:
        assert document.shift_step(down, step_id, -1) == steps


@given(TREES, st.data())
def test_a_step_never_stands_within_itself(steps: Steps, data: st.DataObject) -> None:
    """A branch cannot be moved into its own ways, nor behind what stands there."""
    if not steps:
        return
    step = document.find_step(steps, data.draw(st.sampled_from(ids(steps))))
    assert step is not None
    for inner in [step, *document.list_descendants(step)]:
        for how in ("after", "yes", "no"):
            assert document.move_step(steps, step["id"], Position(how, inner["id"])) is None


@given(TREES, st.data())
def test_a_copy_has_ids_of_its_own(steps: Steps, data: st.DataObject) -> None:
    """A copy stands behind the first, is shaped alike, and shares no id with anything."""
    if not steps:
        return
    step = document.find_step(steps, data.draw(st.sampled_from(ids(steps))))
    assert step is not None
    fresh = iter(range(50_000, 60_000))
    changed = document.insert_step(steps, Position("after", step["id"]), document.copy_step(step, lambda: next(fresh)))
    assert changed is not None
    assert len(set(ids(changed))) == len(ids(changed)) == len(ids(steps)) + 1 + len(document.list_descendants(step))


def test_places_are_read_from_addresses() -> None:
    """What is no place is none."""
    assert document.parse_position("start") == Position("start") and document.parse_position("yes-12") == Position(
        "yes", 12
    )
    assert [
        document.parse_position(text) for text in ("", "after", "after-", "after-x", "maybe-1", "after-99999999999")
    ] == [None] * 6


def test_the_way_to_a_step_takes_its_waits() -> None:
    """Waits before it count, of branches that were passed the shorter way."""

    def wait(number: int, seconds: int) -> dict[str, Any]:
        return {"id": number, "type": "wait", "duration": seconds}

    split = {"id": 2, "type": "split", "yes": [wait(3, 100), wait(4, 5)], "no": [wait(5, 7)]}
    steps = [wait(1, 10), split, wait(6, 1_000), wait(7, 1)]
    assert [document.min_seconds_before(steps, number) for number in (1, 2, 3, 4, 5, 6, 7)] == [
        0,
        10,
        10,
        110,
        10,
        17,
        1_017,
    ]
