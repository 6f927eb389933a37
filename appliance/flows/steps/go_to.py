"""The step that continues with another step, earlier or later, a limited number of times for each run.

`flows.jumps` checks its targets. A published version stores the target step as `target`, beside its id.
"""

import json
from collections.abc import Sequence
from typing import Any

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import (
    CONTINUE,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
)
from appliance.flows.triggers import check_integer
from appliance.storage.database import rows

MAX_JUMPS, DEFAULT_JUMPS = 100, 1
# The outcome of a visit that jumped, which is also the key of the target step in a plan
JUMPED = "jumped"
_COUNT_JUMPS = (
    "SELECT run_id, count(*) FROM step_visit WHERE run_id IN (SELECT value FROM json_each(?)) AND action_id = ? "
    f"AND outcome = '{JUMPED}' GROUP BY 1"
)


class GoTo(StepKind):
    """A step that jumps to the step with the id `step_id`, at most `max_jumps` times for each run."""

    type = "go_to"
    label = gettext_noop("Go to another step")
    icon = "refresh-cw"
    keys = frozenset({"step_id", "max_jumps"})
    fields = (
        StepField("step_id", gettext_noop("Step"), "step", required=True),
        StepField(
            "max_jumps", gettext_noop("Maximum jumps per contact"), "number", default=DEFAULT_JUMPS,
            help=gettext_noop(
                "After that, the contact continues with the step below. A way back needs a wait of at least a minute."
            ),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `step_id`, the id of another step as sent, and `max_jumps`, from 1 to `MAX_JUMPS`."""
        step_id, max_jumps = raw.get("step_id"), raw.get("max_jumps")
        if error := check_integer(1, 2**63 - 1)(step_id):
            context.add_fault("step_id", gettext(error))
            # The sent value may be anything, such as a list, which cannot be a key.
            step_id = None
        max_jumps = DEFAULT_JUMPS if max_jumps is None else max_jumps
        if error := check_integer(1, MAX_JUMPS)(max_jumps):
            context.add_fault("max_jumps", gettext(error))
        return {"step_id": step_id, "max_jumps": max_jumps}

    def list_outcomes(self, props: dict[str, Any]) -> dict[str, str]:
        """Return labels for runs that jumped, and for runs that continued because they had jumped `max_jumps` times."""
        return {JUMPED: gettext("Jumped"), CONTINUE.outcome: gettext("Limit reached, continued")}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Return a jump for each run that has made fewer than `max_jumps` jumps here; the others continue.

        Stored visits suffice for the count, because a run passes this step at most once between two waits.
        """
        run_ids = json.dumps([run.id for run in runs])
        counts = dict(rows(_COUNT_JUMPS, (run_ids, node.id)))
        jump = StepResult(JUMPED, outcome=JUMPED)
        return [jump if counts.get(run.id, 0) < node.props["max_jumps"] else CONTINUE for run in runs]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the step to which it leads, if that is known."""
        from appliance.flows.steps import BY_TYPE  # the registry imports this module

        target = props.get("target")
        if target is None:
            return gettext(self.label)
        return gettext("Go to %(step)s", step=BY_TYPE[target["type"]].name(target, account_id))

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the text of `summary`, which already has quotation marks."""
        return self.summary(props, account_id)
