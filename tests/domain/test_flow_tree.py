"""The tree of a flow's steps: no edit loses or duplicates a step, or puts it into itself."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from appliance.flows import document
from appliance.flows.document import Position, walk
from appliance.flows.wait_times import find_wait_before

Steps = list[dict[str, Any]]


def _build_steps(shapes: list[Any]) -> Steps:
    """Build steps from shapes, numbered in order: None is a wait, a pair of lists a split with its branches."""
    step_ids = iter(range(1, 10_000))

    def build(shape: Any) -> dict[str, Any]:
        number = next(step_ids)
        if shape is None:
            return {"id": number, "type": "wait", "duration": number}
        return {"id": number, "type": "split", "yes": [*map(build, shape[0])], "no": [*map(build, shape[1])]}

    return [build(shape) for shape in shapes]


def _branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.lists(inner, max_size=3), st.lists(inner, max_size=3))


TREES = st.lists(st.recursive(st.none(), _branches, max_leaves=8), max_size=5).map(_build_steps)


def step_ids(steps: Steps) -> list[int]:
    """Return the ids in document order."""
    return [step["id"] for _, step in walk(steps)]


@given(TREES, st.data())
def test_moving_a_step_keeps_all_steps(steps: Steps, data: st.DataObject) -> None:
    """Each offered target takes the step with its branches; the other steps keep their order."""
    if not steps:
        return
    step_id = data.draw(st.sampled_from(step_ids(steps)))
    before = str(steps)
    for target in document.list_move_targets(steps, step_id):
        moved = document.move_step(steps, step_id, target.position)
        assert moved is not None and moved != steps
        assert sorted(step_ids(moved)) == sorted(step_ids(steps))
        assert document.find_step(moved, step_id) == document.find_step(steps, step_id)
        assert document.remove_step(moved, step_id) == document.remove_step(steps, step_id)
        assert document.parse_position(str(target.position)) == target.position
    assert str(steps) == before


@given(TREES, st.data())
def test_shifting_a_step_down_and_up_restores_the_order(steps: Steps, data: st.DataObject) -> None:
    """The last step cannot be shifted down."""
    if not steps:
        return
    step_id = data.draw(st.sampled_from(step_ids(steps)))
    location = document.locate_step(steps, step_id)
    assert location is not None
    down = document.shift_step(steps, step_id, 1)
    assert (down is None) == (location.at == len(location.siblings) - 1)
    if down is not None:
        assert document.shift_step(down, step_id, -1) == steps


@given(TREES, st.data())
def test_a_step_cannot_be_moved_into_itself(steps: Steps, data: st.DataObject) -> None:
    """A step cannot be moved to a position in or after itself or its descendants."""
    if not steps:
        return
    step = document.find_step(steps, data.draw(st.sampled_from(step_ids(steps))))
    assert step is not None
    for inner in [step, *document.list_descendants(step)]:
        for side in ("after", "yes", "no"):
            assert document.move_step(steps, step["id"], Position(side, inner["id"])) is None


@given(TREES, st.data())
def test_a_copied_step_has_new_ids(steps: Steps, data: st.DataObject) -> None:
    """The copy has as many steps as the original, and all ids are unique."""
    if not steps:
        return
    step = document.find_step(steps, data.draw(st.sampled_from(step_ids(steps))))
    assert step is not None
    new_ids = iter(range(50_000, 60_000))
    changed = document.insert_step(
        steps, Position("after", step["id"]), document.copy_step(step, lambda: next(new_ids))
    )
    assert changed is not None
    assert (
        len(set(step_ids(changed)))
        == len(step_ids(changed))
        == len(step_ids(steps)) + 1 + len(document.list_descendants(step))
    )


def test_parse_position() -> None:
    """Valid positions are parsed; any other text gives None."""
    assert document.parse_position("start") == Position("start") and document.parse_position("yes-12") == Position(
        "yes", 12
    )
    assert [
        document.parse_position(text) for text in ("", "after", "after-", "after-x", "maybe-1", "after-99999999999")
    ] == [None] * 6


def test_the_wait_before_a_step() -> None:
    """Waits add up, and a wait for an event takes up to its limit; branches that leave the flow do not count."""

    def wait(number: int, seconds: int) -> dict[str, Any]:
        return {"id": number, "type": "wait", "duration": seconds}

    split = {"id": 2, "type": "split", "yes": [wait(3, 100), wait(4, 5)], "no": [wait(5, 7)]}
    leaving = {"id": 8, "type": "split", "yes": [wait(9, 50_000), {"id": 10, "type": "exit"}], "no": []}
    event: dict[str, Any] = {"id": 11, "type": "wait_until", "until": "event", "timeout": 600}
    event |= {"yes": [wait(12, 1)], "no": [wait(13, 2)]}
    steps = [wait(1, 10), split, wait(6, 1_000), wait(7, 1), leaving, event, wait(14, 1)]
    assert [find_wait_before(steps, number) for number in range(1, 15)] == [
        (0, 0), (10, 10), (10, 10), (110, 110), (10, 10), (17, 115), (1_017, 1_115), (1_018, 1_116), (1_018, 1_116),
        (51_018, 51_116), (1_018, 1_116), (1_018, 1_716), (1_618, 1_716), (1_019, 1_718),
    ]  # fmt: skip
    del event["yes"], event["no"]
    assert find_wait_before(steps, 14) == (1_018, 1_716)
