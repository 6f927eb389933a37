"""Compare what the API reports about a campaign with what an SMTP server accepted, including copies."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.kit.client import Client
from tests.kit.smtp_message import Message

ACCEPTED = ("sent", "delivered", "bounced", "complained")
# Each term of the identity (docs/decisions.md#7) and the statuses that it counts
TERMS = {
    "pending": ("queued", "held", "sending"), "failed": ("failed",), "skipped": ("skipped",),
    "cancelled": ("cancelled",), "uncertain": ("uncertain",),
} | {status: (status,) for status in ACCEPTED}  # fmt: skip


@dataclass(frozen=True)
class Reconciliation:
    """The result of a campaign, with the number of messages that arrived twice (`copies`) or never (`missing`)."""

    audience: int
    accepted: int
    uncertain: int
    copies: int
    missing: int
    stats: dict[str, int]


def check_sum_of_stats(stats: dict[str, int]) -> None:
    """Raise AssertionError unless the terms add up to the audience."""
    assert stats["audience"] == sum(stats[term] for term in TERMS), stats


def reconcile(api: Client, path: str, messages: Iterable[Message]) -> Reconciliation:
    """Compare a campaign with everything that a server accepted of it.

    Every message that the ledger counts as accepted arrived, and every message that arrived is accepted or
    uncertain. Raises AssertionError otherwise, or if a copy has other bytes.
    """
    row = api.get(path).expect(200)
    stats, number = row["stats"], row["id"]
    check_sum_of_stats(stats)
    for term, statuses in TERMS.items():
        assert stats[term] == sum(_count(api, number, status) for status in statuses), term
    accepted = {message_row["to"] for status in ACCEPTED if stats[status] for message_row in _rows(api, number, status)}
    uncertain = {message_row["to"] for message_row in _rows(api, number, "uncertain")} if stats["uncertain"] else set()
    assert len(accepted) == sum(stats[term] for term in ACCEPTED) == row["sent_count"]
    arrived, copies = _messages_by_recipient(messages)
    assert not arrived.keys() - accepted - uncertain, sorted(arrived.keys() - accepted - uncertain)[:5]
    return Reconciliation(
        stats["audience"], len(accepted), len(uncertain), copies, len(accepted - arrived.keys()), stats
    )  # fmt: skip


def _count(api: Client, number: int, status: str) -> int:
    return int(api.get("/messages", campaign_id=number, status=status, limit=1).headers["X-Total-Count"])


def _rows(api: Client, number: int, status: str) -> list[Any]:
    return api.all("/messages", campaign_id=number, status=status)


def _messages_by_recipient(messages: Iterable[Message]) -> tuple[dict[str, tuple[str, str | None]], int]:
    """Return (hash of the bytes, Message-ID) by recipient, and the number of copies, which must be identical."""
    arrived: dict[str, tuple[str, str | None]] = {}
    copies = 0
    for message in messages:
        message_identity = (hashlib.sha256(message.raw).hexdigest(), message.raw_header("Message-ID"))
        if arrived.setdefault(message.to, message_identity) != message_identity:
            raise AssertionError(
                f"a copy for {message.to} is another message: {arrived[message.to]} and {message_identity}"
            )
        copies += 1
    return arrived, copies - len(arrived)
