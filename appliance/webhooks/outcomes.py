"""What came of deliveries: taken, tried again later, given up; and a webhook that fails for days is switched off."""

from collections.abc import Sequence
from typing import NamedTuple

from appliance.accounts import audit
from appliance.core import addresses, clock
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.messages import system
from appliance.sending.messages.system import Letter
from appliance.settings import config
from appliance.storage.models import User, Webhook
from appliance.storage.open import fetch_one, run
from appliance.storage.work import writing
from appliance.webhooks import store

# Tells people that a webhook was switched off: an event of the log, and a mail to the owners.

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


# Decisions, section 13: 30 s, 1, 2, 5, 15, 30 min, 1, 2, 6, 24 h
LADDER_MS = tuple(1000 * seconds for seconds in (30, 60, 120, 300, 900, 1800, 3600, 7200, 21_600, 86_400))
_OFF_AFTER_MS = 3 * 86_400_000
# Longer than any pause of the ladder: attempts this far apart are not one failure that lasts
_APART_MS = 30 * 3_600_000
_GONE = 410


class Job(NamedTuple):
    """A delivery that is due."""

    id: int
    webhook_id: int
    event_id: int
    attempts: int


class Outcome(NamedTuple):
    """What came of one attempt: an answer, or why there is none."""

    job: Job
    status: int | None = None
    text: str | None = None
    error: str | None = None
    duration_ms: int | None = None
    retry_after_ms: int = 0
    senseless: bool = False  # no later attempt can do better

    @property
    def good(self) -> bool:
        """Whether it was taken."""
        return self.status is not None and 200 <= self.status < 300


def keep(found: Sequence[Outcome], judge: bool = True) -> None:
    """Write what came of attempts, and `judge` the webhooks by it."""
    writing()
    now = clock.now_ms()
    for outcome in found:
        status, again = _verdict(outcome, now)
        # A replay meanwhile began anew: of that, nothing is known yet
        changed = run(
            "UPDATE webhook_delivery SET status = ?, attempts = attempts + 1, response_status = ?, response_text = ?, "
            "error = ?, duration_ms = ?, next_attempt_at = ?, last_attempt_at = ?, updated_at = ? "
            "WHERE id = ? AND status = 'pending' AND attempts = ?",
            (
                status, outcome.status, outcome.text, outcome.error, outcome.duration_ms, again, now, now,
                outcome.job.id, outcome.job.attempts,
            ),
        )  # fmt: skip
        if judge and changed and not outcome.senseless:
            _judge(outcome, now)


def _verdict(outcome: Outcome, now: int) -> tuple[str, int | None]:
    """Return the status that a delivery has now, and when it is tried again."""
    if outcome.good:
        return "delivered", None
    if outcome.senseless:
        return "cancelled", None
    if outcome.job.attempts >= len(LADDER_MS):
        return "failed", None
    pause = LADDER_MS[outcome.job.attempts]
    return "pending", now + min(max(pause, outcome.retry_after_ms), LADDER_MS[-1])


def _judge(outcome: Outcome, now: int) -> None:
    """Note whether a webhook works; after days in which nothing was taken it is switched off, and people are told."""
    webhook_id = outcome.job.webhook_id
    if outcome.good:
        run(
            "UPDATE webhook SET failing_since = NULL, failed_at = NULL WHERE id = ? AND failing_since IS NOT NULL",
            (webhook_id,),
        )
        return
    state = fetch_one("SELECT enabled, failing_since, failed_at FROM webhook WHERE id = ?", (webhook_id,))
    if state is None or not state[0]:
        return
    _, since, last = state
    # What lies ahead was written by a clock that has been put right since
    if since is None or since > now or now - last > _APART_MS:
        since = now
    run("UPDATE webhook SET failing_since = ?, failed_at = ? WHERE id = ?", (since, now, webhook_id))
    if outcome.status == _GONE:
        _switch_off(webhook_id, "gone", now)
    elif now - since >= _OFF_AFTER_MS:
        _switch_off(webhook_id, "failing", now)


def _switch_off(webhook_id: int, reason: str, now: int) -> None:
    run(
        "UPDATE webhook SET enabled = 0, disabled_at = ?, disabled_reason = ?, updated_at = ? WHERE id = ?",
        (now, reason, now, webhook_id),
    )
    switched_off(webhook_id)
