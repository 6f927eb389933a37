"""Steps with named branches: which branch many runs take, what the report counts, and what a new version keeps."""

from collections import Counter
from typing import Any

from appliance.flows import document, report
from appliance.storage.database import rows
from appliance.storage.models import Flow
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, start_runs

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
