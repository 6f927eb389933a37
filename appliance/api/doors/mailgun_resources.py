"""The endpoints of the Mailgun door that read events, and read and lift the suppressions of an address.

The kinds of events are described in the guide `ui/guides/other-apis.md`. A program reads the next page of events by the
URL `paging.next`, whose last part contains the position (`_Page`).
"""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct
from sanic import HTTPResponse

from appliance.accounts import audit
from appliance.api import http
from appliance.api.contacts import build_evidence
from appliance.api.doors.door import Handler
from appliance.api.endpoints import ApiRequest
from appliance.api.http import ApiError
from appliance.audience import consent, suppressions
from appliance.audience.suppressions import SuppressionQuery
from appliance.core import addresses, crypto
from appliance.core.addresses import Address
from appliance.core.errors import Conflict, Faults
from appliance.sending.domains import store as domains
from appliance.sending.messages import program_events
from appliance.sending.messages.program_events import ProgramEvent, ProgramEventQuery
from appliance.settings import config
from appliance.storage.models import Channel
from appliance.storage.transactions import commit, fetch, scan

_DOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})+")


def format_time(milliseconds: int) -> str:
    """Return a time as Mailgun writes it (RFC 2822)."""
    return format_datetime(datetime.fromtimestamp(milliseconds / 1000, UTC), usegmt=True)


def require_domain(request: ApiRequest, domain: str, is_test: bool = False) -> str:
    """Return the domain in a path in lower case; raises ApiError 404 unless it is a sending domain of the account.

    Any domain is accepted if senders are not checked: with a test key, in the transport `capture`, and with
    `allow_unverified_domains`.
    """
    name = unquote(domain).lower()
    email = config.current().email
    is_any = is_test or request.credential.is_test or email.transport == "capture" or email.allow_unverified_domains
    if not _DOMAIN.fullmatch(name) or not (is_any or domains.is_known(request.account_id, name)):
        raise ApiError(404, "not_found", f"Domain not found: {name[:253]}")
    return name


# Events.

_MAX_EVENTS, _DEFAULT_EVENTS = 300, 100
# Mailgun's name of an event by ours. A message that was not delivered in the end is `failed`.
_EVENTS = {
    "email_sent": "delivered", "email_opened": "opened", "email_clicked": "clicked", "email_complained": "complained",
    "opt_out": "unsubscribed", "email_bounced": "failed", "email_soft_bounced": "failed", "email_failed": "failed",
    "email_skipped": "failed",
}  # fmt: skip
_KNOWN_EVENTS = frozenset((*_EVENTS.values(), "accepted", "rejected", "stored", "list_member_uploaded"))
# Why a message was not sent, as Mailgun names it: reason, code and text. Ghost disables mail for a member by the codes
# 605 and 607.
_SKIP_REASONS = {
    "suppressed_hard_bounce": ("suppress-bounce", 605, "Not delivering to previously bounced address"),
    "suppressed_soft_bounce": ("suppress-bounce", 605, "Not delivering to previously bounced address"),
    "suppressed_complaint": (
        "suppress-complaint", 607, "Not delivering to a user who marked your messages as spam",
    ),
    "unsubscribed": ("suppress-unsubscribe", 606, "Not delivering to unsubscribed address"),
}  # fmt: skip
_OTHER_SKIP = ("generic", 600, "Not delivering to a suppressed address")


class _Page(Struct):
    """A position in a list of events, which goes into a URL: the parameters of the list, and where the page begins."""

    query: dict[str, str]
    at: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    way: str = "after"  # after, before or last


_PARAMETERS = ("event", "tags", "begin", "end", "ascending", "limit", "recipient")


async def list_events(request: ApiRequest, domain: str, page: str = "") -> HTTPResponse:
    """List events of messages: `GET /v3/{domain}/events` and its pages.

    The parameters of a page are those of its list; others in its URL are not read.
    """
    name = await fetch(require_domain, request, domain)
    if page:
        position = _read_page(page)
    else:
        given = {key: values[-1] for key, values in request.http.get_args().items()}
        position = _Page(given)
    query = _build_query(request.account_id, name, position)
    query = query._replace(shows_contacts=request.credential.has_scope("contacts:read"))
    events = await scan(_fetch_events, request.account_id, query)
    return http.json_response({"items": [_describe_event(event, name) for event in events],
                               "paging": _build_paging(name, position, events)})  # fmt: skip


def _fetch_events(_: int, query: ProgramEventQuery) -> list[ProgramEvent]:
    return program_events.fetch(query)


def _read_page(text: str) -> _Page:
    try:
        decoded = base64.urlsafe_b64decode(unquote(text) + "=" * (-len(text) % 4))
        return msgspec.json.decode(decoded, type=_Page)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise ApiError(400, "bad_request", "The page is invalid.") from None


def _build_paging(domain: str, position: _Page, events: list[ProgramEvent]) -> dict[str, str]:
    """Return the URLs of the first, the last, the next and the previous page; the next one of the end is empty."""
    begin = (position.at, position.id)
    first = (events[0].at, events[0].id) if events else begin
    last = (events[-1].at, events[-1].id) if events else begin
    query = position.query
    pages = {
        "first": _Page(query), "last": _Page(query, way="last"),
        "next": _Page(query, *last), "previous": _Page(query, *first, way="before"),
    }  # fmt: skip
    base_url = f"{config.base_url(config.current())}/v3/{domain}/events"
    return {name: f"{base_url}/{_write_page(page)}" for name, page in pages.items()}


def _write_page(page: _Page) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(page)).decode().rstrip("=")


def _build_query(account_id: int, domain: str, page: _Page) -> ProgramEventQuery:
    """Return the filters of a list. Raises Invalid with all errors."""
    # mailgun.js sends the text `undefined` for a parameter without a value.
    given = {name: value for name, value in page.query.items() if value not in ("", "undefined", "null")}
    faults = Faults()
    for name in given:
        if name not in _PARAMETERS:
            faults.add(name, "is not supported")
    begin, end = (_read_moment(given.get(name), name, faults) for name in ("begin", "end"))
    names = _read_names(given.get("event"), faults)
    all_tags, any_tags = _read_tags(given.get("tags"), faults)
    recipient = None
    if "recipient" in given:
        try:
            recipient = addresses.parse_email(given["recipient"]).key
        except ValueError:
            faults.add("recipient", "is invalid")
    ascending = given.get("ascending", "yes" if begin is not None and (end is None or begin <= end) else "no").lower()
    if ascending not in ("yes", "no", "true", "false"):
        faults.add("ascending", "must be yes or no")
    limit = given.get("limit", str(_DEFAULT_EVENTS))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= _MAX_EVENTS):
        faults.add("limit", f"must be a number from 1 to {_MAX_EVENTS}")
        limit = "1"
    faults.check()
    if begin is not None and end is not None and begin > end:
        begin, end = end, begin
    cursor = (page.at, page.id) if page.at is not None and page.id is not None else None
    return ProgramEventQuery(
        account_id, domain, names, int(limit), begin, end, ascending in ("yes", "true"), all_tags, any_tags, recipient,
        after=cursor if page.way == "after" else None, before=cursor if page.way == "before" else None,
        is_last=page.way in ("last", "before"),
    )  # fmt: skip


def _read_moment(text: str | None, name: str, faults: Faults) -> int | None:
    """Return a time in milliseconds, given in seconds since 1970 or as in RFC 2822.

    Returns None for no time, and after adding an error.
    """
    if text is None:
        return None
    try:
        seconds = float(text) if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", text) else (
            parsedate_to_datetime(text).timestamp()
        )  # fmt: skip
        return round(seconds * 1000)
    except (ValueError, OverflowError):
        faults.add(name, "must be a number of seconds since 1970 or a date as in RFC 2822")
        return None


def _split(text: str, operator: str) -> list[str]:
    """Return the terms of an expression such as `a AND b` for an operator."""
    return " ".join(text.split()).split(f" {operator} ")


def _read_names(text: str | None, faults: Faults) -> list[str]:
    """Return the names of our events for an expression such as `delivered OR opened`; without one, all."""
    if text is None:
        return list(_EVENTS)
    wanted = {word.strip(" ()").lower() for word in _split(text, "OR")}
    if not wanted <= _KNOWN_EVENTS:
        faults.add("event", "must be names of events, such as delivered OR opened OR failed")
    return [name for name, theirs in _EVENTS.items() if theirs in wanted]


def _read_tags(text: str | None, faults: Faults) -> tuple[list[str], list[str]]:
    """Return (tags that a message must have all, tags of which it must have one) for `a AND b` or `a OR b`."""
    if text is None:
        return [], []
    all_tags = [word.strip(" ()\"'") for word in _split(text, "AND")]
    any_tags = [word.strip(" ()\"'") for word in _split(text, "OR")]
    if len(all_tags) > 1 and len(any_tags) > 1:
        faults.add("tags", "must have either AND or OR")
    return ([], any_tags) if len(any_tags) > 1 else (all_tags, [])


def _describe_event(event: ProgramEvent, domain: str) -> dict[str, Any]:
    kind = _EVENTS[event.name]
    reference = f"b{event.bulk_id}" if event.bulk_id is not None else f"m{event.first_message_id or event.message_id}"
    described: dict[str, Any] = {
        "id": f"{event.id}", "event": kind, "timestamp": event.at / 1000, "recipient": event.recipient,
        "recipient-domain": event.recipient.rpartition("@")[2], "log-level": "info",
        "tags": event.tags.get("tags", []), "user-variables": event.tags.get("variables", {}), "campaigns": [],
        "flags": {"is-test-mode": event.test, "is-routed": False, "is-authenticated": True, "is-system-test": False},
        "message": {
            "headers": {
                "message-id": f"{reference}@{domain}", "to": event.recipient, "from": event.sender or "",
                "subject": event.subject or "",
            },
            "attachments": [],
        },
    }  # fmt: skip
    if kind == "delivered":
        described["delivery-status"] = {"code": 250, "message": "OK", "description": "", "attempt-no": 1}
    if kind == "failed":
        described |= {"severity": "permanent", "log-level": "error"} | _describe_failure(event)
    return described


def _describe_failure(event: ProgramEvent) -> dict[str, Any]:
    data: Mapping[str, Any] = event.data
    if event.name == "email_skipped":
        reason, code, text = _SKIP_REASONS.get(str(data.get("reason")), _OTHER_SKIP)
        return {"reason": reason, "delivery-status": {"code": code, "message": text, "description": text}}
    text = str(data.get("text") or data.get("reason") or "")
    status = {"code": data.get("smtp") or 550, "message": text, "description": ""}
    if data.get("enhanced"):
        status["enhanced-code"] = data["enhanced"]
    return {"reason": "bounce" if event.name != "email_failed" else "generic", "delivery-status": status}


# Suppressions, which Ghost removes for a member who wants its mail again.

_REASONS = {"bounces": ("hard_bounce", "soft_bounce"), "complaints": ("complaint",)}
_LIFTED = "removed by a program through the API of Mailgun"


def _parse_address(text: str) -> Address:
    try:
        return addresses.parse_email(unquote(text))
    except ValueError:
        raise ApiError(400, "bad_request", "The address is invalid.") from None


def build_getter(kind: str) -> Handler:
    """Return the handler of `GET /v3/{domain}/bounces/{address}` or another kind: whether an address is suppressed."""

    async def get_suppression(request: ApiRequest, domain: str, address: str) -> HTTPResponse:
        await fetch(require_domain, request, domain)
        parsed = _parse_address(address)
        return http.json_response(await fetch(_describe_suppression, request.account_id, kind, parsed))

    return get_suppression


def _describe_suppression(account_id: int, kind: str, address: Address) -> dict[str, Any]:
    if kind == "unsubscribes":
        at = _find_opt_out(account_id, address)
        if at is None:
            raise ApiError(404, "not_found", "Address not found in unsubscribes table")
        return {"address": address.value, "tags": ["*"], "created_at": format_time(at)}
    row = next(iter(_find_suppressions(account_id, kind, address)), None)
    if row is None:
        raise ApiError(404, "not_found", f"Address not found in {kind} table")
    described = {"address": address.value, "created_at": format_time(row.created_at)}
    return described | ({"code": "550", "error": row.diagnostic or ""} if kind == "bounces" else {})


def _find_suppressions(account_id: int, kind: str, address: Address) -> list[Any]:
    page = suppressions.fetch_page(account_id, SuppressionQuery(address=address.value, channel="email"))
    return [row for row in page.rows if row.reason in _REASONS[kind]]


def _find_opt_out(account_id: int, address: Address) -> int | None:
    """Return when an address unsubscribed, None if it did not."""
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    if channel is not None:
        return None if channel.subscribed else channel.opt_out_at
    hashed = crypto.hash_address(address.kind, address.key)
    remembered = consent.find_remembered_opt_out(account_id, address.kind, hashed)
    return None if remembered is None else remembered[1]


_REMOVED = {
    "bounces": "Bounced address has been removed",
    "complaints": "Spam complaint has been removed",
    "unsubscribes": "Unsubscribe event has been removed",
}


def build_deleter(kind: str) -> Handler:
    """Return the handler of `DELETE /v3/{domain}/{kind}/{address}`, which lifts the suppressions of a kind."""

    async def delete_suppression(request: ApiRequest, domain: str, address: str) -> HTTPResponse:
        await fetch(require_domain, request, domain)
        parsed = _parse_address(address)
        await commit(_lift_opt_out if kind == "unsubscribes" else _lift_suppressions, request, kind, parsed)
        return http.json_response({"address": parsed.value, "message": _REMOVED[kind]})

    return delete_suppression


def _lift_suppressions(request: ApiRequest, kind: str, address: Address) -> None:
    suppressed = _find_suppressions(request.account_id, kind, address)
    if not suppressed:
        raise ApiError(404, "not_found", f"Address not suppressed in {kind} table")
    for row in suppressed:
        audit.run_and_record(
            request.caller, "suppression_lift", suppressions.lift, request.account_id, row.id, _LIFTED,
            build_evidence(request),
        )  # fmt: skip


def _lift_opt_out(request: ApiRequest, kind: str, address: Address) -> None:
    if _find_opt_out(request.account_id, address) is None:
        raise ApiError(404, "not_found", f"Address not found in {kind} table")
    if not consent.lift_opt_out_without_contact(request.account_id, address, build_evidence(request)):
        # Subscribing to a newsletter of another program is not consent to the campaigns of this service.
        text = "The address belongs to a contact who unsubscribed, or opted out by a complaint or an erasure"
        raise Conflict(f"{text}: only the person can opt in again in Campanero.")
    audit.record(request.caller, request.account_id, "opt_out_lift", None)
