"""What a person decides about messages: send them again, count them as sent, or take them back.

Only what has ended badly or in doubt can be decided (docs/decisions.md#7); what waits can be taken back.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid
from appliance.core.transitions import Action, Standing, refusal, taken
from appliance.sending.messages import hot, ledger, queue, retry_bytes
from appliance.sending.messages.ledger import AGAIN_AT_ONCE, COLUMNS, Claim, Outcome
from appliance.storage.models import Message
from appliance.storage.open import connection, fetch_one, rows
from appliance.storage.work import after_commit, writing

log = logging.getLogger("campanero.messages")
RETRIABLE = ("failed", "uncertain")
# What a person may do with a message
ACTIONS = {
    "retry": Action("sent again", "queued", RETRIABLE),
    "assume_sent": Action("counted as sent", "sent", ("uncertain",)),
    "cancel": Action("cancelled", "cancelled", ("queued", "held")),
}
# So many are decided in one transaction
_MAX_MESSAGES = 500


class Part(NamedTuple):
    """Messages of a campaign: of one status, behind an id, and only those chosen unless that is None."""

    status: str
    after: int = 0
    chosen: tuple[int, ...] | None = None


def retry(account_id: int, message_id: int, actor: str) -> Message:
    """Send a message again that was refused, or may not have arrived: the same bytes under the same Message-ID.

    Its campaign is reopened by it if that was completed already; that of a cancelled one is never sent.
    Raises NotFound, or Invalid: `invalid_transition`, or `recipient_suppressed` for one who may not be written to.
    """
    writing()
    row = ledger.get(account_id, message_id)
    _require(row, "retry")
    reason = queue.refusal(_claim(row.id))
    if reason is not None:
        raise Invalid(
            {"to": ["may not be written to"]}, reason="recipient_suppressed", message_id=row.id, skip_reason=reason
        )
    _open([row.id], row.campaign_id)
    log.info("%s sends message %s again", actor, row.id)
    return ledger.get(account_id, message_id)


def assume_sent(account_id: int, message_id: int, actor: str) -> Message:
    """Count a message in doubt as sent; raises NotFound, or Invalid (`invalid_transition`)."""
    writing()
    row = ledger.get(account_id, message_id)
    _require(row, "assume_sent")
    _count([row.id])
    log.info("%s counts message %s as sent", actor, row.id)
    return ledger.get(account_id, message_id)


def arrived(message_id: int, provider_id: str | None = None) -> None:
    """Count a message in doubt as sent, for it came back; one that waits to be repeated is not needed any more.

    Of an SMS that is under the name that its provider tells of it by.
    """
    writing()
    _count([message_id], provider_id)


def cancel(account_id: int, message_id: int, actor: str) -> Message:
    """Take a waiting message back; one that may have arrived before stays in doubt.

    Raises NotFound, or Invalid (`invalid_transition`).
    """
    writing()
    row = ledger.get(account_id, message_id)
    _require(row, "cancel")
    connection().execute(
        "UPDATE message SET status = CASE WHEN doubts > 0 THEN 'uncertain' ELSE 'cancelled' END, due_at = NULL, "
        "updated_at = ? WHERE id = ?",
        (clock.now_ms(), row.id),
    )
    log.info("%s takes message %s back", actor, row.id)
    return ledger.get(account_id, message_id)


def retry_some(campaign_id: int, part: Part, actor: str) -> tuple[int, int]:
    """Send some of a campaign's messages again; returns how many, and behind which id to go on (0: all were seen).

    Whoever may not be written to any more is left as they are.
    """
    writing()
    found = _some(campaign_id, part) if part.status in RETRIABLE and not _is_over(campaign_id) else []
    may = [row.id for row in found if queue.refusal(row) is None]
    _open(may, campaign_id)
    log.info("%s sends %s messages of campaign %s again", actor, len(may), campaign_id)
    return len(may), found[-1].id if len(found) == _MAX_MESSAGES else 0


def retry_these(account_id: int, numbers: Sequence[int], actor: str) -> int:
    """Send some of an account's messages again, whatever they belong to; returns how many.

    Whoever may not be written to any more, and what ended otherwise, is left as it is.
    """
    writing()
    sql = f"SELECT {COLUMNS} FROM message WHERE account_id = ? AND id = ? AND status IN ('failed', 'uncertain')"
    found = [Claim._make(row) for number in numbers for row in rows(sql, (account_id, number))]
    of: dict[int | None, list[int]] = {}
    for row in found:
        if not _is_over(row.campaign_id) and queue.refusal(row) is None:
            of.setdefault(row.campaign_id, []).append(row.id)
    for campaign_id, ids in of.items():
        _open(ids, campaign_id)
    log.info("%s sends %s messages again", actor, sum(map(len, of.values())))
    return sum(map(len, of.values()))


def assume_some(campaign_id: int, part: Part, actor: str) -> tuple[int, int]:
    """Count some of a campaign's messages in doubt as sent; answers as `retry_some`."""
    writing()
    found = _some(campaign_id, part._replace(status="uncertain"))
    _count([row.id for row in found])
    log.info("%s counts %s messages of campaign %s as sent", actor, len(found), campaign_id)
    return len(found), found[-1].id if len(found) == _MAX_MESSAGES else 0


def _some(campaign_id: int, part: Part) -> list[Claim]:
    chosen = "" if part.chosen is None else f"AND id IN ({','.join('?' * len(part.chosen))}) "
    found = rows(
        f"SELECT {COLUMNS} FROM message WHERE campaign_id = ? AND status = ? AND id > ? {chosen}ORDER BY id LIMIT ?",
        (campaign_id, part.status, part.after, *(part.chosen or ()), _MAX_MESSAGES),
    )
    return [Claim._make(row) for row in found]


def _claim(number: int) -> Claim:
    return Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])


def _is_over(campaign_id: int | None) -> bool:
    """Return whether nothing of a campaign may ever leave again."""
    return fetch_one("SELECT 1 FROM campaign WHERE id = ? AND phase = 'cancelled'", (campaign_id,)) is not None


def _require(row: Message, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a message takes an action now."""
    is_over = _is_over(row.campaign_id)
    names = [name for name in taken(ACTIONS, row.status) if name != "retry" or not is_over]
    if action not in names:
        standing = Standing(row.status, [ACTIONS[name].to for name in names], names)
        why = "Its campaign was cancelled." if is_over and row.status in ACTIONS[action].needs else ""
        raise refusal("message", standing, action, ACTIONS[action], why)


def _open(numbers: list[int], campaign_id: int | None) -> None:
    """Let rows be taken in hand again. What may have arrived once keeps that doubt: it is not repeated by itself."""
    if not numbers:
        return
    now = clock.now_ms()
    # Whoever decides so does not wait for what a provider may know of it
    connection().executemany("UPDATE repeat SET looked = NULL WHERE message_id = ?", [(number,) for number in numbers])
    connection().executemany(
        "UPDATE message SET status = 'queued', due_at = ?, updated_at = ? WHERE id = ?",
        [(AGAIN_AT_ONCE, now, number) for number in numbers],
    )
    if campaign_id is not None:
        # It was completed and stays so in `status`; its phase says that something moves, until nothing is open again
        connection().execute(
            "UPDATE campaign SET phase = CASE WHEN phase = 'completed' THEN 'sending' ELSE phase END, "
            "updated_at = max(?, updated_at + 1) WHERE id = ?",
            (now, campaign_id),
        )
    after_commit(lambda: wake_ups.ring("outbox"))


def _count(numbers: list[int], provider_id: str | None = None) -> None:
    """Let rows be what accepted ones are, with all that is counted and told of those."""
    found = rows(
        f"SELECT {COLUMNS}, subject, sender, internet_message_id FROM message "
        f"WHERE id IN ({','.join('?' * len(numbers))})",
        numbers,
    )
    # The attempt that ended in doubt is counted already
    connection().executemany(
        "UPDATE message SET status = 'sending', attempts = max(attempts - 1, 0) WHERE id = ?",
        [(number,) for number in numbers],
    )
    known = [(Claim._make(row[:-3]), row[-3:]) for row in found]
    hot.step(
        [
            Outcome(
                claim, subject=s, sender=f, internet_message_id=i, provider_id=provider_id,
                prepared=retry_bytes.load(claim.id) if claim.channel == "sms" else None,
            )
            for claim, (s, f, i) in known
        ],
        [],
        "",
    )  # fmt: skip
