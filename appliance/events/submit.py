"""Validate events that API clients submit, and record each once per event name and idempotency key.

As much of the validation as possible runs outside the writer thread.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from appliance.core import addresses, clock, signals, validation
from appliance.core.errors import Conflict, Invalid, Refused
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EmailText, Id, Short, When, default
from appliance.events import log, user_agents
from appliance.storage.database import Json, connection, fetch_one, scalar
from appliance.storage.transactions import after_commit, require_write_transaction

# The UTM parameters of a URL:

UTM_FIELDS = ("utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign")
_MAX_CHARACTERS, _MAX_PARTS = 255, 100
_NO_VALUES: tuple[str | None, ...] = (None,) * len(UTM_FIELDS)


@lru_cache(maxsize=4_096)
def parse_utm(url: str | None) -> tuple[str | None, ...]:
    """Return the values of `UTM_FIELDS` in a URL, in that order; None for each missing one, and for an invalid URL.

    Values are cut to `_MAX_CHARACTERS`, and only the first `_MAX_PARTS` parameters are read.
    """
    if not url or "utm_" not in url:
        return _NO_VALUES
    try:
        query = urlsplit(url).query
    except ValueError:
        return _NO_VALUES
    parameters: dict[str, str] = {}
    for name, value in parse_qsl("&".join(query.split("&", _MAX_PARTS)[:_MAX_PARTS]), errors="replace"):
        parameters.setdefault(name, value[:_MAX_CHARACTERS])
    return tuple(parameters.get(name) for name in UTM_FIELDS)


# The requests, and the part of their validation that needs no database:

MAX_AT_ONCE = 1_000
_MAX_AGE_MS = 365 * clock.DAY_MS
_MAX_AHEAD_MS = 300_000
# By default an event that happened longer ago than this starts no flow, because a message about it would come too late.
_LATE_AFTER_MS = 3600 * 1000
_COPIED_FIELDS = (
    "amount", "resource_uid", "resource_name", "resource_url", "user_agent", "referrer", "utm_source", "utm_medium",
    "utm_term", "utm_content", "utm_campaign",
)  # fmt: skip

_Url = Annotated[str, Meta(max_length=2000, extra={"line": True})]
_Ip = Annotated[
    str,
    Meta(
        max_length=64,
        description="IP address of the person, not of your server; stored as `privacy_ip` of the account says",
    ),
]
_Agent = Annotated[
    str,
    Meta(
        max_length=1000, extra={"line": True},
        description="User-Agent of the person's program; `browser`, `os` and `device_type` are read from it",
    ),
]  # fmt: skip
_Trigger = Annotated[
    bool, Meta(description="whether the event starts flows; default: true unless it happened over an hour ago")
]


class EventWrite(Struct):
    """An event that a client submits."""

    event: Annotated[
        str,
        Meta(max_length=64, extra={"filled": True}, extra_json_schema={"pattern": validation.EVENT_NAME}),
        Meta(description="name of the event: `^[a-z][a-z0-9_]{0,63}$`, not a name that the service records itself"),
    ]
    contact_id: Annotated[Id, Meta(description="id of the contact; this or `contact_email`")] | None | UnsetType = UNSET
    contact_email: Annotated[EmailText, Meta(description="email address of the contact")] | None | UnsetType = UNSET
    create_contact: (
        Annotated[
            bool, default(False), Meta(description="create the contact of an unknown `contact_email`, without opt-in")
        ]
        | UnsetType
    ) = UNSET
    amount: (
        Annotated[float, Meta(description="value of the event, such as the total of an order")] | None | UnsetType
    ) = UNSET
    data: Annotated[Data, Meta(description="further data, as JSON of at most 32 KiB")] | None | UnsetType = UNSET
    resource_uid: (
        Annotated[Short, Meta(description="your id of the object that the event concerns, such as `order:4711`")]
        | None
        | UnsetType
    ) = UNSET
    resource_name: Annotated[Short, Meta(description="name of that object")] | None | UnsetType = UNSET
    resource_url: Annotated[str, Meta(max_length=2000), Meta(description="URL of that object")] | None | UnsetType = (
        UNSET
    )
    ip: _Ip | None | UnsetType = UNSET
    user_agent: _Agent | None | UnsetType = UNSET
    referrer: Annotated[_Url, Meta(description="URL of the page that the contact came from")] | None | UnsetType = UNSET
    utm_source: Annotated[Short, Meta(description="`utm_source` of the visited URL")] | None | UnsetType = UNSET
    utm_medium: Annotated[Short, Meta(description="`utm_medium` of the visited URL")] | None | UnsetType = UNSET
    utm_term: Annotated[Short, Meta(description="`utm_term` of the visited URL")] | None | UnsetType = UNSET
    utm_content: Annotated[Short, Meta(description="`utm_content` of the visited URL")] | None | UnsetType = UNSET
    utm_campaign: Annotated[Short, Meta(description="`utm_campaign` of the visited URL")] | None | UnsetType = UNSET
    test: Annotated[bool, default(False)] | UnsetType = UNSET
    trigger: _Trigger | UnsetType = UNSET
    idempotency_key: (
        Annotated[
            str,
            Meta(min_length=1, max_length=255),
            Meta(description="key that identifies repeated requests with the same event name"),
        ]
        | None
        | UnsetType
    ) = UNSET
    created_at: (
        Annotated[When, Meta(description="when the event happened, up to 365 days ago; default: now")]
        | None
        | UnsetType
    ) = UNSET


class EventBatch(Struct):
    """A batch of events. Each event is validated separately, and an invalid event does not stop the others."""

    events: Annotated[
        list[Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/EventWrite"})] | None],
        Meta(max_length=MAX_AT_ONCE),
        Meta(description="up to 1,000 events; each is validated on its own"),
    ]


class PreparedEvent(NamedTuple):
    """An event that was validated without the database; `values` are columns of its row, `faults` its field errors.

    The contact is named by `contact_id` or `address`, and is created if `creates` is true.
    """

    contact_id: int | None
    address: str | None  # as the client sent it
    address_key: str | None
    creates: bool
    ip: dict[str, str | None]  # the IP address to store, by the account's `privacy_ip`; empty if none was sent
    at: int | None  # the time of the event in ms; None: the time at which it is recorded
    quiet: bool  # the event starts no flow, because of `trigger` or its age
    values: dict[str, Any]
    faults: dict[str, list[str]]

    @property
    def event(self) -> str:
        """Return the name of the event."""
        return str(self.values["event"])

    @property
    def key(self) -> str | None:
        """Return the idempotency key, or None."""
        key: str | None = self.values["idempotency_key"]
        return key


def prepare(request: EventWrite, test: bool = False) -> PreparedEvent:
    """Validate an event and convert it to the values of its row, without reading the database.

    `test` marks the event as a test. Field errors are not raised, but returned in `faults`. The first parse of a
    User-Agent takes a millisecond, so do not call this on the event loop.
    """
    faults: dict[str, list[str]] = {}
    name_fault = log.find_name_error(request.event)
    if name_fault:
        faults["event"] = [gettext(name_fault)]
    now = clock.now_ms()
    at = request.created_at if isinstance(request.created_at, int) else None
    if at is not None and not now - _MAX_AGE_MS <= at <= now + _MAX_AHEAD_MS:
        faults["created_at"] = [gettext("is invalid")]
    key = _text_or_none(request.idempotency_key)
    if key is not None and not key.isprintable():
        faults["idempotency_key"] = [gettext("is invalid")]
    ip = _text_or_none(request.ip)
    stored_ips = {privacy: addresses.anonymize_ip(ip, privacy) for privacy in ("full", "truncated")} if ip else {}
    if ip and stored_ips["full"] is None:
        faults["ip"] = [gettext("is invalid")]
    contact_id = request.contact_id if isinstance(request.contact_id, int) else None
    address = _text_or_none(request.contact_email) if contact_id is None else None
    if contact_id is None and address is None:
        faults["contact_id"] = [gettext("can't be blank")]
    late = at is not None and at < now - _LATE_AFTER_MS
    return PreparedEvent(
        contact_id, address, addresses.parse_email(address).key if address else None, request.create_contact is True,
        stored_ips, at, not request.trigger if isinstance(request.trigger, bool) else late, _values(request, key, test),
        faults,
    )  # fmt: skip


def _values(request: EventWrite, key: str | None, test: bool) -> dict[str, Any]:
    sent = {name: getattr(request, name) for name in _COPIED_FIELDS}
    values = {name: None if value is UNSET else value for name, value in sent.items()}
    for name, value in zip(UTM_FIELDS, parse_utm(_text_or_none(request.resource_url)), strict=True):
        # A UTM field that was sent takes precedence over the parameter in the URL.
        if getattr(request, name) is UNSET:
            values[name] = value
    device = user_agents.parse_device(values["user_agent"])
    return values | {
        "event": request.event, "data": request.data if isinstance(request.data, dict) else {},
        "test": test or request.test is True, "idempotency_key": key, "browser": device.browser, "os": device.os,
        "device_type": device.kind,
    }  # fmt: skip


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def prepare_batch(batch: EventBatch, test: bool) -> tuple[list[PreparedEvent | validation.PartialRead], list[str]]:
    """Validate each event of a batch; return one result for each event, in order, and the paths of ignored keys.

    `test` marks the events as tests. A result is a PartialRead if the event could not be read without errors, otherwise
    a PreparedEvent.
    """
    prepared: list[PreparedEvent | validation.PartialRead] = []
    ignored: list[str] = []
    for index, raw in enumerate(batch.events):
        read = validation.read_partial(EventWrite, raw)
        ignored += [f"events[{index}].{name}" for name in read.ignored]
        prepared.append(read if read.faults.fields else prepare(read.value, test))
    return prepared, ignored


_COLUMNS = (
    "account_id", "contact_id", "event", "amount", "data", "idempotency_key", "resource_uid", "resource_name",
    "resource_url", "test", "generated", "quiet", "chain_depth", "ip", "user_agent", "browser", "os", "device_type",
    "referrer", "utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign", "created_at", "updated_at",
)  # fmt: skip
_INSERT = f"INSERT INTO event ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) RETURNING id"
_JSON = Json()
# A repeated request must have the same values as the first in these columns. `_is_different` compares time, contact and
# data. The IP address is not compared, because only a part of it may be stored.
_COMPARED_COLUMNS = (
    "amount", "resource_uid", "resource_name", "resource_url", "test", "user_agent", "referrer", "utm_source",
    "utm_medium", "utm_term", "utm_content", "utm_campaign",
)  # fmt: skip
_COMPARED_ROW = ("id", "contact_id", "created_at", "data", *_COMPARED_COLUMNS)
_BY_KEY = f"SELECT {', '.join(_COMPARED_ROW)} FROM event WHERE account_id = ? AND event = ? AND idempotency_key = ?"


class Submitted(NamedTuple):
    """A recorded event; `values` are the columns just inserted, or None for a repeated request."""

    id: int
    values: dict[str, Any] | None

    @property
    def repeated(self) -> bool:
        """Return whether an earlier request with the same idempotency key recorded the event."""
        return self.values is None


def find_missing_contact(account_id: int, prepared: PreparedEvent) -> str | None:
    """Return the address of the contact that must be created before the event is recorded, or None.

    None is returned if the client did not ask to create the contact, if the contact exists, or if the event is invalid
    or was recorded before.
    """
    if (
        not prepared.creates
        or prepared.address is None
        or prepared.faults
        or _fetch_by_key(account_id, prepared) is not None
    ):
        return None
    return None if _find_contact_id(account_id, prepared) is not None else prepared.address


def check_event(account_id: int, request: EventWrite, _: int | None = None) -> None:
    """Raise Invalid with the errors that the declared types of an event do not show, such as an unknown contact."""
    if not isinstance(request.event, str):  # The wrong type is reported already; the checks below need some name.
        request = structs.replace(request, event="unknown")
    prepared = prepare(request)
    creates = prepared.creates and prepared.address is not None
    if faults := dict(prepared.faults) if creates else _find_faults(prepared, _find_contact_id(account_id, prepared)):
        raise Invalid(faults)


def submit(account_id: int, prepared: PreparedEvent) -> Submitted:
    """Record an event of a client in the current write transaction.

    Raises Invalid with all errors, or Conflict if the idempotency key was used for another payload.
    """
    (submitted,) = submit_many(account_id, [prepared])
    if isinstance(submitted, Refused):
        raise submitted
    return submitted


def submit_many(account_id: int, prepared_events: Sequence[PreparedEvent]) -> list[Submitted | Refused]:
    """Record events of a client in the current write transaction; return one result for each, in order.

    The result of a rejected event is its Invalid or Conflict. The flow engine is woken after the commit.
    """
    require_write_transaction()
    now, privacy = clock.now_ms(), ""
    if any(prepared.ip for prepared in prepared_events):
        privacy = str(scalar("SELECT privacy_ip FROM account WHERE id = ?", (account_id,)))
    results: list[Submitted | Refused] = []
    for prepared in prepared_events:
        try:
            results.append(_insert_event(account_id, prepared, now, privacy))
        except (Invalid, Conflict) as error:
            results.append(error)
    new = [
        submitted.values for submitted in results if isinstance(submitted, Submitted) and submitted.values is not None
    ]
    _record_interactions(new)
    if new:
        after_commit(lambda: signals.wake("flows"))
    return results


def _insert_event(account_id: int, prepared: PreparedEvent, now: int, privacy: str) -> Submitted:
    contact_id = _find_contact_id(account_id, prepared)
    earlier = _fetch_by_key(account_id, prepared) if not prepared.faults else None
    if earlier is not None:
        if _is_different(earlier, prepared, contact_id):
            raise Conflict(gettext("this idempotency_key was used for another event"), code="idempotency_conflict")
        return Submitted(earlier["id"], None)
    if faults := _find_faults(prepared, contact_id):
        raise Invalid(faults)
    at = now if prepared.at is None else prepared.at
    values = prepared.values | {
        "account_id": account_id, "contact_id": contact_id, "generated": False, "quiet": prepared.quiet,
        "chain_depth": 0, "ip": prepared.ip.get(privacy), "created_at": at, "updated_at": now,
    }  # fmt: skip
    row = values | {"data": _JSON.db_value(values["data"])}
    ((event_id,),) = connection().execute(_INSERT, [row[name] for name in _COLUMNS]).fetchall()
    return Submitted(int(event_id), values)


def _record_interactions(recorded: Iterable[dict[str, Any]]) -> None:
    """Set `last_interacted_at` of the contacts to the time of their newest event, unless it is later already.

    Test events do not count.
    """
    last_seen: dict[int, int] = {}
    for values in recorded:
        if not values["test"]:
            last_seen[values["contact_id"]] = max(values["created_at"], last_seen.get(values["contact_id"], 0))
    if last_seen:
        connection().executemany(
            "UPDATE contact SET last_interacted_at = :at "
            "WHERE id = :id AND (last_interacted_at IS NULL OR last_interacted_at < :at)",
            [{"id": contact_id, "at": at} for contact_id, at in last_seen.items()],
        )


def _find_faults(prepared: PreparedEvent, contact_id: int | None) -> dict[str, list[str]]:
    faults = dict(prepared.faults)
    if contact_id is None and "contact_id" not in faults:
        faults["contact_id" if prepared.contact_id is not None else "contact_email"] = [gettext("must exist")]
    return faults


def _fetch_by_key(account_id: int, prepared: PreparedEvent) -> dict[str, Any] | None:
    """Return the columns `_COMPARED_ROW` of the event with the same name and idempotency key, or None."""
    row = fetch_one(_BY_KEY, (account_id, prepared.event, prepared.key)) if prepared.key is not None else None
    return None if row is None else dict(zip(_COMPARED_ROW, row, strict=True))


def _is_different(earlier: dict[str, Any], prepared: PreparedEvent, contact_id: int | None) -> bool:
    """Return whether a request that repeats an idempotency key has a different payload from the first request.

    A contact that has been merged into another or deleted since then does not make the payload different.
    """
    if prepared.at is not None and prepared.at != earlier["created_at"]:
        return True
    if contact_id is not None and contact_id != earlier["contact_id"]:
        return True
    if _JSON.python_value(earlier["data"]) != prepared.values["data"]:
        return True
    return any(earlier[name] != prepared.values[name] for name in _COMPARED_COLUMNS)


def _find_contact_id(account_id: int, prepared: PreparedEvent) -> int | None:
    if prepared.contact_id is not None:
        row: Any = fetch_one(
            "SELECT id FROM contact WHERE id = ? AND account_id = ?", (prepared.contact_id, account_id)
        )
    elif prepared.address_key is not None:
        statement = "SELECT contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key = ?"
        row = fetch_one(statement, (account_id, prepared.address_key))
    else:
        return None
    return int(row[0]) if row else None
