"""Review request: asks for a review once an order has arrived, and once more if there is no click."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    ask = kit.write_email(
        gettext("How do you like it?"),
        gettext("Tell us and others."),
        gettext("Your order should be with you by now. Are you happy with it? A short review helps us and others."),
        gettext("Write a review"),
    )
    reminder = kit.write_email(
        gettext("Two sentences are enough"),
        gettext("Your review helps others choose."),
        gettext(
            "Your opinion counts for other customers, good or bad. Would you tell them in two sentences how you like "
            "your order?"
        ),
        gettext("Write a review"),
    )
    steps = [wait(10), ask, wait(5), split_on_event("email_clicked", [], [reminder])]
    clicks = [{"event": "email_clicked", "step": 2, "after": DAY}]
    return StarterParts(
        {"event": "order_shipped", "data": {"frequency": {"min_gap_seconds": 30 * DAY}}}, steps,
        [script(gettext("Writes a review"), clicks, {2: "on", 4: "yes", 5: "not_reached"}),
         script(gettext("Does not click"), [], {2: "on", 4: "no", 5: "on"})],
    )  # fmt: skip


STARTER = StarterKind(
    "review", gettext_noop("Review request"),
    gettext_noop("Asks for a review ten days after an order was shipped, and once more if there is no click."), _build,
)  # fmt: skip
