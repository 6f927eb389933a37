"""Stream the outcome of each line of an import as CSV, and collect examples of lines with problems for reviews."""

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
from appliance.imports.chunk import CONTACT_STATES
from appliance.imports.staging import StagingFile, decode_warnings
from appliance.storage.database import rows
from appliance.storage.models import Import

_LINE_BATCH = 2000
_CHUNK_BATCH = 50
_HEADER = ("line", "result", "reason", "address", "contact_id", "kept_opt_out", "warnings", "state")
_RESULTS = ("", "created", "updated", "skipped", "failed")
_RESULT_NUMBER = {name: index for index, name in enumerate(_RESULTS)}
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[Any]]).decode
_PHONE = re.compile(r"\+[0-9]{6,15}")
_FORMULA_STARTS = tuple("=+-@\t\r＝＋－＠")


class _OutcomesByLine:
    """The outcomes of an import by line number, in compact arrays: a million lines take about ten megabytes.

    `path` is the staging file. `plain_state` is the state of the plain people.
    """

    def __init__(self, import_id: int, path: Path, plain_state: str) -> None:
        self._plain_state = plain_state
        self.results = bytearray()
        self.contacts = array("q")
        # (reason, kept opt-outs, warnings) by line, for lines that have any of them
        self.words: dict[int, tuple[str | None, str, list[Any]]] = {}
        self.states = bytearray()
        # The last state of each contact by id, because several lines may name the same contact
        self._last_states = bytearray()
        self._import_id, self._path, self._last = import_id, path, 0

    def more(self) -> bool:
        """Load the next `_CHUNK_BATCH` chunks and return whether more may remain."""
        chunks = rows(
            "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (self._import_id, self._last, _CHUNK_BATCH),
        )
        staged = StagingFile(self._path)
        try:
            for number, packed in chunks:
                self._last = number
                self._chunk(staged, *_decode(packed))
        finally:
            staged.close()
        return len(chunks) == _CHUNK_BATCH

    def _chunk(self, staged: StagingFile, header: list[int], outcomes: list[Any]) -> None:
        after, last, next_id, inserted_count = header
        lines = {line for line, *_ in outcomes}
        for line, result, contact_id, reason, kept, warnings, state in outcomes:
            self._set(line, result, contact_id, state or "")
            if reason or kept or warnings:
                self.words[line] = (reason, " ".join(kept), warnings)
        # Lines without an outcome are plain people, whose contacts have consecutive ids in this order.
        for line in staged.lines_of(after, last) if inserted_count else ():
            if line not in lines:
                self._set(line, "created", next_id, self._plain_state)
                next_id += 1

    def _set(self, line: int, result: str, contact_id: int | None, state: str) -> None:
        if line >= len(self.results):
            more = line + 1024 - len(self.results)
            self.results.extend(bytes(more))
            self.contacts.extend([0] * more)
            self.states.extend(bytes(more))
        self.states[line] = CONTACT_STATES.index(state)
        if contact_id is not None and state:
            missing = contact_id + 1 - len(self._last_states)
            if missing > 0:
                self._last_states.extend(bytes(missing + 1024))
            self._last_states[contact_id] = CONTACT_STATES.index(state)
        self.results[line] = _RESULT_NUMBER[result]
        self.contacts[line] = contact_id or 0

    def state(self, line: int) -> str:
        """Return the state of the contact of a line after the whole import, or "" if the line was skipped."""
        if self.results[line] == _RESULT_NUMBER["skipped"]:
            return ""
        contact_id = self.contacts[line]
        last_state = self._last_states[contact_id] if 0 < contact_id < len(self._last_states) else 0
        return CONTACT_STATES[last_state or self.states[line]]


# Filters for the rows of the results, whose columns are `_HEADER`
LINE_FILTERS: dict[str, Callable[[tuple[object, ...]], bool]] = {
    "problems": lambda row: row[1] == "failed",
    "warnings": lambda row: bool(row[6]) and row[1] in ("created", "updated"),
    "unsubscribed": lambda row: str(row[7]).startswith("unsubscribed"),
    "suppressed": lambda row: str(row[7]).startswith("suppressed"),
}


def stream_results(account_id: int, import_id: int, only: str | None = None) -> Iterator[bytes]:
    """Yield the results of an import as pieces of CSV, in the order of lines.

    `only` is the name of one of LINE_FILTERS, or None for all lines. Empty pieces are yielded while outcomes are
    loaded. Raises NotFound if there is no such import, or, with the reason, if its file is not staged yet or was
    deleted.
    """
    job = store.get(account_id, import_id)
    path = store.import_directory(import_id) / "staging.db"
    if job.phase == "staging" or not path.exists():
        raise NotFound(_explain_missing_lines(job))
    plain_state = "subscribed" if store.get_options(job).opt_in else "unsubscribed:not_opted_in"
    outcomes, is_selected = _OutcomesByLine(import_id, path, plain_state), LINE_FILTERS.get(only or "")
    while outcomes.more():
        yield b""
    yield _encode_csv([_HEADER])
    after = 0
    while True:
        staged = StagingFile(path)
        try:
            batch = staged.lines(after, _LINE_BATCH)
        finally:
            staged.close()
        if not batch:
            return
        after = batch[-1][0]
        table = [_result_row(job, outcomes, *line) for line in batch]
        yield _encode_csv([row for row in table if is_selected is None or is_selected(row)])


def _explain_missing_lines(job: Import) -> str:
    """Return the reason why an import has no staging file."""
    if job.phase == "staging":
        return "the file is being read; its lines come when that is done"
    if (job.completed_at or job.created_at) < clock.now_ms() - store.RETENTION_MS:
        return "the lines of an import are kept for 7 days"
    return "the lines of this import are not kept any more: it never was read, or somebody in it was erased"


def _result_row(
    job: Import, outcomes: _OutcomesByLine, line: int, reason: str | None, text: str, packed: str | None
) -> tuple[object, ...]:  # fmt: skip
    if reason is not None:
        return line, "failed", reason, _escape_formula(text), "", "", "", ""
    result_number = outcomes.results[line] if line < len(outcomes.results) else 0
    if not result_number:
        result = "skipped" if job.status not in store.OPEN_STATUSES else "pending"
        return line, result, "not reached", _escape_formula(text), "", "", "", ""
    outcome_reason, kept, left_out = outcomes.words.get(line, (None, "", []))
    warnings = describe_warnings([*decode_warnings(packed), *left_out])
    state = outcomes.state(line)
    contact_id = outcomes.contacts[line] or ""
    return (
        line,
        _RESULTS[result_number],
        outcome_reason or "",
        _escape_formula(text),
        contact_id,
        kept,
        _escape_formula(warnings),
        state,
    )


def describe_warnings(warnings: list[Any]) -> str:
    """Return warnings (field, value, reason) as text, such as `phone: 07700 900003 (has no country code)`."""
    return "; ".join(f"{field.removeprefix('data.')}: {value} ({reason})" for field, value, reason in warnings)


def _escape_formula(text: str) -> str:
    """Put a quote before a text that a spreadsheet would take for a formula, except a phone number."""
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _PHONE.fullmatch(text) else text


def _encode_csv(table: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(table)
    return text.getvalue().encode()


# A review of the file has its invalid rows, repeated addresses and role addresses. A review of the outcomes has the
# lines with warnings and the contacts who are unsubscribed or suppressed.

MAX_EXAMPLES = 8

# The local parts of role addresses. Their mail is read by several people or by nobody, and leads to spam complaints.
_ROLE_NAMES = """
    abuse account accounting accounts admin administrator billing booking bookings buero careers contact contacto
    customerservice einkauf enquiries feedback finance hello help helpdesk hostmaster hr info information
    inquiries invoices it jobs kontakt mail mailer-daemon marketing media news newsletter no-reply noc noreply
    office orders postmaster press privacy reception rechnung reservations root sales security service shop spam
    staff support team tech verwaltung webmaster
"""
ROLE_NAMES = frozenset(_ROLE_NAMES.split())


class CountedLines(NamedTuple):
    """A number of lines, and the first ones as (line number, address or text, remark)."""

    number: int
    first: list[tuple[int, str, str]]


class FileReview(NamedTuple):
    """The rows of a file that are invalid, have an invalid email address, repeat an address, or have a role address."""

    faults: CountedLines
    lost_emails: CountedLines  # Rows whose email address is invalid, imported with their phone number
    doubles: CountedLines
    roles: CountedLines


def review_file(path: Path) -> FileReview | None:
    """Return the review of a staging file, or None if it was deleted.

    It has up to `MAX_EXAMPLES` lines of each kind. It takes about a second for a million lines, so call it neither on
    the event loop nor on the writer thread.
    """
    if not path.exists():
        return None
    staged = StagingFile(path)
    try:
        number, examples = staged.lost_emails(MAX_EXAMPLES)
        lost = CountedLines(
            number, [(line, value, describe_warnings(decode_warnings(packed))) for line, value, packed in examples]
        )
        return FileReview(
            CountedLines(*staged.faults(MAX_EXAMPLES)),
            lost,
            CountedLines(*staged.doubles(MAX_EXAMPLES)),
            CountedLines(*staged.named(ROLE_NAMES, MAX_EXAMPLES)),
        )
    finally:
        staged.close()


class OutcomeReview(NamedTuple):
    """The lines with warnings, the contacts by state, and the number of lines that kept an opt-out or suppression."""

    warnings: CountedLines
    unsubscribed: CountedLines
    suppressed: CountedLines
    kept: int


class OutcomeReviewer:
    """A reviewer for the outcomes of an import. Call `more` until it returns False, then `told`."""

    def __init__(self, import_id: int) -> None:
        self._import_id, self._last = import_id, 0
        self._kept = 0
        self._examples: dict[str, dict[int, str]] = {"unsubscribed": {}, "suppressed": {}, "taken": {}}

    def more(self) -> bool:
        """Load the next `_CHUNK_BATCH` chunks and return whether more may remain."""
        chunks = rows(
            "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (self._import_id, self._last, _CHUNK_BATCH),
        )
        for self._last, packed in chunks:
            for line, _, _, _, kept, warnings, state in _decode(packed)[1]:
                self._kept += bool(kept)
                kind, _, reason = (state or "").partition(":")
                if kind in self._examples:
                    self._note(kind, line, reason)
                if warnings:
                    self._note("taken", line, describe_warnings(warnings))
        return len(chunks) == _CHUNK_BATCH

    def _note(self, kind: str, line: int, reason: str) -> None:
        examples = self._examples[kind]
        examples[line] = reason
        if len(examples) > MAX_EXAMPLES:
            del examples[max(examples)]

    def told(self, job: Import, path: Path) -> OutcomeReview:
        """Return the review, with up to `MAX_EXAMPLES` lines of each kind. `path` is the staging file."""
        staged = StagingFile(path)
        left_out = self._examples["taken"]
        try:
            lines = sorted({*staged.warned(MAX_EXAMPLES), *left_out})[:MAX_EXAMPLES]
            texts = staged.told({*lines, *self._examples["unsubscribed"], *self._examples["suppressed"]})
        finally:
            staged.close()
        warnings = [
            (line, texts[line][0], "; ".join(filter(None, (describe_warnings(decode_warnings(texts[line][1])),
                                                           left_out.get(line, "")))))
            for line in lines if line in texts
        ]  # fmt: skip

        def count_state(state: str) -> CountedLines:
            examples = sorted(self._examples[state].items())
            return CountedLines(
                store.count_arriving(job)[state], [(line, texts[line][0], reason) for line, reason in examples]
            )

        return OutcomeReview(
            CountedLines(job.warnings, warnings), count_state("unsubscribed"), count_state("suppressed"), self._kept
        )
