"""The suppression list: addresses that receive no messages, each with a reason (docs/decisions.md#9).

A suppression belongs to an address of an account, not to a contact. It stays when the contact is deleted, and applies
again when the address returns. `channel.suppression` holds the most severe reason in force. Each change of a
suppression updates this column in the same transaction, so that the sender never reads an outdated reason.
"""

from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.core import addresses, clock, crypto
from appliance.core.addresses import Address
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import CreatedAfter, CreatedBefore, Long, PageQuery, When
from appliance.events.log import parse_time_filters
from appliance.storage.database import Page, fetch_one, paginate, rows, run
from appliance.storage.models import Account, Channel, Consent, Suppression
from appliance.storage.transactions import require_write_transaction

Reason = Literal["hard_bounce", "soft_bounce", "complaint", "manual", "erased", "stop_keyword"]
# These reasons also opt the address out, as if the recipient had done so.
_OPTING_OUT = ("complaint", "stop_keyword", "erased")
_ACTORS = {"complaint": "recipient", "stop_keyword": "recipient", "erased": "operator", "manual": "operator"}
_EXPIRY_BATCH = 500
_MAX_HISTORY = 50


class SuppressionWrite(Struct):
    """An address to suppress, with a reason.

    The reasons `erased` and `stop_keyword` cannot be given, because only an erasure or a STOP sets them.
    """

    address: Annotated[
        str,
        Meta(max_length=254, extra={"filled": True, "line": True}),
        Meta(description="email address or phone number"),
    ]
    channel: (
        Annotated[
            Literal["email", "sms", "phone"], Meta(description="channel to suppress; default: that of the address")
        ]
        | UnsetType
    ) = UNSET
    reason: Annotated[
        Literal["manual", "hard_bounce", "soft_bounce", "complaint"],
        Meta(description="reason; default: `manual`"),
    ] = "manual"
    diagnostic: (
        Annotated[Long, Meta(description="response of the server that rejected the message, if there is one")]
        | None
        | UnsetType
    ) = UNSET
    note: Annotated[Long, Meta(description="note of the person who added it")] | None | UnsetType = UNSET
    expires_at: (
        Annotated[When, Meta(description="when the suppression expires; only for `manual`")] | None | UnsetType
    ) = UNSET


class SuppressionQuery(PageQuery):
    """Filters and pagination of the suppression list."""

    reason: Annotated[Reason, Meta(description="only suppressions with this reason")] | UnsetType = UNSET
    channel: Annotated[Literal["email", "sms", "phone"], Meta(description="only those of this channel")] | UnsetType = (
        UNSET
    )
    address: Annotated[str, Meta(max_length=254), Meta(description="only exactly this address")] | UnsetType = UNSET
    search: Annotated[str, Meta(max_length=254), Meta(description="part of the address")] | UnsetType = UNSET
    created_after: CreatedAfter | UnsetType = UNSET
    created_before: CreatedBefore | UnsetType = UNSET


class Lift(Struct):
    """The request body for lifting a suppression: why the suppression is lifted, which is stored as evidence."""

    reason: (
        Annotated[
            str,
            Meta(max_length=1000),
            Meta(description="why the suppression is lifted; required in the body or in the query"),
        ]
        | UnsetType
    ) = UNSET


class Added(NamedTuple):
    """A suppression, and whether it is new rather than updated."""

    suppression: Suppression
    created: bool


class History(NamedTuple):
    """The evidence about a suppressed address, and the id of the contact with this address, or None."""

    rows: list[Consent]
    contact_id: int | None


class SuppressionCause(NamedTuple):
    """Why an address is suppressed: the reason, what reported it, and optional details.

    `diagnostic` is the response of the mail server, `note` a user's text, `expires_at` a time in milliseconds or None.
    """

    reason: str
    source: str
    diagnostic: str | None = None
    note: str | None = None
    expires_at: int | None = None


def create(account_id: int, request: SuppressionWrite, evidence: Evidence) -> Added:
    """Suppress the address of a request; raises Invalid with all errors."""
    require_write_transaction()
    check(account_id, request)
    address = addresses.parse(_address_kind(request.channel, request.address), request.address)
    expires = request.expires_at if isinstance(request.expires_at, int) else None
    case = SuppressionCause(
        request.reason, evidence.source, _text_or_none(request.diagnostic), _text_or_none(request.note), expires
    )
    number, created = suppress(account_id, address, case, evidence)
    return Added(get(account_id, number), created)


def check(account_id: int, request: SuppressionWrite, _: int | None = None) -> None:
    """Raise Invalid with all errors of a suppression that the types of its fields do not catch."""
    faults = Faults()
    if isinstance(request.address, str):
        try:
            addresses.parse(_address_kind(request.channel, request.address), request.address)
        except ValueError as error:
            faults.add("address", str(error))
    expires = request.expires_at if isinstance(request.expires_at, int) else None
    if expires is not None and request.reason != "manual":
        faults.add("expires_at", gettext("only a manual suppression may expire"))
    elif expires is not None and expires <= clock.now_ms():
        faults.add("expires_at", gettext("must be in the future"))
    faults.check()


def suppress(account_id: int, address: Address, cause: SuppressionCause, evidence: Evidence) -> tuple[int, bool]:
    """Suppress an address, whether or not a contact has it, and return (id, is_new) of its row.

    If the address is already suppressed for the same reason, that row is updated. The first such repetition is recorded
    as evidence and in `repeated_at`, so that the undo of the import that suppressed the address keeps the suppression.
    A complaint, a STOP and an erasure also opt the address out.
    """
    require_write_transaction()
    now, hashed = clock.now_ms(), crypto.hash_address(address.kind, address.key)
    existing = fetch_one(
        "SELECT repeated_at FROM suppression WHERE account_id = ? AND kind = ? AND address_hash = ? AND reason = ? "
        "AND (expires_at IS NULL OR expires_at > ?)",
        (account_id, address.kind, hashed, cause.reason, now),
    )
    stored_address = None if cause.reason == "erased" else address.value
    repetition = (
        "repeated_at = coalesce(repeated_at, excluded.created_at)" if existing is not None
        else "repeated_at = NULL, created_at = excluded.created_at"
    )  # fmt: skip
    number = rows(
        "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, diagnostic, note, "
        "created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (account_id, kind, address_hash, reason) DO UPDATE SET address = excluded.address, "
        "diagnostic = coalesce(excluded.diagnostic, diagnostic), note = coalesce(excluded.note, note), "
        f"expires_at = excluded.expires_at, {repetition} RETURNING id",
        (account_id, address.kind, hashed, stored_address, cause.reason, cause.source, cause.diagnostic, cause.note,
         now, cause.expires_at),
    )[0][0]  # fmt: skip
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    if existing is None or existing[0] is None:
        consent.record_evidence(
            account_id, (address.kind, hashed), "suppressed", _ACTORS.get(cause.reason, "service"), evidence,
            channel.contact_id if channel else None,
            {"reason": cause.reason} | ({"expires_at": cause.expires_at} if cause.expires_at is not None else {}),
        )  # fmt: skip
    if cause.reason in _OPTING_OUT:
        _opt_out(account_id, address.kind, hashed, channel, evidence)
    if channel is not None:
        _refresh_channel(channel, hashed)
    return int(number), existing is None


def _opt_out(account_id: int, kind: str, hashed: bytes, channel: Channel | None, evidence: Evidence) -> None:
    if channel is not None:
        consent.opt_out(channel, "recipient", evidence)
    else:
        consent.remember_opt_out_hash(account_id, kind, hashed, "recipient", clock.now_ms())


def _refresh_channel(channel: Channel, hashed: bytes) -> None:
    """Write the most severe reason in force to a channel; if it changed, set `updated_at` of channel and contact."""
    reason = consent.find_suppression_reason(channel.account_id, channel.kind, hashed)
    if reason == channel.suppression:
        return
    channel.suppression = reason
    now = clock.now_ms()
    run("UPDATE channel SET suppression = ?, updated_at = ? WHERE id = ?", (reason, now, channel.id))
    run("UPDATE contact SET updated_at = ? WHERE id = ?", (now, channel.contact_id))


def lift(account_id: int, suppression_id: int, note: str | None, evidence: Evidence) -> Suppression:
    """Lift a suppression on behalf of an operator, record `note` as evidence, and return the suppression.

    After a complaint or an erasure the address stays opted out. Raises NotFound. Raises Invalid without a note, and for
    a STOP, which only a START from the number lifts.
    """
    require_write_transaction()
    row = get(account_id, suppression_id)
    if note is None or not note.strip():
        raise Invalid({"reason": [gettext("can't be blank")]})
    if row.reason == "stop_keyword":
        raise Invalid({"base": [gettext("only a START from the number lifts this")]})
    channel = _find_channel(row)
    if row.reason in ("complaint", "erased"):
        _opt_out(account_id, row.kind, row.address_hash, channel, evidence)
    run("DELETE FROM suppression WHERE id = ?", (row.id,))
    consent.record_evidence(
        account_id, (row.kind, row.address_hash), "lifted", "operator", evidence,
        channel.contact_id if channel else None, {"reason": row.reason, "note": note.strip()},
    )  # fmt: skip
    if channel is not None:
        _refresh_channel(channel, row.address_hash)
    return row


def _find_channel(row: Suppression) -> Channel | None:
    """Return the channel of a suppressed address, or None if no contact has it.

    An erased suppression stores no address, so the suppressed channels of the account are compared by hash.
    """
    conditions = (Channel.account == row.account_id, Channel.kind == row.kind)
    if row.address is not None:
        return Channel.get_or_none(*conditions, Channel.key == addresses.parse(row.kind, row.address).key)
    for channel in Channel.select().where(*conditions, Channel.suppression.is_null(False)):
        if crypto.hash_address(channel.kind, channel.key) == row.address_hash:
            return channel
    return None


def get(account_id: int, suppression_id: int) -> Suppression:
    """Return a suppression. Raises NotFound if the account has none with this id, or if it has expired."""
    suppression = Suppression.get_or_none(
        Suppression.account == account_id, Suppression.id == suppression_id, _is_in_force(clock.now_ms())
    )
    if suppression is None:
        raise NotFound
    return suppression


def _is_in_force(now: int) -> Any:
    return Suppression.expires_at.is_null() | (Suppression.expires_at > now)


def fetch_page(account_id: int, query: SuppressionQuery) -> Page:
    """Return a page of the suppressions in force that match the query, newest first.

    A filter by a complete address also finds erased suppressions, by the hash of the address. Raises Invalid for
    malformed times.
    """
    query_set = Suppression.select().where(Suppression.account == account_id, _is_in_force(clock.now_ms()))
    if query.reason is not UNSET:
        query_set = query_set.where(Suppression.reason == query.reason)
    if query.channel is not UNSET:
        query_set = query_set.where(Suppression.kind == _address_kind(query.channel, ""))
    if query.address is not UNSET:
        try:
            address = addresses.parse(_address_kind(query.channel, query.address), query.address)
        except ValueError:
            return Page([], 0, query.page, query.size())
        hashed = crypto.hash_address(address.kind, address.key)
        query_set = query_set.where(Suppression.kind == address.kind, Suppression.address_hash == hashed)
    if isinstance(query.search, str) and query.search.strip():
        query_set = query_set.where(_match_address(query.search.strip()))
    low, high = parse_time_filters(query.created_after, query.created_before, Account.get_by_id(account_id).time_zone)
    if low is not None:
        query_set = query_set.where(Suppression.created_at >= low)
    if high is not None:
        query_set = query_set.where(Suppression.created_at < high)
    order = (Suppression.created_at.desc(), Suppression.id.desc())
    return paginate(query_set.order_by(*order), query.page, query.size())


def count_by_reason(account_id: int) -> dict[str, int]:
    """Return the number of suppressions in force by reason; reasons without suppressions are left out."""
    sql = (
        "SELECT reason, count(*) FROM suppression WHERE account_id = ? AND (expires_at IS NULL OR expires_at > ?) "
        "GROUP BY reason"
    )
    return dict(rows(sql, (account_id, clock.now_ms())))


def _match_address(text: str) -> Any:
    """Return a condition on the suppressed address: it contains `text`, or has the hash of `text` as an address.

    The hash also finds erased suppressions, which store no address.
    """
    matches = Suppression.address.contains(text)
    try:
        address = addresses.parse(_address_kind(UNSET, text), text)
    except ValueError:
        return matches
    return matches | (Suppression.address_hash == crypto.hash_address(address.kind, address.key))


def fetch_history(suppression: Suppression) -> History:
    """Return up to `_MAX_HISTORY` rows of evidence about a suppressed address, newest first, and its contact's id.

    Evidence of other contacts who had the address before is left out.
    """
    channel = _find_channel(suppression)
    of_nobody = Consent.contact.is_null()
    contact_condition = of_nobody | (Consent.contact == channel.contact_id) if channel else of_nobody
    evidence = Consent.select().where(
        Consent.account == suppression.account_id, Consent.address_hash == suppression.address_hash, contact_condition
    ).order_by(Consent.id.desc()).limit(_MAX_HISTORY)  # fmt: skip
    return History(list(evidence), channel.contact_id if channel else None)


def has_expired() -> bool:
    """Return whether any suppression has expired and is not lifted yet."""
    return bool(rows("SELECT 1 FROM suppression WHERE expires_at <= ? LIMIT 1", (clock.now_ms(),)))


def expire() -> int:
    """Lift up to `_EXPIRY_BATCH` expired suppressions, record evidence for each, and return their number."""
    require_write_transaction()
    service = Evidence(source="expiry", actor="service")
    expired = list(Suppression.select().where(Suppression.expires_at <= clock.now_ms()).limit(_EXPIRY_BATCH))
    for suppression in expired:
        channel = _find_channel(suppression)
        run("DELETE FROM suppression WHERE id = ?", (suppression.id,))
        consent.record_evidence(
            suppression.account_id, (suppression.kind, suppression.address_hash), "lifted", "service", service,
            channel.contact_id if channel else None, {"reason": suppression.reason},
        )  # fmt: skip
        if channel is not None:
            _refresh_channel(channel, suppression.address_hash)
    return len(expired)


def _address_kind(channel: Any, address: str) -> str:
    """Return `email` or `phone` for a channel name; if it is UNSET, the kind that `address` looks like."""
    if channel is UNSET:
        return "email" if "@" in address else "phone"
    return "email" if channel == "email" else "phone"


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
