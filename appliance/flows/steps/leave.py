"""Exit: the run ends here."""

from collections.abc import Sequence
from typing import Any

from appliance.flows.steps.kind import Going, Here, Kind, Move, Node, Reading, left


class Exit(Kind):
    """End the run."""

    type = "exit"
    label = "Leave the flow"
    icon = "log-out"

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Take nothing but its type."""
        return {}

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """End each."""
        return [left("exit_step") for _ in goings]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Say so."""
        return "Leave the flow"
