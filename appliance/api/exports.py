"""Exports over the API: streamed files, with the filters of the lists."""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET, Struct, defstruct
from msgspec.structs import fields as struct_fields

from appliance.accounts import audit
from appliance.api.auth import require
from appliance.api.declare import Answer, Call, Routes
from appliance.audience.contacts import store
from appliance.audience.contacts.requests import ContactQuery
from appliance.core.fields import PageQuery
from appliance.core.pagination import Page
from appliance.events import log
from appliance.events.log import EventQuery
from appliance.exports import going, happenings, journeys, people
from appliance.flows import people as walks
from appliance.flows.people import RunQuery
from appliance.sending.messages import ledger as messages
from appliance.sending.messages.ledger import MessageQuery
from appliance.storage.work import call

ROUTES = Routes()
CSV, JSONL = "text/csv", "application/jsonl"
_BOM = b"\xef\xbb\xbf"


def _filters(kind: type[PageQuery], name: str) -> type[Struct]:
    """Make the query of an export: the filters of a list without its pages, and `bom`."""
    pages = {info.name for info in struct_fields(PageQuery)}
    taken = [(info.name, info.type, UNSET) for info in struct_fields(kind) if info.name not in pages]
    words = {"text": ContactQuery.text} if kind is ContactQuery else {}
    return defstruct(name, [*taken, ("bom", bool, False)], namespace=words)


_CONTACTS = _filters(ContactQuery, "ContactExportQuery")
_EVENTS = _filters(EventQuery, "EventExportQuery")
_MESSAGES = _filters(MessageQuery, "MessageExportQuery")
_RUNS = _filters(RunQuery, "RunExportQuery")


async def _file(request: Call, name: str, kind: type[PageQuery], page: Callable[..., Page], lines: Any) -> Answer:
    asked = {one: value for one in request.query.__struct_fields__
             if one != "bom" and (value := getattr(request.query, one)) is not UNSET}  # fmt: skip
    total = (await call(page, request.account_id, kind(**asked, limit=1))).total
    await audit.exported(request.by, request.account_id, name, asked, total)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    pieces = _pieces(lines, _BOM if request.query.bom else b"")
    sent = going.watched(request.account_id, name, total, pieces, lines=name.endswith(".jsonl"))
    return Answer(sent, headers=headers)


def _pieces(lines: Iterator[Any], begin: bytes) -> Iterator[bytes]:
    """Yield bytes; the mark of the beginning comes with the first line, so that a refusal is still one."""
    for line in lines:
        yield begin + (line.encode() if isinstance(line, str) else line)
        begin = b""


@ROUTES.add("GET", "/exports/contacts.csv", scope="contacts:read", query=_CONTACTS, media=CSV)
async def contacts_csv(request: Call) -> Answer:
    """Get contacts as CSV that imports again without loss."""
    return await _file(request, "contacts.csv", ContactQuery, store.page, people.csv(request.account_id, request.query))


@ROUTES.add("GET", "/exports/contacts.jsonl", scope="contacts:read", query=_CONTACTS, media=JSONL)
async def contacts_jsonl(request: Call) -> Answer:
    """Get contacts as JSON lines."""
    return await _file(
        request, "contacts.jsonl", ContactQuery, store.page, people.jsonl(request.account_id, request.query)
    )


@ROUTES.add("GET", "/exports/events.csv", scope="events:read", query=_EVENTS, media=CSV)
async def events_csv(request: Call) -> Answer:
    """Get events as CSV."""
    lines = happenings.csv(happenings.EVENTS, request.account_id, request.query)
    return await _file(request, "events.csv", EventQuery, log.page, lines)


@ROUTES.add("GET", "/exports/events.jsonl", scope="events:read", query=_EVENTS, media=JSONL)
async def events_jsonl(request: Call) -> Answer:
    """Get events as JSON lines."""
    lines = happenings.jsonl(happenings.EVENTS, request.account_id, request.query)
    return await _file(request, "events.jsonl", EventQuery, log.page, lines)


@ROUTES.add("GET", "/exports/messages.csv", scope="messages:read", query=_MESSAGES, media=CSV)
async def messages_csv(request: Call) -> Answer:
    """Get messages as CSV."""
    lines = happenings.csv(happenings.MESSAGES, request.account_id, request.query)
    return await _file(request, "messages.csv", MessageQuery, messages.page, lines)


@ROUTES.add("GET", "/exports/messages.jsonl", scope="messages:read", query=_MESSAGES, media=JSONL)
async def messages_jsonl(request: Call) -> Answer:
    """Get messages as JSON lines."""
    lines = happenings.jsonl(happenings.MESSAGES, request.account_id, request.query)
    return await _file(request, "messages.jsonl", MessageQuery, messages.page, lines)


@ROUTES.add("GET", "/flows/{id}/runs.csv", scope="flows:read", query=_RUNS, media=CSV)
async def runs_csv(request: Call) -> Answer:
    """Get the people of a flow as CSV, by where they stand or how they left; for who may see both."""
    require(request.credential, "contacts:read")

    def page(account_id: int, query: RunQuery) -> Page:
        return walks.page(account_id, request.id, query)

    lines = journeys.csv(request.account_id, request.id, request.query)
    return await _file(request, f"flow-{request.id}.csv", RunQuery, page, lines)
