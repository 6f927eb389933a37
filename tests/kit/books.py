"""Holds what the API says of a campaign against what an SMTP server took: nobody missing, and every copy counted."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.kit.client import Client
from tests.kit.smtp_message import Message

ACCEPTED = ("sent", "delivered", "bounced", "complained")
# Each term of the identity (docs/decisions.md#7) and the statuses that it counts
TERMS = {"pending": ("queued", "held", "sending"), "failed": ("failed",), "skipped": ("skipped",),
         "cancelled": ("cancelled",), "uncertain": ("uncertain",)} | {one: (one,) for one in ACCEPTED}  # fmt: skip


@dataclass(frozen=True)
class Books:
    """What became of a campaign, and how many messages came twice (`copies`) or not at all (`missing`)."""

    audience: int
    accepted: int
    uncertain: int
    copies: int
    missing: int
    stats: dict[str, int]


def identity(stats: dict[str, int]) -> None:
    """Raise unless the terms add up to the audience."""
    assert stats["audience"] == sum(stats[term] for term in TERMS), stats


def balance(api: Client, path: str, taken: Iterable[Message]) -> Books:
    """Compare a campaign with all that a server took of it; raises where they differ, or a copy is not the same bytes.

    Who is in the ledger as accepted was taken, and who was taken is accepted, or uncertain.
    """
    row = api.get(path).expect(200)
    stats, number = row["stats"], row["id"]
    identity(stats)
    for term, statuses in TERMS.items():
        assert stats[term] == sum(_count(api, number, status) for status in statuses), term
    accepted = {one["to"] for status in ACCEPTED if stats[status] for one in _rows(api, number, status)}
    uncertain = {one["to"] for one in _rows(api, number, "uncertain")} if stats["uncertain"] else set()
    assert len(accepted) == sum(stats[term] for term in ACCEPTED) == row["sent_count"]
    seen, copies = _arrived(taken)
    assert not seen.keys() - accepted - uncertain, sorted(seen.keys() - accepted - uncertain)[:5]
    return Books(
        stats["audience"], len(accepted), len(uncertain), copies, len(accepted - seen.keys()), stats
    )  # fmt: skip


def _count(api: Client, number: int, status: str) -> int:
    return int(api.get("/messages", campaign_id=number, status=status, limit=1).headers["X-Total-Count"])


def _rows(api: Client, number: int, status: str) -> list[Any]:
    return api.all("/messages", campaign_id=number, status=status)


def _arrived(taken: Iterable[Message]) -> tuple[dict[str, tuple[str, str | None]], int]:
    """Return what came to each address, and how many copies; each copy is the same bytes with the same Message-ID."""
    seen: dict[str, tuple[str, str | None]] = {}
    copies = 0
    for message in taken:
        known = (hashlib.sha256(message.raw).hexdigest(), message.raw_header("Message-ID"))
        if seen.setdefault(message.to, known) != known:
            raise AssertionError(f"a copy for {message.to} is another message: {seen[message.to]} and {known}")
        copies += 1
    return seen, copies - len(seen)
