"""What came of every line of a file, in the order of the file, as CSV in pieces."""

import csv
import io
import re
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.imports import store
from appliance.imports.contact_states import STATES
from appliance.imports.people import warnings_of
from appliance.imports.staging import Staged
from appliance.storage.models import Import
from appliance.storage.open import rows

_LINES = 2000
_CHUNKS = 50
_HEADER = ("line", "result", "reason", "address", "contact_id", "kept_opt_out", "warnings", "state")
_RESULTS = ("", "created", "updated", "skipped", "failed")
_NUMBER = {name: index for index, name in enumerate(_RESULTS)}
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[Any]]).decode
_PHONE = re.compile(r"\+[0-9]{6,15}")
_STARTERS = tuple("=+-@\t\r＝＋－＠")


class _Outcomes:
    """The outcomes of an import by line, packed: a million of them take some ten megabytes."""

    def __init__(self, import_id: int, path: Path, plain: str) -> None:
        self._plain = plain
        self.results = bytearray()
        self.contacts = array("q")
        # By line, where there is anything to tell: reason, opt-outs kept, what was left out
        self.words: dict[int, tuple[str | None, str, list[Any]]] = {}
        self.states = bytearray()
        # By contact, where its last line left it: several lines may name one
        self._last_states = bytearray()
        self._import_id, self._path, self._last = import_id, path, 0

    def more(self) -> bool:
        """Take some chunks in; returns whether there may be more."""
        found = rows(
            "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (self._import_id, self._last, _CHUNKS),
        )
        staged = Staged(self._path)
        try:
            for number, packed in found:
                self._last = number
                self._chunk(staged, *_decode(packed))
        finally:
            staged.close()
        return len(found) == _CHUNKS

    def _chunk(self, staged: Staged, part: list[int], outcomes: list[Any]) -> None:
        after, last, next_id, made = part
        told = {line for line, *_ in outcomes}
        for line, result, contact_id, reason, kept, warnings, state in outcomes:
            self._say(line, result, contact_id, state or "")
            if reason or kept or warnings:
                self.words[line] = (reason, " ".join(kept), warnings)
        # Whoever has no outcome of their own was made without any detour, in this order
        for line in staged.lines_of(after, last) if made else ():
            if line not in told:
                self._say(line, "created", next_id, self._plain)
                next_id += 1

    def _say(self, line: int, result: str, contact_id: int | None, state: str) -> None:
        if line >= len(self.results):
            more = line + 1024 - len(self.results)
            self.results.extend(bytes(more))
            self.contacts.extend([0] * more)
            self.states.extend(bytes(more))
        self.states[line] = STATES.index(state)
        if contact_id is not None and state:
            missing = contact_id + 1 - len(self._last_states)
            if missing > 0:
                self._last_states.extend(bytes(missing + 1024))
            self._last_states[contact_id] = STATES.index(state)
        self.results[line] = _NUMBER[result]
        self.contacts[line] = contact_id or 0

    def state(self, line: int) -> str:
        """Return how the contact of a line stands after the whole import; empty for a line that changed nothing."""
        if self.results[line] == _NUMBER["skipped"]:
            return ""
        contact_id = self.contacts[line]
        last = self._last_states[contact_id] if 0 < contact_id < len(self._last_states) else 0
        return STATES[last or self.states[line]]


# The lines that can be asked for alone
ONLY: dict[str, Callable[[tuple[object, ...]], bool]] = {
    "problems": lambda row: row[1] == "failed",
    "warnings": lambda row: bool(row[6]) and row[1] in ("created", "updated"),
    "unsubscribed": lambda row: str(row[7]).startswith("unsubscribed"),
    "suppressed": lambda row: str(row[7]).startswith("suppressed"),
}


def pieces(account_id: int, import_id: int, only: str | None = None) -> Iterator[bytes]:
    """Yield the results as CSV; each step is some reading. Raises NotFound, also once the lines are no longer kept.

    `only` names some of the lines (see ONLY).
    """
    job = store.get(account_id, import_id)
    path = store.directory(import_id) / "staging.db"
    if job.phase == "staging" or not path.exists():
        raise NotFound(_why_not(job))
    plain = "subscribed" if store.options(job).opt_in else "unsubscribed:not_opted_in"
    outcomes, wanted = _Outcomes(import_id, path, plain), ONLY.get(only or "")
    while outcomes.more():
        yield b""
    yield _csv([_HEADER])
    after = 0
    while True:
        staged = Staged(path)
        try:
            found = staged.lines(after, _LINES)
        finally:
            staged.close()
        if not found:
            return
        after = found[-1][0]
        table = [_row(job, outcomes, *one) for one in found]
        yield _csv([row for row in table if wanted is None or wanted(row)])


def _why_not(job: Import) -> str:
    """Return why there are no lines to show."""
    if job.phase == "staging":
        return "the file is being read; its lines come when that is done"
    if job.created_at < clock.now_ms() - store.KEPT_MS:
        return "the lines of an import are kept for 7 days"
    return "the lines of this import are not kept any more: it never was read, or somebody in it was erased"


def _row(
    job: Import, outcomes: _Outcomes, line: int, reason: str | None, text: str, packed: str | None
) -> tuple[object, ...]:  # fmt: skip
    if reason is not None:
        return line, "failed", reason, _safe(text), "", "", "", ""
    known = outcomes.results[line] if line < len(outcomes.results) else 0
    if not known:
        result = "skipped" if job.status not in store.OPEN else "pending"
        return line, result, "not reached", _safe(text), "", "", "", ""
    words, kept, taken = outcomes.words.get(line, (None, "", []))
    warnings = sentence([*warnings_of(packed), *taken])
    state = outcomes.state(line)
    contact_id = outcomes.contacts[line] or ""
    return line, _RESULTS[known], words or "", _safe(text), contact_id, kept, _safe(warnings), state


def sentence(warnings: list[Any]) -> str:
    """Return in words what was left out of a line: `phone: 07700 900003 (has no country code)`."""
    return "; ".join(f"{field.removeprefix('data.')}: {value} ({why})" for field, value, why in warnings)


def _safe(text: str) -> str:
    """Keep a spreadsheet from taking what somebody wrote for a formula; numbers of phones are none."""
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(_STARTERS) and not _PHONE.fullmatch(text) else text


def _csv(table: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(table)
    return text.getvalue().encode()


# What is worth a look before a file of people is applied: rows that are wrong, addresses that stand there twice,
# addresses of roles rather than people, and who unsubscribed and stays so.

SHOWN = 8

# Addresses behind which nobody, or everybody, reads; what is sent there is called spam soon
_NAMES = """
    abuse account accounting accounts admin administrator billing booking bookings buero careers contact contacto
    customerservice einkauf enquiries feedback finance hello help helpdesk hostmaster hr info information
    inquiries invoices it jobs kontakt mail mailer-daemon marketing media news newsletter no-reply noc noreply
    office orders postmaster press privacy reception rechnung reservations root sales security service shop spam
    staff support team tech verwaltung webmaster
"""
ROLES = frozenset(_NAMES.split())


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
        lost = Some(number, [(line, value, sentence(warnings_of(packed))) for line, value, packed in first])
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
                    self._note("taken", line, sentence(warnings))
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
            (line, known[line][0], "; ".join(filter(None, (sentence(warnings_of(known[line][1])),
                                                           taken.get(line, "")))))
            for line in lines if line in known
        ]  # fmt: skip

        def stand(state: str) -> Some:
            first = sorted(self._first[state].items())
            return Some(store.arriving(job)[state], [(line, known[line][0], why) for line, why in first])

        return Told(Some(job.warnings, warnings), stand("unsubscribed"), stand("suppressed"), self._kept)
