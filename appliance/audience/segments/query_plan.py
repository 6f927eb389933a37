"""Plan queries over many contacts: where to start, and how to order conditions.

If one condition matches few contacts, these are read from an index, and the other conditions are evaluated only for
them. Otherwise the whole table is read in order, which is then faster than any index, and cheap, selective conditions
are evaluated first. The selectivity of conditions is estimated from a sample. The plan never changes the result.

`estimate_shares`, `count_matching` and `spread_ids` take samples; `plan_query` makes the plan. `maintain_indexes`
creates and drops the indexes on custom data.
"""

import hashlib
import json
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from appliance.audience.filters import compiler, fields
from appliance.audience.filters.compiler import ConditionGroup, EventCondition, FieldCondition, Node
from appliance.audience.filters.fields import Binder, Compiled, FilterPlace, Operand, Scope
from appliance.audience.filters.predicates import equals, one_of
from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run, scalar
from appliance.storage.transactions import require_write_transaction


def estimate_shares(nodes: Sequence[Node], scope: Scope, size: int) -> dict[int, float]:
    """Return the estimated share (0 to 1) of the account's contacts that each filter alone matches, by `id(node)`.

    The sample has about `size` contacts of the installation. The result is empty if none of them is in the account.
    """
    total, counts = count_matching(nodes, scope, f"c.id IN ({spread_ids(size)})")
    return {id(node): number / total for node, number in zip(nodes, counts, strict=True)} if total else {}


def count_matching(nodes: Sequence[Node], scope: Scope, condition: str = "1") -> tuple[int, list[int]]:
    """Return (number of contacts that fulfil `condition`, for each filter the number of these that match it alone).

    `condition` is SQL on contact `c`. Only contacts of the account of `scope` are counted.
    """
    parameters: dict[str, Any] = {"account": scope.account_id}
    sums = []
    for index, node in enumerate(nodes):
        compiled = compiler.compile_node(node, scope, f"s{index}_")
        sums.append(f"count(*) FILTER (WHERE {compiled.sql})")
        parameters.update(compiled.parameters)
    counts = rows(
        f"SELECT {', '.join(['count(*)', *sums])} FROM contact c NOT INDEXED "
        f"WHERE c.account_id = :account AND {condition}",
        parameters,
    )[0]
    return int(counts[0]), [int(number) for number in counts[1:]]


def spread_ids(size: int) -> str:
    """Return a query of about `size` ids, spread evenly between the smallest and the largest contact id.

    Within each interval the position varies, so that periodic patterns in the ids do not distort the sample.
    """
    min_id, max_id = rows("SELECT (SELECT min(id) FROM contact), (SELECT max(id) FROM contact)")[0]
    if min_id is None:
        return "SELECT 0"
    step = max(1, (max_id - min_id + 1) // size)
    return (
        f"WITH RECURSIVE spread(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM spread WHERE {min_id} + (n + 1) * {step} "
        f"<= {max_id}) SELECT {min_id} + n * {step} + n * 48271 % {step} FROM spread"
    )


# Looking up a contact costs several times as much as reading the next one, so lookups are used for at most one contact
# in this number.
_RARE_DIVISOR = 3
# While the whole table is read, building a set of contacts is worthwhile for at most one contact in this number.
_RARE_SET_DIVISOR = 5
# The size of the sample for ordering conditions, and the number of contacts below which no sample is taken.
_SAMPLE_FOR_ORDER = 200
_MIN_SAMPLED_CONTACTS = 20_000


class _Start(NamedTuple):
    """A possible start of a query: contact ids from an index.

    `count_sql` is FROM and WHERE of the rows, `ids_sql` the query of the ids, and `values` the parameters of both.
    `evaluated_node` is the node that the start evaluates completely, or None if its condition must still be evaluated.
    """

    count_sql: str
    ids_sql: str
    values: dict[str, object]
    evaluated_node: Node | None


class QueryPlan(NamedTuple):
    """The query of contact ids to start from (None for all contacts), and the condition for the remaining filters."""

    start: Compiled | None
    conditions: Compiled


def plan_query(nodes: Sequence[Node], scope: Scope, prefix: str) -> QueryPlan:
    """Return the plan of a query over many contacts whose filters must all match.

    `prefix` keeps the names of parameters apart. Raises Invalid for more than `compiler.MAX_CONDITIONS` conditions.
    """
    largest = int(scalar("SELECT coalesce(max(id), 0) FROM contact") or 0)
    best: _Start | None = None
    smallest = largest // _RARE_DIVISOR + 1
    for index, start in enumerate(_iter_starts(nodes, scope, f"{prefix}n")):
        if index >= 10:
            break
        count = _count_up_to(start, smallest)
        if count < smallest:
            best, smallest = start, count
    remainder = [node for node in nodes if best is None or node is not best.evaluated_node]
    shares = (
        estimate_shares(remainder, scope, _SAMPLE_FOR_ORDER)
        if largest > _MIN_SAMPLED_CONTACTS and len(remainder) > 1
        else {}
    )
    hints = compiler.CompileHints(
        lambda node: compiler.estimate_cost(node) / (1.02 - shares.get(id(node), 0.5)),
        tuple(leaf for leaf in iter_event_sets(remainder) if _is_small(leaf, scope, largest // _RARE_SET_DIVISOR)),
    )
    id_query = Compiled(best.ids_sql, best.values) if best else None
    return QueryPlan(id_query, compiler.compile_filters(remainder, scope, prefix, hints))


def _count_up_to(start: _Start, limit: int) -> int:
    """Return the number of rows from which a query with this start would read contacts, but at most `limit`."""
    return int(scalar(f"SELECT count(*) FROM (SELECT 1 {start.count_sql} LIMIT {limit})", start.values))


def iter_event_sets(nodes: Sequence[Node]) -> Iterator[EventCondition]:
    """Yield the event conditions, also within groups, that a single query of the event table can evaluate."""
    for node in nodes:
        if isinstance(node, ConditionGroup):
            yield from iter_event_sets(node.parts)
        elif isinstance(node, EventCondition) and _is_set(node):
            yield node


def _is_set(leaf: EventCondition) -> bool:
    return leaf.query.at_least > 0 and not isinstance(leaf.query.since, str)


def _is_small(leaf: EventCondition, scope: Scope, limit: int) -> bool:
    binder = Binder("n", scope)
    return _count_up_to(_Start(_events_from(leaf, binder), "", binder.values, None), limit + 1) <= limit


def _iter_starts(nodes: Sequence[Node], scope: Scope, prefix: str) -> Iterator[_Start]:
    for index, node in enumerate(nodes):
        if isinstance(node, ConditionGroup) or node.is_negative:
            continue
        binder = Binder(f"{prefix}{index}_", scope)
        if isinstance(node, EventCondition):
            if _is_set(node):
                count_sql = _events_from(node, binder)
                contact_query = compiler.compile_event_contacts(node, scope, f"{prefix}{index}e")
                yield _Start(count_sql, contact_query.sql, binder.values | contact_query.parameters, node)
        elif node.predicate.key in ("eq", "in"):
            make_start = (
                _data_start
                if node.field.name.startswith(("contact_data.", "data."))
                else _STARTS_BY_FIELD.get(node.field.name)
            )
            sql = make_start(node, binder) if make_start else None
            if sql is not None:
                # Only the start from a list evaluates its filter completely.
                yield _Start(
                    sql, f"SELECT contact_id {sql}", binder.values, node if make_start is _list_start else None
                )


def _events_from(leaf: EventCondition, binder: Binder) -> str:
    query = leaf.query
    sql = f"FROM event WHERE account_id = {binder.add(binder.scope.account_id)} AND event = {binder.add(query.event)}"
    start_times = [binder.scope.now - query.within_days * clock.DAY_MS] if query.within_days is not None else []
    start_times += [query.since] if isinstance(query.since, int) else []
    return sql + (f" AND created_at >= {binder.add(max(start_times))}" if start_times else "")


def _id_list(node: FieldCondition) -> str:
    values = node.value if isinstance(node.value, list) else [node.value]
    return ",".join(str(int(number)) for number in values)


def _list_start(node: FieldCondition, binder: Binder) -> str:
    return f"FROM membership WHERE contact_list_id IN ({_id_list(node)})"


def _campaign_start(column: str) -> Callable[[FieldCondition, Binder], str]:
    return lambda node, binder: f"FROM message WHERE campaign_id IN ({_id_list(node)}) AND {column} IS NOT NULL"


def _address_start(kind: str) -> Callable[[FieldCondition, Binder], str | None]:
    def make(node: FieldCondition, binder: Binder) -> str | None:
        addresses = node.value if isinstance(node.value, list) else [node.value]
        if not all(address.isascii() for address in addresses):
            return None
        values = ", ".join(binder.add(address.lower()) for address in addresses)
        account = binder.add(binder.scope.account_id)
        return f"FROM channel WHERE account_id = {account} AND kind = '{kind}' AND key IN ({values})"

    return make


def _data_start(node: FieldCondition, binder: Binder) -> str | None:
    values = node.value if isinstance(node.value, list) else [node.value]
    texts = [value for value in values if isinstance(value, str) and value.isascii()]
    index = find_index(node.field.label) if len(texts) == len(values) else None
    if index is None:
        return None
    operand = Operand("k.value")
    condition = one_of(operand, texts, binder) if len(texts) > 1 else equals(operand, texts[0], binder)
    return f"FROM {index} k WHERE {condition}"


_STARTS_BY_FIELD: dict[str, Callable[[FieldCondition, Binder], str | None]] = {
    "contact_list": _list_start, "campaign_sent": _campaign_start("sent_at"),
    "campaign_opened": _campaign_start("opened_at"),
    "campaign_clicked": _campaign_start("clicked_at"), "contact_email": _address_start("email"),
    "contact_phone_number": _address_start("phone"),
}  # fmt: skip


# Index tables on the paths of custom data that segments compare. An index is created when it is first needed, and
# dropped when it is no longer needed. It is an ordinary table, because SQLite would create a real index in one
# transaction, which blocks all writes. Triggers keep it current. Existing contacts are added in small transactions, in
# the order of the index, so that each transaction changes few pages. The number of indexes is limited because each
# index makes writes of contacts slightly slower.

MAX_INDEXES = 8
# Below this number of contacts, an index costs more than it saves.
_MIN_CONTACTS = 5_000
_CHUNK = 1_000
_INDEX_PREFIX = "contact_data_"
_INDEXED_PREDICATES = ("eq", "in")
# The value of a marker row, which an index contains until all contacts are in it; no text equals it.
_UNFINISHED = "x'00'"
_maintenance_lock = threading.Lock()


def maintain_indexes() -> None:
    """Create the indexes on custom data that segments need and drop the others, in small write transactions.

    Returns at once if another thread is already maintaining the indexes.
    """
    if not _maintenance_lock.acquire(blocking=False):
        return
    try:
        _maintain_indexes(_needed_indexes(), _existing_indexes())
    finally:
        _maintenance_lock.release()


def _maintain_indexes(wanted_indexes: dict[str, str], present: set[str]) -> None:
    for name in present - set(wanted_indexes):
        _empty_index(name)
        transactions.write(_drop_index, name)
    if int(scalar("SELECT coalesce(max(id), 0) FROM contact")) < _MIN_CONTACTS:
        return
    for name, path in wanted_indexes.items():
        if name not in present:
            transactions.write(_create_index, name, path)
        if _is_index_unfinished(name):
            _fill_index(name, path)


def drop_indexes() -> None:
    """Drop all indexes on custom data; `maintain_indexes` creates the needed ones again."""
    for name in _existing_indexes():
        transactions.write(_drop_index, name)


def find_index(dotted: str) -> str | None:
    """Return the index table of a path of custom data (columns `value`, `contact_id`), or None if it is not complete.

    The index contains only texts.
    """
    path = fields.json_path(dotted)
    name = _index_name(path) if path else ""
    is_present = scalar("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
    return name if is_present and not _is_index_unfinished(name) else None


def _index_name(path: str) -> str:
    return _INDEX_PREFIX + hashlib.sha256(path.encode()).hexdigest()[:16]


def _existing_indexes() -> set[str]:
    # A restored database is not trusted, so only names of exactly this form may be used in SQL.
    pattern = _INDEX_PREFIX + "[0-9a-f]" * 16
    return {name for (name,) in rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?", (pattern,))}


def _is_index_unfinished(name: str) -> bool:
    return bool(scalar(f"SELECT 1 FROM {name} WHERE value = {_UNFINISHED}"))


def _needed_indexes() -> dict[str, str]:
    """Return {index name: JSON path} for the up to `MAX_INDEXES` paths that most segments compare for equality."""
    path_counts: Counter[str] = Counter()
    for (text,) in rows("SELECT filters FROM segment ORDER BY id"):
        path_counts.update(set(_compared_paths(json.loads(text))))
    return {_index_name(path): path for path, _ in path_counts.most_common(MAX_INDEXES)}


def _compared_paths(filters: Any) -> Iterator[str]:
    for condition in filters if isinstance(filters, list) else []:
        if condition.get("name") == "group":
            yield from _compared_paths(condition.get("value"))
        elif condition.get("predicate") in _INDEXED_PREDICATES:
            field = fields.find_field(condition["name"], FilterPlace.SEGMENT)
            path = fields.json_path(field.label) if field is not None and field.type == "json" else None
            if path is not None:
                yield path


def _create_index(name: str, path: str) -> None:
    require_write_transaction()

    # A trigger ignores malformed JSON: an error would prevent every write that could repair the contact.
    def value(row: str) -> str:
        return f"iif(json_valid({row}.data), json_extract({row}.data, {path}), NULL)"

    def is_text(row: str) -> str:
        return f"iif(json_valid({row}.data), json_type({row}.data, {path}), NULL) = 'text'"

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


def _fill_index(name: str, path: str) -> None:
    """Add the contacts that existed before the triggers were created, then mark the index as complete."""
    cursor = connection().execute(
        f"SELECT id FROM contact WHERE json_type(data, {path}) = 'text' "
        f"ORDER BY json_extract(data, {path}) COLLATE NOCASE, id"
    )
    ids = array("q", (row[0] for row in cursor))
    for start in range(0, len(ids), _CHUNK):
        transactions.write(_add_to_index, name, path, ids[start : start + _CHUNK].tolist())
    transactions.write(run, f"DELETE FROM {name} WHERE value = {_UNFINISHED}")


def _add_to_index(name: str, path: str, ids: list[int]) -> None:
    require_write_transaction()
    # The value is read now and not with the ids, because a trigger may already have added a newer value to the index.
    run(
        f"INSERT OR IGNORE INTO {name} SELECT json_extract(c.data, {path}), c.id FROM json_each(?) i "
        f"CROSS JOIN contact c ON c.id = i.value WHERE json_type(c.data, {path}) = 'text'",
        (json.dumps(ids),),
    )


def _empty_index(name: str) -> None:
    """Delete the rows of an index in small transactions, so that dropping it is fast.

    The index is marked as incomplete first, so that no query uses it.
    """
    transactions.write(run, f"INSERT OR IGNORE INTO {name} VALUES ({_UNFINISHED}, 0)")
    while transactions.write(_remove_from_index, name):
        pass


def _remove_from_index(name: str) -> int:
    require_write_transaction()
    return run(
        f"DELETE FROM {name} WHERE (value, contact_id) IN (SELECT value, contact_id FROM {name} "
        f"WHERE value <> {_UNFINISHED} LIMIT {_CHUNK * 5})"
    )


def _drop_index(name: str) -> None:
    require_write_transaction()
    for trigger in ("added", "changed", "gone"):
        connection().execute(f"DROP TRIGGER IF EXISTS {name}_{trigger}")
    connection().execute(f"DROP TABLE IF EXISTS {name}")
