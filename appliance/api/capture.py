"""The built-in inbox over the API: what was captured, and what its recipients might do with it."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from appliance.accounts import audit
from appliance.api import shapes, shaping
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import Fault, page_headers
from appliance.core.clock import iso
from appliance.core.errors import NotFound
from appliance.core.fields import MessageId, PageQuery, Short
from appliance.sending.messages import capture_inbox, ledger
from appliance.storage.models import Captured as Row
from appliance.storage.work import call, commit
from appliance.tracking import simulating
from appliance.tracking.simulating import Simulate

ROUTES = Routes()


class Captured(Struct, rename={"from_": "from"}):
    """A message that was kept here instead of sent; `message_id` is the message's integer id."""

    id: int
    account_id: int
    channel: Literal["email", "sms"]
    message_id: int | None
    from_: str | None
    to: str
    mail_from: str
    subject: str | None
    preview: str | None
    bytes: int
    created_at: shapes.Moment


class Header(Struct):
    """A header as it reads."""

    name: str
    value: str


class CapturedDetail(Captured, rename={"from_": "from"}):
    """A captured message with what it says, and its message as it stands now.

    Of an SMS also the parts it is sent in (`segments`), the alphabet they are written in, and how many characters.
    """

    headers: list[Header]
    html: str | None
    text: str | None
    segments: int | None
    alphabet: Literal["GSM-7", "UCS-2"] | None
    characters: int | None
    message: shapes.Message | None


class Emptied(Struct):
    """How many there were."""

    deleted: int


class CaptureQuery(PageQuery):
    """Filters of the inbox; words are looked for in recipient and subject, and in what an SMS says."""

    search: Short | UnsetType = UNSET
    channel: Literal["email", "sms"] | UnsetType = UNSET
    message_id: MessageId | UnsetType = UNSET


def _values(row: Row) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "channel": row.channel, "message_id": row.message_id,
        "from_": row.from_header,
        "to": row.rcpt_to, "mail_from": row.mail_from, "subject": row.subject, "preview": row.preview,
        "bytes": row.size, "created_at": iso(row.received_at),
    }  # fmt: skip


def _detail(account_id: int, captured_id: int) -> CapturedDetail:
    row = capture_inbox.get(account_id, captured_id)
    parts = capture_inbox.parts(row)
    try:
        message = shaping.message(ledger.get(account_id, row.message_id or 0))
    except NotFound:
        message = None
    headers = [Header(name, value) for name, value in parts["headers"]]
    counted = parts["sms"]
    takes = (counted.parts, counted.alphabet, counted.characters) if counted is not None else (None, None, None)
    return CapturedDetail(
        **_values(row), headers=headers, html=parts["html"], text=parts["text"], message=message,
        **dict(zip(("segments", "alphabet", "characters"), takes, strict=True)),
    )  # fmt: skip


@ROUTES.add("GET", "/capture", scope="account:read", query=CaptureQuery, returns=Captured, many=True)
async def index(request: Call) -> Answer:
    """List what was captured, newest first."""
    query: CaptureQuery = request.query
    search = query.search if isinstance(query.search, str) else None
    of = query.message_id if isinstance(query.message_id, int) else None
    channel = query.channel if isinstance(query.channel, str) else None
    page = await call(capture_inbox.page, request.account_id, query.page, query.size(), search, of, channel)
    return Answer([Captured(**_values(row)) for row in page.rows], headers=page_headers(page))


@ROUTES.add("DELETE", "/capture", scope="account:write", returns=Emptied)
async def clear(request: Call) -> Answer:
    """Throw away all that was captured."""

    def verb() -> int:
        audit.note(request.by, request.account_id, "capture_clear", None)
        return capture_inbox.clear(request.account_id)

    return Answer(Emptied(await commit(verb)))


@ROUTES.add("GET", "/capture/{id}", scope="account:read", returns=CapturedDetail)
async def show(request: Call) -> Answer:
    """Get a captured message with what it says."""
    return Answer(await call(_detail, request.account_id, request.id))


@ROUTES.add("GET", "/capture/{id}/raw", scope="account:read", media="message/rfc822", or_media="text/plain")
async def raw(request: Call) -> Answer:
    """Get a captured message as it came over the wire; of an SMS that is its text."""
    row = await call(capture_inbox.get, request.account_id, request.id)
    return Answer(bytes(row.source), media="text/plain" if row.channel == "sms" else None)


def _look_over(account_id: int, request: Simulate, number: int) -> None:
    if isinstance(request.action, str):
        simulating.plan(account_id, number, request)


@ROUTES.add("POST", "/capture/{id}/simulate", scope="account:write", reads=Simulate, returns=CapturedDetail,
            inside=checked(_look_over))  # fmt: skip
async def simulate(request: Call) -> Answer:
    """Let something happen to a captured message, by the way it really comes."""
    play = await call(simulating.plan, request.account_id, request.id, request.body)
    if request.credential.test and not play.message.test:
        raise Fault(403, "forbidden", "a test key simulates only what happens to what test keys have sent")
    await simulating.perform(play)
    return Answer(await call(_detail, request.account_id, request.id))
