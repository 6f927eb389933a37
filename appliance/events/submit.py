"""Events that clients send, written so that a repeat is known and nothing waits for the database twice."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from appliance.core import addresses, client_ip, clock, fields, wake_ups
from appliance.core.errors import Conflict, Invalid, Refused
from appliance.core.fields import Data, EmailText, Id, Short, When, default
from appliance.events import agents, kinds
from appliance.storage.models.kinds import Json
from appliance.storage.open import connection, fetch_one, scalar
from appliance.storage.work import after_commit, writing

# What an address says of the campaign that it is part of.

FIELDS = ("utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign")
_MAX_CHARACTERS, _MAX_PARTS = 255, 100
_NOTHING: tuple[str | None, ...] = (None,) * len(FIELDS)


@lru_cache(maxsize=4_096)
def utm_of(url: str | None) -> tuple[str | None, ...]:
    """Return the values of `FIELDS` in an address; one that cannot be read says nothing."""
    if not url or "utm_" not in url:
        return _NOTHING
    try:
        query = urlsplit(url).query
    except ValueError:
        return _NOTHING
    said: dict[str, str] = {}
    for name, value in parse_qsl("&".join(query.split("&", _MAX_PARTS)[:_MAX_PARTS]), errors="replace"):
        said.setdefault(name, value[:_MAX_CHARACTERS])
    return tuple(said.get(name) for name in FIELDS)


# What clients send about what they saw happen, read as far as that goes without the database.

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
    kept = {how: client_ip.kept(ip, how) for how in ("full", "truncated")} if ip else {}
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
    for name, value in zip(FIELDS, utm_of(_text(request.resource_url)), strict=True):
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


_COLUMNS = (
    "account_id", "contact_id", "event", "amount", "data", "idempotency_key", "resource_uid", "resource_name",
    "resource_url", "test", "generated", "quiet", "chain_depth", "ip", "user_agent", "browser", "os", "device_type",
    "referrer", "utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign", "created_at", "updated_at",
)  # fmt: skip
_INSERT = f"INSERT INTO event ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) RETURNING id"
_JSON = Json()
# By which a repeat is held against the first; who it is about is asked for itself, and of their address a part is kept
_COMPARED = (
    "amount", "resource_uid", "resource_name", "resource_url", "test", "user_agent", "referrer", "utm_source",
    "utm_medium", "utm_term", "utm_content", "utm_campaign",
)  # fmt: skip
_KNOWN = ("id", "contact_id", "created_at", "data", *_COMPARED)
_BY_KEY = f"SELECT {', '.join(_KNOWN)} FROM event WHERE account_id = ? AND event = ? AND idempotency_key = ?"


class Submitted(NamedTuple):
    """An event that is recorded: as it was just written, or None where it had been sent before."""

    id: int
    values: dict[str, Any] | None

    @property
    def repeated(self) -> bool:
        """Whether it had been sent before."""
        return self.values is None


def missing_contact(account_id: int, ready: Ready) -> str | None:
    """Return the address of a contact that has to be made first, or None."""
    if not ready.creates or ready.address is None or ready.faults or _known(account_id, ready) is not None:
        return None
    return None if _whose(account_id, ready) is not None else ready.address


def check(account_id: int, request: EventWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with an event, beyond its types."""
    if not isinstance(request.event, str):  # what was sent for it was told already: any name will do
        request = structs.replace(request, event="unknown")
    ready = prepare(request)
    is_made = ready.creates and ready.address is not None
    if faults := dict(ready.faults) if is_made else _faults(ready, _whose(account_id, ready)):
        raise Invalid(faults)


def submit(account_id: int, ready: Ready) -> Submitted:
    """Record an event of a client; raises Invalid with all faults, Conflict for a key used for another payload."""
    (done,) = submit_many(account_id, [ready])
    if isinstance(done, Refused):
        raise done
    return done


def submit_many(account_id: int, all_ready: Sequence[Ready]) -> list[Submitted | Refused]:
    """Record events of a client in one go; answers for each what became of it. One that is refused keeps none out."""
    writing()
    now, how = clock.now_ms(), ""
    if any(ready.ip for ready in all_ready):
        how = str(scalar("SELECT privacy_ip FROM account WHERE id = ?", (account_id,)))
    done: list[Submitted | Refused] = []
    for ready in all_ready:
        try:
            done.append(_submit(account_id, ready, now, how))
        except (Invalid, Conflict) as refused:
            done.append(refused)
    new = [made.values for made in done if isinstance(made, Submitted) and made.values is not None]
    _saw_them(new)
    if new:
        after_commit(lambda: wake_ups.ring("flows"))
    return done


def _submit(account_id: int, ready: Ready, now: int, how: str) -> Submitted:
    contact_id = _whose(account_id, ready)
    known = _known(account_id, ready) if not ready.faults else None
    if known is not None:
        if _differs(known, ready, contact_id):
            raise Conflict("this idempotency_key was used for another event", code="idempotency_conflict")
        return Submitted(known["id"], None)
    if faults := _faults(ready, contact_id):
        raise Invalid(faults)
    at = now if ready.at is None else ready.at
    values = ready.values | {
        "account_id": account_id, "contact_id": contact_id, "generated": False, "quiet": bool(ready.late),
        "chain_depth": 0, "ip": ready.ip.get(how), "created_at": at, "updated_at": now,
    }  # fmt: skip
    row = values | {"data": _JSON.db_value(values["data"])}
    ((number,),) = connection().execute(_INSERT, [row[name] for name in _COLUMNS]).fetchall()
    return Submitted(int(number), values)


def _saw_them(new: Iterable[dict[str, Any]]) -> None:
    """Note when people were last seen, by what they did; a test is nobody's doing."""
    seen: dict[int, int] = {}
    for values in new:
        if not values["test"]:
            seen[values["contact_id"]] = max(values["created_at"], seen.get(values["contact_id"], 0))
    if seen:
        connection().executemany(
            "UPDATE contact SET last_interacted_at = :at "
            "WHERE id = :id AND (last_interacted_at IS NULL OR last_interacted_at < :at)",
            [{"id": contact_id, "at": at} for contact_id, at in seen.items()],
        )


def _faults(ready: Ready, contact_id: int | None) -> dict[str, list[str]]:
    faults = dict(ready.faults)
    if contact_id is None and "contact_id" not in faults:
        faults["contact_id" if ready.contact_id is not None else "contact_email"] = ["must exist"]
    return faults


def _known(account_id: int, ready: Ready) -> dict[str, Any] | None:
    """Return what is compared of the event that was sent with this key before."""
    found = fetch_one(_BY_KEY, (account_id, ready.event, ready.key)) if ready.key is not None else None
    return None if found is None else dict(zip(_KNOWN, found, strict=True))


def _differs(known: dict[str, Any], ready: Ready, contact_id: int | None) -> bool:
    """Return whether a repeat by its key says anything else than the first one did.

    Whom it names may have been merged into somebody else since, or be gone: that is no other payload.
    """
    if ready.at is not None and ready.at != known["created_at"]:
        return True
    if contact_id is not None and contact_id != known["contact_id"]:
        return True
    if _JSON.python_value(known["data"]) != ready.values["data"]:
        return True
    return any(known[name] != ready.values[name] for name in _COMPARED)


def _whose(account_id: int, ready: Ready) -> int | None:
    if ready.contact_id is not None:
        found: Any = fetch_one("SELECT id FROM contact WHERE id = ? AND account_id = ?", (ready.contact_id, account_id))
    elif ready.address_key is not None:
        words = "SELECT contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key = ?"
        found = fetch_one(words, (account_id, ready.address_key))
    else:
        return None
    return int(found[0]) if found else None
