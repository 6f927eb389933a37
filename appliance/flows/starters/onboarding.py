"""Onboarding: five emails in two weeks that lead a new customer from the first step to a habit."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import Kit, StarterKind, StarterParts, script, wait


def _build(kit: Kit) -> StarterParts:
    begin = kit.write_email(
        gettext("Your first step takes five minutes"),
        gettext("Start here."),
        gettext("Welcome aboard! Do one thing today: sign in and set up what you need most. The rest can wait."),
        gettext("Get started"),
    )
    value = kit.write_email(
        gettext("The feature most people love"),
        gettext("See it in action."),
        gettext("Those who stay with us usually begin with this one. Try it with something of your own."),
        gettext("Try it now"),
    )
    save = kit.write_email(
        gettext("Three ways to save time"),
        gettext("Small settings, big effect."),
        gettext("Invite a colleague, save your most used view, and let the reminders work for you."),
        gettext("Show me how"),
    )
    help_offer = kit.write_email(
        gettext("Stuck somewhere?"),
        gettext("A person reads your reply."),
        gettext("Every start has a hurdle. Reply with your question, and one of us will help you over it."),
        gettext("Read the answers to common questions"),
    )
    feedback = kit.write_email(
        gettext("How were your first two weeks?"),
        gettext("One question, one click to answer."),
        gettext("You know us a little by now. What should we do better? Your answer goes straight to the team."),
        gettext("Give feedback"),
    )
    steps = [begin, wait(2), value, wait(3), save, wait(4), help_offer, wait(5), feedback]
    outcomes = dict.fromkeys((1, 3, 5, 7, 9), "on")
    return StarterParts({"event": "list_add"}, steps, [script(gettext("Two weeks"), [], outcomes)])


STARTER = StarterKind(
    "onboarding", gettext_noop("Onboarding"),
    gettext_noop("Five emails in two weeks for new customers, from the first step to feedback."), _build,
)  # fmt: skip
