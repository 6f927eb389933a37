"""Addresses that must not be written to: put on the list, taken off, listed (docs/decisions.md#9).

A suppression belongs to an address of an account, not to a contact: it outlives contacts and is there when the address
comes again. `channel.suppression` names the gravest reason in force and is brought up to date here, in the same
transaction, so that the sender never looks at an old one.
"""

from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.contacts import consent
from appliance.audience.contacts.consent import Evidence
from appliance.core import addresses, clock, tokens
from appliance.core.addresses import Address
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.fields import DayOrWhen, Long, PageQuery, When
from appliance.core.pagination import Page, paginate
from appliance.events.log import moments
from appliance.storage.models import Account, Channel, Consent, Suppression
from appliance.storage.open import fetch_one, rows, run
from appliance.storage.work import writing

Reason = Literal["hard_bounce", "soft_bounce", "complaint", "manual", "erased", "stop_keyword"]
# These opt the address out too, by the person's own act
_OPTS_OUT = ("complaint", "stop_keyword", "erased")
_BY = {"complaint": "recipient", "stop_keyword": "recipient", "erased": "operator", "manual": "operator"}
_CHUNK = 500
_TOLD = 50


class SuppressionWrite(Struct):
    """An address to suppress; `erased` and `stop_keyword` come only from erasure and from the person."""

    address: Annotated[str, Meta(max_length=254, extra={"filled": True, "line": True})]
    channel: Literal["email", "sms", "phone"] | UnsetType = UNSET
    reason: Literal["manual", "hard_bounce", "soft_bounce", "complaint"] = "manual"
    diagnostic: Long | None | UnsetType = UNSET
    note: Long | None | UnsetType = UNSET
    expires_at: When | None | UnsetType = UNSET


class SuppressionQuery(PageQuery):
    """Filters of the suppression list."""

    reason: Reason | UnsetType = UNSET
    channel: Literal["email", "sms", "phone"] | UnsetType = UNSET
    address: Annotated[str, Meta(max_length=254)] | UnsetType = UNSET
    search: Annotated[str, Meta(max_length=254)] | UnsetType = UNSET
    created_after: DayOrWhen | UnsetType = UNSET
    created_before: DayOrWhen | UnsetType = UNSET


class Lift(Struct):
    """Why a suppression is taken off, for the evidence."""

    reason: Annotated[str, Meta(max_length=1000)] | UnsetType = UNSET


class Added(NamedTuple):
    """A suppression, and whether it is new."""

    suppression: Suppression
    created: bool


class History(NamedTuple):
    """Evidence about a suppressed address, and the contact who has it."""

    rows: list[Consent]
    contact_id: int | None


class Case(NamedTuple):
    """Why an address is suppressed."""

    reason: str
    source: str
    diagnostic: str | None = None
    note: str | None = None
    expires_at: int | None = None


def write(account_id: int, request: SuppressionWrite, evidence: Evidence) -> Added:
    """Suppress an address as a request asks; raises Invalid with all faults."""
    writing()
    check(account_id, request)
    address = addresses.read(_kind(request.channel, request.address), request.address)
    expires = request.expires_at if isinstance(request.expires_at, int) else None
    case = Case(request.reason, evidence.source, _text(request.diagnostic), _text(request.note), expires)
    number, created = add(account_id, address, case, evidence)
    return Added(get(account_id, number), created)


def check(account_id: int, request: SuppressionWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a suppression, beyond its types."""
    faults = Faults()
    if isinstance(request.address, str):
        try:
            addresses.read(_kind(request.channel, request.address), request.address)
        except ValueError as error:
            faults.add("address", str(error))
    expires = request.expires_at if isinstance(request.expires_at, int) else None
    if expires is not None and request.reason != "manual":
        faults.add("expires_at", "only a manual suppression may expire")
    elif expires is not None and expires <= clock.now_ms():
        faults.add("expires_at", "must be in the future")
    faults.check()


def add(account_id: int, address: Address, case: Case, evidence: Evidence) -> tuple[int, bool]:
    """Suppress an address for a reason, whoever has it, and answer the row's id and whether it is new."""
    writing()
    now, hashed = clock.now_ms(), tokens.address_hash(address.kind, address.key)
    known = fetch_one(
        "SELECT id FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ? "
        "AND (expires_at IS NULL OR expires_at > ?)",
        (account_id, address.kind, hashed, case.reason, now),
    )
    shown = None if case.reason == "erased" else address.value
    number = rows(
        "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, diagnostic, note, "
        "created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (account_id, kind, address_hash, reason) DO UPDATE SET address = excluded.address, "
        "diagnostic = coalesce(excluded.diagnostic, diagnostic), note = coalesce(excluded.note, note), "
        f"expires_at = excluded.expires_at{'' if known else ', created_at = excluded.created_at'} RETURNING id",
        (account_id, address.kind, hashed, shown, case.reason, case.source, case.diagnostic, case.note, now,
         case.expires_at),
    )[0][0]  # fmt: skip
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    if known is None:
        consent.record(
            account_id, (address.kind, hashed), "suppressed", _BY.get(case.reason, "service"), evidence,
            channel.contact_id if channel else None,
            {"reason": case.reason} | ({"expires_at": case.expires_at} if case.expires_at is not None else {}),
        )  # fmt: skip
    if case.reason in _OPTS_OUT:
        _opt_out(account_id, address.kind, hashed, channel, evidence)
    if channel is not None:
        _refresh(channel, hashed)
    return int(number), known is None


def _opt_out(account_id: int, kind: str, hashed: bytes, channel: Channel | None, evidence: Evidence) -> None:
    if channel is not None:
        consent.opt_out(channel, "recipient", evidence)
    else:
        consent.remember_hash(account_id, kind, hashed, "recipient", clock.now_ms())


def _refresh(channel: Channel, hashed: bytes) -> None:
    """Write the gravest reason now in force to a channel, and let its contact be seen as changed."""
    reason = consent.suppression(channel.account_id, channel.kind, hashed)
    if reason == channel.suppression:
        return
    channel.suppression = reason
    now = clock.now_ms()
    run("UPDATE channel SET suppression = ?, updated_at = ? WHERE id = ?", (reason, now, channel.id))
    run("UPDATE contact SET updated_at = ? WHERE id = ?", (now, channel.contact_id))


def lift(account_id: int, suppression_id: int, why: str | None, evidence: Evidence) -> Suppression:
    """Take a suppression off by an operator's word and answer it as it was; raises NotFound or Invalid.

    Complaint and erasure leave the opt-out behind; what a STOP made goes only with a START.
    """
    writing()
    found = get(account_id, suppression_id)
    if why is None or not why.strip():
        raise Invalid({"reason": ["can't be blank"]})
    if found.reason == "stop_keyword":
        raise Invalid({"base": ["only a START from the number lifts this"]})
    channel = _channel(found)
    if found.reason in ("complaint", "erased"):
        _opt_out(account_id, found.kind, found.address_hash, channel, evidence)
    run("DELETE FROM suppression WHERE id = ?", (found.id,))
    consent.record(
        account_id, (found.kind, found.address_hash), "lifted", "operator", evidence,
        channel.contact_id if channel else None, {"reason": found.reason, "note": why.strip()},
    )  # fmt: skip
    if channel is not None:
        _refresh(channel, found.address_hash)
    return found


def _channel(found: Suppression) -> Channel | None:
    """Return the channel of a suppressed address; of an erased one only the hash can tell."""
    mine = (Channel.account == found.account_id, Channel.kind == found.kind)
    if found.address is not None:
        return Channel.get_or_none(*mine, Channel.key == addresses.read(found.kind, found.address).key)
    for channel in Channel.select().where(*mine, Channel.suppression.is_null(False)):
        if tokens.address_hash(channel.kind, channel.key) == found.address_hash:
            return channel
    return None


def get(account_id: int, suppression_id: int) -> Suppression:
    """Return a suppression in force; raises NotFound."""
    found = Suppression.get_or_none(
        Suppression.account == account_id, Suppression.id == suppression_id, _in_force(clock.now_ms())
    )
    if found is None:
        raise NotFound
    return found


def _in_force(now: int) -> Any:
    return Suppression.expires_at.is_null() | (Suppression.expires_at > now)


def page(account_id: int, query: SuppressionQuery) -> Page:
    """List the suppressions in force, newest first; an address is found by its hash, erased or not."""
    found = Suppression.select().where(Suppression.account == account_id, _in_force(clock.now_ms()))
    if query.reason is not UNSET:
        found = found.where(Suppression.reason == query.reason)
    if query.channel is not UNSET:
        found = found.where(Suppression.kind == _kind(query.channel, ""))
    if query.address is not UNSET:
        try:
            address = addresses.read(_kind(query.channel, query.address), query.address)
        except ValueError:
            return Page([], 0, query.page, query.size())
        hashed = tokens.address_hash(address.kind, address.key)
        found = found.where(Suppression.kind == address.kind, Suppression.address_hash == hashed)
    if isinstance(query.search, str) and query.search.strip():
        found = found.where(_matches(query.search.strip()))
    low, high = moments(query.created_after, query.created_before, Account.get_by_id(account_id).time_zone)
    if low is not None:
        found = found.where(Suppression.created_at >= low)
    if high is not None:
        found = found.where(Suppression.created_at < high)
    order = (Suppression.created_at.desc(), Suppression.id.desc())
    return paginate(found.order_by(*order), query.page, query.size())


def counts(account_id: int) -> dict[str, int]:
    """Count the suppressions in force by reason."""
    sql = (
        "SELECT reason, count(*) FROM suppression WHERE account_id = ? AND (expires_at IS NULL OR expires_at > ?) "
        "GROUP BY reason"
    )
    return dict(rows(sql, (account_id, clock.now_ms())))


def _matches(words: str) -> Any:
    """Match a part of an address, or a whole one, which finds the erased too."""
    matches = Suppression.address.contains(words)
    try:
        address = addresses.read(_kind(UNSET, words), words)
    except ValueError:
        return matches
    return matches | (Suppression.address_hash == tokens.address_hash(address.kind, address.key))


def history(found: Suppression) -> History:
    """Return who has a suppressed address, and the evidence about it, newest first."""
    channel = _channel(found)
    of_nobody = Consent.contact.is_null()
    whose = of_nobody | (Consent.contact == channel.contact_id) if channel else of_nobody
    told = Consent.select().where(
        Consent.account == found.account_id, Consent.address_hash == found.address_hash, whose
    ).order_by(Consent.id.desc()).limit(_TOLD)  # fmt: skip
    return History(list(told), channel.contact_id if channel else None)


def is_due() -> bool:
    """Return whether a suppression has run out."""
    return bool(rows("SELECT 1 FROM suppression WHERE expires_at <= ? LIMIT 1", (clock.now_ms(),)))


def expire() -> int:
    """Take off what has run out, some at a time, with evidence, and answer how many."""
    writing()
    service = Evidence(source="expiry", actor="service")
    gone = list(Suppression.select().where(Suppression.expires_at <= clock.now_ms()).limit(_CHUNK))
    for found in gone:
        channel = _channel(found)
        run("DELETE FROM suppression WHERE id = ?", (found.id,))
        consent.record(
            found.account_id, (found.kind, found.address_hash), "lifted", "service", service,
            channel.contact_id if channel else None, {"reason": found.reason},
        )  # fmt: skip
        if channel is not None:
            _refresh(channel, found.address_hash)
    return len(gone)


def _kind(channel: Any, address: str) -> str:
    """Return the kind of address a channel's name means; without one the @ decides."""
    if channel is UNSET:
        return "email" if "@" in address else "phone"
    return "email" if channel == "email" else "phone"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
