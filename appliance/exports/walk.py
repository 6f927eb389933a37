"""Ways through large tables: pages that begin where the last one ended, each one short read, so that nothing waits."""

import time
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from appliance.storage.open import connection, rows

_PAGE = 400
_NEWEST = 2000
_WINDOWS, _WINDOW = 20, 100
_MAX_SECONDS = 0.2
_FARTHEST = 2**62

Row = tuple[Any, ...]


class Way(Protocol):
    """Rows in pages, and some of them from all over."""

    def pages(self) -> Iterator[list[Row]]:
        """Yield the rows in pages; one read each."""

    def sample(self) -> list[Row]:
        """Return some rows from all over."""


class Keyset(NamedTuple):
    """Rows in falling order of one number: `sql` takes it as `:last` (its place in a row is `key`)."""

    sql: str
    parameters: dict[str, Any]
    last: str
    key: int

    def pages(self) -> Iterator[list[Row]]:
        """Yield the rows in pages; one read each."""
        last = _FARTHEST
        while part := self._page(last, _PAGE):
            yield part
            last = part[-1][self.key]

    def _page(self, last: int, size: int) -> list[Row]:
        return rows(f"{self.sql} LIMIT {size}", {**self.parameters, self.last: last})

    def sample(self) -> list[Row]:
        """Return the newest rows, and windows of others at equal distances."""
        newest = self._page(_FARTHEST, _NEWEST)
        if len(newest) < _NEWEST:
            return newest
        found = newest
        end = newest[-1][self.key]
        begun = time.monotonic()
        for number in range(1, _WINDOWS + 1):
            # Where few fit, a window has far to look
            if time.monotonic() - begun > _MAX_SECONDS:
                break
            found = found + self._page(end * number // _WINDOWS, _WINDOW)
        return found


class Pair(NamedTuple):
    """Rows in falling order of time and id: `sql` takes them as `:at` and `:last`, from these places of a row."""

    sql: str
    parameters: dict[str, Any]
    at: int
    key: int

    def pages(self) -> Iterator[list[Row]]:
        """Yield the rows in pages; one read each."""
        at = last = _FARTHEST
        while part := rows(f"{self.sql} LIMIT {_PAGE}", {**self.parameters, "at": at, "last": last}):
            yield part
            at, last = part[-1][self.at], part[-1][self.key]

    def sample(self) -> list[Row]:
        """Return the newest rows."""
        return rows(f"{self.sql} LIMIT {_NEWEST}", {**self.parameters, "at": _FARTHEST, "last": _FARTHEST})


class Collected(NamedTuple):
    """Rows whose ids are found at once, eight bytes each: for conditions too dear to ask again for each page."""

    ids: str
    parameters: dict[str, Any]
    sql: str

    def _all(self) -> "array[int]":
        return array("q", (row[0] for row in connection().execute(self.ids, self.parameters)))

    def pages(self) -> Iterator[list[Row]]:
        """Yield the rows in pages; one read each."""
        found = self._all()
        for start in range(0, len(found), _PAGE):
            # Who was deleted meanwhile is missing; that is no end
            if part := self._rows(found[start : start + _PAGE]):
                yield part

    def _rows(self, ids: "array[int]") -> list[Row]:
        return rows(self.sql.format(ids=",".join("?" * len(ids))), list(ids))

    def sample(self) -> list[Row]:
        """Return rows at equal distances."""
        found = self._all()
        chosen = found[:: max(1, len(found) // (_NEWEST * 2))]
        return [row for start in range(0, len(chosen), _PAGE) for row in self._rows(chosen[start : start + _PAGE])]
