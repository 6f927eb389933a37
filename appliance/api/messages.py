"""Messages over the API."""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from appliance.accounts import audit, idempotency
from appliance.api import shapes, shaping
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.read import idempotency_key
from appliance.api.reply import Fault, page_headers
from appliance.content.designs.merge import MergeError
from appliance.events import log
from appliance.events.log import EventQuery
from appliance.sending.messages import ledger, manual_decisions, single
from appliance.sending.messages.ledger import MessageQuery
from appliance.sending.messages.prepare import Workshop
from appliance.sending.messages.single import MessageWrite
from appliance.storage.models import Message
from appliance.storage.work import call, commit, render

ROUTES = Routes()
_faults = checked(single.check, parses=True)


@ROUTES.add("GET", "/messages", scope="messages:read", query=MessageQuery, returns=shapes.Message, many=True)
async def index(request: Call) -> Answer:
    """List messages of every kind and status, newest first."""
    page = await call(ledger.page, request.account_id, request.query)
    return Answer([shaping.message(row) for row in page.rows], headers=page_headers(page))


async def _inside(request: Call) -> dict[str, list[str]]:
    """Return what is wrong beyond types; where the channel cannot be read, the address says which it is meant for."""
    body: MessageWrite = request.body
    if request.read is not None and "channel" in request.read.faults.fields and isinstance(body.to, str):
        body = structs.replace(body, channel="email" if "@" in body.to else "sms")
    request.ignored.extend(single.ignored(body))
    return await _faults(request._replace(body=body))


@ROUTES.add(
    "POST", "/messages", scope="messages:send", reads=MessageWrite, returns=shapes.Message, status=201, also=(200,),
    idempotent=True, rate="messages", inside=_inside,
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Send a single message."""
    body: MessageWrite = request.body
    request.ignored.extend(single.ignored(body))
    key = idempotency_key(request.request, body)
    payload = {name: value for name, value in request.raw.items() if name != "idempotency_key"}

    def verb() -> tuple[Any, bool]:
        made: list[Any] = []

        def run() -> int | None:
            made.append(single.put(request.account_id, body, key, request.credential.test))
            # A refusal is no success: asked again, it is looked at again
            return None if single.refusal(made[0]) else int(made[0].id)

        once = idempotency.once(request.account_id, "/messages", key, payload, run, request.credential.test)
        return ledger.get(request.account_id, once.resource_id or made[0].id), once.replayed

    await render(single.warm, request.account_id, body)
    row, replayed = await commit(verb)
    if replayed:
        return Answer(shaping.message(row), 200, {"Idempotent-Replayed": "true"})
    refusal = single.refusal(row)
    if refusal is not None:
        raise refusal
    return Answer(shaping.message(row))


@ROUTES.add("GET", "/messages/{id}", scope="messages:read", returns=shapes.MessageDetail)
async def show(request: Call) -> Answer:
    """Get a message with what it said and what happened to it."""

    def read() -> shapes.MessageDetail:
        row = ledger.get(request.account_id, request.id)
        query = EventQuery(limit=100, resource_uid=f"message:{row.id}")
        events = list(log.page(request.account_id, query).rows)
        kept = ledger.content(row)
        said: dict[str, Any] = {"html": None, "text": None, "headers": kept.headers if kept else {}}
        try:
            filled = Workshop().view(row)
            said |= {"html": filled.html if row.channel == "email" else None, "text": filled.text}
        except MergeError:
            # It never rendered: that is what its row says, and it has no words to show
            if row.skip_reason != "render_error":
                raise
        return shaping.message_detail(row, said, events)

    return Answer(await call(read))


def _decide(name: str, verb: Callable[[int, int, str], Message], summary: str) -> None:
    async def handler(request: Call) -> Answer:
        if request.credential.test and not (await call(ledger.get, request.account_id, request.id)).test:
            raise Fault(403, "forbidden", "a test key decides only about what test keys have sent")
        told = (request.by, f"message_{name}", verb, request.account_id, request.id, request.actor)
        return Answer(shaping.message(await commit(audit.noting, *told)))

    handler.__doc__ = summary
    ROUTES.add("POST", f"/messages/{{id}}/{name}", scope="messages:send", returns=shapes.Message)(handler)


_decide("retry", manual_decisions.retry, "Send a refused message, or one in doubt, again.")
_decide("cancel", manual_decisions.cancel, "Take back a message that waits.")
_decide("assume_sent", manual_decisions.assume_sent, "Count a message in doubt as sent.")
