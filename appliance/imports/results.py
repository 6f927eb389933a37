"""The results of an import: the outcome of each line as CSV, the state of each contact, and examples of problems."""

import csv
import io
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock
from appliance.core.domain_typos import list_typos, suggest_address, suggest_domain
from appliance.core.errors import Conflict, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.imports import outcome_counts, store
from appliance.imports.chunk import Outcome
from appliance.imports.people import decode_warnings
from appliance.imports.staging import StagingFile
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
# The reason of a line that a cancelled import did not reach
_NOT_REACHED = gettext_noop("not reached")
# A value that was left out or changed: field, value, reason
Warned = tuple[str, str, str]


# The values of `Outcome.state`. `StateCounter` stores the index of a state in this tuple in one byte for each contact.
_EMAIL_STATES = (
    "subscribed", "unsubscribed:file", "unsubscribed:before", "unsubscribed:not_opted_in",
    "unsubscribed:unstated", "unsubscribed:inactive",
    "suppressed:complaint", "suppressed:erased", "suppressed:hard_bounce", "suppressed:soft_bounce",
    "suppressed:manual", "suppressed:stop_keyword",
)  # fmt: skip
CONTACT_STATES = (
    "",
    *_EMAIL_STATES,
    # Subscribed or not, but without an email address
    "subscribed:phone",
    "unsubscribed:sms_not_opted_in",
    # With an email address in that state, and also with a phone number that is subscribed
    *(f"{state}+sms" for state in _EMAIL_STATES),
)
_STATE_NUMBER = {state: number for number, state in enumerate(CONTACT_STATES)}
# The reason that a line of the file gave, by the reason that a later chunk with the contact states if it has no other
_REASONS_OF_LINES = {"before": ("file",), "not_opted_in": ("inactive", "unstated")}


def _follow_state(previous: str, state: str) -> str:
    """Return the state of a contact after a later chunk, whose state ignores the lines of earlier chunks.

    A line without a reason keeps the reason that an earlier line of the contact gave.
    """
    if not previous or previous == state:
        return state
    kind, _, reason = state.partition(":")
    reason, plus, sms = reason.partition("+")
    previous_kind, _, previous_reason = previous.partition(":")
    previous_reason = previous_reason.partition("+")[0]
    if kind == previous_kind == "unsubscribed" and previous_reason in _REASONS_OF_LINES.get(reason, ()):
        return f"{kind}:{previous_reason}{plus}{sms}"
    return state


class StateCounter:
    """The latest state of each contact of a running import, so that a contact on several lines counts once.

    It takes one byte for each contact id. Plain people (`row_writer.py`) are not included: they are counted when they
    are inserted, and no other line names them.
    """

    def __init__(self, import_id: int) -> None:
        """Load the states from the stored outcomes of the import."""
        self._states = bytearray()
        chunks = rows("SELECT outcomes FROM import_chunk WHERE import_job_id = ? ORDER BY number", (import_id,))
        for (outcomes,) in chunks:
            self._take(Outcome(*fields) for fields in _decode(outcomes)[1])

    def follow(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Return the outcomes of a new chunk, with the state of each contact after all chunks so far.

        If an earlier line unsubscribed the contact with a reason, and this chunk's line gives none, that reason stays.
        """
        return [
            outcome
            if outcome.contact_id is None or outcome.state is None or outcome.contact_id >= len(self._states)
            else outcome._replace(state=_follow_state(CONTACT_STATES[self._states[outcome.contact_id]], outcome.state))
            for outcome in outcomes
        ]

    def changes(self, outcomes: Iterable[Outcome]) -> Counter[str]:
        """Return by how much new outcomes change the number of contacts in each state (the change may be negative)."""
        new_states: dict[int, str] = {}
        for outcome in outcomes:
            if outcome.contact_id is not None and outcome.state is not None:
                new_states[outcome.contact_id] = outcome.state
        differences: Counter[str] = Counter()
        for contact_id, state in new_states.items():
            previous_state = CONTACT_STATES[self._states[contact_id]] if contact_id < len(self._states) else ""
            differences[state] += 1
            if previous_state:
                differences[previous_state] -= 1
        return differences

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Store the states of the contacts in new outcomes. Call it after these outcomes were written."""
        self._take(outcomes)

    def _take(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.contact_id is None or outcome.state is None:
                continue
            missing = outcome.contact_id + 1 - len(self._states)
            if missing > 0:
                self._states.extend(bytes(missing + 1024))
            self._states[outcome.contact_id] = _STATE_NUMBER[outcome.state]


class _OutcomesByLine:
    """The outcomes of an import by line number, in compact arrays: a million lines take about ten megabytes.

    `path` is the staging file. `bulk_state` is the state of all contacts that were inserted in bulk (`row_writer.py`).
    """

    def __init__(self, import_id: int, path: Path, bulk_state: str) -> None:
        self._bulk_state = bulk_state
        self.results = bytearray()
        self.contacts = array("q")
        # (reason, kept opt-outs, warnings) by line, for lines that have any of them
        self.words: dict[int, tuple[str | None, str, list[Any]]] = {}
        self.states = bytearray()
        # The last state of each contact by id, because several lines may name the same contact
        self._last_states = bytearray()
        self._import_id, self._path, self._last = import_id, path, 0

    def load_next(self) -> bool:
        """Load the next `_CHUNK_BATCH` chunks and return whether more may remain."""
        chunks = rows(
            "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (self._import_id, self._last, _CHUNK_BATCH),
        )
        staged = StagingFile(self._path)
        try:
            for number, outcomes_json in chunks:
                self._last = number
                self._chunk(staged, *_decode(outcomes_json))
        finally:
            staged.close()
        return len(chunks) == _CHUNK_BATCH

    def _chunk(self, staged: StagingFile, header: list[int], outcomes: list[Any]) -> None:
        after, last, next_id, inserted_count = header
        lines = {line for line, *_ in outcomes}
        for line, result, contact_id, reason, kept_opt_outs, warnings, state in outcomes:
            self._set(line, result, contact_id, state or "")
            if reason or kept_opt_outs or warnings:
                self.words[line] = (reason, " ".join(kept_opt_outs), warnings)
        # Lines without an outcome were inserted in bulk; their contacts have consecutive ids in this order.
        for line in staged.fetch_line_numbers(after, last) if inserted_count else ():
            if line not in lines:
                self._set(line, "created", next_id, self._bulk_state)
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
        # Whether a contact is subscribed to SMS is only counted for the pages.
        return outcome_counts.strip_sms(CONTACT_STATES[last_state or self.states[line]]).removesuffix(":phone")


class ResultLine(NamedTuple):
    """The result of a line. The first fields are the columns of the CSV.

    `kind` is the kind of the address, `values` are the warnings as (field, value, reason), and `first` is the first
    line with the same address.
    """

    line: int
    result: str
    reason: str
    address: str
    contact_id: int | str = ""
    kept_opt_outs: str = ""
    warnings: str = ""
    state: str = ""
    kind: str = ""
    values: tuple[Warned, ...] = ()
    first: int | None = None

    @property
    def is_written(self) -> bool:
        """Return whether the line created or updated a contact."""
        return self.result in ("created", "updated")


def warning_groups(kind: str, values: Iterable[Warned]) -> set[str]:
    """Return the groups under which the pages list a line with warnings.

    `lost_emails`: the email address is invalid, and the row has only a phone number. `kept_as_text`: a value is kept in
    another form or place, such as a date that cannot be read. `left_out`: a value is left out.
    """
    warned = list(values)
    if kind == "phone" and any(field == "email" for field, _, _ in warned):
        return {"lost_emails"}
    return {_value_group(reason) for _, _, reason in warned}


def _value_group(reason: str) -> str:
    return "kept_as_text" if "; kept as " in reason else "left_out"


def _in_group(group: str) -> Callable[[ResultLine], bool]:
    return lambda line: line.is_written and group in warning_groups(line.kind, line.values)


def _in_state(state: str) -> Callable[[ResultLine], bool]:
    return lambda line: outcome_counts.page_state(line.state) == state


# Filters for the lines of the results
LINE_FILTERS: dict[str, Callable[[ResultLine], bool]] = {
    "problems": lambda line: line.result == "failed",
    "skipped": lambda line: line.result == "skipped" and line.reason != _NOT_REACHED,
    "warnings": lambda line: bool(line.values) and line.is_written,
    **{group: _in_group(group) for group in ("lost_emails", "left_out", "kept_as_text")},
    "repeats": lambda line: line.first is not None,
    "roles": lambda line: line.kind == "email" and line.first is None and _is_role(line.address),
    "typos": lambda line: line.kind == "email" and line.first is None and suggest_domain(line.address) is not None,
    **{state: _in_state(state) for state in ("not_subscribed", "unsubscribed", "suppressed")},
}


def stream_results(account_id: int, import_id: int, only: str | None = None) -> Iterator[bytes]:
    """Yield the results of an import as pieces of CSV, in the order of lines.

    `only` is the name of one of LINE_FILTERS, or None for all lines. Empty pieces are yielded while outcomes are
    loaded. Raises NotFound if there is no such import; also, with the reason, if its lines were deleted. Raises
    Conflict while its file is being read.
    """
    job = store.get(account_id, import_id)
    if job.phase == "staging":
        raise Conflict(gettext("the file is still being read; its rows appear when that is done"))
    path = store.import_directory(import_id) / "staging.db"
    if not path.exists():
        raise NotFound(_explain_missing_lines(job))
    bulk_state = "subscribed" if store.get_options(job).opt_in else "unsubscribed:not_opted_in"
    outcomes, is_selected = _OutcomesByLine(import_id, path, bulk_state), LINE_FILTERS.get(only or "")
    while outcomes.load_next():
        yield b""
    yield _encode_csv([_HEADER])
    after = 0
    while True:
        staged = StagingFile(path)
        try:
            batch = staged.fetch_lines(after, _LINE_BATCH)
        finally:
            staged.close()
        if not batch:
            return
        after = batch[-1][0]
        lines = [_result_line(job, outcomes, *line) for line in batch]
        yield _encode_csv([line[: len(_HEADER)] for line in lines if is_selected is None or is_selected(line)])


def _explain_missing_lines(job: Import) -> str:
    """Return the reason why an import has no staging file."""
    if (job.completed_at or job.created_at) < clock.now_ms() - store.RETENTION_MS:
        return gettext("the lines of an import are kept for 7 days")
    return gettext("the lines of this import are not stored: it was never read, or a contact in it was erased")


def _result_line(
    job: Import, outcomes: _OutcomesByLine, line: int, reason: str | None, text: str, warnings_json: str | None,
    kind: str | None, first: int | None,
) -> ResultLine:  # fmt: skip
    if reason is not None:
        return ResultLine(line, "failed", reason, _escape_formula(text))
    result_number = outcomes.results[line] if line < len(outcomes.results) else 0
    if not result_number:
        result = "skipped" if job.status not in store.OPEN_STATUSES else "pending"
        return ResultLine(line, result, _NOT_REACHED, _escape_formula(text), kind=kind or "", first=first)
    outcome_reason, kept_opt_outs, left_out = outcomes.words.get(line, (None, "", []))
    values = (*decode_warnings(warnings_json), *left_out)
    return ResultLine(
        line, _RESULTS[result_number], outcome_reason or "", _escape_formula(text), outcomes.contacts[line] or "",
        kept_opt_outs, _escape_formula(describe_warnings(values)), outcomes.state(line), kind or "", values, first,
    )  # fmt: skip


def describe_warnings(warnings: Iterable[Warned]) -> str:
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


# The review of a file has its invalid rows, repeated addresses, role addresses, and addresses with a probable typo in
# the domain. The review of the outcomes has the lines that are skipped or have warnings, and the contacts who are
# suppressed or not subscribed.

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


def _is_role(address: str) -> bool:
    return address.partition("@")[0].lower() in ROLE_NAMES


# The remark about a line on the pages: a text, or a list of warnings
Remark = str | tuple[Warned | str, ...]


class CountedLines(NamedTuple):
    """A number of lines, and the first ones as (line number, address or text, remark)."""

    number: int
    first: Sequence[tuple[int, str, Remark]]


class FileReview(NamedTuple):
    """The rows of a file that are invalid, repeat an address, have a role address, or a typo in the domain.

    The remark of a line in `typos` is the address that was probably meant.
    `other_encoding` has the lines that are UTF-8 in a file with another encoding.
    """

    faults: CountedLines
    doubles: CountedLines
    roles: CountedLines
    typos: CountedLines
    other_encoding: CountedLines


def _suggest_addresses(counted: tuple[int, list[tuple[int, str, str]]]) -> CountedLines:
    """Return lines with typos in their domains, with the address that was probably meant as the remark of each."""
    number, first = counted
    return CountedLines(number, [(line, address, suggest_address(address) or "") for line, address, _ in first])


def review_file(path: Path) -> FileReview | None:
    """Return the review of a staging file, or None if it was deleted.

    It has up to `MAX_EXAMPLES` lines of each kind. It takes about a second for a million lines, so call it neither on
    the event loop nor on the writer thread.
    """
    if not path.exists():
        return None
    staged = StagingFile(path)
    try:
        return FileReview(
            CountedLines(*staged.fetch_faults(MAX_EXAMPLES)),
            CountedLines(*staged.fetch_repeated(MAX_EXAMPLES)),
            CountedLines(*staged.fetch_by_local_part(ROLE_NAMES, MAX_EXAMPLES)),
            _suggest_addresses(staged.fetch_by_domain(list_typos(), MAX_EXAMPLES)),
            CountedLines(*staged.fetch_utf8_lines(MAX_EXAMPLES)),
        )
    finally:
        staged.close()


class OutcomeReview(NamedTuple):
    """The skipped lines, the lines with warnings (by `warning_groups`), and the contacts by `page_state`.

    `kept_opt_out_count` is the number of lines whose opt-in did not lift an opt-out or a suppression.
    """

    skipped: CountedLines
    lost_emails: CountedLines
    left_out: CountedLines
    kept_as_text: CountedLines
    not_subscribed: CountedLines
    unsubscribed: CountedLines
    suppressed: CountedLines
    kept_opt_out_count: int


class _LineFlags:
    """A set of line numbers that takes one megabyte for a million lines."""

    def __init__(self) -> None:
        self._flags = bytearray()

    def add(self, line: int) -> None:
        if line >= len(self._flags):
            self._flags.extend(bytes(line + 1024 - len(self._flags)))
        self._flags[line] = 1

    def pop(self, line: int) -> bool:
        """Remove a line, and return whether it was in the set."""
        is_set = line in self
        if is_set:
            self._flags[line] = 0
        return is_set

    def __contains__(self, line: int) -> bool:
        return line < len(self._flags) and bool(self._flags[line])

    def __len__(self) -> int:
        return self._flags.count(1)


class OutcomeReviewer:
    """A reviewer for the outcomes of an import. Call `load_next` until it returns False, then `build_review`."""

    def __init__(self, import_id: int) -> None:
        self._import_id, self._last = import_id, 0
        self._kept_opt_out_count = 0
        self._skipped, self._left_out = _LineFlags(), _LineFlags()
        # The first lines of each kind, with the reason or state
        self._examples: dict[str, dict[int, str]] = {
            "skipped": {}, "not_subscribed": {}, "unsubscribed": {}, "suppressed": {},
        }  # fmt: skip
        self._left_out_values: dict[int, list[Warned]] = {}

    def load_next(self) -> bool:
        """Load the next `_CHUNK_BATCH` chunks and return whether more may remain."""
        chunks = rows(
            "SELECT number, outcomes FROM import_chunk WHERE import_job_id = ? AND number > ? ORDER BY number LIMIT ?",
            (self._import_id, self._last, _CHUNK_BATCH),
        )
        for self._last, encoded in chunks:
            for line, result, _, reason, kept_opt_outs, warnings, state in _decode(encoded)[1]:
                self._kept_opt_out_count += bool(kept_opt_outs)
                if result == "skipped":
                    self._skipped.add(line)
                    _note_first(self._examples["skipped"], line, reason or "")
                elif (group := outcome_counts.page_state(state or "")) in self._examples:
                    _note_first(self._examples[group], line, outcome_counts.strip_sms(state or "").partition(":")[2])
                if warnings:
                    self._left_out.add(line)
                    _note_first(self._left_out_values, line, [tuple(warning) for warning in warnings])
        return len(chunks) == _CHUNK_BATCH

    def build_review(self, job: Import, path: Path) -> OutcomeReview:
        """Return the review, with up to `MAX_EXAMPLES` lines of each kind. `path` is the staging file."""
        staged = StagingFile(path)
        try:
            groups = self._warning_groups(staged, job.cursor[0] if job.cursor else 0)
            texts = staged.fetch_addresses({line for lines in self._examples.values() for line in lines})
        finally:
            staged.close()
        numbers = {**outcome_counts.count_page_states(job), "skipped": job.skipped}
        for name, examples in self._examples.items():
            lines: list[tuple[int, str, Remark]] = []
            for line, reason in sorted(examples.items()):
                address, encoded = texts[line]
                # For a skipped row, an email address that cannot be read is part of the reason, not a warning.
                values = decode_warnings(encoded) if name == "skipped" else []
                lines.append((line, address, (*values, reason) if values else reason))
            groups[name] = CountedLines(numbers[name], lines)
        return OutcomeReview(**groups, kept_opt_out_count=self._kept_opt_out_count)

    def _warning_groups(self, staged: StagingFile, last: int) -> dict[str, CountedLines]:
        """Return the lines of each of `warning_groups`, up to position `last`. Call it only once."""
        numbers = dict.fromkeys(("lost_emails", "left_out", "kept_as_text"), 0)
        examples: dict[str, dict[int, tuple[str, Remark]]] = {name: {} for name in numbers}
        for line, kind, address, encoded in staged.iterate_warnings(last):
            if line in self._skipped:
                continue
            values = [*decode_warnings(encoded), *self._left_out_values.get(line, ())]
            groups = warning_groups(kind, values) | ({"left_out"} if self._left_out.pop(line) else set())
            for name in {"lost_emails"} if "lost_emails" in groups else groups:
                numbers[name] += 1
                if len(examples[name]) < MAX_EXAMPLES:
                    of_group = tuple(value for value in values if name in ("lost_emails", _value_group(value[2])))
                    examples[name][line] = address, of_group
        # The remaining lines have no other warnings.
        numbers["left_out"] += len(self._left_out)
        remaining = [line for line in self._left_out_values if line in self._left_out]
        for line, (address, _) in staged.fetch_addresses(remaining).items():
            examples["left_out"][line] = address, tuple(self._left_out_values[line])
        return {
            name: CountedLines(
                numbers[name], [(line, *texts) for line, texts in sorted(examples[name].items())][:MAX_EXAMPLES]
            )
            for name in numbers
        }


def _note_first(examples: dict[int, Any], line: int, value: Any) -> None:
    """Add a line to `examples`, of which only the `MAX_EXAMPLES` lowest line numbers are kept."""
    examples[line] = value
    if len(examples) > MAX_EXAMPLES:
        del examples[max(examples)]
