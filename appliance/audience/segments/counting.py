"""Counts of many people that nobody has to wait for: they go on by themselves, and a newer question ends an older one.

A count answers how many were found so far at any moment, and some of the people, chosen by chance but the same for the
same seed. It runs on a thread of its own with a connection of its own, so that neither pages nor writers wait for it.
"""

import random
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from appliance.audience.segments import people, store
from appliance.core.errors import Invalid
from appliance.storage import work
from appliance.storage.models import Segment
from appliance.storage.open import close_database, connection, rows

# So many questions are remembered; a page that asks about an older one asks anew
_MAX_KEPT = 200
_AT_ONCE = threading.BoundedSemaphore(2)
_latest: "OrderedDict[tuple[int, str], Counting]" = OrderedDict()
_refreshing: set[int] = set()
_lock = threading.Lock()
# As long as it takes: nobody waits
_LONG = 3600.0
SAMPLE = 8


class Counting:
    """One count: `found` grows until `is_done`; `fault` says why it ended without an answer."""

    def __init__(self, account_id: int, filters: Any, seed: int) -> None:
        self.account_id = account_id
        self.filters = filters
        self.seed = seed
        self.found = 0
        self.everybody = 0
        self.sample: list[int] = []
        self.fault: Invalid | None = None
        self.is_stale = False
        self._ended = threading.Event()
        self._began_stopped = work.is_stopped()

    @property
    def is_done(self) -> bool:
        """Return whether nothing more will be found."""
        return self._ended.is_set()

    @property
    def floor(self) -> int:
        """Return a round number that is reached already; 0 while it is small."""
        step = next((step for step in (100_000, 10_000, 1_000) if self.found >= step), 0)
        return self.found // step * step if step else 0

    def wait(self, seconds: float) -> bool:
        """Wait until it is done, at most so long; returns whether it is."""
        return self._ended.wait(seconds)

    def run(self) -> None:
        """Count, on this thread."""
        try:
            with _AT_ONCE:
                if not self._shall_end():
                    self._count()
        except Invalid as refused:
            self.fault = refused
        finally:
            close_database()
            self._ended.set()

    def _shall_end(self) -> bool:
        return self.is_stale or (work.is_stopped() and not self._began_stopped)

    def _count(self) -> None:
        chance = random.Random(self.seed)
        self.everybody = people.total(self.account_id)
        nodes = people.nodes(self.account_id, self.filters)
        if not nodes:
            self.sample = _anybody(self.account_id, chance)
            self.found = self.everybody
            return
        chosen = people.select(self.account_id, nodes, people.scope(self.account_id))
        with people.limited(self._shall_end):
            cursor = connection().execute(f"SELECT c.id {chosen.sql}", chosen.parameters)
            try:
                for (one,) in cursor:
                    self._take(one, chance)
            finally:
                cursor.close(True)

    def _take(self, one: int, chance: random.Random) -> None:
        """Note somebody who was found; each has the same chance to be among the sample."""
        self.found += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(one)
            return
        place = int(chance.random() * self.found)
        if place < SAMPLE:
            self.sample[place] = one


def begin(account_id: int, asker: str, filters: Any, seed: int = 0) -> Counting:
    """Count whom filters mean for one asker, whose older question ends; one that is under way goes on."""
    made = Counting(account_id, filters, seed)
    with _lock:
        before = _latest.pop((account_id, asker), None)
        if before is not None and not before.is_done and (before.filters, before.seed) == (filters, seed):
            made = before
        elif before is not None:
            before.is_stale = True
        _latest[account_id, asker] = made
        if len(_latest) > _MAX_KEPT:
            _latest.popitem(last=False)[1].is_stale = True
    if made is not before:
        threading.Thread(target=made.run, name="counter", daemon=True).start()
    return made


def latest(account_id: int, asker: str) -> Counting | None:
    """Return the last count that an asker began, or None if it is forgotten."""
    with _lock:
        return _latest.get((account_id, asker))


def refresh(account_id: int, segments: list[Segment]) -> None:
    """Count segments in the background, unless that is under way or they were counted just now."""
    with _lock:
        if store.are_fresh(segments) or account_id in _refreshing:
            return
        _refreshing.add(account_id)
    threading.Thread(target=_refresh, args=(account_id, segments), name="counter", daemon=True).start()


def _refresh(account_id: int, segments: list[Segment]) -> None:
    began_stopped = work.is_stopped()
    try:
        for segment in segments:
            if work.is_stopped() and not began_stopped:
                return
            with suppress(Invalid):
                store.counts(account_id, [segment], patience=_LONG)
    finally:
        close_database()
        with _lock:
            _refreshing.discard(account_id)


def _anybody(account_id: int, chance: random.Random) -> list[int]:
    """Return some people of all, by chance, without reading everybody."""
    first, last = rows("SELECT min(id), max(id) FROM contact WHERE account_id = ?", (account_id,))[0]
    if first is None:
        return []
    wanted = ",".join(str(chance.randint(first, last)) for _ in range(SAMPLE * 8))
    found = [row[0] for row in rows(f"SELECT id FROM contact WHERE account_id = ? AND id IN ({wanted})", (account_id,))]
    if len(found) < SAMPLE:
        found = [row[0] for row in rows("SELECT id FROM contact WHERE account_id = ? LIMIT 500", (account_id,))]
    chance.shuffle(found)
    return found[:SAMPLE]
