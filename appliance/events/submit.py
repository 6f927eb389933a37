"""Events that clients send."""

from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import addresses, clock
from appliance.db.work import after_commit, writing
from appliance.errors import Conflict, Faults
from appliance.events import kinds
from appliance.fields import Data, EmailText, Id, Short, When, given
from appliance.tables import Channel, Contact, Event
from appliance.work import bell

_OLDEST_MS = 365 * 24 * 3600 * 1000
_PLAIN = (
    "amount", "resource_uid", "resource_name", "resource_url", "utm_source", "utm_medium", "utm_term", "utm_content",
    "utm_campaign",
)  # fmt: skip


class EventWrite(Struct):
    """Something a client saw happen."""

    event: Annotated[str, Meta(max_length=64, extra={"filled": True})]
    contact_id: Id | None | UnsetType = UNSET
    contact_email: EmailText | None | UnsetType = UNSET
    create_contact: bool | UnsetType = UNSET
    amount: float | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    resource_uid: Short | None | UnsetType = UNSET
    resource_name: Short | None | UnsetType = UNSET
    resource_url: Annotated[str, Meta(max_length=2000)] | None | UnsetType = UNSET
    utm_source: Short | None | UnsetType = UNSET
    utm_medium: Short | None | UnsetType = UNSET
    utm_term: Short | None | UnsetType = UNSET
    utm_content: Short | None | UnsetType = UNSET
    utm_campaign: Short | None | UnsetType = UNSET
    test: bool | UnsetType = UNSET
    trigger: bool | UnsetType = UNSET
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=255)] | None | UnsetType = UNSET
    created_at: When | None | UnsetType = UNSET


class Submitted(NamedTuple):
    """An event row, and whether it had been sent before."""

    event: Event
    repeated: bool


def missing_contact(account_id: int, request: EventWrite) -> str | None:
    """Answer the address of a contact that `create_contact` shall make first, or None."""
    if request.create_contact is not True or not isinstance(request.contact_email, str):
        return None
    return None if _by_email(account_id, request.contact_email) else request.contact_email


def submit(account_id: int, request: EventWrite, test: bool = False) -> Submitted:
    """Record an event of a client; raises Invalid with all faults, Conflict for a key used for another payload."""
    writing()
    faults = Faults()
    contact_id = _contact(account_id, request, faults)
    name_fault = kinds.fault(request.event)
    if name_fault:
        faults.add("event", name_fault)
    now = clock.now_ms()
    when = request.created_at if isinstance(request.created_at, int) else now
    if not now - _OLDEST_MS <= when <= now + 300_000:
        faults.add("created_at", "is invalid")
    faults.check()
    values: dict[str, Any] = {name: value for name, value in given(request).items() if name in _PLAIN}
    values |= {
        "account": account_id, "contact": contact_id, "event": request.event,
        "data": request.data if isinstance(request.data, dict) else {}, "test": test or request.test is True,
    }  # fmt: skip
    key = request.idempotency_key if isinstance(request.idempotency_key, str) else None
    if key is not None:
        known = Event.get_or_none(
            Event.account == account_id, Event.event == request.event, Event.idempotency_key == key
        )
        if known is not None:
            if _differs(known, values, request):
                raise Conflict("this idempotency_key was used for another event", code="idempotency_conflict")
            return Submitted(known, True)
    event = Event.create(idempotency_key=key, created_at=when, updated_at=now, **values)
    if contact_id is not None:
        Contact.update(last_interacted_at=max(when, 0)).where(
            Contact.id == contact_id,
            Contact.last_interacted_at.is_null() | (Contact.last_interacted_at < when),
        ).execute()
    after_commit(lambda: bell.ring("flows"))
    return Submitted(event, False)


def _differs(known: Event, values: dict[str, Any], request: EventWrite) -> bool:
    """Say whether a repeat by its key says anything else than the first one did."""
    if isinstance(request.created_at, int) and request.created_at != known.created_at:
        return True
    return known.contact_id != values["contact"] or any(
        getattr(known, name) != values.get(name) for name in ("data", *_PLAIN)
    )


def _by_email(account_id: int, text: str) -> int | None:
    key = addresses.email(text).key
    found = Channel.get_or_none(Channel.account == account_id, Channel.kind == "email", Channel.key == key)
    return found.contact_id if found else None


def _contact(account_id: int, request: EventWrite, faults: Faults) -> int | None:
    if isinstance(request.contact_id, int):
        if not Contact.select().where(Contact.account == account_id, Contact.id == request.contact_id).exists():
            faults.add("contact_id", "must exist")
        return request.contact_id
    if isinstance(request.contact_email, str):
        found = _by_email(account_id, request.contact_email)
        if found is None:
            faults.add("contact_email", "must exist")
        return found
    faults.add("contact_id", "can't be blank")
    return None
