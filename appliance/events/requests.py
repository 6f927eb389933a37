"""What clients send about what they saw happen, read as far as that goes without the database."""

from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import addresses, clients, clock, fields
from appliance.events import agents, kinds, utm
from appliance.fields import Data, EmailText, Id, Short, When, default

MAX_AT_ONCE = 1_000
_OLDEST_MS = 365 * 24 * 3600 * 1000
_FUTURE_MS = 300_000
# What is told later than this is history, to which nobody wants to be sent a message
_LATE_MS = 3600 * 1000
_PLAIN = (
    "amount", "resource_uid", "resource_name", "resource_url", "user_agent", "referrer", "utm_source", "utm_medium",
    "utm_term", "utm_content", "utm_campaign",
)  # fmt: skip

_Url = Annotated[str, Meta(max_length=2000, extra={"line": True})]
_Ip = Annotated[
    str,
    Meta(max_length=64, description="of the person, not of your server; kept as the account's `privacy_ip` says"),
]
_Agent = Annotated[
    str,
    Meta(
        max_length=1000, extra={"line": True},
        description="of the person's program; `browser`, `os` and `device_type` are read from it",
    ),
]  # fmt: skip
_Trigger = Annotated[
    bool, Meta(description="whether it starts flows; without it one created over an hour ago starts none")
]


class EventWrite(Struct):
    """Something a client saw happen."""

    event: Annotated[str, Meta(max_length=64, extra={"filled": True}, extra_json_schema={"pattern": fields.EVENT_NAME})]
    contact_id: Id | None | UnsetType = UNSET
    contact_email: EmailText | None | UnsetType = UNSET
    create_contact: Annotated[bool, default(False)] | UnsetType = UNSET
    amount: float | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    resource_uid: Short | None | UnsetType = UNSET
    resource_name: Short | None | UnsetType = UNSET
    resource_url: Annotated[str, Meta(max_length=2000)] | None | UnsetType = UNSET
    ip: _Ip | None | UnsetType = UNSET
    user_agent: _Agent | None | UnsetType = UNSET
    referrer: _Url | None | UnsetType = UNSET
    utm_source: Short | None | UnsetType = UNSET
    utm_medium: Short | None | UnsetType = UNSET
    utm_term: Short | None | UnsetType = UNSET
    utm_content: Short | None | UnsetType = UNSET
    utm_campaign: Short | None | UnsetType = UNSET
    test: Annotated[bool, default(False)] | UnsetType = UNSET
    trigger: _Trigger | UnsetType = UNSET
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=255)] | None | UnsetType = UNSET
    created_at: When | None | UnsetType = UNSET


class EventBatch(Struct):
    """Many events at once; each is read for itself, so that one that is wrong keeps no other out."""

    events: Annotated[
        list[Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/EventWrite"})] | None],
        Meta(max_length=MAX_AT_ONCE),
    ]


class Ready(NamedTuple):
    """An event that only the database is still missing: columns of its row, and who it may be about."""

    contact_id: int | None
    address: str | None  # as it was sent
    address_key: str | None
    creates: bool
    ip: dict[str, str | None]  # what is kept of it, by the account's `privacy_ip`; empty: there is none
    at: int | None  # None: when it is written
    late: bool | None  # whether it starts no flow, where that is said or its time says it
    values: dict[str, Any]
    faults: dict[str, list[str]]

    @property
    def event(self) -> str:
        """Its name."""
        return str(self.values["event"])

    @property
    def key(self) -> str | None:
        """The key by which a repeat is known."""
        key: str | None = self.values["idempotency_key"]
        return key


def prepare(request: EventWrite, test: bool = False) -> Ready:
    """Work out all that needs no database; what is wrong stands in `faults`. Reads a user agent: not for the loop."""
    faults: dict[str, list[str]] = {}
    name_fault = kinds.fault(request.event)
    if name_fault:
        faults["event"] = [name_fault]
    now = clock.now_ms()
    at = request.created_at if isinstance(request.created_at, int) else None
    if at is not None and not now - _OLDEST_MS <= at <= now + _FUTURE_MS:
        faults["created_at"] = ["is invalid"]
    key = _text(request.idempotency_key)
    if key is not None and not key.isprintable():
        faults["idempotency_key"] = ["is invalid"]
    ip = _text(request.ip)
    kept = {how: clients.kept(ip, how) for how in ("full", "truncated")} if ip else {}
    if ip and kept["full"] is None:
        faults["ip"] = ["is invalid"]
    contact_id = request.contact_id if isinstance(request.contact_id, int) else None
    address = _text(request.contact_email) if contact_id is None else None
    if contact_id is None and address is None:
        faults["contact_id"] = ["can't be blank"]
    late = at is not None and at < now - _LATE_MS
    return Ready(
        contact_id, address, addresses.email(address).key if address else None, request.create_contact is True, kept,
        at, not request.trigger if isinstance(request.trigger, bool) else late, _values(request, key, test), faults,
    )  # fmt: skip


def _values(request: EventWrite, key: str | None, test: bool) -> dict[str, Any]:
    said = {name: getattr(request, name) for name in _PLAIN}
    values = {name: None if value is UNSET else value for name, value in said.items()}
    for name, value in zip(utm.FIELDS, utm.of(_text(request.resource_url)), strict=True):
        # What is said of itself stands before what an address says
        if getattr(request, name) is UNSET:
            values[name] = value
    device = agents.device(values["user_agent"])
    return values | {
        "event": request.event, "data": request.data if isinstance(request.data, dict) else {},
        "test": test or request.test is True, "idempotency_key": key, "browser": device.browser, "os": device.os,
        "device_type": device.kind,
    }  # fmt: skip


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def read_many(batch: EventBatch, test: bool) -> tuple[list[Ready | fields.Read], list[str]]:
    """Read each event of a batch; returns what is ready, or what was read with faults, and the keys nobody knows."""
    found: list[Ready | fields.Read] = []
    ignored: list[str] = []
    for index, raw in enumerate(batch.events):
        read = fields.read_sound(EventWrite, raw)
        ignored += [f"events[{index}].{name}" for name in read.ignored]
        found.append(read if read.faults.fields else prepare(read.value, test))
    return found, ignored
