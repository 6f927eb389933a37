"""What people write by SMS over the API, and what is said to them."""

from typing import Any, Literal

from msgspec import Struct

from appliance.api.declare import Answer, Call, Routes
from appliance.api.reply import page_headers
from appliance.api.shapes import Moment
from appliance.core.clock import iso
from appliance.core.fields import PageQuery
from appliance.inbound.conversations import reading
from appliance.inbound.conversations.reading import IncomingQuery, Kind, Line, Seen
from appliance.sending.messages.ledger import Status
from appliance.storage import models
from appliance.storage.work import call, commit

# Shapes of what people and accounts say to each other by SMS.


class Incoming(Struct, rename={"from_": "from"}):
    """An SMS that somebody wrote; `kind` says what it was taken for, `opted_out` that it took its sender out.

    `answered_message_id` is the last message to them before, `reply_message_id` our answer to a keyword.
    """

    id: int
    account_id: int
    contact_id: int | None
    from_: str | None
    to: str | None
    body: str | None
    kind: Kind
    keyword: str | None
    opted_out: bool
    provider: str
    provider_id: str | None
    answered_message_id: int | None
    reply_message_id: int | None
    seen_at: Moment | None
    test: bool
    created_at: Moment


class Said(Struct, rename={"from_": "from"}):
    """One thing that was said: `in` by the person (an Incoming), `out` by us (a Message); each by its id."""

    direction: Literal["in", "out"]
    id: int
    at: Moment
    from_: str | None
    to: str | None
    body: str | None
    kind: Kind | None
    keyword: str | None
    status: Status | None
    segments: int | None
    source_type: Literal["transactional", "campaign", "flow", "test", "system"] | None
    source_name: str | None
    test: bool


def incoming(row: models.Incoming) -> Incoming:
    """Shape what came in."""
    kind: Any = row.kind
    return Incoming(
        row.id, row.account_id, row.contact_id, row.sender, row.recipient or None, row.body, kind, row.keyword,
        row.opted_out,
        row.provider, row.provider_id, row.answered_id, row.reply_id, iso(row.seen_at), row.test,
        str(iso(row.created_at)),
    )  # fmt: skip


def shape_line(line: Line) -> Said:
    """Shape a line of a conversation."""
    at, heard, sent = str(iso(line.at)), line.incoming, line.message
    if heard is not None:
        kind: Any = heard.kind
        return Said(
            "in", heard.id, at, heard.sender, heard.recipient or None, line.body, kind, heard.keyword, None, None, None,
            None, heard.test,
        )  # fmt: skip
    assert sent is not None
    status: Any = sent.status
    source: Any = sent.source_type
    return Said(
        "out", sent.id, at, sent.sender or None, sent.recipient, line.body, None, None, status, sent.segments, source,
        line.source_name, sent.test,
    )  # fmt: skip


ROUTES = Routes()


@ROUTES.add(
    "GET", "/contacts/{id}/conversation", scope="contacts:read", query=PageQuery, returns=Said, many=True
)  # fmt: skip
async def conversation(request: Call) -> Answer:
    """List what was said between a contact and the account by SMS, newest first."""
    page = await call(reading.conversation, request.account_id, request.id, request.query.page, request.query.size())
    return Answer([shape_line(line) for line in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/incoming", scope="messages:read", query=IncomingQuery, returns=Incoming, many=True)
async def index(request: Call) -> Answer:
    """List SMS that came in, newest first; also from numbers that are nobody's."""
    page = await call(reading.page, request.account_id, request.query)
    return Answer([incoming(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/incoming/{id}", scope="messages:read", returns=Incoming)
async def show(request: Call) -> Answer:
    """Get an SMS that came in."""
    return Answer(incoming(await call(reading.get, request.account_id, request.id)))


@ROUTES.add("POST", "/incoming/{id}/seen", scope="contacts:write", reads=Seen, returns=Incoming, body_required=False)
async def see(request: Call) -> Answer:
    """Note that somebody has looked at an SMS, and opt its sender out where it was a refusal."""
    row = await commit(reading.see, request.account_id, request.id, request.body, request.actor)
    return Answer(incoming(row))
