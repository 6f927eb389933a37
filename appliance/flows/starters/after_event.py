"""Post-purchase: a thank-you and a question some days after an order."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, Kit, StarterKind, StarterParts, script, wait


def _build(kit: Kit) -> StarterParts:
    return StarterParts(
        {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 30 * DAY}}},
        [wait(7), kit.get_email("after_event")], [script(gettext("A week after the order"), [], {2: "on"})],
    )  # fmt: skip


STARTER = StarterKind(
    "after_event", gettext_noop("Post-purchase"),
    gettext_noop("Some days after an order: a thank-you and a question."), _build,
)  # fmt: skip
