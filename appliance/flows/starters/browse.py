"""Browse abandonment: one friendly reminder of what a contact looked at, unless they order."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, HOUR, Kit, StarterKind, StarterParts, script, split_on_event


def _build(kit: Kit) -> StarterParts:
    email = kit.write_email(
        gettext("Still thinking it over?"),
        gettext("What you looked at is a click away."),
        gettext(
            "You had a look around our shop, and we saved your place. If you have a question before you decide, just "
            "reply to this email."
        ),
        gettext("Take another look"),
    )
    steps = [{"duration": 4 * HOUR}, split_on_event("order_paid", [], [email])]
    return StarterParts(
        {"event": "browse_abandoned", "data": {"frequency": {"min_gap_seconds": 14 * DAY}}}, steps,
        [script(gettext("Does not order"), [], {2: "no", 3: "on"}),
         script(gettext("Orders at once"), [{"event": "order_paid", "after": HOUR}], {2: "yes", 3: "not_reached"})],
    )  # fmt: skip


STARTER = StarterKind(
    "browse", gettext_noop("Browse abandonment"),
    gettext_noop("Brings back contacts who looked at products and left. Your shop sends the event."), _build,
)  # fmt: skip
