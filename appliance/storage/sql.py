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
