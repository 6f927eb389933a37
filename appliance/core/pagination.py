"""A page of rows, as every list answers it."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Page(NamedTuple):
    """Some rows of a list, and how many there are in all."""

    rows: Sequence[Any]
    total: int
    page: int
    limit: int

    @property
    def pages(self) -> int:
        """How many pages there are; 0 when there is nothing."""
        return -(-self.total // self.limit)


# OFFSET has to walk what it skips, and SQLite's integers end here; nobody reads that far.
_FARTHEST = 2**53


def paginate(query: Any, page: int, limit: int) -> Page:
    """Cut one page out of a Peewee query that is already ordered; past the end it is empty."""
    total = query.order_by().count()
    offset = (page - 1) * limit
    rows = list(query.limit(limit).offset(offset)) if offset < min(total, _FARTHEST) else []
    return Page(rows, total, page, limit)
