"""Sunset: asks inactive contacts twice, and unsubscribes those who do not click."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    leave = [{"type": "unsubscribe", "channel": "email"}]
    last = [kit.get_email("sunset"), wait(7), split_on_event("email_clicked", [], leave)]
    steps = [kit.get_email("win_back"), wait(7), split_on_event("email_clicked", [], last)]
    return StarterParts(
        {"event": "segment_enter"}, steps,
        [script(gettext("Does not click"), [], {1: "on", 3: "no", 4: "on", 6: "no", 7: "on"}),
         script(gettext("Clicks the last email"), [{"event": "email_clicked", "step": 4, "after": DAY}],
                {6: "yes", 7: "not_reached"})],
    )  # fmt: skip


STARTER = StarterKind(
    "sunset", gettext_noop("Sunset"),
    gettext_noop("Asks a segment of inactive contacts twice, and unsubscribes those who do not click."), _build,
)  # fmt: skip
