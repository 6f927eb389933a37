"""How delivery stands, over the API."""

from msgspec import Struct

from appliance.api import shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.core.clock import iso, now_ms
from appliance.sending.messages import delivering
from appliance.sending.messages.warm_up import CAPS
from appliance.settings.schema import Email
from appliance.storage.work import call

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


class SparedSender(Struct):
    """A sender of SMS that gets less, because the provider asked for that."""

    sender: str
    provider: str
    text: str
    since: shapes.Moment
    until: shapes.Moment | None
    connections: int


class SmsStatus(Struct):
    """How SMS stand: their provider, what is in the way of them, what waits and how fast it goes."""

    transport: str
    open: bool
    obstacles: list[Obstacle]
    rate: Rate
    connections: Connections
    queue: Queue
    senders: list[SparedSender]


class DeliveryStatus(Struct):
    """How delivery stands: mail, and beside it SMS."""

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
    sms: SmsStatus


@ROUTES.add("GET", "/delivery/status", scope="account:read", returns=DeliveryStatus)
async def show(request: Call) -> Answer:
    """Get how delivery stands: what is open, what is in the way and until when, how much waits, how fast it goes."""
    return Answer(_shaped(await call(delivering.status, request.account_id)))


def _shaped(found: delivering.Delivery) -> DeliveryStatus:
    way = found.email
    return DeliveryStatus(
        transport=way.settings.transport,
        open=_is_open(way),
        obstacles=_obstacles(way),
        sending_stopped=found.account.sending_stopped, stop_reason=found.account.stop_reason,
        stop_file=found.stop_file,
        rate=_rate(way),
        connections=Connections(way.now.connections, way.settings.connections),
        queue=_queue(way.queue),
        groups=[SparedGroup(one.group, one.provider, one.text, iso(one.since) or "", iso(one.until), one.connections)
                for one in way.now.spared],
        warm_up=[WarmUp(one.domain, one.step + 1, len(CAPS), one.cap, one.accepted, iso(one.over_at) or "")
                 for one in found.beginning],
        storage=Storage(found.storage is None, found.storage),
        sms=_sms(found.sms),
    )  # fmt: skip


def _sms(way: delivering.Way) -> SmsStatus:
    senders = [
        SparedSender(
            one.group.removeprefix("from "), one.provider, one.text, iso(one.since) or "", iso(one.until),
            one.connections,
        )
        for one in way.now.spared
    ]  # fmt: skip
    return SmsStatus(
        way.settings.transport, _is_open(way), _obstacles(way), _rate(way),
        Connections(way.now.connections, way.settings.connections), _queue(way.queue), senders,
    )  # fmt: skip


def _is_open(way: delivering.Way) -> bool:
    return not any(one.closes for one in way.obstacles)


def _obstacles(way: delivering.Way) -> list[Obstacle]:
    return [Obstacle(one.code, one.text, iso(one.since), iso(one.until)) for one in way.obstacles]


def _rate(way: delivering.Way) -> Rate:
    per_hour = way.settings.rate_per_hour if isinstance(way.settings, Email) else 0
    return Rate(way.settings.rate_per_second, per_hour, way.last_minute, way.last_hour)


def _queue(queue: delivering.Queue) -> Queue:
    age = 0 if queue.oldest_due_at is None else max(0, now_ms() - queue.oldest_due_at) // 1000
    return Queue(queue.waiting, queue.due, queue.in_hand, iso(queue.oldest_due_at), age)
