"""Tells SQLite which way to go where it was seen to go a worse one; nothing here changes what is found.

Another database goes its own ways: there each of these is nothing, a plain JOIN, or what stands in the parentheses.
"""

# Between two tables, with ON behind: ask the first one first, and look up the second for what was found
THEN_JOIN = "CROSS JOIN"
# Behind a table: read it from one end to the other, or by its number
NO_INDEX = "NOT INDEXED"


def by_index(name: str) -> str:
    """Go by this index; set behind a table. The statement fails if there is no such index, so none goes unnoticed."""
    return f"INDEXED BY {name}"


def aside(expression: str) -> str:
    """Ask this of what is found by the rest, never go by an index on it."""
    return f"+{expression}"
