"""Rows of the ledger in hand, and the small writes that every step of theirs shares."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from appliance.db.dialect.documents import among
from appliance.db.dialect.texts import larger
from appliance.db.open import connection, rows, scalar
from appliance.delivery.send import Envelope
from appliance.errors import DeliveryError
from appliance.events import log
from appliance.events.log import Happened
from appliance.messages import message_counters

# Due at once, and still so when the clock steps back
AT_ONCE = 0
# So too, and behind what has not gone yet, where whoever reads the rows in their order still comes by
AGAIN_AT_ONCE = 1
# So too what flows send, behind what a program sends to one person
BY_FLOWS_AT_ONCE = 2


class Claim(NamedTuple):
    """A message in hand."""

    id: int
    account_id: int
    contact_id: int | None
    campaign_id: int | None
    channel: str
    recipient: str
    recipient_key: str
    provider: str
    source_type: str
    transactional: bool
    test: bool
    attempts: int
    doubts: int
    created_at: int
    template_id: int | None
    flow_id: int | None
    dated_at: int | None
    digest: int | None
    run_id: int | None
    step_id: int | None

    @property
    def is_single(self) -> bool:
        """Return whether it is nobody's but its recipient's: neither of a campaign nor of a flow."""
        return self.campaign_id is None and self.run_id is None

    @property
    def kind(self) -> str:
        """The kind of address it goes to."""
        return "phone" if self.channel == "sms" else "email"


class Prepared(NamedTuple):
    """A message ready to be handed over, and what its row shall say about it.

    An SMS is its text in UTF-8, from a sender to a number, without subject and Message-ID.
    """

    envelope: Envelope
    subject: str
    sender: str
    internet_message_id: str
    parts: int | None = None  # of an SMS, as it is paid for
    hinted: bool = False  # it says how to opt out
    looked: int | None = None  # may have been taken, and is looked for: how often that was in vain


class Outcome(msgspec.Struct):
    """What became of a claimed message; without an error it was accepted."""

    claim: Claim
    error: DeliveryError | None = None
    skip_reason: str | None = None
    subject: str | None = None
    sender: str | None = None
    internet_message_id: str | None = None
    reply: str | None = None
    prepared: Prepared | None = None  # what was handed over, where it may have to be repeated
    via: dict[str, str] | None = None  # whose server took it and how, where we deliver ourselves
    provider_id: str | None = None  # what the provider of an SMS calls it
    first_status: str = "sent"  # its first word on what became of that (`sms.told.STATUSES`)


COLUMNS = ", ".join(Claim._fields)


def skip(row: Claim, reason: str, now: int) -> None:
    """End a row without an attempt; one that may have been taken before stays uncertain, for that is what is known."""
    if row.doubts:
        return uncertain(row, f"not repeated: {reason}", now)
    connection().execute(
        "UPDATE message SET status = 'skipped', skip_reason = ?, due_at = NULL, claimed_by = NULL, updated_at = ? "
        "WHERE id = ?",
        (reason, now, row.id),
    )
    message_counters.ended(row, "skipped")
    return record(row, f"{row.channel}_skipped", {"reason": reason})


def uncertain(row: Claim, text: str, now: int) -> None:
    """End a row of which nobody knows whether it was taken."""
    connection().execute(
        f"UPDATE message SET status = 'uncertain', doubts = {larger('doubts', '1')}, due_at = NULL, claimed_by = NULL, "
        "error_code = 'in_doubt', error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END, updated_at = ? "
        "WHERE id = ?",
        (text, now, row.id),
    )
    message_counters.ended(row, "uncertain")


def fault(row: Claim, error: DeliveryError | None) -> None:
    """Keep the other side's words with the row; they may name the recipient, so not with one who was erased."""
    if error is None:
        return
    connection().execute(
        "UPDATE message SET error_code = ?, error_smtp = ?, error_enhanced = ?, "
        "error_text = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END WHERE id = ?",
        (type(error).__name__.lower(), error.smtp, error.enhanced, error.text[:1000], row.id),
    )


def source_name(row: Claim) -> str | None:
    """Return the name of the campaign or flow a row belongs to."""
    table, number = ("campaign", row.campaign_id) if row.campaign_id is not None else ("flow", row.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None


def about(row: Claim) -> dict[str, Any]:
    """Return what every event of a message says: which it is, and what sent it."""
    return {"message_id": row.id, "campaign_id": row.campaign_id, "flow_id": row.flow_id, "step_id": row.step_id}


def depths(claims: Iterable[Claim]) -> dict[int, int]:
    """Return by message id how deep in a chain of flows its events stand: one below the run that sent it."""
    sent = {claim.id: claim.run_id for claim in claims if claim.run_id is not None}
    if not sent:
        return {}
    asked = f"SELECT id, chain_depth FROM run WHERE id {among('?')}"
    known = dict(rows(asked, (json.dumps(list(sent.values())),)))
    return {message_id: known.get(run_id, 0) + 1 for message_id, run_id in sent.items()}


def record(row: Claim, event: str, data: dict[str, Any]) -> None:
    """Write the event of what happened to a row, for whom the row belongs to now."""
    # While it was in hand its contact may have been merged into another, or deleted
    contact_id = scalar("SELECT contact_id FROM message WHERE id = ?", (row.id,))
    log.record(
        Happened(
            row.account_id, event, contact_id,
            about(row) | data, resource_uid=f"message:{row.id}", resource_name=source_name(row), test=row.test,
            chain_depth=depths([row]).get(row.id, 0),
        )
    )  # fmt: skip
