"""Abandoned cart: reminds contacts of a cart that they left, until they order."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, HOUR, Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    last = [wait(2), split_on_event("order_paid", [], [kit.get_email("cart_last")])]
    steps = [{"duration": 4 * HOUR}, split_on_event("order_paid", [], [kit.get_email("cart"), *last])]
    return StarterParts(
        {"event": "cart_abandoned", "data": {"frequency": {"min_gap_seconds": 7 * DAY}}}, steps,
        [script(gettext("Does not order"), [], {2: "no", 3: "on", 5: "no", 6: "on"}),
         script(gettext("Orders after the first reminder"), [{"event": "order_paid", "after": DAY}],
                {3: "on", 5: "yes", 6: "not_reached"}),
         script(gettext("Orders at once"), [{"event": "order_paid", "after": 60}], {2: "yes", 3: "not_reached"})],
    )  # fmt: skip


STARTER = StarterKind(
    "cart", gettext_noop("Abandoned cart"),
    gettext_noop("Reminds contacts of a cart that they left, until they order. Your shop sends the event."), _build,
)  # fmt: skip
