"""How delivery stands, over the API."""

from msgspec import Struct

from appliance.api import shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.clock import iso, now_ms
from appliance.db.work import call
from appliance.messages import delivering
from appliance.messages.warming import CAPS

ROUTES = Routes()


class Obstacle(Struct):
    """Something that keeps mail from leaving."""

    code: str
    text: str
    since: shapes.Moment | None
    until: shapes.Moment | None


class SparedGroup(Struct):
    """A group of recipient domains that gets less, because its servers asked for that."""

    group: str
    provider: str
    text: str
    since: shapes.Moment
    until: shapes.Moment | None
    connections: int


class Rate(Struct):
    """The limits of everybody (0: none), and what was handed over for this account lately."""

    per_second: float
    per_hour: int
    last_minute: int
    last_hour: int


class Connections(Struct):
    """Conversations that are open, and how many there may be."""

    open: int
    most: int


class Queue(Struct):
    """What waits in this account."""

    waiting: int
    due: int
    in_hand: int
    oldest_due_at: shapes.Moment | None
    oldest_age_seconds: int


class WarmUp(Struct):
    """A sending domain that is new and begins with few messages a day, where we deliver ourselves."""

    domain: str
    day: int
    days: int
    cap: int
    used: int
    until: shapes.Moment


class Storage(Struct):
    """Whether what is sent can be written down; without that nothing is sent."""

    ok: bool
    text: str | None


class DeliveryStatus(Struct):
    """How delivery stands."""

    transport: str
    open: bool
    obstacles: list[Obstacle]
    sending_stopped: bool
    stop_reason: str | None
    stop_file: bool
    rate: Rate
    connections: Connections
    queue: Queue
    groups: list[SparedGroup]
    warm_up: list[WarmUp]
    storage: Storage


@ROUTES.add("GET", "/delivery/status", scope="account:read", returns=DeliveryStatus)
async def show(request: Call) -> Answer:
    """Get how delivery stands: what is open, what is in the way and until when, how much waits, how fast it goes."""
    return Answer(_shaped(await call(delivering.status, request.account_id)))


def _shaped(found: delivering.Delivery) -> DeliveryStatus:
    email, queue = found.config.email, found.queue
    age = 0 if queue.oldest_due_at is None else max(0, now_ms() - queue.oldest_due_at) // 1000
    return DeliveryStatus(
        transport=email.transport,
        open=not any(one.closes for one in found.obstacles),
        obstacles=[Obstacle(one.code, one.text, iso(one.since), iso(one.until)) for one in found.obstacles],
        sending_stopped=found.account.sending_stopped, stop_reason=found.account.stop_reason,
        stop_file=found.stop_file,
        rate=Rate(email.rate_per_second, email.rate_per_hour, found.last_minute, found.last_hour),
        connections=Connections(found.now.connections, email.connections),
        queue=Queue(queue.waiting, queue.due, queue.in_hand, iso(queue.oldest_due_at), age),
        groups=[SparedGroup(one.group, one.provider, one.text, iso(one.since) or "", iso(one.until), one.connections)
                for one in found.now.spared],
        warm_up=[WarmUp(one.domain, one.step + 1, len(CAPS), one.cap, one.accepted, iso(one.over_at) or "")
                 for one in found.beginning],
        storage=Storage(found.storage is None, found.storage),
    )  # fmt: skip
