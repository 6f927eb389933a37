"""Replaying the journal into a restored database: refusals, choices of tracking, and which messages were sent."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.core import clock, crypto
from appliance.core.errors import NotFound
from appliance.ops.backups.replay_sends import SendReplay
from appliance.storage import journal, transactions
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.journal import JournalLine, Sent
from appliance.storage.models import Channel
from appliance.storage.transactions import require_write_transaction

# The journal records refusals (opt-outs, suppressions, left lists, erasures), choices of tracking, and sent messages.
# All other data that is newer than the backup is lost, including consent. A line whose effect the database already
# contains changes nothing.

_EVIDENCE = Evidence("restore", "system")
_CHUNK_LINES = 500


class Replayed(NamedTuple):
    """How many lines of the journal changed the restored database, by kind of line."""

    opt_outs: int = 0
    suppressions: int = 0
    lists_left: int = 0
    tracking: int = 0
    erased: int = 0
    # Messages that were sent after the backup (`replay_sends.SendReplay`)
    sent: int = 0
    uncertain: int = 0
    expected: int = 0
    unknown: int = 0
    is_complete: bool = False  # whether the journal names all messages that were sent after the backup
    # Whether the replaced database showed which messages were being sent when the service ended.
    is_end_known: bool = False
    has_journal: bool = True  # whether the data directory had a journal to replay


REFUSALS = ("opt_outs", "suppressions", "lists_left", "tracking", "erased")


def replay_journal(lines: Iterable[JournalLine]) -> Replayed:
    """Replay the lines of a journal in order, and return how many of them changed the database, by kind.

    Every `_CHUNK_LINES` lines are one transaction. Lines of accounts that the database lacks are ignored.
    """
    addresses, counts, chunk = _KnownAddresses(), Counter[type[JournalLine]](), list[JournalLine]()
    sends = SendReplay()
    for line in lines:
        chunk.append(line)
        if len(chunk) == _CHUNK_LINES:
            counts += transactions.write(_replay_lines, addresses, sends, chunk)
            chunk = []
    counts += transactions.write(_replay_lines, addresses, sends, chunk)
    transactions.write(sends.finish)
    return Replayed(
        counts[journal.OptOut], counts[journal.Suppression], counts[journal.ListLeft], counts[journal.TrackingChoice],
        counts[journal.Erasure], sends.counts["sent"], sends.counts["uncertain"], sends.counts["expected"],
        sends.counts["unknown"],
    )  # fmt: skip


class _KnownAddresses:
    """A lookup of channels by account, kind and address hash, which is built once from all channels of the database."""

    def __init__(self) -> None:
        hashed = crypto.make_address_hasher()
        self._ids = {
            (account, kind, hashed(kind, key)): number
            for number, account, kind, key in rows("SELECT id, account_id, kind, key FROM channel")
        }

    def find_channel(self, account_id: int, kind: str, hashed: bytes) -> Channel | None:
        """Return the channel of an account with this address hash, or None."""
        number = self._ids.get((account_id, kind, hashed))
        return Channel.get_or_none(Channel.id == number) if number is not None else None


def _replay_lines(
    addresses: _KnownAddresses, sends: SendReplay, lines: list[JournalLine]
) -> Counter[type[JournalLine]]:
    require_write_transaction()
    counts = Counter[type[JournalLine]]()
    for line in lines:
        if fetch_one("SELECT 1 FROM account WHERE id = ?", (line.account,)) is None:
            continue  # The account was created after the backup.
        if isinstance(line, Sent):
            sends.replay_line(line)
        else:
            counts[type(line)] += _replay_line(addresses, line)
    return counts


def _replay_line(addresses: _KnownAddresses, line: JournalLine) -> bool:
    """Replay a line, and return whether it changed the database."""
    if isinstance(line, journal.Erasure):
        return _replay_erasure(line)
    assert isinstance(line, journal.AddressLine), line
    address_hash = bytes.fromhex(line.hash)
    channel = addresses.find_channel(line.account, line.kind, address_hash)
    if isinstance(line, journal.OptOut):
        return _replay_opt_out(line, address_hash, channel)
    if isinstance(line, journal.Suppression):
        return _replay_suppression(line, address_hash, channel)
    if channel is None:
        return False
    if isinstance(line, journal.ListLeft):
        is_refused = consent.has_left_list(channel.contact_id, [line.list])
        return not is_refused and consent.leave_list(channel, line.list, _EVIDENCE)
    assert isinstance(line, journal.TrackingChoice), line
    return consent.set_tracking(channel, line.tracking, _EVIDENCE)


def _replay_erasure(line: journal.Erasure) -> bool:
    try:
        removal.erase(line.account, line.contact, _EVIDENCE)
    except NotFound:
        return False
    return True


def _replay_opt_out(line: journal.OptOut, hashed: bytes, channel: Channel | None) -> bool:
    by: consent.By = "operator" if line.by == "operator" else "recipient"
    if channel is not None:
        return consent.opt_out(channel, by, _EVIDENCE)
    if consent.find_remembered_opt_out(line.account, line.kind, hashed) is not None:
        return False
    consent.remember_opt_out_hash(line.account, line.kind, hashed, by, line.at)
    return True


def _replay_suppression(line: journal.Suppression, hashed: bytes, channel: Channel | None) -> bool:
    if line.expires_at is not None and line.expires_at <= clock.now_ms():
        return False
    address = channel.value if channel is not None and line.reason != "erased" else None
    is_new = run(
        "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, created_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, 'restore', ?, ?) ON CONFLICT DO NOTHING",
        (line.account, line.kind, hashed, address, line.reason, line.at, line.expires_at),
    )
    if not is_new:
        run(
            "UPDATE suppression SET repeated_at = coalesce(repeated_at, ?) WHERE account_id = ? AND kind = ? "
            "AND address_hash = ? AND reason = ?",
            (line.at, line.account, line.kind, hashed, line.reason),
        )
    if channel is not None:
        channel.suppression = consent.find_channel_suppression(channel)
        run("UPDATE channel SET suppression = ? WHERE id = ?", (channel.suppression, channel.id))
    if is_new:
        contact = channel.contact_id if channel is not None else None
        consent.record_evidence(
            line.account, (line.kind, hashed), "suppressed", line.by, _EVIDENCE, contact, {"reason": line.reason}
        )
    return bool(is_new)
