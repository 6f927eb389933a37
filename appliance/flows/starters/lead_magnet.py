"""Lead magnet: delivers a download after a form, reminds of it, and leads on to the offer."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import HOUR, Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    delivery = kit.write_email(
        gettext("Here is your download"),
        gettext("As promised."),
        gettext("Thank you for your interest. Your guide is ready: click the button and save it for later."),
        gettext("Download now"),
    )
    reminder = kit.write_email(
        gettext("Your download is still waiting"),
        gettext("In case it got lost."),
        gettext("You asked for our guide but have not opened it yet. Here is the link again."),
        gettext("Download now"),
    )
    offer = kit.write_email(
        gettext("What is your next step?"),
        gettext("How we can help with it."),
        gettext(
            "You have read the guide; now it is about doing it. Tell us where you stand, and we will suggest what fits."
        ),
        gettext("See what we offer"),
    )
    steps = [delivery, wait(2), split_on_event("email_clicked", [], [reminder]), wait(3), offer]
    clicks = [{"event": "email_clicked", "step": 1, "after": HOUR}]
    return StarterParts(
        {"event": "form_submitted"}, steps,
        [script(gettext("Downloads at once"), clicks, {1: "on", 3: "yes", 4: "not_reached", 6: "on"}),
         script(gettext("Does not click"), [], {3: "no", 4: "on", 6: "on"})],
    )  # fmt: skip


STARTER = StarterKind(
    "lead_magnet", gettext_noop("Lead magnet"),
    gettext_noop("Delivers a download after a form, reminds of it, and follows up with your offer."), _build,
)  # fmt: skip
