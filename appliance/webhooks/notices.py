"""Tells people that a webhook was switched off: an event of the log, and a mail to the owners."""

from appliance import addresses, clock, config
from appliance.account import audit
from appliance.db.work import writing
from appliance.events import log
from appliance.events.log import Happened
from appliance.messages import system
from appliance.messages.system import Letter
from appliance.tables import User, Webhook
from appliance.webhooks import store

EVENT = "webhook_disabled"
_WHY = {
    "failing": "Nothing that was sent there has been taken since {{ data.since }}.",
    "gone": "It answered that it is gone for good (410).",
}


def switched_off(webhook_id: int) -> None:
    """Record it, and write to the owners."""
    writing()
    webhook = Webhook.get_by_id(webhook_id)
    host = store.host(webhook)
    since = str(clock.iso(webhook.failing_since))
    about = {"webhook_id": webhook_id, "reason": webhook.disabled_reason, "failing_since": since}
    log.record(
        Happened(webhook.account_id, EVENT, data=about, resource_uid=f"webhook:{webhook_id}", resource_name=host)
    )
    audit.record(webhook.account_id, audit.SYSTEM, EVENT, f"webhook:{webhook_id}", about)
    for owner in User.select().where(
        User.account == webhook.account_id, User.role == "owner", User.disabled_at.is_null()
    ):
        letter = _letter(str(webhook.disabled_reason))
        system.put(webhook.account, addresses.email(owner.email), None, letter, {"host": host, "since": since})


def _letter(reason: str) -> Letter:
    return Letter(
        subject="A webhook was switched off",
        heading="A webhook was switched off",
        text="The webhook to {{ data.host }} gets no more events. " + _WHY[reason]
        + " What waits for it is kept. Mend what listens there, then switch the webhook on again.",
        button="Open the settings",
        link=config.base_url(config.current()),
        note="What was given up can be sent once more from the log of the webhook's deliveries.",
    )  # fmt: skip
