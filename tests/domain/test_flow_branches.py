"""Steps with named branches: which branch many runs take, what the report counts, and what a new version keeps."""

from collections import Counter
from itertools import pairwise
from typing import Any

from appliance.flows import document, jumps, report
from appliance.storage.database import rows
from appliance.storage.models import Flow
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, start_runs, step_history

SHARES: dict[str, Any] = {
    "id": 1, "type": "random_split", "branches": [
        {"key": "b2", "name": "", "share": 10, "steps": [{"id": 4, "type": "exit"}]},
        {"key": "b3", "name": "Long", "share": 90, "steps": []},
    ],
}  # fmt: skip


def test_a_random_split_keeps_its_shares_and_is_reported_by_branch(home: Home) -> None:
    """Of 2,000 runs 10 % take the first branch, within four standard deviations; the report has the same counts."""
    flow = create_live_flow(home, [SHARES])
    start_runs(home, flow, *[home.contact(f"p{index}@example.com").id for index in range(600)])
    advance_until_idle()
    counts = Counter(dict(rows("SELECT outcome, count(*) FROM step_visit WHERE action_id = 1 GROUP BY 1")))
    assert counts.total() == 600 and abs(counts["b2"] - 60) < 4 * (600 * 0.1 * 0.9) ** 0.5, counts
    figures = report.build_report(Flow.get_by_id(flow.id)).steps[0]
    assert [(branch.key, branch.label, branch.count) for branch in figures.branches] == [
        ("b2", "A (10%)", counts["b2"]), ("b3", "Long (90%)", counts["b3"]),
    ]  # fmt: skip
    assert figures.yes is None and figures.went_on.count == 600
    exits = rows("SELECT count(*) FROM run WHERE exit_reason = 'exit_step'")[0][0]
    assert exits == counts["b2"]


def test_positions_in_named_branches() -> None:
    """A step can be inserted into, moved between and removed from branches, which the ids of positions name."""
    steps = [SHARES, {"id": 9, "type": "wait", "duration": 60}]
    assert document.parse_position("b3-1") == document.Position("b3", 1)
    inserted = document.insert_step(steps, document.Position("b3", 1), {"id": 7, "type": "exit"})
    assert inserted is not None
    assert [path for path, _ in document.walk(inserted)] == [
        "steps[0]", "steps[0].branches[0].steps[0]", "steps[0].branches[1].steps[0]", "steps[1]",
    ]  # fmt: skip
    moved = document.move_step(inserted, 4, document.Position("b3", 1))
    assert moved is not None and [step["id"] for step in moved[0]["branches"][1]["steps"]] == [4, 7]
    assert document.insert_step(steps, document.Position("b8", 1), {"id": 7, "type": "exit"}) is None
    targets = [str(target.position) for target in document.list_move_targets(steps, 9)]
    assert targets == ["start", "b2-1", "after-4", "b3-1"]


LOOP: list[dict[str, Any]] = [
    {"id": 1, "type": "wait", "duration": 3600}, {"id": 2, "type": "tag_add", "tag": "seen"},
    {"id": 3, "type": "go_to", "step_id": 1, "max_jumps": 2}, {"id": 4, "type": "exit"},
]  # fmt: skip


def test_a_jump_back_repeats_the_steps_a_limited_number_of_times(home: Home) -> None:
    """Two jumps make three rounds, an hour apart; then the run continues, and the report counts both."""
    flow = create_live_flow(home, LOOP)
    (run,) = start_runs(home, flow, home.contact("ann@acme.test").id)
    for _ in range(5):
        advance_until_idle()
        home.advance(3600)
    visits = [(1, "on"), (2, "on"), (3, "jumped")] * 2 + [(1, "on"), (2, "on"), (3, "on"), (4, "exited")]
    assert [visit[:2] for visit in step_history(run)] == visits
    hours = rows("SELECT DISTINCT left_at FROM step_visit WHERE run_id = ? ORDER BY 1", (run,))
    assert [round((after[0] - before[0]) / 60_000) for before, after in pairwise(hours)] == [60] * 2
    figures = report.build_report(Flow.get_by_id(flow.id)).steps[2]
    assert [(branch.key, branch.label, branch.count) for branch in figures.branches] == [
        ("jumped", "Jumped", 2), ("on", "Limit reached, continued", 1),
    ]  # fmt: skip
    assert (figures.summary, figures.went_on.count) == ("Go to “Wait 1 hour”", 3)


def test_loops_without_a_wait_are_found() -> None:
    """A wait in one branch only, a short wait, or a time of day that may be now does not make a loop safe."""
    jump = {"id": 3, "type": "go_to", "step_id": 1, "max_jumps": 1}
    emit = {"id": 1, "type": "emit_event", "event_name": "x"}
    hour = {"id": 2, "type": "wait", "duration": 3600}
    time = {"id": 2, "type": "wait_until", "until": "time"}
    event = {"id": 2, "type": "wait_until", "until": "event", "timeout": 60, "yes": [], "no": []}

    def faults(*steps: dict[str, Any]) -> list[str]:
        return [path for path, _ in jumps.find_faults(steps, dict(document.walk(steps)))]

    split = {"id": 5, "type": "split", "yes": [hour], "no": []}
    unsafe = [(emit, jump), (emit, {**hour, "duration": 59}, jump), (emit, split, jump), (emit, time, jump)]
    assert [len(faults(*steps)) for steps in unsafe] == [1] * 4
    inside = {"id": 5, "type": "split", "yes": [hour, jump], "no": []}
    leaving = {"id": 5, "type": "split", "yes": [{"id": 6, "type": "exit"}], "no": [hour]}
    safe = [(emit, hour, jump), (emit, event, jump), (emit, inside), (emit, leaving, jump), (jump, hour, emit)]
    assert [faults(*steps) for steps in safe] == [[]] * 5
    assert faults(emit, {**jump, "step_id": 9}) == faults(emit, {**jump, "step_id": 3}) == ["steps[1].step_id"]


def test_a_copied_jump_leads_to_the_copy() -> None:
    """A copy of a branch with its loop has a loop of its own."""
    inner = [{"id": 2, "type": "wait", "duration": 60}, {"id": 3, "type": "go_to", "step_id": 2, "max_jumps": 1}]
    ids = iter(range(11, 20))
    copied = document.copy_step({"id": 1, "type": "split", "yes": inner, "no": []}, lambda: next(ids))
    assert copied["yes"][1] == {**inner[1], "id": 13, "step_id": 12}
