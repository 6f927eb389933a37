"""Win-back: asks inactive contacts whether they want to stay, and remembers the answer."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    steps = [
        kit.get_email("win_back"),
        wait(7),
        split_on_event(
            "email_clicked",
            [{"type": "contact_update", "data_merge": {"quiet": None}}],
            [{"type": "contact_update", "data_merge": {"quiet": True}}],
        ),
    ]
    clicks = [{"event": "email_clicked", "step": 1, "after": 3_600}]
    return StarterParts(
        {"event": "segment_enter"}, steps,
        [script(gettext("Clicks a link"), clicks, {1: "on", 3: "yes", 4: "on", 5: "not_reached"}),
         script(gettext("Does not click"), [], {3: "no", 4: "not_reached", 5: "on"})],
    )  # fmt: skip


STARTER = StarterKind(
    "win_back", gettext_noop("Win-back"),
    gettext_noop("Asks a segment of inactive contacts whether they want to stay."), _build,
)  # fmt: skip
