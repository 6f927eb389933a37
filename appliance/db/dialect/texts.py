"""Compares and cuts texts, numbers and moments where SQLite has words of its own for it."""

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
