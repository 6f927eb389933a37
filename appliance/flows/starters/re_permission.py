"""Re-permission: asks contacts for a fresh consent twice, records it, and unsubscribes the others."""

from typing import Any

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import DAY, Kit, StarterKind, StarterParts, script, split_on_event, wait


def _build(kit: Kit) -> StarterParts:
    ask = kit.write_email(
        gettext("May we keep writing to you?"),
        gettext("Please confirm with one click."),
        gettext(
            "We only want to email those who like to hear from us. Please confirm that you still do. You can "
            "unsubscribe at any time."
        ),
        gettext("Yes, keep me on the list"),
    )
    last = kit.write_email(
        gettext("Last chance to stay on the list"),
        gettext("Without your click, we say goodbye."),
        gettext("We have not heard back from you. If you do not confirm this week, this was our last email."),
        gettext("Yes, keep me on the list"),
    )

    def confirm() -> list[dict[str, Any]]:
        return [{"type": "tag_add", "tag": "permission_confirmed"}]

    leave = [{"type": "unsubscribe", "channel": "email"}]
    again = [last, wait(7), split_on_event("email_clicked", confirm(), leave)]
    steps = [ask, wait(10), split_on_event("email_clicked", confirm(), again)]
    return StarterParts(
        {"event": "segment_enter"}, steps,
        [script(gettext("Confirms at once"), [{"event": "email_clicked", "step": 1, "after": DAY}],
                {1: "on", 3: "yes", 4: "on", 5: "not_reached"}),
         script(gettext("Confirms the last email"), [{"event": "email_clicked", "step": 5, "after": DAY}],
                {5: "on", 7: "yes", 8: "on", 9: "not_reached"}),
         script(gettext("Does not click"), [], {7: "no", 8: "not_reached", 9: "on"})],
    )  # fmt: skip


STARTER = StarterKind(
    "re_permission", gettext_noop("Re-permission"),
    gettext_noop("Asks for a fresh consent twice, tags those who give it, and unsubscribes the others."), _build,
)  # fmt: skip
