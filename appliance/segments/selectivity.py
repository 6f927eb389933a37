"""Tells from a few people, spread evenly over all, how many each of some filters lets through."""

from collections.abc import Sequence
from typing import Any

from appliance.db.dialect.hints import NO_INDEX
from appliance.db.open import rows
from appliance.filters import compile
from appliance.filters.read import Node
from appliance.filters.scope import Scope


def passing(nodes: Sequence[Node], scope: Scope, size: int) -> dict[int, float]:
    """Return by `id(node)` the share of all contacts, from 0 to 1, that each filter alone matches."""
    looked_at, counts = counted(nodes, scope, f"c.id IN ({spread(size)})")
    return {id(node): number / looked_at for node, number in zip(nodes, counts, strict=True)} if looked_at else {}


def counted(nodes: Sequence[Node], scope: Scope, whom: str = "1") -> tuple[int, list[int]]:
    """Count the account's people, and those whom each filter alone lets through, among some."""
    parameters: dict[str, Any] = {"account": scope.account_id}
    sums = []
    for index, node in enumerate(nodes):
        part = compile.single(node, scope, f"s{index}_")
        sums.append(f"count(*) FILTER (WHERE {part.sql})")
        parameters.update(part.parameters)
    sql = f"SELECT {', '.join(['count(*)', *sums])} FROM contact c {NO_INDEX} WHERE c.account_id = :account AND {whom}"
    found = rows(sql, parameters)[0]
    return int(found[0]), [int(number) for number in found[1:]]


def spread(size: int) -> str:
    """Return a query of ids spread evenly over all there are, out of step with whatever repeats among them."""
    first, last = rows("SELECT (SELECT min(id) FROM contact), (SELECT max(id) FROM contact)")[0]
    if first is None:
        return "SELECT 0"
    step = max(1, (last - first + 1) // size)
    return (
        f"WITH RECURSIVE spread(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM spread WHERE {first} + (n + 1) * {step} "
        f"<= {last}) SELECT {first} + n * {step} + n * 48271 % {step} FROM spread"
    )
