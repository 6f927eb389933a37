"""The step that ends the run."""

from collections.abc import Sequence
from typing import Any

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import ActiveRun, Node, ParseContext, StepContext, StepKind, StepResult, leave


class Exit(StepKind):
    """A step that ends the run."""

    type = "exit"
    label = gettext_noop("Exit")
    icon = "log-out"

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Return an empty dict, because the step has no props."""
        return {}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """End each run, with the reason `exit_step`."""
        return [leave("exit_step") for _ in runs]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return the text "Exit the flow"."""
        return gettext("Exit the flow")
