"""Who may be written to: the one place that opts addresses in and out (decisions, section 9, "Who lifts what").

Every change appends a consent row with its evidence. A channel's columns are the state that follows from them.
"""

from typing import Literal

import msgspec

from appliance import clock, tokens
from appliance.db.open import one, rows, run
from appliance.db.work import writing
from appliance.events import log
from appliance.events.log import Happened
from appliance.tables import Channel, OptOut

By = Literal["recipient", "operator"]

# Only the person's own act lifts these (and of `erased` only a confirmation of theirs).
_KEEPS_OUT = ("complaint", "erased")
# The gravest first: this is what a skipped row and a page name
GRAVITY = ("erased", "complaint", "hard_bounce", "stop_keyword", "manual", "soft_bounce")


class Evidence(msgspec.Struct):
    """How an act came about, for the consent row."""

    source: str
    actor: str | None = None
    ip: str | None = None
    user_agent: str | None = None
    text: str | None = None
    message_id: int | None = None
    test: bool = False


def suppression(account_id: int, kind: str, address_hash: bytes) -> str | None:
    """Answer the gravest reason now in force for an address, or None."""
    found = {
        row[0]
        for row in rows(
            "SELECT reason FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? "
            "AND (expires_at IS NULL OR expires_at > ?)",
            (account_id, kind, address_hash, clock.now_ms()),
        )
    }
    return next((reason for reason in GRAVITY if reason in found), None)


def remembered(account_id: int, kind: str, address_hash: bytes) -> tuple[str, int] | None:
    """Answer (by, when) of an opt-out that outlived its contact, or None."""
    row = one(
        "SELECT by, created_at FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?",
        (account_id, kind, address_hash),
    )
    return (row[0], row[1]) if row else None


def adopt(channel: Channel) -> None:
    """Give a new channel what its address already carries: suppressions, and opt-outs of a deleted contact."""
    hashed = tokens.address_hash(channel.kind, channel.key)
    channel.suppression = suppression(channel.account_id, channel.kind, hashed)
    kept = remembered(channel.account_id, channel.kind, hashed)
    channel.opted_out_by, channel.opt_out_at = kept or (None, None)
    channel.opt_in_at, channel.subscribed, channel.verified_at = None, False, None


def wish(channel: Channel, subscribed: bool | None, evidence: Evidence) -> bool:
    """Apply an operator's write to a channel; `None` is the address alone. Answers whether an opt-out was kept."""
    writing()
    if subscribed is False:
        if channel.subscribed:
            opt_out(channel, "operator", evidence)
        return False
    if channel.suppression in _KEEPS_OUT:
        return True
    if channel.opted_out_by == "recipient" and subscribed is None:
        return True
    if not channel.subscribed:
        opt_in(channel, "operator", evidence)
    return channel.suppression is not None


def opt_in(channel: Channel, by: By, evidence: Evidence) -> None:
    """Opt a channel in and keep the evidence."""
    writing()
    now = clock.now_ms()
    channel.subscribed, channel.opt_in_at = True, now
    channel.opt_out_at = channel.opted_out_by = None
    channel.updated_at = now
    channel.save()
    run(
        "DELETE FROM opt_out WHERE account_id = ? AND kind = ? AND address_hash = ?",
        (channel.account_id, channel.kind, tokens.address_hash(channel.kind, channel.key)),
    )
    _record(channel, "opt_in", by, evidence)


def opt_out(channel: Channel, by: By, evidence: Evidence) -> bool:
    """Opt a channel out and keep the evidence; False if the recipient had done so before (nothing changes then)."""
    writing()
    if not channel.subscribed and channel.opted_out_by == "recipient":
        return False
    if not channel.subscribed and channel.opt_out_at is not None and by == "operator":
        return False
    now = clock.now_ms()
    channel.subscribed, channel.opt_out_at, channel.opted_out_by = False, now, by
    channel.updated_at = now
    channel.save()
    _record(channel, "opt_out", by, evidence)
    return True


def remember(channel: Channel) -> None:
    """Keep a channel's opt-out by the hash of its address, before the channel goes."""
    writing()
    if channel.opt_out_at is None:
        return
    OptOut.insert(
        account=channel.account_id,
        kind=channel.kind,
        address_hash=tokens.address_hash(channel.kind, channel.key),
        by=channel.opted_out_by or "operator",
        created_at=channel.opt_out_at,
    ).on_conflict_replace().execute()


def _record(channel: Channel, act: str, by: By, evidence: Evidence) -> None:
    run(
        "INSERT INTO consent (account_id, contact_id, kind, address_hash, act, by, source, actor, ip, user_agent, "
        "text, data, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, json(?), ?)",
        (
            channel.account_id, channel.contact_id, channel.kind, tokens.address_hash(channel.kind, channel.key), act,
            by, evidence.source, evidence.actor, evidence.ip, evidence.user_agent, evidence.text,
            f'{{"message_id":{evidence.message_id}}}' if evidence.message_id else "{}", clock.now_ms(),
        ),
    )  # fmt: skip
    log.record(
        Happened(
            channel.account_id,
            act,
            contact_id=channel.contact_id,
            data={"channel": channel.kind, "by": by, "source": evidence.source}
            | ({"message_id": evidence.message_id} if evidence.message_id else {}),
            resource_uid=f"message:{evidence.message_id}" if evidence.message_id else None,
            test=evidence.test,
        )
    )
