"""Replenishment: a reminder when an order is used up; each new order starts the time again."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, Kit, StarterKind, StarterParts, await_event, script

_DAYS = 30


def _build(kit: Kit) -> StarterParts:
    email = kit.write_email(
        gettext("Time for a refill?"),
        gettext("Order now and never run out."),
        gettext(
            "Your last order was about a month ago, so you may be running low. Order today and the new one arrives in "
            "time."
        ),
        gettext("Order again"),
    )
    last = kit.write_email(
        gettext("Don’t run out"),
        gettext("Reordering takes a minute."),
        gettext(
            "This is our last reminder for this order. Is the quantity or the product not right? Reply and tell us."
        ),
        gettext("Order again"),
    )
    again = {"type": "go_to", "step_id": 1, "max_jumps": 20}
    waiting = await_event("order_paid", _DAYS, [email, await_event("order_paid", 7, [last])])
    steps = [{**waiting, "id": 1, "yes": [again]}]
    return StarterParts(
        {"event": "order_paid", "data": {"frequency": "every_time"}}, steps,
        [script(gettext("Does not order again"), [], {1: "no", 3: "on", 4: "no", 5: "on"}),
         script(gettext("Orders after the first reminder"), [{"event": "order_paid", "after": (_DAYS + 1) * DAY}],
                {3: "on", 4: "yes", 5: "not_reached"})],
    )  # fmt: skip


STARTER = StarterKind(
    "replenishment", gettext_noop("Replenishment"),
    gettext_noop("Reminds customers to reorder after a month; each order starts the month again."), _build,
)  # fmt: skip
