"""What may be taken in hand next, read in the order it should go: single messages, then campaigns and flows in turns.

Every source of rows belongs to one account, and accounts share each answer, however much one of them has waiting. A
line reads each row of a source once and remembers where it stands. Rows of a group that gets nothing now are stepped
over and kept in mind, so that a campaign goes on with its other people however many of them come first.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Literal, NamedTuple

from appliance.core import clock
from appliance.sending.delivery import routing
from appliance.sending.messages.ledger import AT_ONCE, BY_FLOWS_AT_ONCE, COLUMNS, Claim
from appliance.storage.open import fetch_one, rows, scalar

# Rows looked at for one answer where some are stepped over; the next answer goes on behind them
_MAX_SEEN = 2_000
_PAGE = 200
# Ids kept in mind for one group of a campaign; what is beyond is found by beginning again
_MAX_PARKED = 5_000
_AGAIN_SECONDS = 20.0
# Behind a place (due_at, id), first at the same time and then later
BEHIND = ("due_at = ? AND id > ?", "due_at > ? AND due_at <= ?")
_OPEN = "status IN ('queued', 'held')"
_ACTIVE = "AND EXISTS (SELECT 1 FROM flow f WHERE f.id = flow_id AND f.status = 'active' AND f.deleted_at IS NULL)"
_NOT_STOPPED = " AND account_id NOT IN (SELECT id FROM account WHERE sending_stopped = 1)"

# The accounts with open rows, found by one look into an index for each of them
_ACCOUNTS = (
    "WITH RECURSIVE waiting(id) AS (SELECT min(account_id) FROM message WHERE {where} UNION ALL "
    "SELECT (SELECT min(account_id) FROM message WHERE {where} AND account_id > waiting.id) "
    "FROM waiting WHERE waiting.id IS NOT NULL) "
    "SELECT id FROM waiting WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM account WHERE sending_stopped = 1)"
)
_SINGLE = f"campaign_id IS NULL AND run_id IS NULL AND {_OPEN}"
_OF_FLOWS = f"run_id IS NOT NULL AND {_OPEN}"


class Source(NamedTuple):
    """Rows that stand in one order: those of a campaign, or the single messages of an account, or all of its flows."""

    kind: Literal["single", "flow", "campaign"]
    id: int  # of the campaign, else of the account


# The groups whose limits a row keeps to
Names = Callable[[Claim], tuple[str, ...]]


def _by_recipient(row: Claim) -> tuple[str, ...]:
    return routing.names_of(row.provider, row.recipient_key or "")


def live_campaigns(channel: str) -> dict[int, int]:
    """Return the campaigns of a channel that may send now, each with its account."""
    return dict(
        rows(
            "SELECT c.id, c.account_id FROM campaign c JOIN account a ON a.id = c.account_id "
            "WHERE c.phase IN ('sending', 'holding') AND a.sending_stopped = 0 AND c.channel = ?",
            (channel,),
        )
    )


def live_sources(channel: str) -> dict[int, list[Source]]:
    """Return the sources that may send now, by account: single messages first, then the others in no order, so that
    none of them is always first."""
    found: dict[int, list[Source]] = {}
    for number, account_id in live_campaigns(channel).items():
        found.setdefault(account_id, []).append(Source("campaign", number))
    for (account_id,) in rows(_ACCOUNTS.format(where=_OF_FLOWS)):
        found.setdefault(account_id, []).append(Source("flow", account_id))
    for sources in found.values():
        random.shuffle(sources)
    for (account_id,) in rows(_ACCOUNTS.format(where=_SINGLE)):
        found.setdefault(account_id, []).insert(0, Source("single", account_id))
    return found


class Line:
    """Where the reading of each source of a channel stands. Used by one thread."""

    def __init__(self, channel: str = "email", names: Names | None = None) -> None:
        self._channel = channel
        self._names = names or _by_recipient
        self._at: dict[Source, tuple[int, int]] = {}
        self._at_once: dict[Source, int] = {}  # the last one read of those that are due at once
        self._since: dict[Source, float] = {}
        # By source and group; dictionaries are sets that keep their order
        self._parked: dict[tuple[Source, str], dict[int, None]] = {}
        self._beyond: set[Source] = set()
        self._back: deque[tuple[Source, int]] = deque()
        self.has_more = False

    def back(self, row: Claim) -> None:
        """Take a row back that was answered and did not go; from any thread."""
        self._back.append((source_of(row), row.id))

    def waiting(self) -> set[str]:
        """Return the groups whose rows were stepped over."""
        return {group for (_, group), kept in self._parked.items() if kept and group}

    def candidates(
        self, most: int, taken: Set[int] = frozenset(), closed: tuple[str, ...] = (), held: Iterable[int] = (),
        room: Mapping[str, int] | None = None, singles: int | None = None, used: Callable[[int], float] | None = None,
    ) -> list[Claim]:  # fmt: skip
        """Return so many rows of campaigns at most, behind the single messages (as many, or `singles`).

        Accounts share both evenly; who `used` least comes first.

        Left out is what is taken already, what would leave by a provider that is closed, and campaigns that are held
        back; of the groups in `room` no more than stands there. Nothing is marked: whoever takes a row marks it before
        its message leaves (`outbox.mark`, `hot.step`).
        """
        look = _Look(clock.now_ms(), taken, closed, dict(room or {}), self._names)
        self.has_more = False
        live = live_sources(self._channel)
        self._forget({source for sources in live.values() for source in sources})
        self._sort_back()
        accounts = random.sample(sorted(live), len(live))
        accounts.sort(key=used or (lambda account_id: 0.0))
        own = [[source for source in live[one] if source.kind == "single"] for one in accounts]
        queues = self._shared_out([sources for sources in own if sources], most if singles is None else singles, look)
        found = _in_turns(queues)
        spared = {Source("campaign", one) for one in held}
        # Where flows have nothing to send their turn is everybody's
        others = [
            [source for source in live[one] if source.kind != "single" and source not in spared] for one in accounts
        ]
        return found + _in_turns(self._shared_out([sources for sources in others if sources], most, look))

    def _shared_out(self, accounts: list[list[Source]], most: int, look: "_Look") -> list[deque[Claim]]:
        """Read so many rows at most, of each account as many as of any other, and so too of each of its sources."""
        queues: list[deque[Claim]] = []
        for after, sources in zip(range(len(accounts) - 1, -1, -1), accounts, strict=True):
            share = -(-most // (after + 1))
            for left, source in zip(range(len(sources), 0, -1), sources, strict=True):
                queues.append(deque(self._of(source, -(-share // left), look)))
                share -= len(queues[-1])
                most -= len(queues[-1])
        return queues

    def _forget(self, live: set[Source]) -> None:
        """Begin again, when its time comes, with what is not live now, and now and then with everything."""
        now = time.monotonic()
        for source in {*self._at, *self._since, *(key[0] for key in self._parked)}:
            if source not in live or now > self._since.setdefault(source, now) + _AGAIN_SECONDS:
                self._restart(source)

    def _restart(self, source: Source) -> None:
        self._at.pop(source, None)
        self._at_once.pop(source, None)
        self._since.pop(source, None)
        self._beyond.discard(source)
        for key in [key for key in self._parked if key[0] == source]:
            del self._parked[key]

    def _sort_back(self) -> None:
        """Keep what came back with what was stepped over, unless its source is read from the beginning anyway."""
        while self._back:
            source, number = self._back.popleft()
            if source in self._at:
                self._parked.setdefault((source, ""), {})[number] = None

    def _of(self, source: Source, most: int, look: "_Look") -> list[Claim]:
        if not most:
            return []
        found = self._unparked(source, most, look)
        if source in self._beyond and not any(kept for key, kept in self._parked.items() if key[0] == source):
            self._restart(source)
        if len(found) < most:
            found += self._scanned(source, most - len(found), look)
        return found

    def _unparked(self, source: Source, most: int, look: "_Look") -> list[Claim]:
        found: list[Claim] = []
        for (owner, group), kept in list(self._parked.items()):
            count = min(most - len(found), look.room.get(group, most))
            if owner != source or count <= 0 or not kept:
                continue
            ids = list(kept)[:count]
            for number in ids:
                del kept[number]
            marks = ",".join("?" * len(ids))
            again = rows(
                f"SELECT {COLUMNS} FROM message WHERE id IN ({marks}) AND {_OPEN} AND due_at <= ?"
                f"{_NOT_STOPPED if source.kind != 'campaign' else ''} {_ACTIVE if source.kind == 'flow' else ''}",
                (*ids, look.now),
            )
            for row in map(Claim._make, again):
                if look.has_given(row):
                    continue
                if row.provider in look.closed:
                    self._parked.setdefault((source, ""), {})[row.id] = None
                elif (full := look.full(row)) is not None:
                    self._park(source, row, full)
                else:
                    found.append(row)
                    look.given.add(row.id)
        return found

    def _park(self, source: Source, row: Claim, group: str) -> None:
        kept = self._parked.setdefault((source, group), {})
        if len(kept) < _MAX_PARKED:
            kept[row.id] = None
        else:
            self._beyond.add(source)

    def _scanned(self, source: Source, most: int, look: "_Look") -> list[Claim]:
        found: list[Claim] = []
        seen, ended = 0, False
        self._since.setdefault(source, time.monotonic())
        at = self._at.get(source, (-1, 0))
        while len(found) < most and seen < _MAX_SEEN and not ended:
            page = _page(source, self._channel, look, at, _PAGE if look.room else most)
            ended = len(page) < (_PAGE if look.room else most)
            for row in page:
                claim = Claim._make(row[:-1])
                if source.kind == "campaign" and claim.provider in look.closed:
                    # All rows of a campaign leave by the same provider: its first one answers for all
                    return found
                if len(found) >= most:
                    ended = False
                    break
                at, seen = (row[-1], claim.id), seen + 1
                if row[-1] == _first(source):
                    self._at_once[source] = claim.id
                if look.has_given(claim):
                    continue
                if look.room and (full := look.full(claim)) is not None:
                    self._park(source, claim, full)
                else:
                    found.append(claim)
        self._stand(source, at, ended)
        self.has_more |= not ended and len(found) < most
        return found

    def _stand(self, source: Source, at: tuple[int, int], ended: bool) -> None:
        """Keep where the next reading begins: new rows are due at once, so they stand before those tried again."""
        if not ended:
            self._at[source] = at
        elif source.kind == "single":
            self._at.pop(source, None)  # a single message waits for nobody
        elif source in self._beyond or any(kept for key, kept in self._parked.items() if key[0] == source):
            self._at[source] = (_first(source), self._at_once.get(source, 0))
        else:
            self._at.pop(source, None)
            self._since.pop(source, None)


def _in_turns(queues: list[deque[Claim]]) -> list[Claim]:
    found: list[Claim] = []
    while any(queues):
        found += [queue.popleft() for queue in queues if queue]
    return found


def source_of(row: Claim) -> Source:
    """Return the source that a row belongs to."""
    if row.campaign_id is not None:
        return Source("campaign", row.campaign_id)
    return Source("single" if row.run_id is None else "flow", row.account_id)


def open_of(source: Source, channel: str) -> tuple[str, tuple[int | str, ...]]:
    """Return the open rows of a source as a condition, with its parameters; each kind has its index."""
    if source.kind == "campaign":
        return f"campaign_id = ? AND channel = ? AND run_id IS NULL AND {_OPEN}", (source.id, channel)
    return f"account_id = ? AND channel = ? AND {_OF_FLOWS if source.kind == 'flow' else _SINGLE}", (source.id, channel)


def _first(source: Source) -> int:
    """Return when rows of a source are due that may go at once."""
    return BY_FLOWS_AT_ONCE if source.kind == "flow" else AT_ONCE


class _Look:
    """One question to the line."""

    def __init__(self, now: int, taken: Set[int], closed: tuple[str, ...], room: dict[str, int], names: Names) -> None:
        self.now, self.taken, self.closed, self.room, self._names = now, taken, closed, room, names
        self.given: set[int] = set()  # of what came back, which may stand in the line too

    def has_given(self, row: Claim) -> bool:
        """Return whether somebody has a row already."""
        return row.id in self.taken or row.id in self.given

    def full(self, row: Claim) -> str | None:
        """Return the group of a row that has no room for it; None if it has, and then it is counted."""
        names = self._names(row)
        for name in names:
            if self.room.get(name, 1) <= 0:
                return name
        for name in names:
            if name in self.room:
                self.room[name] -= 1
        return None


def _page(source: Source, channel: str, look: _Look, at: tuple[int, int], size: int) -> list[tuple[Any, ...]]:
    """Read the next open rows of a source behind a place, each with the time it is due."""
    of, whose = open_of(source, channel)
    more = _ACTIVE if source.kind == "flow" else ""
    closed: tuple[str, ...] = ()
    if source.kind != "campaign":
        more += _NOT_STOPPED
        closed = look.closed
        more += f" AND provider NOT IN ({','.join('?' * len(closed))})" if closed else ""
    found: list[tuple[Any, ...]] = []
    # Many rows of a campaign share their time; asked in one, the index would be read from the first of them
    for where, values in zip(BEHIND, ((at[0], at[1]), (at[0], look.now)), strict=True):
        if len(found) < size and (at[0] >= 0 or where == BEHIND[1]):
            found += rows(
                f"SELECT {COLUMNS}, due_at FROM message WHERE {of} AND {where} {more} ORDER BY due_at, id LIMIT ?",
                (*whose, *values, *closed, size - len(found)),
            )
    return found


def is_due(closed: tuple[str, ...] = (), channel: str = "email") -> bool:
    """Return whether an open row of a live source may move now, by a provider that is not closed."""
    look = _Look(clock.now_ms(), frozenset(), closed, {}, _by_recipient)
    for source in (source for sources in live_sources(channel).values() for source in sources):
        for row in _page(source, channel, look, (-1, 0), 1):
            if source.kind != "campaign" or Claim._make(row[:-1]).provider not in closed:
                return True
    return False


# How deep the queue of a channel is: what is due, what waits for its time or for people, what is in hand.
#
# Counted over the indexes of what is open, campaign by campaign. A million open messages take a third of a second,
# so whoever asks often keeps the answer for a while.

CHANNELS = ("email", "sms")
_OPEN_STATES = "status IN ('queued', 'held') AND due_at IS NOT NULL"
_LIVE = (
    "SELECT id, phase FROM campaign WHERE account_id = coalesce(?, account_id) AND channel = ? "
    "AND phase IN ('holding', 'sending', 'paused') AND deleted_at IS NULL"
)


class Depth(NamedTuple):
    """Messages by what they wait for, and for how long the oldest could have gone."""

    due: int = 0
    later: int = 0
    paused: int = 0  # of campaigns that wait for a person
    in_hand: int = 0
    oldest_seconds: float = 0.0


def depth_of(channel: str, account_id: int | None = None) -> Depth:
    """Return how deep the queue of a channel is, for an account or for all."""
    now = clock.now_ms()
    live = rows(_LIVE, (account_id, channel))
    own = "" if account_id is None else " AND +account_id = ?"
    by_account = "" if account_id is None else " AND account_id = ?"
    mine = () if account_id is None else (account_id,)
    sources: list[tuple[str, tuple[Any, ...]]] = [
        (f"campaign_id IS NULL AND channel = ? AND run_id IS NULL{own}", (channel, *mine)),
        (f"channel = ? AND run_id IS NOT NULL{by_account}", (channel, *mine)),
    ]
    sources += [("campaign_id = ? AND channel = ? AND run_id IS NULL", (number, channel))
                for number, phase in live if phase != "paused"]  # fmt: skip
    due = later = 0
    oldest: list[int] = []
    for where, values in sources:
        waiting, ready = _counted(where, values, now)
        due, later = due + ready, later + waiting - ready
        # What may go at once has been waiting since it was written
        first = (
            f"SELECT max(due_at, created_at) FROM message WHERE {where} AND {_OPEN_STATES} ORDER BY due_at, id LIMIT 1"
        )
        oldest += [row[0] for row in rows(first, values) if row[0] <= now]
    paused = sum(_paused(number) for number, phase in live if phase == "paused")
    in_hand = sum(_in_hand(number, channel, own, mine) for number in (None, *(number for number, _ in live)))
    return Depth(due, later, paused, in_hand, (now - min(oldest, default=now)) / 1000)


def _counted(where: str, values: tuple[Any, ...], now: int) -> tuple[int, int]:
    """Count what is open of a source, and what of it is due."""
    sql = f"SELECT count(*), count(*) FILTER (WHERE due_at <= ?) FROM message WHERE {where} AND {_OPEN_STATES}"
    waiting, ready = fetch_one(sql, (now, *values)) or (0, 0)
    return int(waiting), int(ready)


def _paused(campaign_id: int) -> int:
    sql = "SELECT count(*) FROM message WHERE campaign_id = ? AND status IN ('queued', 'held')"
    return int(scalar(sql, (campaign_id,)))


def _in_hand(campaign_id: int | None, channel: str, own: str, mine: tuple[int, ...]) -> int:
    """Count what is being handed over: never many, and what is no campaign's stands together."""
    sql = (
        "SELECT count(*) FROM message WHERE campaign_id IS NOT DISTINCT FROM ? AND status = 'sending' "
        f"AND +channel = ?{own}"
    )
    return int(scalar(sql, (campaign_id, channel, *mine)))
