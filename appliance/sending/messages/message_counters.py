"""What becomes of messages, counted by this process as it is written down; tests are nobody's mail and not counted."""

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Literal, Protocol

from appliance.core import wake_ups
from appliance.core.counters import Counter, Histogram
from appliance.core.errors import DeliveryError, Later, Permanent, Temporary, Uncertain
from appliance.sending.delivery import groups, routing
from appliance.storage.open import connection
from appliance.storage.work import after_commit, writing

SENDS = Counter(
    "sends_total",
    "Messages whose attempt ended, by what became of it: accepted, put_off (tried again later), failed, skipped, "
    "uncertain, cancelled.",
    ("channel", "provider", "group", "result"),
)
BOUNCES = Counter("bounces_total", "Messages that were refused or came back, by what that means.", ("channel", "class"))
COMPLAINTS = Counter("complaints_total", "Messages that their recipients called spam.", ("channel",))
TRANSACTIONS = Histogram(
    "smtp_transaction_seconds",
    "From the envelope to the server's last word on a message, by what that was: accepted, refused, put_off, "
    "uncertain, broken.",
    ("provider", "result"),
)
_RESULTS = ((Permanent, "refused"), (Uncertain, "uncertain"), (Temporary | Later, "put_off"))


class Row(Protocol):
    """What is counted of a message."""

    @property
    def account_id(self) -> int:
        """Whose it is."""

    @property
    def channel(self) -> str:
        """By mail or by SMS."""

    @property
    def provider(self) -> str:
        """The way out."""

    @property
    def recipient_key(self) -> str:
        """The address."""

    @property
    def test(self) -> bool:
        """Whether it is a test."""


def ended(row: Row, result: str) -> None:
    """Count an attempt that ended otherwise than by acceptance, once that is on disk."""
    if not row.test:
        labels = (row.channel, row.provider, _group(row), result)
        after_commit(lambda: SENDS.add(*labels, account_id=row.account_id))


def accepted(rows: Iterable[Row]) -> None:
    """Count messages that were accepted, once that is on disk."""
    found = Tally((row.account_id, row.channel, row.provider, _group(row)) for row in rows if not row.test)

    def count() -> None:
        for (account_id, *labels), number in found.items():
            SENDS.add(*labels, "accepted", account_id=account_id, number=number)

    after_commit(count)


def bounced(row: Row, name: str) -> None:
    """Count what speaks against a message, by its class, once that is on disk."""
    after_commit(lambda: BOUNCES.add(row.channel, name, account_id=row.account_id))


def complained(row: Row) -> None:
    """Count a complaint, once that is on disk."""
    if not row.test:
        after_commit(lambda: COMPLAINTS.add(row.channel, account_id=row.account_id))


def talked(provider: str, error: DeliveryError | None, seconds: float) -> None:
    """Note how long a server took over one message, and what it said."""
    found = next((name for kind, name in _RESULTS if isinstance(error, kind)), "broken")
    TRANSACTIONS.observe(seconds, provider, "accepted" if error is None else found)


def _group(row: Row) -> str:
    """Return who takes the mail of a row, by name where it is one of the large ones: the list stays short."""
    if row.channel != "email":
        return row.channel
    # Who was erased meanwhile has no address any more
    found = routing.group_of(row.provider, row.recipient_key or "")
    return found if found in groups.LARGE else "other"


# Counts what speaks against a campaign: addresses that do not exist, and people who call it spam.

# Refused as nobody's address, come back after it was accepted, called spam
Against = Literal["refused", "bounced", "complained"]
_ONE_MORE = {
    one: f"UPDATE campaign SET {one}_count = {one}_count + 1 WHERE id = ?"
    for one in ("refused", "bounced", "complained")
}


def against(campaign_id: int, what: Against) -> None:
    """Count one more, and let somebody look at once whether that is too many (`campaigns.auto_pause`)."""
    writing()
    connection().execute(_ONE_MORE[what], (campaign_id,))
    after_commit(lambda: wake_ups.ring("campaigns"))
