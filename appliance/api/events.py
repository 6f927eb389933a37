"""Events over the API."""

from msgspec import structs

from appliance.api import contacts, shapes, shaping
from appliance.api.declare import Answer, Call, Routes
from appliance.api.read import idempotency_key
from appliance.api.reply import page_headers
from appliance.contacts import write
from appliance.contacts.requests import ContactWrite
from appliance.db.work import call, commit
from appliance.events import log, submit
from appliance.events.log import EventQuery
from appliance.events.submit import EventWrite, Submitted

ROUTES = Routes()


@ROUTES.add("GET", "/events", scope="events:read", query=EventQuery, returns=shapes.Event, many=True)
async def index(request: Call) -> Answer:
    """List events, newest first."""
    page = await call(log.page, request.account_id, request.query)
    return Answer([shaping.event(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/events", scope="events:write", reads=EventWrite, returns=shapes.Event, status=201, also=(200,),
    idempotent=True,
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Record an event; a repeat by its idempotency key answers the first one."""
    body: EventWrite = request.body
    key = idempotency_key(request.request)
    if key is not None and not isinstance(body.idempotency_key, str):
        body = structs.replace(body, idempotency_key=key)

    def verb() -> Submitted:
        # An event may bring its contact along: known by its address only, and not opted in by this
        address = submit.missing_contact(request.account_id, body)
        if address is not None:
            write.upsert(request.account_id, ContactWrite(email=address, opt_in=False), contacts.evidence(request))
        return submit.submit(request.account_id, body, request.credential.test)

    done = await commit(verb)
    if done.repeated:
        return Answer(shaping.event(done.event), 200, {"Idempotent-Replayed": "true"})
    return Answer(shaping.event(done.event))


@ROUTES.add("GET", "/events/{id}", scope="events:read", returns=shapes.Event)
async def show(request: Call) -> Answer:
    """Get an event."""
    return Answer(shaping.event(await call(log.get, request.account_id, request.id)))
