"""Read the messages that may be claimed next, in sending order: single messages, then campaigns and flows in turns.

Every source of rows belongs to one account, and each result is divided evenly between the accounts, however many
messages an account has. The reader reads each row of a source once and remembers its position there. If a recipient
group may get no messages now, its rows are parked: they are skipped and their ids stored, so that a campaign continues
with its other recipients.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Literal, NamedTuple, Protocol

from appliance.core import clock
from appliance.sending.delivery import mx_routes
from appliance.sending.messages.ledger import COLUMNS, DUE_NOW, FLOWS_DUE_NOW, LedgerRow
from appliance.storage.database import rows

# Rows scanned in a source for one result if some rows are parked; the next result continues after them.
_MAX_SCANNED_ROWS = 2_000
# Rows read at a time in such a scan.
_PAGE_ROWS = 200
# Parked ids of one recipient group of a source. Further rows are found by reading the source from its start again.
_MAX_PARKED_IDS = 5_000
# A source is read from its start again after this time: rows before the position may have become due, such as retries
# without a delay (`RETRY_NOW`).
_RESTART_SECONDS = 20.0
# SQL conditions for the rows after a position (due_at, id): first those of the same time, then the later ones.
AFTER_POSITION = ("due_at = ? AND id > ?", "due_at > ? AND due_at <= ?")
_OPEN = "status IN ('queued', 'held')"
_NOT_LOGGED = "AND NOT EXISTS (SELECT 1 FROM send_log l WHERE l.message_id = message.id)"
_ACTIVE = "AND EXISTS (SELECT 1 FROM flow f WHERE f.id = flow_id AND f.status = 'active' AND f.deleted_at IS NULL)"
_NOT_STOPPED = " AND account_id NOT IN (SELECT id FROM account WHERE sending_stopped = 1)"

_CAMPAIGN_SENDERS = (
    "WITH live AS (SELECT id, sender FROM campaign WHERE phase IN ('sending', 'holding') AND channel = ? "
    "AND test = 0) SELECT id, sender ->> '$.email' AS address FROM live WHERE address NOT NULL UNION "
    "SELECT live.id, v.sender ->> '$.email' FROM live JOIN experiment e ON e.campaign_id = live.id "
    "JOIN variant v ON v.experiment_id = e.id WHERE v.sender ->> '$.email' NOT NULL"
)

# The accounts with open rows, found by one index lookup for each account.
_ACCOUNTS = (
    "WITH RECURSIVE waiting(id) AS (SELECT min(account_id) FROM message WHERE {where} UNION ALL "
    "SELECT (SELECT min(account_id) FROM message WHERE {where} AND account_id > waiting.id) "
    "FROM waiting WHERE waiting.id IS NOT NULL) SELECT id FROM waiting WHERE id IS NOT NULL"
)
_SENDING_ACCOUNTS = f"{_ACCOUNTS} AND id NOT IN (SELECT id FROM account WHERE sending_stopped = 1)"

_SINGLE_ROWS = f"campaign_id IS NULL AND run_id IS NULL AND {_OPEN}"
_FLOW_ROWS = f"run_id IS NOT NULL AND {_OPEN}"


class TransportChooser(Protocol):
    """Chooses the transports of the rows that are read together."""

    def choose(self, row: LedgerRow, /) -> LedgerRow:
        """Return a row with the provider that is to send it, if the reader returns it."""

    def use(self, row: LedgerRow, /) -> None:
        """Record that the reader returns a row with the provider that was chosen."""


class Source(NamedTuple):
    """A source of ledger rows: a campaign, the single messages of an account, or the messages of all its flows."""

    kind: Literal["single", "flow", "campaign"]
    id: int  # of the campaign, else of the account


# A function that returns the names of the recipient groups or limits that apply to a row.
LimitNames = Callable[[LedgerRow], tuple[str, ...]]


def _get_recipient_groups(row: LedgerRow) -> tuple[str, ...]:
    return mx_routes.get_group_names(row.provider, row.recipient_key or "")


def _get_live_campaigns(channel: str) -> dict[int, int]:
    """Return the campaigns of a channel that may send now: campaign id to account id."""
    return dict(
        rows(
            "SELECT c.id, c.account_id FROM campaign c JOIN account a ON a.id = c.account_id "
            "WHERE c.phase IN ('sending', 'holding') AND a.sending_stopped = 0 AND c.channel = ?",
            (channel,),
        )
    )


def list_accounts_with_single_messages() -> list[int]:
    """Return the ids of the accounts with open single messages, including those whose sending was stopped."""
    return [row[0] for row in rows(_ACCOUNTS.format(where=_SINGLE_ROWS))]


def list_campaign_senders(channel: str) -> dict[int, set[str]]:
    """Return the sender addresses of each campaign that may send now: several if its variants have their own.

    Campaigns of test keys are left out: their messages go to the test inbox, which has no limits.
    """
    senders: dict[int, set[str]] = {}
    for campaign_id, sender in rows(_CAMPAIGN_SENDERS, (channel,)):
        senders.setdefault(campaign_id, set()).add(sender)
    return senders


def get_live_sources(channel: str) -> dict[int, list[Source]]:
    """Return the sources that may send now by account id: single messages first, then the others in random order.

    The random order keeps one campaign from always being first.
    """
    sources_by_account: dict[int, list[Source]] = {}
    for campaign_id, account_id in _get_live_campaigns(channel).items():
        sources_by_account.setdefault(account_id, []).append(Source("campaign", campaign_id))
    for (account_id,) in rows(_SENDING_ACCOUNTS.format(where=_FLOW_ROWS)):
        sources_by_account.setdefault(account_id, []).append(Source("flow", account_id))
    for sources in sources_by_account.values():
        random.shuffle(sources)
    for (account_id,) in rows(_SENDING_ACCOUNTS.format(where=_SINGLE_ROWS)):
        sources_by_account.setdefault(account_id, []).insert(0, Source("single", account_id))
    return sources_by_account


class QueueReader:
    """A reader of the open rows of a channel that keeps a position in each source; only one thread may use it.

    `names` returns the recipient groups or limits of a row, by default its recipient groups. `has_more` is True if the
    last call of `fetch_candidates` stopped in a source before its end, although it returned fewer rows than it might.
    """

    def __init__(self, channel: str = "email", names: LimitNames | None = None) -> None:
        self._channel = channel
        self._names = names or _get_recipient_groups
        self._positions: dict[Source, tuple[int, int]] = {}
        self._last_due_now: dict[Source, int] = {}  # the last id read among rows without a delay (`_get_due_now`)
        self._started_at: dict[Source, float] = {}
        # Ids by source and group, or under the group "" if they were given back. The dictionaries are ordered sets.
        self._parked: dict[tuple[Source, str], dict[int, None]] = {}
        self._overflowed: set[Source] = set()
        self._returned: deque[tuple[Source, int]] = deque()
        self.has_more = False

    def give_back(self, row: LedgerRow) -> None:
        """Take back a row that `fetch_candidates` returned and that was not claimed; a later call returns it again.

        It may be called from any thread.
        """
        self._returned.append((get_source(row), row.id))

    def restart(self) -> None:
        """Forget all positions, because a call of `fetch_candidates` that failed may have passed rows."""
        self._forget_finished(set())

    def get_parked_groups(self) -> set[str]:
        """Return the recipient groups and limits that have parked rows."""
        return {group for (_, group), ids in self._parked.items() if ids and group}

    def fetch_candidates(
        self,
        limit: int,
        taken: Set[int] = frozenset(),
        paused: tuple[str, ...] = (),
        held: Iterable[Source] = (),
        room: Mapping[str, int] | None = None,
        singles: int | None = None,
        get_used: Callable[[int], float] | None = None,
        chooser: TransportChooser | None = None,
    ) -> list[LedgerRow]:
        """Return the next messages to send, without claiming them (`queue.record_and_claim` does).

        Up to `singles` (default `limit`) single messages come first, then up to `limit` messages of campaigns and
        flows. Both are divided evenly between the accounts; the account for which `get_used` returns the least time
        (`limited_process.FairShares`) comes first. Messages with an id in `taken`, with a provider in `paused` or of a
        source in `held` are left out. `room` is the number of messages that may be returned by recipient group or
        limit; a name that is not in it is unlimited. `chooser` sets the provider of each row.
        """
        request = _ReadRequest(clock.now_ms(), taken, paused, dict(room or {}), self._names, chooser)
        self.has_more = False
        live = get_live_sources(self._channel)
        all_sources = {source for sources in live.values() for source in sources}
        readable = all_sources.difference(held)
        self._forget_finished(all_sources)
        self._restore_returned()
        accounts = random.sample(sorted(live), len(live))
        accounts.sort(key=get_used or (lambda account_id: 0.0))

        def read(sources: set[Source], count: int) -> list[LedgerRow]:
            by_account = ([source for source in live[account_id] if source in sources] for account_id in accounts)
            return _interleave(self._read_evenly([own for own in by_account if own], count, request))

        single = {source for source in readable if source.kind == "single"}
        single_rows = read(single, limit if singles is None else singles)
        return single_rows + read(readable - single, limit)

    def _read_evenly(self, accounts: list[list[Source]], limit: int, request: "_ReadRequest") -> list[deque[LedgerRow]]:
        """Read up to `limit` rows, divided evenly between accounts and then between the sources of each account.

        `accounts` contains a list of sources for each account. Sources with fewer rows than their share leave the rest
        to the sources after them. Returns one queue of rows for each source.
        """
        queues: list[deque[LedgerRow]] = []
        for number, sources in enumerate(accounts):
            share = -(-limit // (len(accounts) - number))
            for source_number, source in enumerate(sources):
                count = -(-share // (len(sources) - source_number))
                queues.append(deque(self._read_source(source, count, request)))
                share -= len(queues[-1])
                limit -= len(queues[-1])
        return queues

    def _forget_finished(self, live: set[Source]) -> None:
        """Forget the positions in sources that are not in `live`, and in every source after `_RESTART_SECONDS`.

        The rows of such a source are read from the start the next time.
        """
        now = time.monotonic()
        for source in {*self._positions, *self._started_at, *(key[0] for key in self._parked)}:
            if source not in live or now > self._started_at.setdefault(source, now) + _RESTART_SECONDS:
                self._restart(source)

    def _restart(self, source: Source) -> None:
        self._positions.pop(source, None)
        self._last_due_now.pop(source, None)
        self._started_at.pop(source, None)
        self._overflowed.discard(source)
        for key in [key for key in self._parked if key[0] == source]:
            del self._parked[key]

    def _restore_returned(self) -> None:
        """Park the rows that were given back, unless their source is read from its start anyway."""
        while self._returned:
            source, message_id = self._returned.popleft()
            if source in self._positions:
                self._parked.setdefault((source, ""), {})[message_id] = None

    def _read_source(self, source: Source, limit: int, request: "_ReadRequest") -> list[LedgerRow]:
        if not limit:
            return []
        candidates = self._read_parked(source, limit, request)
        if source in self._overflowed and not any(ids for key, ids in self._parked.items() if key[0] == source):
            self._restart(source)
        if len(candidates) < limit:
            candidates += self._scan(source, limit - len(candidates), request)
        return candidates

    def _read_parked(self, source: Source, limit: int, request: "_ReadRequest") -> list[LedgerRow]:
        candidates: list[LedgerRow] = []
        for (owner, group), parked_ids in list(self._parked.items()):
            count = min(limit - len(candidates), request.room.get(group, limit))
            if owner != source or count <= 0 or not parked_ids:
                continue
            ids = list(parked_ids)[:count]
            for message_id in ids:
                del parked_ids[message_id]
            marks = ",".join("?" * len(ids))
            current = rows(
                f"SELECT {COLUMNS} FROM message WHERE id IN ({marks}) AND {_OPEN} AND due_at <= ? {_NOT_LOGGED}"
                f"{_NOT_STOPPED if source.kind != 'campaign' else ''} {_ACTIVE if source.kind == 'flow' else ''}",
                (*ids, request.now),
            )
            for stored in map(LedgerRow._make, current):
                if request.is_taken(stored):
                    continue
                row = request.choose(stored)
                if row.provider in request.paused:
                    self._parked.setdefault((source, ""), {})[row.id] = None
                elif (full_group := request.find_full_group(row)) is not None:
                    self._park(source, row, full_group)
                else:
                    candidates.append(row)
                    request.returned_ids.add(row.id)
                    request.use(row)
        return candidates

    def _park(self, source: Source, row: LedgerRow, group: str) -> None:
        ids = self._parked.setdefault((source, group), {})
        if len(ids) < _MAX_PARKED_IDS:
            ids[row.id] = None
        else:
            self._overflowed.add(source)

    def _scan(self, source: Source, limit: int, request: "_ReadRequest") -> list[LedgerRow]:
        """Read up to `limit` rows after the position in a source, and move the position behind them."""
        candidates: list[LedgerRow] = []
        self._started_at.setdefault(source, time.monotonic())
        position, due_now = self._positions.get(source, (-1, 0)), _get_due_now(source)
        if position[0] > due_now:
            # New rows without a delay come first: a password does not wait for the newsletter of a program.
            self._scan_from(source, (due_now, self._last_due_now.get(source, 0)), due_now, limit, request, candidates)
        end = self._scan_from(source, position, request.now, limit, request, candidates)
        if end is not None:
            position, is_at_end = end
            self._save_position(source, position, is_at_end)
            self.has_more |= not is_at_end and len(candidates) < limit
        return candidates

    def _scan_from(
        self, source: Source, position: tuple[int, int], until: int, limit: int, request: "_ReadRequest",
        candidates: list[LedgerRow],
    ) -> tuple[tuple[int, int], bool] | None:  # fmt: skip
        """Append the rows after a position that are due at `until` to the candidates, up to `limit` in all.

        Return the new position and whether the source has no more rows, or None if its provider is paused.
        """
        scanned_count, is_at_end = 0, False
        while len(candidates) < limit and scanned_count < _MAX_SCANNED_ROWS and not is_at_end:
            page = _read_page(source, self._channel, request, position, _PAGE_ROWS if request.room else limit, until)
            is_at_end = len(page) < (_PAGE_ROWS if request.room else limit)
            for *columns, due_at in page:
                if len(candidates) >= limit:
                    is_at_end = False
                    break
                row = LedgerRow._make(columns)
                is_taken = request.is_taken(row)
                if not is_taken:
                    row = request.choose(row)
                if source.kind == "campaign" and row.provider in request.paused:
                    # Its other messages have the same provider, or all providers are paused: the first row decides.
                    return None
                position, scanned_count = (due_at, row.id), scanned_count + 1
                if due_at == _get_due_now(source):
                    self._last_due_now[source] = row.id
                if is_taken:
                    continue
                if request.room and (full_group := request.find_full_group(row)) is not None:
                    self._park(source, row, full_group)
                else:
                    candidates.append(row)
                    request.use(row)
        return position, is_at_end

    def _save_position(self, source: Source, position: tuple[int, int], is_at_end: bool) -> None:
        """Store the position where the next read of a source starts.

        At the end of a source with parked rows, this is after the last row without a delay: new rows are added there,
        before the retries.
        """
        if not is_at_end:
            self._positions[source] = position
        elif source.kind == "single":
            # Single messages are read from the start, so that a new one does not wait for others.
            self._positions.pop(source, None)
        elif source in self._overflowed or any(ids for key, ids in self._parked.items() if key[0] == source):
            self._positions[source] = (_get_due_now(source), self._last_due_now.get(source, 0))
        else:
            self._positions.pop(source, None)
            self._started_at.pop(source, None)


def _interleave(queues: list[deque[LedgerRow]]) -> list[LedgerRow]:
    candidates: list[LedgerRow] = []
    while any(queues):
        candidates += [queue.popleft() for queue in queues if queue]
    return candidates


def get_source(row: LedgerRow) -> Source:
    """Return the source that a row belongs to."""
    if row.campaign_id is not None:
        return Source("campaign", row.campaign_id)
    return Source("single" if row.run_id is None else "flow", row.account_id)


def build_open_condition(source: Source, channel: str) -> tuple[str, tuple[int | str, ...]]:
    """Return the SQL condition for the open rows of a source, with its parameters; each kind of source has an index."""
    if source.kind == "campaign":
        return f"campaign_id = ? AND run_id IS NULL AND {_OPEN}", (source.id,)
    return f"account_id = ? AND channel = ? AND {_FLOW_ROWS if source.kind == 'flow' else _SINGLE_ROWS}", (
        source.id,
        channel,
    )


def _get_due_now(source: Source) -> int:
    """Return the `due_at` that messages of a source have if they need not wait."""
    return FLOWS_DUE_NOW if source.kind == "flow" else DUE_NOW


class _ReadRequest:
    """The parameters and state of one call of `fetch_candidates`."""

    def __init__(
        self, now: int, taken: Set[int], paused: tuple[str, ...], room: dict[str, int], names: LimitNames,
        chooser: TransportChooser | None = None,
    ) -> None:  # fmt: skip
        self.now, self.taken, self.paused, self.room, self._names = now, taken, paused, room, names
        self._chooser = chooser
        # Ids of parked rows returned in this call, because scanning the source may read the same rows again.
        self.returned_ids: set[int] = set()

    def choose(self, row: LedgerRow) -> LedgerRow:
        """Return a row with the provider that is chosen for it; call it only for a row that is not taken."""
        return row if self._chooser is None else self._chooser.choose(row)

    def use(self, row: LedgerRow) -> None:
        """Record that a row is returned with the chosen provider; the row may become the probe of that provider."""
        if self._chooser is not None:
            self._chooser.use(row)

    def is_taken(self, row: LedgerRow) -> bool:
        """Return whether the caller has a row already, or this call has read it already."""
        return row.id in self.taken or row.id in self.returned_ids

    def find_full_group(self, row: LedgerRow) -> str | None:
        """Return the first group of a row that has no room left.

        If all have room, reduce the room of each by one and return None.
        """
        names = self._names(row)
        for name in names:
            if self.room.get(name, 1) <= 0:
                return name
        for name in names:
            if name in self.room:
                self.room[name] -= 1
        return None


def _read_page(
    source: Source, channel: str, request: _ReadRequest, position: tuple[int, int], size: int, until: int
) -> list[tuple[Any, ...]]:
    """Return up to `size` rows of a source after a position that are due at `until`, as `LedgerRow` and `due_at`."""
    condition, parameters = build_open_condition(source, channel)
    extra = _ACTIVE if source.kind == "flow" else ""
    paused: tuple[str, ...] = ()
    if source.kind != "campaign":
        extra += _NOT_STOPPED
        paused = request.paused
        extra += f" AND provider NOT IN ({','.join('?' * len(paused))})" if paused else ""
    page: list[tuple[Any, ...]] = []
    # Many rows of a campaign have the same `due_at`. In a single query for both conditions, SQLite would read the index
    # from the first of these rows.
    for where, values in zip(AFTER_POSITION, ((position[0], position[1]), (position[0], until)), strict=True):
        if len(page) < size and (position[0] >= 0 or where == AFTER_POSITION[1]):
            page += rows(
                f"SELECT {COLUMNS}, due_at FROM message WHERE {condition} AND {where} {extra} {_NOT_LOGGED} "
                "ORDER BY due_at, id LIMIT ?",
                (*parameters, *values, *paused, size - len(page)),
            )
    return page


def has_due(paused: tuple[str, ...] = (), channel: str = "email") -> bool:
    """Return whether a message of a channel is due now that may be sent by a provider that is not in `paused`."""
    request = _ReadRequest(clock.now_ms(), frozenset(), paused, {}, _get_recipient_groups)
    for source in (source for sources in get_live_sources(channel).values() for source in sources):
        for row in _read_page(source, channel, request, (-1, 0), 1, request.now):
            if source.kind != "campaign" or LedgerRow._make(row[:-1]).provider not in paused:
                return True
    return False
