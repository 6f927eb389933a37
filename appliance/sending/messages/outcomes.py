"""Why a message in hand was not accepted, written with its counters and its event in one transaction.

What was accepted is written in one place only, for all of a batch: `hot.step`.
"""

import random

from appliance.audience.contacts import suppress
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.suppress import Case
from appliance.core import clock, tokens, wake_ups
from appliance.core.addresses import Address
from appliance.core.errors import (
    DeliveryError,
    Later,
    Ours,
    Permanent,
    Temporary,
    Throttled,
    Unauthenticated,
    Uncertain,
    Unreachable,
    Unwelcome,
)
from appliance.sending.delivery import classes
from appliance.sending.delivery.classes import Class
from appliance.sending.messages import ledger, message_counters, secret_values, warm_up
from appliance.sending.messages.ledger import Claim, Outcome, Prepared
from appliance.sending.sms import codes
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.settings.schema import Email, Sms
from appliance.storage.open import connection, fetch_one, rows, run, scalar
from appliance.storage.work import after_commit, writing

# What a refusal does to an address: kept with its class, and the address is suppressed once that is enough.
#
# The same whether a server said it at once (`outcomes`) or a report brought it later (`feedback.record`). What is
# about size, content, policy, reputation or ourselves never counts against a recipient (docs/decisions.md#9).

_DAY_MS = 24 * 3600 * 1000
# So long what speaks against an address is remembered, and so often it may
_WINDOW_MS = 30 * _DAY_MS
_ENOUGH = {"second": 2, "third": 3, "fifth": 5}
# A message that was accepted arrived if nothing came back for so long
_ARRIVED_AFTER_MS = 2 * _DAY_MS
_SOFT = tuple(one.name for one in classes.ALL if one.against in ("second", "fifth"))
_TWICE = tuple(one.name for one in classes.ALL if one.against == "second")
_THRICE = tuple(one.name for one in classes.ALL if one.against == "third")
# A network that refuses us, not our recipients: who is registered wrongly is told so, and so is what is filtered
_OURS = {"strangers": ("authentication", "unregistered"), "filtered": ("filtered",)}
_WATCHED = tuple(kind for kinds in _OURS.values() for kind in kinds)
_TAKEN = "CASE WHEN status = 'sent' AND sent_at <= ?1 THEN sent_at ELSE 0 END"
_SUCCESS = (
    f"SELECT max(max(coalesce(delivered_at, 0), coalesce(clicked_at, 0), {_TAKEN})) FROM message "
    "WHERE account_id = ?2 AND recipient_key = ?3 AND test = 0 AND status IN ('sent', 'delivered', 'complained') "
)


def against(row: Claim, found: Class, source: str, text: str) -> Class:
    """Keep what speaks against the address of a message, and answer what it comes to with what there was before.

    A test and an address that was erased meanwhile are nobody's fault.
    """
    writing()
    contact = rows("SELECT contact_id, recipient_key FROM message WHERE id = ?", (row.id,))
    if row.test or not contact or contact[0][1] is None:
        return found
    now, hashed = clock.now_ms(), tokens.address_hash(row.kind, row.recipient_key)
    run(
        "INSERT INTO returned (account_id, message_id, campaign_id, address_hash, kind, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (message_id) DO UPDATE SET kind = excluded.kind, "
        "created_at = excluded.created_at",
        (row.account_id, row.id, row.campaign_id, hashed, found.name, now),
    )
    message_counters.bounced(row, found.name)
    if found.name in _WATCHED and row.campaign_id is not None:
        after_commit(lambda: wake_ups.ring("campaigns"))
    if found is classes.HARD:
        warm_up.came_back(row, "hard")
    if found.against == "nobody":
        return found
    if found.against in ("at_once", "left"):
        _suppress(row, "hard_bounce" if found.against == "at_once" else "stop_keyword", source, text)
        return found
    if row.channel == "email":
        run("UPDATE contact SET email_soft_bounce_count = email_soft_bounce_count + 1 WHERE id = ?", (contact[0][0],))
    since = max(now - _WINDOW_MS, _last_success(row, contact[0][0], now))
    if found.against == "second" and _count(row.account_id, hashed, since, _TWICE) >= _ENOUGH["second"]:
        _suppress(row, "hard_bounce", source, text)
        return classes.HARD
    if found.against == "third" and _count(row.account_id, hashed, since, _THRICE) >= _ENOUGH["third"]:
        _suppress(row, "soft_bounce", source, text)
    if _count(row.account_id, hashed, since, _SOFT) >= _ENOUGH["fifth"]:
        _suppress(row, "soft_bounce", source, text)
    return found


def unwelcome(campaign_id: int) -> dict[str, int]:
    """Count the messages of a campaign that came back for what we are: not known as ours, or taken for unwanted."""
    words = f"SELECT kind, count(*) FROM returned WHERE campaign_id = ? AND kind IN {_WATCHED!r} GROUP BY kind"
    found = dict(rows(words, (campaign_id,)))
    return {name: sum(found.get(kind, 0) for kind in kinds) for name, kinds in _OURS.items()}


def of_unwelcome(campaign_id: int) -> tuple[str, str | None, str | None] | None:
    """Return (class, code, words) of the last message of a campaign that came back for what we are."""
    found = rows(
        f"SELECT r.kind, m.error_enhanced, m.error_text FROM returned r JOIN message m ON m.id = r.message_id "
        f"WHERE r.campaign_id = ? AND r.kind IN {_WATCHED!r} ORDER BY r.created_at DESC, r.id DESC LIMIT 1",
        (campaign_id,),
    )
    return found[0] if found else None


def _count(account_id: int, address_hash: bytes, since: int, kinds: tuple[str, ...]) -> int:
    words = (
        "SELECT count(*) FROM returned WHERE account_id = ? AND address_hash = ? AND created_at > ? "
        f"AND kind IN ({','.join('?' * len(kinds))})"
    )
    return int(scalar(words, (account_id, address_hash, since, *kinds)))


def _last_success(row: Claim, contact_id: int | None, now: int) -> int:
    # Each of the two has its index
    values = (now - _ARRIVED_AFTER_MS, row.account_id, row.recipient_key)
    if contact_id is None:
        return int(scalar(f"{_SUCCESS} AND contact_id IS NULL", values) or 0)
    return int(scalar(f"{_SUCCESS} AND contact_id = ?4", (*values, contact_id)) or 0)


def _suppress(row: Claim, reason: str, source: str, text: str) -> None:
    suppress.add(
        row.account_id, Address(row.kind, row.recipient, row.recipient_key),
        Case(reason, source=source, diagnostic=text[:1000] or None),
        Evidence(source=source, actor="system", message_id=row.id),
    )  # fmt: skip


# An SMS that may have been taken is looked for after this, and then again (`lookups`)
_FIRST_LOOK_SECONDS = 5.0

# Whose campaign was cancelled, or whose run a person ended (a merge: but what was asked for), while it was in hand
_TAKEN_BACK = (
    "SELECT 1 FROM campaign WHERE id = ? AND phase = 'cancelled' UNION ALL SELECT 1 FROM run r JOIN flow f "
    "ON f.id = r.flow_id WHERE r.id = ? AND (f.deleted_at IS NOT NULL OR f.closing IS NOT NULL "
    "OR r.exit_reason IN ('taken_out', 'flow_archived') OR r.exit_reason IN ('contact_merged', 'goal') AND NOT ?)"
)


def finish(outcome: Outcome) -> None:
    """Write why a message was refused, put off, left in doubt or skipped, with its counters and its event."""
    writing()
    row, error, now = outcome.claim, outcome.error, clock.now_ms()
    if scalar("SELECT status FROM message WHERE id = ?", (row.id,)) != "sending":
        return None  # written before: what is known is kept until it is stored, and may be handed in twice
    if outcome.skip_reason is not None:
        _describe(outcome, now)
        ledger.fault(row, error)
        return ledger.skip(row, outcome.skip_reason, now)
    if error is None:
        raise ValueError("what was accepted is written by hot.step")
    if (error.enhanced or "").startswith(("4.7.", "5.7.")):
        warm_up.came_back(row, "refused", outcome.sender)
    attempted = isinstance(error, Temporary | Unauthenticated)
    if (
        isinstance(error, Unreachable | Ours)
        and not attempted
        and not (row.campaign_id is None and is_given_up(row, now))
    ):
        ledger.fault(row, error)
        # Nobody's attempt: the way out is closed, not this recipient
        delay = seconds(way_of(row).probe_after)
        return _again(row, now, delay, attempts=row.attempts, doubts=row.doubts)
    if isinstance(error, Later) and not (isinstance(error, Throttled) and is_given_up(row, now)):
        ledger.fault(row, error if isinstance(error, Throttled) else None)
        return _again(row, now, error.seconds, attempts=row.attempts, doubts=row.doubts)
    _describe(outcome, now)
    if isinstance(error, Uncertain):
        return doubt(row, error, now, outcome.prepared)
    ledger.fault(row, error)
    if attempted and not is_given_up(row, now):
        return _again(row, now, _delay(row), attempts=row.attempts + 1, doubts=row.doubts)
    return _refused(row, error, now)


def _describe(outcome: Outcome, now: int) -> None:
    # Whoever was erased while their message was in hand stays erased
    connection().execute(
        "UPDATE message SET subject = CASE WHEN recipient_key IS NULL THEN NULL ELSE coalesce(?, subject) END, "
        "sender = coalesce(?, sender), "
        "internet_message_id = coalesce(?, internet_message_id), updated_at = ? WHERE id = ?",
        (outcome.subject, outcome.sender, outcome.internet_message_id, now, outcome.claim.id),
    )


def _again(row: Claim, now: int, delay: float, attempts: int, doubts: int) -> None:
    # What may go at once is due since ever: a clock that steps back keeps it waiting for nothing
    due = now + int(delay * 1000) if delay else ledger.AGAIN_AT_ONCE
    cancelled = fetch_one(_TAKEN_BACK, (row.campaign_id, row.run_id, row.transactional))
    if cancelled and doubts:
        return ledger.uncertain(row, "not repeated: cancelled", now)
    connection().execute(
        "UPDATE message SET status = ?, due_at = ?, attempts = ?, doubts = ?, claimed_by = NULL, updated_at = ? "
        "WHERE id = ?",
        ("cancelled" if cancelled else "queued", None if cancelled else due, attempts, doubts, now,
         row.id),
    )  # fmt: skip
    message_counters.ended(row, "cancelled" if cancelled else "put_off")
    return None


def doubt(row: Claim, error: DeliveryError, now: int, handed_over: Prepared | None) -> None:
    """Decide about a message that may have been taken: look for it where that can be, else once more, or hold (P3).

    The bytes are kept whatever is decided: a person who sends it again sends what may have arrived.
    """
    _keep(row, handed_over)
    if _is_looked_for(row):
        ledger.fault(row, error)
        return _again(row, now, _FIRST_LOOK_SECONDS, attempts=row.attempts + 1, doubts=row.doubts + 1)
    if _goes_again(row):
        ledger.fault(row, error)
        return _again(row, now, 0, attempts=row.attempts + 1, doubts=1)
    connection().execute("UPDATE message SET attempts = attempts + 1, doubts = doubts + 1 WHERE id = ?", (row.id,))
    return ledger.uncertain(row, error.text, now)


def _goes_again(row: Claim) -> bool:
    """Return whether a message in doubt is handed over again: once if the settings say so, or where it counts once."""
    if row.channel == "sms" and row.provider in PROVIDERS and PROVIDERS[row.provider].takes_once:
        return True
    return way_of(row).in_doubt == "resend" and row.doubts == 0


def _is_looked_for(row: Claim) -> bool:
    """Begin to ask the provider of an SMS for it, if it can be asked and what was said is known."""
    if row.channel != "sms" or row.provider not in PROVIDERS or not PROVIDERS[row.provider].can_look_up:
        return False
    kept = connection().execute("UPDATE repeat SET looked = 0 WHERE message_id = ? RETURNING 1", (row.id,))
    return kept.fetchone() is not None


def _keep(row: Claim, handed_over: Prepared | None) -> None:
    """Keep the bytes of a message that is repeated, unless it is secret, or its recipient was erased meanwhile."""
    if handed_over is None or secret_values.hides(row):
        return
    envelope, *words = handed_over[:4]
    connection().execute(
        "INSERT INTO repeat (message_id, mail_from, rcpt_to, content, subject, sender, "
        "internet_message_id, parts, hinted) "
        "SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM message WHERE id = ? AND recipient_key IS NOT NULL "
        "ON CONFLICT (message_id) DO UPDATE SET mail_from = excluded.mail_from, rcpt_to = excluded.rcpt_to, "
        "content = excluded.content, subject = excluded.subject, sender = excluded.sender, "
        "internet_message_id = excluded.internet_message_id, parts = excluded.parts, hinted = excluded.hinted, "
        "looked = NULL",
        (*envelope[:3], *words, handed_over.parts, handed_over.hinted, row.id),
    )


def _refused(row: Claim, error: DeliveryError, now: int) -> None:
    code = "refused" if isinstance(error, Permanent) else "expired"
    connection().execute("DELETE FROM repeat WHERE message_id = ?", (row.id,))
    connection().execute(
        "UPDATE message SET status = 'failed', attempts = attempts + 1, due_at = NULL, claimed_by = NULL, "
        "error_code = ?, updated_at = ? WHERE id = ?",
        (code, now, row.id),
    )
    message_counters.ended(row, "failed")
    if not row.test:
        connection().execute(
            "UPDATE channel SET fail_count = fail_count + 1 WHERE account_id = ? AND kind = ? AND key = ?",
            (row.account_id, row.kind, row.recipient_key),
        )
    # Who was erased while their message was in hand is suppressed already, and the words may name them
    erased = scalar("SELECT recipient_key FROM message WHERE id = ?", (row.id,)) is None
    meant, source = (codes.judged(error), row.provider) if row.channel == "sms" else (judged(error), "smtp")
    found = against(row, meant, source, error.text)
    said = {"reason": code, "class": found.name, "smtp": error.smtp, "enhanced": error.enhanced}
    event = found.event if row.channel == "email" else f"{row.channel}_failed"
    ledger.record(row, event, said if erased else {**said, "text": error.text[:1000]})
    if found is classes.HARD and not row.test and row.campaign_id is not None:
        message_counters.against(row.campaign_id, "refused")


def judged(error: DeliveryError) -> Class:
    """Return what it means that a message was given up or refused for good."""
    if error.smtp is None and error.enhanced == "5.1.2":
        return classes.NOWHERE  # no server said so but DNS, where a domain may be missing for a day
    found = classes.classify(error.smtp, error.enhanced, error.text)
    if isinstance(error, Unwelcome):
        # The recipient was not even named: an unknown user of whom it speaks is the sender
        return found if found.against == "nobody" else classes.SETUP
    if isinstance(error, Permanent) or (found.against == "nobody" and found is not classes.REFUSED):
        return found
    # Nobody's mailbox but the way there: it broke, it is throttled, it refuses us
    if (error.smtp is None and error.enhanced is None) or not isinstance(error, Temporary):
        return classes.SETUP
    return found if found in (classes.FULL, classes.EXPIRED) else classes.TEMPORARY


def way_of(row: Claim) -> Email | Sms:
    """Return the settings of the channel that a message goes by."""
    here = config.current()
    return here.sms if row.channel == "sms" else here.email


def _delay(row: Claim) -> float:
    """Return the seconds until the next attempt: the ladder with 20 % jitter (P6)."""
    ladder = way_of(row).retry_after or [300.0]
    return ladder[min(row.attempts, len(ladder) - 1)] * random.uniform(0.8, 1.2)


def is_given_up(row: Claim, now: int) -> bool:
    """Return whether a message was tried for as long as the settings allow."""
    here = way_of(row)
    limit = here.give_up_transactional if row.transactional else here.give_up
    # From the first attempt: who waited for their turn, for a resume or for their time before it was not tried by then
    return now - (row.dated_at or row.created_at) > seconds(limit) * 1000
