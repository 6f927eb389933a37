"""What is exported, in the words of a person, and how far the files are that are being sent right now."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store
from appliance.audience.contacts.requests import ContactQuery
from appliance.core import errors, fields
from appliance.events import log as events_log
from appliance.events.log import EventQuery
from appliance.exports import happenings, people
from appliance.sending.messages import ledger as messages
from appliance.sending.messages.ledger import MessageQuery
from appliance.storage.work import call
from ui import crowds, words

# Of a list's address, what says how it is looked at and not what is in it
_LOOKS = ("page", "limit", "per", "per_page", "sort", "order", "density", "format", "ticket")

# What the table of people is narrowed by, in the words of its own address
_OF_TABLE = ("search", *crowds.FILTERS)


class Kind(NamedTuple):
    """Something that can be exported."""

    title: str
    one: str
    many: str
    crumb: tuple[str, str]
    query: Any
    # Each takes what `read` answers: a query, and of contacts the rules that the table of people was narrowed by
    page: Callable[..., Any]
    csv: Callable[..., Iterator[str]]
    jsonl: Callable[..., Iterator[bytes]]


KINDS = {
    "contacts": Kind(
        "Export contacts", "contact", "contacts", ("Contacts", "/contacts"), ContactQuery,
        lambda account_id, query, rules: store.page(account_id, query, rules=rules), people.csv, people.jsonl,
    ),
    "events": Kind(
        "Export activity", "event", "events", ("Activity", "/activity"), EventQuery, events_log.page,
        lambda account_id, query: happenings.csv(happenings.EVENTS, account_id, query),
        lambda account_id, query: happenings.jsonl(happenings.EVENTS, account_id, query),
    ),
    "messages": Kind(
        "Export messages", "message", "messages", ("Outbox", "/outbox"), MessageQuery, messages.page,
        lambda account_id, query: happenings.csv(happenings.MESSAGES, account_id, query),
        lambda account_id, query: happenings.jsonl(happenings.MESSAGES, account_id, query),
    ),
}  # fmt: skip
# Name in the form: words, ending, type, and whether it begins with the mark that Excel wants
FORMATS = {
    "excel": ("For Excel", "CSV that Excel and Numbers open with every letter right.", "csv", True),
    "csv": ("CSV", "What other programs read, and what Import here takes back without loss.", "csv", False),
    "jsonl": ("JSON lines", "For scripts: one object a line.", "jsonl", False),
}
TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
_FLAGS = {
    "subscribed_email": ("Subscribed to email", "Not subscribed to email"),
    "subscribed_phone": ("Subscribed to SMS", "Not subscribed to SMS"), "test": ("Only tests", "Without tests"),
}  # fmt: skip
_NAMES = {
    "created_after": "Since", "created_before": "Before", "updated_after": "Changed since",
    "updated_before": "Changed before", "tag": "Tag", "source": "From", "to": "To", "channel": "Channel",
    "contact_id": "Person", "campaign_id": "Campaign", "flow_id": "Flow", "source_type": "Kind",
    "resource_name": "About", "resource_uid": "About",
}  # fmt: skip


def filters(kind: Kind, args: Any) -> dict[str, str]:
    """Return the filters of a list's address, without what only says how it was looked at."""
    found = {name: str(args.get(name))[:500] for name in args if name not in _LOOKS}
    return {name: value for name, value in found.items() if value.strip()}


def read(kind: Kind, asked: dict[str, str]) -> tuple[Any, ...]:
    """Read filters; raises Invalid also for one that is not known, so that none is lost on the way."""
    own = {name: value for name, value in asked.items() if kind.query is not ContactQuery or name not in _OF_TABLE}
    known = {info.name for info in fields.declared(kind.query)}
    if unknown := sorted(set(own) - known):
        raise errors.Invalid({name: ["is not a filter of this list"] for name in unknown})
    found = fields.read(kind.query, {**own, "limit": 1}, loose=True)
    if kind.query is not ContactQuery:
        return (found,)
    if asked.get("show", "") not in crowds.SHOWN:
        raise errors.Invalid({"show": ["is not included in the list"]})
    of_table = {name: value for name, value in asked.items() if name in _OF_TABLE}
    return tuple(crowds.asked(of_table, **fields.given(found)))


def chips(account_id: int, kind: Kind, asked: dict[str, str]) -> list[tuple[str, str]]:
    """Return each filter in words, with the query of the page without it."""
    found: list[tuple[str, str]] = []
    rest = dict(asked)
    if kind.query is ContactQuery:
        chosen = {chip.value: chip.label for chip in crowds.chips(account_id)}
        if asked.get("show"):
            found.append((chosen[asked["show"]], _without(asked, "show")))
        for one in crowds.active(account_id, asked, {}):
            found.append((one.text, _without(asked, *one.names)))
        rest = {name: value for name, value in asked.items() if name == "search" or name not in _OF_TABLE}
    return found + [(_said(account_id, name, value), _without(asked, name)) for name, value in rest.items()]


def _without(asked: dict[str, str], *names: str) -> str:
    return words.query({one: value for one, value in asked.items() if one not in names})


def _said(account_id: int, name: str, value: str) -> str:
    if name in ("search", "q", "query"):
        return f"“{value}”"
    if name in _FLAGS:
        return _FLAGS[name][value.lower() not in ("true", "1", "yes")]
    if name == "event":
        return words.event(value)[2]
    if name == "status":
        return words.STATUSES.get(value, ("", value))[1]
    if name == "contact_id":
        return words.name(store.get(account_id, int(value)))
    return f"{_NAMES.get(name, name.replace('_', ' '))}: {value}"


class Going(NamedTuple):
    """A file that is being sent: whose, how many rows of how many, and whether it is whole, broken off or neither."""

    account_id: int
    rows: int
    total: int
    state: str
    at: float


_going: "OrderedDict[str, Going]" = OrderedDict()
_MAX_EXPORTS = 64


def going(account_id: int, ticket: str) -> Going | None:
    """Return how far the file of a ticket is, or None if it has not begun."""
    found = _going.get(ticket)
    return found if found is not None and found.account_id == account_id else None


def counted(account_id: int, ticket: str, total: int, pieces: Iterator[Any], mark: bytes, head: int) -> Iterator[bytes]:
    """Yield what is sent as it is made, and note under a ticket how many rows that is; `head` lines are no rows."""
    end, rows = b"\r\n" if head else b"\n", -head

    def note(state: str) -> None:
        if ticket:
            _going[ticket] = Going(account_id, max(rows, 0), total, state, time.monotonic())
            _going.move_to_end(ticket)
            while len(_going) > _MAX_EXPORTS:
                _going.popitem(last=False)

    note("going")
    state = "broken"
    try:
        for piece in pieces:
            sent = piece.encode() if isinstance(piece, str) else bytes(piece)
            rows += sent.count(end)
            note("going")
            yield mark + sent
            mark = b""
        state = "done"
    finally:
        note(state)


# Files made while they are sent: nothing of them is kept, however large they are.

log = logging.getLogger("campanero.pages")


async def send_file(request: Request, name: str, kind: str, pieces: Iterable[bytes | str]) -> HTTPResponse | None:
    """Send what is made piece by piece as a file; what fails before the first piece is a refusal like any other.

    A failure after it can only break the connection, which tells the browser that the file is not whole.
    """
    made = iter(pieces)
    piece = await call(next, made, None)
    headers = {
        "content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store",
        "x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'",
    }  # fmt: skip
    response: Any = await request.respond(status=200, headers=headers, content_type=kind)
    try:
        while piece is not None:
            if piece:
                await response.send(piece)
            piece = await call(next, made, None)
    except Exception:
        log.exception("the file %s broke off", name)
        if request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]  # the library declares less than what it passes
        return None
    await response.eof()
    return None
