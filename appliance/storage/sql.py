"""What the database says of itself beside its rows, and what it is told to do with its own file."""

from typing import Any

from appliance.storage.open import connection, rows, run, scalar

# The last number that a table gave out; goes by the table's name
LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = ?"


def last_number(table: str) -> int:
    """Return the last number that a table gave to a row; no other row gets it again."""
    return int(scalar(LAST_NUMBER, (table,)) or 0)


def reserve_numbers(table: str, count: int) -> int:
    """Take the next numbers of a table for rows that come later, and answer the last before them."""
    before = last_number(table)
    if count and not run("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (before + count, table)):
        run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, count))
    return before


def tables(here: Any) -> dict[str, list[str]]:
    """Return the tables of the file behind a connection with their columns."""
    found = here.execute(
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'"
    ).fetchall()
    columns: dict[str, list[str]] = {}
    for table, column in found:
        columns.setdefault(str(table), []).append(str(column))
    return columns


def changes_elsewhere() -> int:
    """Return a number that is another one once any other connection has written; this one's own do not count."""
    return int(scalar("PRAGMA data_version"))


def damage(most: int) -> list[str]:
    """Look through all of the database, indexes aside, and answer what is wrong with it, at most so much."""
    return _wrong(rows(f"PRAGMA quick_check({most})"))


def thorough_damage(most: int) -> list[str]:
    """Look through all of the database and its indexes, and answer what is wrong with it, at most so much."""
    return _wrong(rows(f"PRAGMA integrity_check({most})"))


def _wrong(found: list[tuple[Any, ...]]) -> list[str]:
    return [] if found == [("ok",)] else [str(one[0]) for one in found]


def spare_bytes() -> int:
    """Return how much of the file holds nothing now."""
    return int(scalar("PRAGMA freelist_count")) * int(scalar("PRAGMA page_size"))


def read_only() -> None:
    """Refuse whatever would write on this thread's connection from here on."""
    run("PRAGMA query_only = 1")


def overwrite_deleted(wholly: bool) -> None:
    """Write over what this connection deletes: all of it, or only where that costs nothing."""
    run(f"PRAGMA secure_delete = {'1' if wholly else 'fast'}")


def empty_log(here: Any = None) -> None:
    """Bring what is in the write-ahead log into the database, and leave the log empty."""
    (here or connection()).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# Looks into documents of JSON, and at lists that a statement is given as one parameter.


def among(given: str) -> str:
    """Say that what stands before is one of a list, which is given as JSON: `id {among('?')}`."""
    return f"IN (SELECT value FROM json_each({given}))"


def each_of(document: str, path: str = "") -> str:
    """Return a table of what is in a list, or in the list of a document: its `value` and its `type`."""
    return f"json_each({document}, '$.{path}')" if path else f"json_each({document})"


def each_at(document: str, path: str) -> str:
    """Return a table of what is in the list at a path that stands in SQL already."""
    return f"json_each({document}, {path})"


def field_of(document: str, path: str) -> str:
    """Return the value at dotted keys of a document, or NULL."""
    return field_at(document, f"'$.{path}'")


def field_at(document: str, path: str) -> str:
    """Return the value at a path that stands in SQL already, or NULL."""
    return f"json_extract({document}, {path})"


def type_of(document: str, path: str) -> str:
    """Return what kind of value stands at dotted keys of a document: 'text', 'array', 'true' ..., or NULL."""
    return type_at(document, f"'$.{path}'")


def type_at(document: str, path: str) -> str:
    """Return what kind of value stands at a path that stands in SQL already."""
    return f"json_type({document}, {path})"


def raw_of(document: str, path: str) -> str:
    """Return the value at dotted keys of a document as JSON, or NULL."""
    return raw_at(document, f"'$.{path}'")


def raw_at(document: str, path: str) -> str:
    """Return the value at a path that stands in SQL already as JSON, or NULL."""
    return f"{document} -> {path}"


def text_of(document: str, path: str) -> str:
    """Return the value at dotted keys of a document as a text or a number: a list or an object as its JSON."""
    return f"{document} ->> '$.{path}'"


def entry_of(row: str, number: int) -> str:
    """Return one entry of a list, counted from 0."""
    return f"{row} ->> {number}"


def length_of(document: str, path: str) -> str:
    """Return how long the list at dotted keys of a document is, or NULL."""
    return f"json_array_length({document}, '$.{path}')"


def quoted(value: str) -> str:
    """Return a value as JSON."""
    return f"json_quote({value})"


def gathered(value: str) -> str:
    """Return the list, as JSON, of the values of a group of rows."""
    return f"json_group_array({value})"


def document_of(**fields: str) -> str:
    """Return a document with these fields, each an expression."""
    return f"json_object({', '.join(f'{name!r}, {value}' for name, value in fields.items())})"


def with_fields(document: str, **fields: str) -> str:
    """Return a document with some fields set, each an expression."""
    inside = ", ".join(f"'$.{name}', {value}" for name, value in fields.items())
    return f"json_set({document}, {inside})"


def without(document: str, *names: str) -> str:
    """Return a document without some of its fields."""
    inside = ", ".join(f"'$.{name}'" for name in names)
    return f"json_remove({document}, {inside})"


# What sets a field to true rather than to 1
TRUE = "json('true')"


# Tells SQLite which way to go where it was seen to go a worse one; nothing here changes what is found.
#
# Another database goes its own ways: there each of these is nothing, a plain JOIN, or what stands in the
# parentheses.

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


# Compares and cuts texts, numbers and moments where SQLite has words of its own for it.

# Set behind what is compared or sorted without regard to upper and lower case of A to Z
ANY_CASE = "COLLATE NOCASE"


def position_of(part: str, text: str) -> str:
    """Return at which letter a part begins in a text, counted from 1; 0 if it is not in it."""
    return f"instr({text}, {part})"


def lines(*values: str) -> str:
    """Return several values as one text, each on a line; those that are NULL are left out."""
    return f"concat_ws(char(10), {', '.join(values)})"


def stripped(text: str, letters: str) -> str:
    """Return a text without some letters at its ends; both are SQL."""
    return f"trim({text}, {letters})"


def last_letters(text: str, number: int | str) -> str:
    """Return the end of a text, so many letters of it."""
    return f"substr({text}, -{number})"


def begins(text: str, start: str) -> str:
    """Say that a text begins with these letters, in this case; an index on it serves that."""
    return f"{text} GLOB '{start}*'"


def not_digits(text: str) -> str:
    """Say that a text holds anything but digits."""
    return f"{text} GLOB '*[^0-9]*'"


def larger(*values: str) -> str:
    """Return the largest of several in a row; NULL if any is."""
    return f"max({', '.join(values)})"


def smaller(*values: str) -> str:
    """Return the smallest of several in a row; NULL if any is."""
    return f"min({', '.join(values)})"


def sum_or_zero(value: str) -> str:
    """Return the sum over a group of rows as a number with a fraction, 0 where there is nothing to add."""
    return f"total({value})"


def from_hex(text: str) -> str:
    """Return the bytes that a text of hexadecimal digits writes down."""
    return f"unhex({text})"


def month_and_day(moment: str) -> str:
    """Return MM-DD, in UTC, of a moment in milliseconds."""
    return f"strftime('%m-%d', {moment} / 1000, 'unixepoch')"
