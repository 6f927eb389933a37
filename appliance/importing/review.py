"""What is worth a look before a file of people is applied: rows that are wrong, addresses that stand there twice,
addresses of roles rather than people, and who unsubscribed and stays so.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.db.open import rows
from appliance.importing import results, store
from appliance.importing.people import warnings_of
from appliance.importing.staging import Staged
from appliance.tables import Import

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
    lost_emails: Some  # of people who arrive by a phone number alone
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
        number, first = staged.lost_emails(SHOWN)
        lost = Some(number, [(line, value, results.sentence(warnings_of(packed))) for line, value, packed in first])
        return Review(
            Some(*staged.faults(SHOWN)), lost, Some(*staged.doubles(SHOWN)), Some(*staged.named(ROLES, SHOWN))
        )
    finally:
        staged.close()


class Told(NamedTuple):
    """What a check, or an import, says of single lines: of each the number, and the first of them."""

    warnings: Some
    unsubscribed: Some
    suppressed: Some
    kept: int


class Gathering:
    """Reads the outcomes of an import, some transactions at a time, for what is worth a look."""

    def __init__(self, import_id: int) -> None:
        self._import_id, self._last = import_id, 0
        self._kept = 0
        self._first: dict[str, dict[int, str]] = {"unsubscribed": {}, "suppressed": {}, "taken": {}}

    def more(self) -> bool:
        """Read on; returns whether there may be more."""
        chunks = rows(
            "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (self._import_id, self._last, _CHUNKS),
        )
        for self._last, packed in chunks:
            for line, _, _, _, kept, warnings, state in _decode(packed)[1]:
                self._kept += bool(kept)
                kind, _, why = (state or "").partition(":")
                if kind in self._first:
                    self._note(kind, line, why)
                if warnings:
                    self._note("taken", line, results.sentence(warnings))
        return len(chunks) == _CHUNKS

    def _note(self, kind: str, line: int, why: str) -> None:
        first = self._first[kind]
        first[line] = why
        if len(first) > SHOWN:
            del first[max(first)]

    def told(self, job: Import, path: Path) -> Told:
        """Return what was found, with the addresses of its lines; `path` is the staging file."""
        staged = Staged(path)
        taken = self._first["taken"]
        try:
            lines = sorted({*staged.warned(SHOWN), *taken})[:SHOWN]
            known = staged.told({*lines, *self._first["unsubscribed"], *self._first["suppressed"]})
        finally:
            staged.close()
        warnings = [
            (line, known[line][0], "; ".join(filter(None, (results.sentence(warnings_of(known[line][1])),
                                                           taken.get(line, "")))))
            for line in lines if line in known
        ]  # fmt: skip

        def stand(state: str) -> Some:
            first = sorted(self._first[state].items())
            return Some(store.arriving(job)[state], [(line, known[line][0], why) for line, why in first])

        return Told(Some(job.warnings, warnings), stand("unsubscribed"), stand("suppressed"), self._kept)
