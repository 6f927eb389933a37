"""Exports: the filtered rows of a table as a file, streamed while it is written."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.audience.contacts import store
from appliance.audience.contacts.store import ContactQuery
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.events import log as events_log
from appliance.events.log import EventQuery
from appliance.exports import records, streaming
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import MessageQuery
from appliance.storage.transactions import scan, scan_for
from ui import formats, labels, view
from ui.guard import signed_in
from ui.pages import contacts as contact_pages
from ui.session import Pages, Visit

pages = Pages("ui_exports", url_prefix="/exports")


# Parameters in the URL of a list that only affect how the list is displayed.
_VIEW_PARAMS = ("page", "limit", "per", "per_page", "sort", "order", "density", "format", "ticket")

# Filters in the URL of the table of contacts.
_TABLE_PARAMS = ("search", *contact_pages.TABLE_FILTERS)


class ExportKind(NamedTuple):
    """A kind of record that can be exported: its texts, its query struct, and the functions that read and write it.

    `title` and the label of `crumb` are constants, which templates translate. `count_rows` returns a number of
    rows with its noun, such as `12 events`.
    """

    title: str
    count_rows: Callable[[int], str]
    crumb: tuple[str, str]
    query: Any
    # Each function takes an account id and the result of `parse_filters`: a query, and for contacts the filter rules.
    page: Callable[..., Any]
    csv: Callable[..., Iterator[str]]
    jsonl: Callable[..., Iterator[bytes]]


def _count_events(number: int) -> str:
    return ngettext("%(num)s event", "%(num)s events", number)


def _count_messages(number: int) -> str:
    return ngettext("%(num)s message", "%(num)s messages", number)


KINDS = {
    "contacts": ExportKind(
        gettext_noop("Export contacts"), formats.count_contacts, (gettext_noop("Contacts"), "/contacts"), ContactQuery,
        lambda account_id, query, rules: store.fetch_page(account_id, query, rules=rules), records.write_contacts_csv,
        records.write_contacts_jsonl,
    ),
    "events": ExportKind(
        gettext_noop("Export activity"), _count_events, (gettext_noop("Activity"), "/activity"), EventQuery,
        events_log.list_events,
        lambda account_id, query: records.write_csv(records.EVENTS, account_id, query),
        lambda account_id, query: records.write_jsonl(records.EVENTS, account_id, query),
    ),
    "messages": ExportKind(
        gettext_noop("Export messages"), _count_messages, (gettext_noop("Outbox"), "/outbox"), MessageQuery,
        ledger.list_messages,
        lambda account_id, query: records.write_csv(records.MESSAGES, account_id, query),
        lambda account_id, query: records.write_jsonl(records.MESSAGES, account_id, query),
    ),
}  # fmt: skip
# Label, help text and extension of each format, and whether its file starts with the byte order mark that Excel needs.
FORMATS = {
    "excel": (gettext_noop("CSV for Excel"), gettext_noop("Opens in Excel and Numbers with all special characters."),
              "csv", True),
    "csv": ("CSV", gettext_noop("For other programs, and for importing the contacts here again."), "csv", False),
    "jsonl": (gettext_noop("JSON Lines"), gettext_noop("For scripts: one JSON object per line."), "jsonl", False),
}  # fmt: skip
TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
_FLAG_LABELS = {
    "subscribed_email": (gettext_noop("Subscribed to email"), gettext_noop("Not subscribed to email")),
    "subscribed_phone": (gettext_noop("Subscribed to SMS"), gettext_noop("Not subscribed to SMS")),
    "sendable_email": (gettext_noop("Subscribed to email"), gettext_noop("Not subscribed to email")),
    "sendable_phone": (gettext_noop("Subscribed to SMS"), gettext_noop("Not subscribed to SMS")),
    "test": (gettext_noop("Only tests"), gettext_noop("Without tests")),
}
_FILTER_LABELS = {
    "created_after": gettext_noop("Created since"), "created_before": gettext_noop("Created before"),
    "updated_after": gettext_noop("Updated since"), "updated_before": gettext_noop("Updated before"),
    "tag": gettext_noop("Tag"), "source": gettext_noop("Source"), "to": gettext_noop("Recipient"),
    "channel": gettext_noop("Channel"), "contact_id": gettext_noop("Contact"), "campaign_id": gettext_noop("Campaign"),
    "flow_id": gettext_noop("Flow"), "source_type": gettext_noop("Type"), "resource_name": gettext_noop("Related to"),
    "resource_uid": gettext_noop("Related to"),
}  # fmt: skip


def read_filters(kind: ExportKind, args: Any) -> dict[str, str]:
    """Return the filters in the URL of a list, without parameters that only affect how the list is displayed."""
    filters = {name: str(args.get(name))[:500] for name in args if name not in _VIEW_PARAMS}
    return {name: value for name, value in filters.items() if value.strip()}


def parse_filters(kind: ExportKind, filters: dict[str, str]) -> tuple[Any, ...]:
    """Parse filters to the arguments of the functions of `kind`. Raises Invalid for unknown or invalid filters."""
    query_filters = {
        name: value for name, value in filters.items() if kind.query is not ContactQuery or name not in _TABLE_PARAMS
    }
    names = {info.name for info in validation.declared_fields(kind.query)}
    if unknown := sorted(set(query_filters) - names):
        raise errors.Invalid({name: [gettext("is not a filter of this list")] for name in unknown})
    query = validation.read(kind.query, {**query_filters, "limit": 1}, loose=True)
    if kind.query is not ContactQuery:
        return (query,)
    if filters.get("show", "") not in contact_pages.SHOW_VALUES:
        raise errors.Invalid({"show": [gettext("is not included in the list")]})
    of_table = {name: value for name, value in filters.items() if name in _TABLE_PARAMS}
    return tuple(contact_pages.read_search(of_table, **validation.sent_fields(query)))


def filter_chips(account_id: int, kind: ExportKind, filters: dict[str, str]) -> list[tuple[str, str]]:
    """Return the label of each active filter, with the query of the page without that filter."""
    chips: list[tuple[str, str]] = []
    remaining = dict(filters)
    if kind.query is ContactQuery:
        if show := filters.get("show"):
            chips.append((gettext(contact_pages.STATUS_LABELS[show]), _query_without(filters, "show")))
        for active_filter in contact_pages.describe_filters(account_id, filters, {}):
            chips.append((active_filter.text, _query_without(filters, *active_filter.names)))
        remaining = {name: value for name, value in filters.items() if name == "search" or name not in _TABLE_PARAMS}
    return chips + [
        (_filter_label(account_id, name, value), _query_without(filters, name)) for name, value in remaining.items()
    ]


def _query_without(filters: dict[str, str], *names: str) -> str:
    return formats.query_string({name: value for name, value in filters.items() if name not in names})


def _filter_label(account_id: int, name: str, value: str) -> str:
    if name in ("search", "q", "query"):
        return gettext("“%(text)s”", text=value)
    if name in _FLAG_LABELS:
        return gettext(_FLAG_LABELS[name][value.lower() not in ("true", "1", "yes")])
    if name == "event":
        return labels.event(value)[2]
    if name == "status" and value in contact_pages.STATUS_LABELS:
        return gettext(contact_pages.STATUS_LABELS[value])
    if name == "status":
        return labels.status_label(value)
    if name == "contact_id":
        return formats.contact_name(store.get(account_id, int(value)))
    label = gettext(_FILTER_LABELS[name]) if name in _FILTER_LABELS else name.replace("_", " ")
    return gettext("%(filter)s: %(value)s", filter=label, value=value)


class Progress(NamedTuple):
    """The progress of a download: the rows sent so far, the total, and the state `going`, `done` or `broken`.

    `at` is the time of the last change (`time.monotonic`).
    """

    account_id: int
    rows: int
    total: int
    state: str
    at: float


_progress: "OrderedDict[str, Progress]" = OrderedDict()
_MAX_EXPORTS = 64


def get_progress(account_id: int, ticket: str) -> Progress | None:
    """Return the progress of the account's download with this ticket, or None if it is unknown or no longer stored."""
    row = _progress.get(ticket)
    return row if row is not None and row.account_id == account_id else None


def track_progress(
    account_id: int, ticket: str, total: int, pieces: Iterator[Any], mark: bytes, head: int
) -> Iterator[bytes]:
    """Yield the chunks of a file after the bytes `mark`, and record the rows sent under `ticket`.

    `head` is the number of header lines, which are not counted: 1 for CSV, whose lines end in CRLF, else 0.
    """
    end, rows = b"\r\n" if head else b"\n", -head

    def record(state: str) -> None:
        if ticket:
            _progress[ticket] = Progress(account_id, max(rows, 0), total, state, time.monotonic())
            _progress.move_to_end(ticket)
            while len(_progress) > _MAX_EXPORTS:
                _progress.popitem(last=False)

    record("going")
    state = "broken"
    try:
        for piece in pieces:
            chunk = piece.encode() if isinstance(piece, str) else bytes(piece)
            rows += chunk.count(end)
            record("going")
            yield mark + chunk
            mark = b""
        state = "done"
    finally:
        record(state)


# The page stops polling after this many requests if the download has not begun.
_MAX_TRIES = 20


@pages.get("/<of:str>", name="show")
@signed_in(access.EXPORT_SCOPE)
async def show_export(request: Request, visit: Visit, of: str) -> HTTPResponse:
    """Show the number of rows that a file will contain, its filters and the formats."""
    kind = _find_kind(of)
    filters = read_filters(kind, request.args)

    def read() -> tuple[int, list[tuple[str, str]]]:
        page = kind.page(visit.account_id, *parse_filters(kind, filters))
        return page.total, filter_chips(visit.account_id, kind, filters)

    total, chips = await scan_for(visit.account_id, read)
    return view.render(
        request, "exports/show.html", of=of, kind=kind, filters=filters, total=total, chips=chips, file_formats=FORMATS,
        ticket=secrets.token_hex(8), progress=None, tries=0, max_tries=_MAX_TRIES,
    )  # fmt: skip


@pages.get("/<of:str>/file", name="file")
@signed_in(access.EXPORT_SCOPE)
async def download(request: Request, visit: Visit, of: str) -> HTTPResponse | None:
    """Send the file of an export; the download is recorded in the audit log. Raises NotFound for an unknown format."""
    kind = _find_kind(of)
    form = FORMATS.get(request.args.get("format") or "csv")
    if form is None:
        raise errors.NotFound
    filters = read_filters(kind, request.args)
    _, _, ending, has_bom = form
    ticket = (request.args.get("ticket") or "")[:32]
    parsed = parse_filters(kind, filters)
    total = (await scan(kind.page, visit.account_id, *parsed)).total
    lines: Any = (kind.csv if ending == "csv" else kind.jsonl)(visit.account_id, *parsed)
    mark, head = b"\xef\xbb\xbf" if has_bom else b"", 1 if ending == "csv" else 0
    await audit.record_export(visit.actor, visit.account_id, f"{of}.{ending}", filters, total)
    pieces = track_progress(visit.account_id, ticket, total, lines, mark, head)
    chunks = streaming.track_progress(visit.account_id, f"{of}.{ending}", total, pieces, lines=not head)
    return await view.stream_file(request, f"{of}.{ending}", TYPES[ending], chunks)


@pages.get("/<of:str>/progress", name="progress")
@signed_in(access.EXPORT_SCOPE)
async def show_progress(request: Request, visit: Visit, of: str) -> HTTPResponse:
    """Show the progress of the download with the query's ticket."""
    kind = _find_kind(of)
    ticket = (request.args.get("ticket") or "")[:32]
    progress = get_progress(visit.account_id, ticket)
    tried = request.args.get("tries") or "0"
    tries = min(int(tried) + 1, _MAX_TRIES) if tried.isdecimal() and len(tried) < 4 else _MAX_TRIES
    return view.render(
        request,
        "exports/progress.html",
        of=of,
        kind=kind,
        ticket=ticket,
        progress=progress,
        tries=tries,
        max_tries=_MAX_TRIES,
    )


def _find_kind(of: str) -> ExportKind:
    if of not in KINDS:
        raise errors.NotFound
    return KINDS[of]
