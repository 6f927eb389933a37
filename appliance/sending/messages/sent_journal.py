"""Write which messages were sent to the journal (`storage/journal.py`), from which a restore reads them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from appliance.core import clock, crypto
from appliance.sending.messages.ledger import LedgerRow
from appliance.storage import journal
from appliance.storage.database import fetch_one
from appliance.storage.journal import SENT_HASH_BYTES, Sent, SentMessage
from appliance.storage.transactions import require_write_transaction

_MAX_MESSAGES = 1_000  # in one line
_NO_HASH = bytes(SENT_HASH_BYTES)
# The campaign that a campaign is a copy of, if it is one date of a series.
_SERIES = (
    "SELECT s.campaign_id, o.due_at, c.created_at FROM occurrence o JOIN series s ON s.id = o.series_id "
    "JOIN campaign c ON c.id = s.campaign_id WHERE o.campaign_id = ?"
)


class Source(NamedTuple):
    """What sent a message: a campaign, a flow, or neither of them for a single message."""

    account_id: int
    campaign_id: int | None = None
    flow_id: int | None = None

    @classmethod
    def from_row(cls, row: LedgerRow) -> "Source":
        """Return the source of a message.

        The hidden flow of a campaign does not count as a flow, nor does a flow whose run has been deleted.
        """
        if row.campaign_id is not None:
            return cls(row.account_id, row.campaign_id)
        return cls(row.account_id, flow_id=row.flow_id if row.run_id is not None else None)


class AddressHasher:
    """Hashes the recipients of messages as the journal stores them."""

    def __init__(self) -> None:
        self._hash = crypto.make_address_hasher()

    def hash_recipient(self, kind: str, key: str | None) -> bytes:
        """Return the hash of an address, or zeros for an erased recipient, whose `key` is None."""
        return self._hash(kind, key)[:SENT_HASH_BYTES] if key is not None else _NO_HASH


def record_sent(ledger_rows: Iterable[LedgerRow], is_doubtful: bool = False) -> None:
    """Add messages to the journal that a server accepted, or that it may have accepted, in the caller's transaction."""
    require_write_transaction()
    hasher, now = AddressHasher(), clock.now_ms()
    groups = defaultdict[Source, list[SentMessage]](list)
    for row in ledger_rows:
        source = Source.from_row(row)
        run_id, step_id = (row.run_id or 0, row.step_id or 0) if source.flow_id is not None else (0, 0)
        groups[source].append(
            SentMessage(
                row.id, row.contact_id or 0, hasher.hash_recipient(row.address_kind, row.recipient_key), run_id, step_id
            )
        )
    for source, messages in groups.items():
        for line in pack_lines(source, messages, _describe(source), at=now, is_doubtful=is_doubtful):
            journal.append_sent(line)


def pack_lines(
    source: Source, messages: Sequence[SentMessage], described: dict[str, Any], **common: Any
) -> Iterator[Sent]:
    """Yield the lines for messages of one source, each with at most `_MAX_MESSAGES` messages."""
    for start in range(0, len(messages), _MAX_MESSAGES):
        yield journal.pack_sent(
            messages[start : start + _MAX_MESSAGES], account=source.account_id, campaign=source.campaign_id,
            flow=source.flow_id, **described, **common,
        )  # fmt: skip


def _describe(source: Source) -> dict[str, Any]:
    """Return the keys of a line that distinguish a source from another with the same id, and its date in a series."""
    if source.campaign_id is not None:
        row = fetch_one(_SERIES, (source.campaign_id,))
        if row is not None:
            return {"series": row[0], "due": row[1], "created": row[2]}
        row = fetch_one("SELECT created_at FROM campaign WHERE id = ?", (source.campaign_id,))
    elif source.flow_id is not None:
        row = fetch_one("SELECT created_at FROM flow WHERE id = ?", (source.flow_id,))
    else:
        row = None
    return {"created": row[0]} if row is not None else {}
