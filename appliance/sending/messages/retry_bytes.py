"""The exact bytes of messages in doubt, kept for their repeat, by itself or by a person: the same message (P3)."""

import logging
import zlib

from appliance.core import clock
from appliance.core.errors import Later, Uncertain
from appliance.sending.delivery.send import Envelope
from appliance.sending.messages import ledger, outcomes
from appliance.sending.messages.crash_check import IN_HAND
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome, Prepared
from appliance.sending.messages.prepare import Workshop
from appliance.storage.open import connection, fetch_one, rows, run
from appliance.storage.work import writing

log = logging.getLogger("campanero.messages")
# So many are dropped in one transaction
_MAX_MESSAGES = 100
_STOPPED = "the service stopped while this message was in hand"


def digest(prepared: Prepared) -> int:
    """Return a checksum of the bytes of a message; it is stored with the mark, before they leave.

    An SMS does not say in its text from whom it is, and is looked for by that.
    """
    sender = prepared.sender.encode() if prepared.parts is not None else b""
    return zlib.crc32(prepared.envelope.content, zlib.crc32(sender))


def load(message_id: int) -> Prepared | None:
    """Return a message as it was handed over, if that was kept."""
    row = fetch_one(
        "SELECT mail_from, rcpt_to, content, subject, sender, internet_message_id, parts, hinted, looked FROM repeat "
        "WHERE message_id = ?",
        (message_id,),
    )
    if row is None:
        return None
    mail_from, rcpt_to, content, subject, sender, name, parts, hinted, looked = row
    envelope = Envelope(mail_from, rcpt_to, content, is_stuffed=True)
    return Prepared(envelope, subject, sender, name, parts, bool(hinted), looked)


def in_hand() -> list[tuple[Claim, Prepared | None]]:
    """Return what an earlier process had in hand when it died, each with its bytes if they can be made again.

    They are compared with the digest of what left: a person or a condition may have changed since.
    """
    workshop = Workshop()
    found = []
    for row in rows(f"SELECT {COLUMNS} FROM message WHERE id IN ({IN_HAND})"):
        claim = Claim._make(row)
        made: Prepared | None = None
        try:
            made = load(claim.id) or workshop.prepare(claim)
        except Exception as error:
            # Whatever is wrong with this one, the service begins and the others go out
            log.warning("message %s cannot be made again: %r", claim.id, error)
        found.append((claim, made if made is not None and digest(made) == claim.digest else None))
    return found


def recover(found: list[tuple[Claim, Prepared | None]]) -> int:
    """Decide about every row that an earlier process had in hand (`in_hand`); run once at start. Answers how many."""
    writing()
    now = clock.now_ms()
    for claim, made in found:
        if claim.digest is None:
            # It could not be made (`making`), so nothing of it was handed to anybody
            outcomes.finish(Outcome(claim, Later(_STOPPED, 0)))
        elif made is None and claim.doubts == 0 and outcomes.way_of(claim).in_doubt == "resend":
            connection().execute("UPDATE message SET attempts = attempts + 1 WHERE id = ?", (claim.id,))
            ledger.uncertain(claim, f"{_STOPPED}, and what it said has changed since", now)
        else:
            outcomes.doubt(claim, Uncertain(_STOPPED), now, made)
    return len(found)


def sweep() -> int:
    """Drop the bytes of some messages that nobody may send again, as their campaign is cancelled; returns how many."""
    writing()
    return run(
        "DELETE FROM repeat WHERE id IN (SELECT r.id FROM repeat r JOIN message m ON m.id = r.message_id "
        "JOIN campaign c ON c.id = m.campaign_id WHERE m.status = 'uncertain' AND c.phase = 'cancelled' LIMIT ?)",
        (_MAX_MESSAGES,),
    )
