"""Narrows a question to few people by an index, where one condition of it is rare.

What it answers is implied by the filters and only tells SQLite where to begin; the filters themselves are all asked
still. Without a rare condition reading the whole table in order is quicker than any index.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from appliance.db.open import scalar
from appliance.filters.history import History
from appliance.filters.predicates import among, same
from appliance.filters.read import Leaf, Lived, Node
from appliance.filters.scope import Binder, Compiled, Operand, Scope
from appliance.segments import indexes

# Looking people up one by one costs several times what passing them by costs
_RARE = 20


class _Way(NamedTuple):
    """A query of contact ids with an index behind it: FROM and WHERE, and the column of the ids."""

    sql: str
    binder: Binder
    column: str


def narrow(nodes: Sequence[Node], scope: Scope, prefix: str) -> Compiled | None:
    """Answer the rarest condition that an index can begin with, or None if none is rare."""
    most = int(scalar("SELECT coalesce(max(id), 0) FROM contact") or 0) // _RARE
    best: tuple[int, _Way] | None = None
    for index, way in enumerate(_ways(nodes, scope, prefix)):
        limit = most if best is None else best[0]
        if limit == 0 or index >= 10:
            break
        found = int(scalar(f"SELECT count(*) FROM (SELECT 1 {way.sql} LIMIT {limit + 1})", way.binder.values))
        if found <= limit:
            best = (found, way)
    return Compiled(f"c.id IN (SELECT {best[1].column} {best[1].sql})", best[1].binder.values) if best else None


def _ways(nodes: Sequence[Node], scope: Scope, prefix: str) -> Iterator[_Way]:
    for index, node in enumerate(nodes):
        binder = Binder(f"{prefix}{index}_", scope)
        sql = None
        if isinstance(node, Lived) and not node.negative:
            sql = _happened(node.history, binder)
        elif isinstance(node, Leaf) and not node.negative and node.test.key in ("eq", "in"):
            make = _BY_FIELD.get(node.field.name, _data if node.field.name.startswith("contact_data.") else None)
            make = _data if node.field.name.startswith("data.") else make
            sql = make(node, binder) if make else None
        if sql is not None:
            yield _Way(sql, binder, "id" if sql.startswith("FROM contact ") else "contact_id")


def _happened(asked: History, binder: Binder) -> str | None:
    if asked.at_least < 1:
        return None
    sql = f"FROM event WHERE account_id = {binder.add(binder.scope.account_id)} AND event = {binder.add(asked.event)}"
    if asked.within_days is not None:
        sql += f" AND created_at >= {binder.add(binder.scope.now - asked.within_days * 86_400_000)}"
    elif isinstance(asked.since, int):
        sql += f" AND created_at >= {binder.add(asked.since)}"
    return sql


def _numbers(node: Leaf) -> str:
    wanted = node.value if isinstance(node.value, list) else [node.value]
    return ",".join(str(int(number)) for number in wanted)


def _list(node: Leaf, binder: Binder) -> str:
    return f"FROM membership WHERE contact_list_id IN ({_numbers(node)})"


def _campaign(column: str) -> Callable[[Leaf, Binder], str]:
    return lambda node, binder: f"FROM message WHERE campaign_id IN ({_numbers(node)}) AND {column} NOT NULL"


def _address(kind: str) -> Callable[[Leaf, Binder], str | None]:
    def make(node: Leaf, binder: Binder) -> str | None:
        wanted = node.value if isinstance(node.value, list) else [node.value]
        if not all(one.isascii() for one in wanted):
            return None
        values = ", ".join(binder.add(one.lower()) for one in wanted)
        account = binder.add(binder.scope.account_id)
        return f"FROM channel WHERE account_id = {account} AND kind = '{kind}' AND key IN ({values})"

    return make


def _data(node: Leaf, binder: Binder) -> str | None:
    expression = node.field.operand.value.replace("c.data", "data", 1)
    wanted = node.value if isinstance(node.value, list) else [node.value]
    texts = [one for one in wanted if isinstance(one, str) and one.isascii()]
    if len(texts) != len(wanted) or not indexes.has(expression):
        return None
    operand = Operand(expression)
    condition = among(operand, texts, binder) if len(texts) > 1 else same(operand, texts[0], binder)
    return f"FROM contact WHERE account_id = {binder.add(binder.scope.account_id)} AND {condition}"


_BY_FIELD: dict[str, Callable[[Leaf, Binder], str | None]] = {
    "contact_list": _list, "campaign_sent": _campaign("sent_at"), "campaign_opened": _campaign("opened_at"),
    "campaign_clicked": _campaign("clicked_at"), "contact_email": _address("email"),
    "contact_phone_number": _address("phone"),
}  # fmt: skip
