"""What is worth a look before a file of people is applied: rows that are wrong, addresses that stand there twice,
addresses of roles rather than people, and who unsubscribed and stays so.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.db.open import rows
from appliance.importing.staging import Staged

SHOWN = 8
_CHUNKS = 50
# Addresses behind which nobody, or everybody, reads; what is sent there is called spam soon
_NAMES = """
    abuse account accounting accounts admin administrator billing booking bookings buero careers contact contacto
    customerservice einkauf enquiries feedback finance hello help helpdesk hostmaster hr info information
    inquiries invoices it jobs kontakt mail mailer-daemon marketing media news newsletter no-reply noc noreply
    office orders postmaster press privacy reception rechnung reservations root sales security service shop spam
    staff support team tech verwaltung webmaster
"""
ROLES = frozenset(_NAMES.split())
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[Any]]).decode


class Some(NamedTuple):
    """How many of something there are, and the first of them as (line, text, what is to be said of it)."""

    number: int
    first: list[tuple[int, str, str]]


class Review(NamedTuple):
    """What the lines of a file show by themselves."""

    faults: Some
    doubles: Some
    roles: Some


def of_file(path: Path) -> Review | None:
    """Look over a staging file, None if it is not kept any more.

    It takes a second or so for a million lines: neither on the loop nor on the writer.
    """
    if not path.exists():
        return None
    staged = Staged(path)
    try:
        return Review(Some(*staged.faults(SHOWN)), Some(*staged.doubles(SHOWN)), Some(*staged.named(ROLES, SHOWN)))
    finally:
        staged.close()


class Kept(NamedTuple):
    """How many lines name somebody who left and stays out, and how far was looked."""

    number: int
    last: int
    more: bool


def kept(import_id: int, after: int = 0) -> Kept:
    """Count the lines whose opt-out is kept, some chunks at a time."""
    found = rows(
        "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
        (import_id, after, _CHUNKS),
    )
    count = sum(bool(outcome[4]) for _, packed in found for outcome in _decode(packed)[1])
    return Kept(count, found[-1][0] if found else after, len(found) == _CHUNKS)
