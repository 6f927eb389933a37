"""Indexes on the paths of custom data that segments ask for, made when they are first needed and dropped after.

An index is a table of its own, because SQLite makes a real one in one go and nobody could write meanwhile: triggers
keep it right from the first moment, and who was there before is added in small transactions, in the order of the index,
so that each touches few pages. A bounded number: each one costs every write of a contact a little.
"""

import hashlib
import json
import threading
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from appliance.audience.filters import compile, fields
from appliance.audience.filters.read import Node
from appliance.audience.filters.scope import Place, Scope
from appliance.storage import work
from appliance.storage.open import connection, rows, run, scalar
from appliance.storage.work import writing

MAX_INDEXES = 8
# A smaller table is read faster than an index on it pays for itself
_WORTH_IT = 5_000
_CHUNK = 1_000
_PREFIX = "contact_data_"
_TESTS = ("eq", "in")
# Stands in an index until everybody is in it; no text equals it
_UNFINISHED = "x'00'"
_one_at_a_time = threading.Lock()


def tend() -> None:
    """Make the indexes that segments now need and drop the others, in steps that hold the writer for little each.

    A second caller leaves at once.
    """
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        _tend(_wanted(), _present())
    finally:
        _one_at_a_time.release()


def _tend(wanted: dict[str, str], present: set[str]) -> None:
    for name in present - set(wanted):
        _empty(name)
        work.write(_drop, name)
    if int(scalar("SELECT coalesce(max(id), 0) FROM contact")) < _WORTH_IT:
        return
    for name, path in wanted.items():
        if name not in present:
            work.write(_make, name, path)
        if _is_unfinished(name):
            _fill(name, path)


def drop_all() -> None:
    """Drop every index; `tend` makes those again that are needed."""
    for name in _present():
        work.write(_drop, name)


def of(dotted: str) -> str | None:
    """Return the table that has `value` and `contact_id` of a path of custom data where it is a text, if there is."""
    path = fields.json_path(dotted)
    name = _name(path) if path else ""
    here = scalar("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
    return name if here and not _is_unfinished(name) else None


def _name(path: str) -> str:
    return _PREFIX + hashlib.sha256(path.encode()).hexdigest()[:16]


def _present() -> set[str]:
    # A restored database may be anyone's work: a name that is no name of ours must not become SQL
    pattern = _PREFIX + "[0-9a-f]" * 16
    return {name for (name,) in rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?", (pattern,))}


def _is_unfinished(name: str) -> bool:
    return bool(scalar(f"SELECT 1 FROM {name} WHERE value = {_UNFINISHED}"))


def _wanted() -> dict[str, str]:
    """Return name and path of what most segments compare whole."""
    counted: Counter[str] = Counter()
    for (text,) in rows("SELECT filters FROM segment ORDER BY id"):
        counted.update(set(_paths(json.loads(text))))
    return {_name(path): path for path, _ in counted.most_common(MAX_INDEXES)}


def _paths(filters: Any) -> Iterator[str]:
    for one in filters if isinstance(filters, list) else []:
        if one.get("name") == "group":
            yield from _paths(one.get("value"))
        elif one.get("predicate") in _TESTS:
            field = fields.find(one["name"], Place.SEGMENT)
            path = fields.json_path(field.label) if field is not None and field.type == "json" else None
            if path is not None:
                yield path


def _make(name: str, path: str) -> None:
    writing()

    def value(row: str) -> str:
        return f"json_extract({row}.data, {path})"

    def is_text(row: str) -> str:
        return f"json_type({row}.data, {path}) = 'text'"

    remove = f"DELETE FROM {name} WHERE value = {value('old')} AND contact_id = old.id;"
    add = f"INSERT OR IGNORE INTO {name} SELECT {value('new')}, new.id WHERE {is_text('new')};"
    connection().execute(
        f"CREATE TABLE {name} (value COLLATE NOCASE, contact_id INTEGER, "
        "PRIMARY KEY (value, contact_id)) WITHOUT ROWID;"
        f"INSERT INTO {name} VALUES ({_UNFINISHED}, 0);"
        f"CREATE TRIGGER {name}_added AFTER INSERT ON contact WHEN {is_text('new')} BEGIN {add} END;"
        f"CREATE TRIGGER {name}_changed AFTER UPDATE OF data ON contact WHEN {value('old')} IS NOT {value('new')} OR "
        f"{is_text('old')} IS NOT {is_text('new')} BEGIN {remove} {add} END;"
        f"CREATE TRIGGER {name}_gone AFTER DELETE ON contact WHEN {is_text('old')} BEGIN {remove} END"
    )


def _fill(name: str, path: str) -> None:
    """Add everybody who was there before the triggers were, then say that the index can be used."""
    found = connection().execute(
        f"SELECT id FROM contact WHERE json_type(data, {path}) = 'text' "
        f"ORDER BY json_extract(data, {path}) COLLATE NOCASE, id"
    )
    ids = array("q", (row[0] for row in found))
    for start in range(0, len(ids), _CHUNK):
        work.write(_add, name, path, ids[start : start + _CHUNK].tolist())
    work.write(run, f"DELETE FROM {name} WHERE value = {_UNFINISHED}")


def _add(name: str, path: str, ids: list[int]) -> None:
    writing()
    # As they are now: what changed meanwhile is in already
    run(
        f"INSERT OR IGNORE INTO {name} SELECT json_extract(c.data, {path}), c.id FROM json_each(?) i "
        f"CROSS JOIN contact c ON c.id = i.value WHERE json_type(c.data, {path}) = 'text'",
        (json.dumps(ids),),
    )


def _empty(name: str) -> None:
    """Take an index apart from its end, so that dropping it is quick; it counts as unfinished from the start."""
    work.write(run, f"INSERT OR IGNORE INTO {name} VALUES ({_UNFINISHED}, 0)")
    while work.write(_remove, name):
        pass


def _remove(name: str) -> int:
    writing()
    return run(
        f"DELETE FROM {name} WHERE (value, contact_id) IN (SELECT value, contact_id FROM {name} "
        f"WHERE value <> {_UNFINISHED} LIMIT {_CHUNK * 5})"
    )


def _drop(name: str) -> None:
    writing()
    for trigger in ("added", "changed", "gone"):
        connection().execute(f"DROP TRIGGER IF EXISTS {name}_{trigger}")
    connection().execute(f"DROP TABLE IF EXISTS {name}")


# Tells from a few people, spread evenly over all, how many each of some filters lets through.


def passing_share(nodes: Sequence[Node], scope: Scope, size: int) -> dict[int, float]:
    """Return by `id(node)` the share of all contacts, from 0 to 1, that each filter alone matches."""
    looked_at, counts = counted(nodes, scope, f"c.id IN ({spread_ids(size)})")
    return {id(node): number / looked_at for node, number in zip(nodes, counts, strict=True)} if looked_at else {}


def counted(nodes: Sequence[Node], scope: Scope, whom: str = "1") -> tuple[int, list[int]]:
    """Count the account's people, and those whom each filter alone lets through, among some."""
    parameters: dict[str, Any] = {"account": scope.account_id}
    sums = []
    for index, node in enumerate(nodes):
        part = compile.single(node, scope, f"s{index}_")
        sums.append(f"count(*) FILTER (WHERE {part.sql})")
        parameters.update(part.parameters)
    sql = f"SELECT {', '.join(['count(*)', *sums])} FROM contact c NOT INDEXED WHERE c.account_id = :account AND {whom}"
    found = rows(sql, parameters)[0]
    return int(found[0]), [int(number) for number in found[1:]]


def spread_ids(size: int) -> str:
    """Return a query of ids spread evenly over all there are, out of step with whatever repeats among them."""
    first, last = rows("SELECT (SELECT min(id) FROM contact), (SELECT max(id) FROM contact)")[0]
    if first is None:
        return "SELECT 0"
    step = max(1, (last - first + 1) // size)
    return (
        f"WITH RECURSIVE spread(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM spread WHERE {first} + (n + 1) * {step} "
        f"<= {last}) SELECT {first} + n * {step} + n * 48271 % {step} FROM spread"
    )
