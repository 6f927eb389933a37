"""Events over the API."""

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from appliance.api import contacts, shapes, shaping
from appliance.api.declare import Answer, Call, Routes, checked, of_sound
from appliance.api.read import idempotency_key
from appliance.api.reply import page_headers
from appliance.audience.contacts import write
from appliance.audience.contacts.requests import ContactWrite
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import Read
from appliance.events import log, submit
from appliance.events.log import EventQuery
from appliance.events.submit import EventBatch, EventWrite, Ready, Submitted, prepare, read_many
from appliance.storage.models import Event
from appliance.storage.work import call, commit

ROUTES = Routes()
# Keys of which an event has to have one
_WHO = ("contact_id", "contact_email")
# Contacts that are made in one transaction, so that nobody else's write waits for a thousand
_AT_ONCE = 20


class EventFault(Struct):
    """Why one event of a batch was not recorded."""

    index: int
    code: str
    message: str
    validation_errors: dict[str, list[str]]


class EventsDone(Struct):
    """What became of a batch."""

    created: int
    repeated: int
    errors: list[EventFault]


@ROUTES.add("GET", "/events", scope="events:read", query=EventQuery, returns=shapes.Event, many=True)
async def index(request: Call) -> Answer:
    """List events, newest first."""
    page = await call(log.page, request.account_id, request.query)
    return Answer([shaping.event(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/events", scope="events:write", reads=EventWrite, inside=checked(submit.check, either=_WHO),
    returns=shapes.Event, status=201, also=(200,), idempotent=True, rate="messages",
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Record an event; a repeat by its idempotency key answers the first one."""
    body: EventWrite = request.body
    key = idempotency_key(request.request, body)
    if key is not None and not isinstance(body.idempotency_key, str):
        body = structs.replace(body, idempotency_key=key)
    # Reading a user agent may take a while
    if isinstance(body.user_agent, str):
        ready = await call(prepare, body, request.credential.test)
    else:
        ready = prepare(body, request.credential.test)

    def verb() -> Submitted:
        _make_contacts(request, [ready])
        return submit.submit(request.account_id, ready)

    done = await commit(verb)
    if done.values is None:
        row = await call(log.get, request.account_id, done.id)
        return Answer(shaping.event(row), 200, {"Idempotent-Replayed": "true"})
    return Answer(shaping.event(Event(id=done.id, **done.values)))


@ROUTES.add("POST", "/events/batch", scope="events:write", reads=EventBatch, returns=EventsDone, rate="messages")
async def create_many(request: Call) -> Answer:
    """Record up to 1,000 events at once; those that are wrong are told by their index, and keep no other out."""
    read, ignored = await call(read_many, request.body, request.credential.test)
    good = {index: one for index, one in enumerate(read) if isinstance(one, Ready)}
    for some in _chunks([ready for ready in good.values() if ready.creates]):
        await commit(_make_contacts, request, some)
    recorded = await commit(submit.submit_many, request.account_id, [*good.values()])
    done = EventsDone(0, 0, [])
    results = dict(zip(good, recorded, strict=True))
    for index, one in enumerate(read):
        made = results[index] if isinstance(one, Ready) else await call(_refusal, request.account_id, one)
        if isinstance(made, Submitted):
            done.created += made.values is not None
            done.repeated += made.values is None
        else:
            faults = made.fields if isinstance(made, Invalid) else {"idempotency_key": ["has already been taken"]}
            done.errors.append(EventFault(index, made.code, str(made), faults))
    request.ignored.extend(ignored)
    return Answer(done)


def _refusal(account_id: int, read: Read) -> Invalid:
    """Return the refusal of an event of a batch that was read with faults, with all that is wrong with it."""
    faults = Faults()
    faults.merge(read.faults.fields)
    if isinstance(read.value, EventWrite):
        try:
            submit.check(account_id, read.value)
        except Invalid as refused:
            faults.merge(of_sound(read, refused, either=_WHO))
    return Invalid(faults.fields)


def _make_contacts(request: Call, some: Sequence[Ready]) -> None:
    """Make the contacts that events bring along: known by their address only, and not opted in by this."""
    for ready in some:
        address = submit.missing_contact(request.account_id, ready)
        if address is not None:
            write.upsert(request.account_id, ContactWrite(email=address, opt_in=False), contacts.evidence(request))


def _chunks(all_ready: list[Ready]) -> Iterator[list[Ready]]:
    for start in range(0, len(all_ready), _AT_ONCE):
        yield all_ready[start : start + _AT_ONCE]


@ROUTES.add("GET", "/events/{id}", scope="events:read", returns=shapes.Event)
async def show(request: Call) -> Answer:
    """Get an event."""
    return Answer(shaping.event(await call(log.get, request.account_id, request.id)))
