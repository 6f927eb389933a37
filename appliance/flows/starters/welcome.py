"""Welcome: greets new members of a list, and follows up on whether they click."""

from appliance.content.templates import starters as letters
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    starter = letters.find_starter(kit.look, "welcome")
    assert starter is not None  # `welcome` is one of the email starters.
    steps = [
        starter.email._asdict(),
        wait(3),
        split_on_event("email_clicked", [kit.get_email("welcome_clicked")], [kit.get_email("welcome_not_clicked")]),
    ]
    clicks = [{"event": "email_clicked", "step": 1, "after": 3_600}]
    return StarterParts(
        {"event": "list_add"}, steps,
        [script(gettext("Clicks a link"), clicks, {1: "on", 3: "yes", 4: "on", 5: "not_reached"}),
         script(gettext("Does not click"), [], {3: "no", 4: "not_reached", 5: "on"})],
    )  # fmt: skip


STARTER = StarterKind(
    "welcome", gettext_noop("Welcome"),
    gettext_noop("Welcomes new members of a list, and follows up on whether they click."), _build,
)  # fmt: skip
