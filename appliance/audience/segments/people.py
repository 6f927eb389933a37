"""Who is in a segment, as SQL over the contact alias `c`: to count, to list, to send to, to ask about one person."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from appliance.audience.filters import compile, read
from appliance.audience.filters.read import Node
from appliance.audience.filters.scope import Compiled, Scope
from appliance.audience.segments import indexes, query_plan
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.storage import sql as storage_sql
from appliance.storage.models import Account, Segment
from appliance.storage.open import connection, fetch_one, rows, scalar

_MAX_SECONDS = 20
_STEPS = 200_000
# Up to here the share of each filter is counted, above it is told from a sample
EXACT_BELOW = 20_000
_SAMPLED = 2_000
_MAX_KEPT = 100
_TABLES = {
    "list": "SELECT 1 FROM contact_list WHERE account_id = ? AND id = ?",
    "segment": "SELECT 1 FROM segment WHERE account_id = ? AND id = ?",
    "flow": "SELECT 1 FROM flow WHERE account_id = ? AND hidden = 0 AND deleted_at IS NULL AND id = ?",
    "campaign": "SELECT 1 FROM campaign WHERE account_id = ? AND id = ?",
}


class _Kept(threading.local):
    """What this thread's connection counted, by question, and the state of the database then."""

    state: tuple[Any, ...] | None = None
    counts: dict[tuple[Any, ...], int]


_kept = _Kept()


class Share(Struct):
    """How many people one filter alone lets through, and whether that is told from a sample."""

    count: int
    estimated: bool


def scope(account_id: int, writing: bool = False) -> Scope:
    """Return the scope of an account's filters now; while `writing`, what ids name must exist."""
    zone = str(Account.get_by_id(account_id).time_zone)
    known: dict[int, list[Node] | None] = {}
    there: dict[tuple[str, int], bool] = {}

    def exists(kind: str, number: int) -> bool:
        if (kind, number) not in there:
            there[kind, number] = fetch_one(_TABLES[kind], (account_id, number)) is not None
        return there[kind, number]

    def segment(number: int) -> list[Node] | None:
        if number not in known:
            found = Segment.get_or_none(Segment.account == account_id, Segment.id == number)
            known[number] = read.filters(found.filters, here._replace(exists=None)) if found else None
        return known[number]

    here = Scope(account_id, zone, clock.now_ms(), exists=exists if writing else None, segment=segment)
    return here


def nodes(account_id: int, filters: Any, writing: bool = False) -> list[Node]:
    """Read filters for an account; raises Invalid with all faults."""
    return read.filters(filters, scope(account_id, writing))


def condition(account_id: int, filters: Any, prefix: str = "f") -> Compiled:
    """Compile stored filters of an account into a condition on the contact alias `c`."""
    here = scope(account_id)
    return compile.condition(read.filters(filters, here), here, prefix)


def of_segment(account_id: int, segment_id: int, prefix: str) -> Compiled:
    """Compile a segment's filters as they are now; one that does not exist has nobody."""
    found = Segment.get_or_none(Segment.account == account_id, Segment.id == segment_id)
    return Compiled("0", {}) if found is None else condition(account_id, found.filters, prefix)


def select(account_id: int, filters: Sequence[Node], here: Scope, prefix: str = "f") -> Compiled:
    """Return FROM and WHERE of all people whom filters let through, in the form that is quickest for many."""
    return _chosen(account_id, filters, here, prefix)[1]


def _chosen(account_id: int, filters: Sequence[Node], here: Scope, prefix: str) -> tuple[bool, Compiled]:
    """Return whether an index is where the question begins, and FROM and WHERE."""
    start, others = query_plan.way(filters, here, prefix)
    parameters = {**others.parameters, f"{prefix}_account": account_id, **(start.parameters if start else {})}
    begin = [f"c.id IN ({start.sql})"] if start else []
    clauses = [source(f":{prefix}_account", start is not None), *begin, others.sql]
    return start is not None, Compiled(f"FROM {' AND '.join(clauses)}", parameters)


def source(placeholder: str, narrowed: bool = False) -> str:
    """Return the contacts of an account as `c`, with WHERE begun.

    Where the table is one account's, it is read in the order of its ids: an index on the account would only make the
    way longer, and would look for each person's events and addresses in another order than theirs.
    """
    whole = narrowed or fetch_one("SELECT 1 FROM account LIMIT 1 OFFSET 1") is None
    return f"contact c {'NOT INDEXED ' if whole else ''}WHERE c.account_id = {placeholder}"


@contextmanager
def limited(ends: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Give the statements inside twenty seconds; what takes longer is refused instead of keeping others out.

    So is what `ends` says nobody waits for any more.
    """
    here = connection()
    until = clock.now() + _MAX_SECONDS
    here.set_progress_handler(lambda: clock.now() > until or ends(), _STEPS)
    try:
        yield
    except apsw.InterruptError:
        raise Invalid({"filters": ["takes too long to count: ask for less"]}) from None
    finally:
        here.set_progress_handler(None)


def total(account_id: int) -> int:
    """Count an account's contacts; again only if anything was written since."""
    return kept("SELECT count(*) FROM contact WHERE account_id = :account", {"account": account_id})


def kept(sql: str, parameters: dict[str, Any]) -> int:
    """Return a count; asked again only if anything was written since, by this connection or any other."""
    here = connection()
    # The connection too, for a thread may have another one for a while (`storage.sandbox`)
    state = (here, storage_sql.changes_elsewhere(), int(here.total_changes()))
    if _kept.state != state or len(_kept.counts) > _MAX_KEPT:
        _kept.state, _kept.counts = state, {}
    asked = (sql, *parameters.items())
    if asked not in _kept.counts:
        with limited():
            _kept.counts[asked] = int(scalar(sql, parameters))
    return _kept.counts[asked]


def count(account_id: int, filters: Sequence[Node], here: Scope) -> int:
    """Count the people whom filters let through."""
    if not filters:
        return total(account_id)
    chosen = select(account_id, filters, here)
    with limited():
        return int(scalar(f"SELECT count(*) {chosen.sql}", chosen.parameters))


def some(account_id: int, filters: Sequence[Node], here: Scope, limit: int = 5) -> list[int]:
    """Return some of the people whom filters let through, by contact id."""
    chosen = select(account_id, filters, here)
    with limited():
        return [row[0] for row in rows(f"SELECT c.id {chosen.sql} LIMIT {int(limit)}", chosen.parameters)]


def look(account_id: int, filters: Sequence[Node], here: Scope, limit: int = 5) -> tuple[int, list[int]]:
    """Count the people whom filters let through, and answer some of them, by contact id."""
    if not filters:
        return total(account_id), some(account_id, filters, here, limit)
    begun, chosen = _chosen(account_id, filters, here, "f")
    with limited():
        if begun:
            # Where to begin is worked out once for both
            found = rows(
                f"WITH hit AS MATERIALIZED (SELECT c.id AS id {chosen.sql}) SELECT (SELECT count(*) FROM hit), "
                f"(SELECT json_group_array(id) FROM (SELECT id FROM hit LIMIT {int(limit)}))",
                chosen.parameters,
            )[0]
            return int(found[0]), msgspec.json.decode(found[1], type=list[int])
        first = [row[0] for row in rows(f"SELECT c.id {chosen.sql} LIMIT {int(limit)}", chosen.parameters)]
        if len(first) < limit:
            return len(first), first
        return int(scalar(f"SELECT count(*) {chosen.sql}", chosen.parameters)), first


def shares(
    account_id: int, filters: Sequence[Node], here: Scope, exact_below: int = EXACT_BELOW, sampled: int = _SAMPLED
) -> list[Share]:
    """Return how many people each filter alone lets through: counted, or told from a sample where there are many."""
    if not filters:
        return []
    everybody = total(account_id)
    with limited():
        if everybody > exact_below:
            passing = indexes.passing_share(filters, here, sampled)
            if passing:
                return [Share(round(passing[id(node)] * everybody), True) for node in filters]
        return [Share(number, False) for number in indexes.counted(filters, here)[1]]
