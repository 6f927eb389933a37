"""What people write by SMS over the API, and what is said to them."""

from appliance.api import conversation_shapes
from appliance.api.conversation_shapes import Incoming, Said
from appliance.api.declare import Answer, Call, Routes
from appliance.api.reply import page_headers
from appliance.conversations import reading
from appliance.conversations.reading import IncomingQuery, Seen
from appliance.db.work import call, commit
from appliance.fields import PageQuery

ROUTES = Routes()


@ROUTES.add(
    "GET", "/contacts/{id}/conversation", scope="contacts:read", query=PageQuery, returns=Said, many=True
)  # fmt: skip
async def conversation(request: Call) -> Answer:
    """List what was said between a contact and the account by SMS, newest first."""
    page = await call(reading.conversation, request.account_id, request.id, request.query.page, request.query.size())
    return Answer([conversation_shapes.said(line) for line in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/incoming", scope="messages:read", query=IncomingQuery, returns=Incoming, many=True)
async def index(request: Call) -> Answer:
    """List SMS that came in, newest first; also from numbers that are nobody's."""
    page = await call(reading.page, request.account_id, request.query)
    return Answer([conversation_shapes.incoming(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/incoming/{id}", scope="messages:read", returns=Incoming)
async def show(request: Call) -> Answer:
    """Get an SMS that came in."""
    return Answer(conversation_shapes.incoming(await call(reading.get, request.account_id, request.id)))


@ROUTES.add("POST", "/incoming/{id}/seen", scope="contacts:write", reads=Seen, returns=Incoming, body_required=False)
async def see(request: Call) -> Answer:
    """Note that somebody has looked at an SMS, and opt its sender out where it was a refusal."""
    row = await commit(reading.see, request.account_id, request.id, request.body, request.actor)
    return Answer(conversation_shapes.incoming(row))
