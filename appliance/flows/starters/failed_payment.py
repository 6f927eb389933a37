"""Failed payment: asks for another payment method three times, until the payment succeeds."""

from typing import Any

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, Kit, StarterKind, StarterParts, await_event, script

_PAID = "payment_succeeded"


def _build(kit: Kit) -> StarterParts:
    def write(subject: str, preheader: str, text: str) -> dict[str, Any]:
        # A customer must learn this, whether or not they want marketing.
        return kit.write_email(subject, preheader, text, gettext("Update payment details")) | {"transactional": True}

    first = write(
        gettext("Your payment did not go through"),
        gettext("Nothing has changed for you yet."),
        gettext(
            "We could not collect your last payment. The card may have expired. Please check your payment details; we "
            "will try again."
        ),
    )
    second = write(
        gettext("We still could not collect your payment"),
        gettext("It takes two minutes to fix."),
        gettext("Our second attempt failed too. To keep everything running, please enter another card or account."),
    )
    last = write(
        gettext("Your access ends soon"),
        gettext("Last reminder about your payment."),
        gettext(
            "Without a payment we have to pause your access in a few days. Is something wrong with the invoice? Reply "
            "and we will sort it out."
        ),
    )
    steps = [first, await_event(_PAID, 3, [second, await_event(_PAID, 4, [last])])]
    return StarterParts(
        {"event": "payment_failed", "data": {"frequency": {"min_gap_seconds": 14 * DAY}}}, steps,
        [script(gettext("Does not pay"), [], {1: "on", 2: "no", 3: "on", 4: "no", 5: "on"}),
         script(gettext("Pays after the first email"), [{"event": _PAID, "after": DAY}], {2: "yes", 3: "not_reached"})],
    )  # fmt: skip


STARTER = StarterKind(
    "failed_payment", gettext_noop("Failed payment"),
    gettext_noop("Asks for new payment details until the payment succeeds. Your system sends both events."), _build,
)  # fmt: skip
