"""Endpoints of the delivery status, the built-in inbox and sending domains."""

import asyncio
from typing import Annotated, Any, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.api import message_schemas, schemas
from appliance.api.auth import require_contacts_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import ApiError, page_headers
from appliance.api.schemas import Moment
from appliance.core.clock import iso, now_ms
from appliance.core.errors import NotFound
from appliance.core.validation import MessageId, PageQuery, Short
from appliance.inbound import simulation as captured_simulation
from appliance.inbound.simulation import SimulateEventRequest
from appliance.sending.domains import keys, records, store
from appliance.sending.domains.records import Purpose, Validity
from appliance.sending.domains.store import DomainCreate, DomainQuery
from appliance.sending.messages import attachments, capture_inbox, delivery_status, ledger, links
from appliance.sending.messages.senders import DAILY_CAPS, WarmUpDay
from appliance.sending.messages.transport_choice import TransportStatus, list_transport_statuses
from appliance.settings.schema import Email
from appliance.storage import models
from appliance.storage.transactions import commit, fetch

ROUTES = Routes()


class SendingObstacle(Struct):
    """A condition that prevents or delays sending."""

    code: Annotated[str, Meta(description="code for programs")]
    text: Annotated[str, Meta(description="the same as a sentence")]
    since: schemas.Moment | None
    until: schemas.Moment | None


class ThrottledGroup(Struct):
    """A recipient group that is throttled because its servers asked for a lower rate."""

    group: Annotated[str, Meta(description="recipient group: domains whose mail the same organisation receives")]
    provider: Annotated[str, Meta(description="transport, such as `relay`")]
    text: Annotated[str, Meta(description="reply that asked for a lower rate")]
    since: schemas.Moment
    until: schemas.Moment | None
    connections: Annotated[int, Meta(description="maximum number of concurrent connections")]


class SendingRate(Struct):
    """The rate limits of the installation, and the numbers of messages that the account sent recently."""

    per_second: Annotated[float, Meta(description="maximum number per second; 0 for no limit")]
    per_hour: Annotated[int, Meta(description="maximum number per hour; 0 for no limit")]
    last_minute: Annotated[int, Meta(description="number sent in the last minute")]
    last_hour: Annotated[int, Meta(description="number sent in the last hour")]


class ConnectionCount(Struct):
    """The number of open connections and its limit."""

    open: Annotated[int, Meta(description="number of open connections")]
    limit: Annotated[int, Meta(description="maximum number of connections")]


class SendQueue(Struct):
    """The numbers of queued messages of the account, and the age of the oldest due message."""

    waiting: Annotated[int, Meta(description="number of queued messages")]
    due: Annotated[int, Meta(description="number of queued messages that are due")]
    in_hand: Annotated[int, Meta(description="number of messages being sent")]
    oldest_due_at: (
        Annotated[schemas.Moment, Meta(description="when the oldest due message became due; null if none is due")]
        | None
    )
    oldest_age_seconds: Annotated[int, Meta(description="age of the oldest due message, in seconds")]


class WarmUp(Struct):
    """A new sending domain in warm-up: direct delivery from the domain has a daily limit, which grows over time."""

    domain: Annotated[str, Meta(description="sending domain")]
    day: Annotated[int, Meta(description="current day of the warm-up")]
    days: Annotated[int, Meta(description="number of days after which there is no limit")]
    cap: Annotated[int, Meta(description="maximum number of messages today")]
    used: Annotated[int, Meta(description="number of messages sent today")]
    until: schemas.Moment


class StorageUsage(Struct):
    """Whether the database can be written. While it cannot be written, nothing is sent."""

    ok: Annotated[bool, Meta(description="true if results can be recorded")]
    text: Annotated[str, Meta(description="problem; null if there is none")] | None


class ThrottledSender(Struct):
    """An SMS sender that is throttled because the provider asked for a lower rate."""

    sender: Annotated[str, Meta(description="sender")]
    provider: Annotated[str, Meta(description="name of the provider")]
    text: Annotated[str, Meta(description="reply that asked for a lower rate")]
    since: schemas.Moment
    until: schemas.Moment | None
    connections: Annotated[int, Meta(description="maximum number of concurrent connections")]


class SmsStatus(Struct):
    """The delivery status of SMS."""

    transport: Annotated[str, Meta(description="transport for SMS")]
    open: Annotated[bool, Meta(description="true unless an obstacle stops all SMS")]
    obstacles: Annotated[list[SendingObstacle], Meta(description="reasons why all or some SMS wait")]
    rate: Annotated[SendingRate, Meta(description="sending rate")]
    connections: Annotated[ConnectionCount, Meta(description="connections to the provider")]
    queue: Annotated[SendQueue, Meta(description="queued messages")]
    senders: Annotated[
        list[ThrottledSender], Meta(description="senders with a reduced rate, because the provider asked for it")
    ]


class TransportWarmUp(Struct):
    """The warm-up of a transport, which limits marketing email."""

    day: Annotated[int, Meta(description="current day of the warm-up")]
    days: Annotated[int, Meta(description="number of days after which there is no limit")]
    cap: Annotated[int, Meta(description="maximum number of messages today")]
    used: Annotated[int, Meta(description="number of messages sent today")]
    until: Annotated[schemas.Moment, Meta(description="start of the next day")]


class TransportState(Struct):
    """The state of one transport of email."""

    key: Annotated[str, Meta(description="key of the transport, as in the `provider` of messages")]
    name: Annotated[str, Meta(description="name; null for the default transport")] | None
    kind: Annotated[str, Meta(description="kind of the transport, such as `relay`")]
    open: Annotated[bool, Meta(description="true unless it is paused or its hourly limit is used up")]
    text: Annotated[str, Meta(description="why it is not open; null if it is")] | None
    until: Annotated[schemas.Moment, Meta(description="when it is tried again; null if it is open")] | None
    connections: Annotated[int, Meta(description="maximum number of messages that are sent at the same time")]
    per_second: Annotated[float, Meta(description="maximum number per second; 0 for no limit")]
    per_hour: Annotated[int, Meta(description="maximum number per hour; 0 for no limit")]
    warm_up: Annotated[TransportWarmUp, Meta(description="warm-up; null if it has none or sent nothing today")] | None


class DeliveryStatus(Struct):
    """The delivery status of email, with the status of SMS in `sms`."""

    transport: Annotated[str, Meta(description="transport for email")]
    open: Annotated[bool, Meta(description="true unless an obstacle stops all email")]
    obstacles: Annotated[list[SendingObstacle], Meta(description="reasons why all or some email waits")]
    sending_stopped: Annotated[
        bool,
        Meta(
            description="whether a user, or the restore of a backup, has stopped all sending of the account. "
            "`PATCH /account` with `sending_stopped: false` resumes it; after a restore, first decide at `/restored` "
            "about what waits, because it may have gone out since the backup"
        ),
    ]
    stop_reason: Annotated[str, Meta(description="reason; `restored` after a restore; null if none was given")] | None
    stop_file: Annotated[
        bool, Meta(description="whether a STOP file in the data directory stops the whole installation")
    ]
    rate: Annotated[SendingRate, Meta(description="sending rate")]
    connections: Annotated[ConnectionCount, Meta(description="connections to mail servers")]
    queue: Annotated[SendQueue, Meta(description="queued messages")]
    groups: Annotated[
        list[ThrottledGroup],
        Meta(description="groups of recipient domains with a reduced rate, because their servers asked for it"),
    ]
    warm_up: Annotated[list[WarmUp], Meta(description="sending domains that are being warmed up")]
    transports: Annotated[list[TransportState], Meta(description="transports of email, the default one first")]
    storage: Annotated[StorageUsage, Meta(description="whether results of sending can be recorded")]
    sms: Annotated[SmsStatus, Meta(description="delivery status of SMS")]


@ROUTES.add("GET", "/delivery/status", scope="account:read", agent_scope="account:read", response_type=DeliveryStatus)
async def get_delivery_status(request: ApiRequest) -> ApiResponse:
    """Get the delivery status: obstacles, queue, rates and connections."""
    return ApiResponse(_serialize_status(await fetch(delivery_status.get_status, request.account_id)))


def _serialize_status(status: delivery_status.DeliveryStatus) -> DeliveryStatus:
    way = status.email
    return DeliveryStatus(
        transport=way.settings.transport,
        open=_is_open(way),
        obstacles=_serialize_obstacles(way),
        sending_stopped=status.account.sending_stopped,
        stop_reason=status.account.stop_reason,
        stop_file=status.stop_file,
        rate=_serialize_rate(way),
        connections=ConnectionCount(way.send_status.connections, way.settings.connections),
        queue=_serialize_queue(way.waiting),
        groups=[
            ThrottledGroup(
                item.group, item.provider, item.text, iso(item.since) or "", iso(item.until), item.connections
            )
            for item in way.send_status.throttled_groups
        ],
        warm_up=[
            WarmUp(item.domain, item.step + 1, len(DAILY_CAPS), item.cap, item.accepted, iso(item.ends_at) or "")
            for item in status.warm_up_days
        ],
        transports=[_serialize_transport(item) for item in _list_transports(way)],
        storage=StorageUsage(status.storage is None, status.storage),
        sms=_serialize_sms_status(status.sms),
    )


def _serialize_warm_up(day: WarmUpDay) -> TransportWarmUp:
    return TransportWarmUp(day.step + 1, len(DAILY_CAPS), day.cap, day.accepted, iso(day.ends_at) or "")


def _list_transports(way: delivery_status.ChannelStatus) -> list[TransportStatus]:
    return list_transport_statuses(cast(Email, way.settings), way.send_status)


def _serialize_transport(item: TransportStatus) -> TransportState:
    return TransportState(
        item.key, item.name, item.kind, item.text is None, item.text, iso(item.until), item.connections,
        item.per_second, item.per_hour, _serialize_warm_up(item.warm_up) if item.warm_up is not None else None,
    )  # fmt: skip


def _serialize_sms_status(way: delivery_status.ChannelStatus) -> SmsStatus:
    senders = [
        ThrottledSender(
            item.group.removeprefix("from "), item.provider, item.text, iso(item.since) or "", iso(item.until),
            item.connections,
        )
        for item in way.send_status.throttled_groups
    ]  # fmt: skip
    return SmsStatus(
        way.settings.transport, _is_open(way), _serialize_obstacles(way), _serialize_rate(way),
        ConnectionCount(way.send_status.connections, way.settings.connections), _serialize_queue(way.waiting), senders,
    )  # fmt: skip


def _is_open(way: delivery_status.ChannelStatus) -> bool:
    return not any(obstacle.blocks_all for obstacle in way.obstacles)


def _serialize_obstacles(way: delivery_status.ChannelStatus) -> list[SendingObstacle]:
    return [
        SendingObstacle(obstacle.code, obstacle.text, iso(obstacle.since), iso(obstacle.until))
        for obstacle in way.obstacles
    ]


def _serialize_rate(way: delivery_status.ChannelStatus) -> SendingRate:
    per_hour = way.settings.rate_per_hour if isinstance(way.settings, Email) else 0
    return SendingRate(way.settings.rate_per_second, per_hour, way.last_minute, way.last_hour)


def _serialize_queue(queue: delivery_status.WaitingCounts) -> SendQueue:
    age = 0 if queue.oldest_due_at is None else max(0, now_ms() - queue.oldest_due_at) // 1000
    return SendQueue(queue.waiting, queue.due, queue.sending, iso(queue.oldest_due_at), age)


class CapturedMessage(Struct, rename={"from_": "from"}):
    """An email or SMS in the built-in inbox; `message_id` is the `id` of its Message."""

    id: int
    account_id: int
    channel: Literal["email", "sms"]
    message_id: (
        Annotated[int, Meta(description="id of the message; null if it was not sent by this installation")] | None
    )
    from_: Annotated[str, Meta(description="sender")] | None
    to: Annotated[str, Meta(description="recipient")]
    mail_from: Annotated[str, Meta(description="return path")]
    subject: str | None
    preview: Annotated[str, Meta(description="beginning of the text")] | None
    bytes: Annotated[int, Meta(description="size in bytes")]
    created_at: schemas.Moment


class CapturedHeader(Struct):
    """A header of a captured email, decoded."""

    name: Annotated[str, Meta(description="header name")]
    value: Annotated[str, Meta(description="decoded header value")]


class CapturedMessageDetail(CapturedMessage, rename={"from_": "from"}):
    """A captured email or SMS with its content; `message` is the current state of the Message that was captured.

    An SMS also has its number of parts (`segments`), alphabet and number of characters.
    """

    headers: Annotated[list[CapturedHeader], Meta(description="headers in their original order")]
    html: Annotated[str, Meta(description="HTML content; null if there is none")] | None
    text: str | None
    segments: int | None
    alphabet: Annotated[Literal["GSM-7", "UCS-2"], Meta(description="alphabet of the SMS; null for email")] | None
    characters: Annotated[int, Meta(description="number of characters of the SMS; null for email")] | None
    message: (
        Annotated[message_schemas.Message, Meta(description="current state of the message; null if it was deleted")]
        | None
    )


class CaptureCleared(Struct):
    """The result of deleting all captured messages."""

    deleted: Annotated[int, Meta(description="number of deleted messages")]


class CaptureQuery(PageQuery):
    """Filters of the built-in inbox."""

    search: Annotated[Short, Meta(description="search words for recipient, subject and SMS text")] | UnsetType = UNSET
    channel: Annotated[Literal["email", "sms"], Meta(description="only those of this channel")] | UnsetType = UNSET
    message_id: Annotated[MessageId, Meta(description="only those of this message")] | UnsetType = UNSET


def _captured_values(row: models.CapturedMessage) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "channel": row.channel, "message_id": row.message_id,
        "from_": row.from_header,
        "to": row.rcpt_to, "mail_from": row.mail_from, "subject": row.subject, "preview": row.preview,
        "bytes": row.size, "created_at": iso(row.received_at),
    }  # fmt: skip


def _get_captured_detail(account_id: int, captured_id: int, can_write_contacts: bool) -> CapturedMessageDetail:
    row = capture_inbox.get(account_id, captured_id)
    parts = capture_inbox.get_parts(row, can_write_contacts)
    try:
        message = message_schemas.serialize_message(ledger.get(account_id, row.message_id or 0))
    except NotFound:
        message = None
    headers = [CapturedHeader(name, value) for name, value in parts["headers"]]
    sms_size = parts["sms"]
    sms_values = (
        (sms_size.parts, sms_size.alphabet, sms_size.characters) if sms_size is not None else (None, None, None)
    )
    return CapturedMessageDetail(
        **_captured_values(row), headers=headers, html=parts["html"], text=parts["text"], message=message,
        **dict(zip(("segments", "alphabet", "characters"), sms_values, strict=True)),
    )  # fmt: skip


@ROUTES.add(
    "GET", "/capture", scope="account:read", query_type=CaptureQuery, response_type=CapturedMessage, returns_list=True
)
async def list_captured(request: ApiRequest) -> ApiResponse:
    """List captured messages, newest first.

    Also requires `contacts:read`.
    """
    require_contacts_scope(request)
    query: CaptureQuery = request.query
    search = query.search if isinstance(query.search, str) else None
    message_id = query.message_id if isinstance(query.message_id, int) else None
    channel = query.channel if isinstance(query.channel, str) else None
    page = await fetch(
        capture_inbox.list_captured, request.account_id, query.page, query.size(), search, message_id, channel
    )
    return ApiResponse([CapturedMessage(**_captured_values(row)) for row in page.rows], headers=page_headers(page))


@ROUTES.add("DELETE", "/capture", scope="account:write", response_type=CaptureCleared)
async def clear_captured(request: ApiRequest) -> ApiResponse:
    """Delete all captured messages."""

    def write() -> int:
        audit.record(request.caller, request.account_id, "capture_clear", None)
        return capture_inbox.clear(request.account_id)

    return ApiResponse(CaptureCleared(await commit(write)))


@ROUTES.add("GET", "/capture/{id}", scope="account:read", response_type=CapturedMessageDetail)
async def get_captured(request: ApiRequest) -> ApiResponse:
    """Get a captured message with its content.

    Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their preferences
    are replaced.
    """
    require_contacts_scope(request)
    can_write_contacts = request.credential.has_scope("contacts:write")
    return ApiResponse(await fetch(_get_captured_detail, request.account_id, request.id, can_write_contacts))


@ROUTES.add("GET", "/capture/{id}/raw", scope="account:read", media="message/rfc822", alternative_media="text/plain")
async def get_captured_source(request: ApiRequest) -> ApiResponse:
    """Get the source of a captured email, or the text of a captured SMS.

    Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their preferences
    are replaced.
    """
    require_contacts_scope(request)
    row = await fetch(capture_inbox.get, request.account_id, request.id)
    source = bytes(row.source)
    if not request.credential.has_scope("contacts:write"):
        source = links.hide_recipient_links(source.decode("latin-1")).encode("latin-1")
    source = await fetch(attachments.restore_contents, source, row.message_id)
    return ApiResponse(source, media="text/plain" if row.channel == "sms" else None)


def _validate_simulation(account_id: int, request: SimulateEventRequest, number: int) -> None:
    if isinstance(request.action, str):
        captured_simulation.prepare_action(account_id, number, request)


@ROUTES.add(
    "POST",
    "/capture/{id}/simulate",
    scope="account:write",
    body_type=SimulateEventRequest,
    response_type=CapturedMessageDetail,
    validate=validator(_validate_simulation, access=require_contacts_scope),
)
async def simulate_recipient(request: ApiRequest) -> ApiResponse:
    """Simulate a recipient's action on a captured message, with the effects of a real action.

    Also requires `contacts:read`.
    """
    require_contacts_scope(request)
    simulation = await fetch(captured_simulation.prepare_action, request.account_id, request.id, request.body)
    if request.credential.is_test and not simulation.message.test:
        raise ApiError(403, "forbidden", "A test key may act only on messages sent by test keys.")
    await captured_simulation.perform_action(simulation)
    can_write_contacts = request.credential.has_scope("contacts:write")
    return ApiResponse(await fetch(_get_captured_detail, request.account_id, request.id, can_write_contacts))


class DnsRecord(Struct):
    """A DNS record of a sending domain: what to enter, and what the last check found."""

    record_type: Annotated[Literal["TXT", "MX", "CNAME"], Meta(description="type")]
    name: Annotated[str, Meta(description="full name of the record")]
    value: Annotated[str, Meta(description="value to enter")]
    priority: Annotated[str, Meta(description="priority of an MX record; empty for others")]
    valid: Annotated[
        Validity, Meta(description="`valid` if the last check found the record in DNS, `unknown` before a check")
    ]
    purpose: Annotated[Purpose, Meta(description="purpose of the record")]
    required: Annotated[bool, Meta(description="whether the record is required for verification")]
    found: Annotated[list[str], Meta(description="values found in DNS")]
    problem: Annotated[str, Meta(description="problem; null if there is none")] | None
    checked_at: Annotated[Moment, Meta(description="when the record was last checked")] | None


class SendingDomain(Struct):
    """A domain from which email may be sent, with its DNS records."""

    id: int
    name: Annotated[str, Meta(description="domain in lower case")]
    provider: Annotated[str, Meta(description="always `smtp`")]
    status: Annotated[
        Literal["pending", "verified", "failed"], Meta(description="`verified` once the required records are in DNS")
    ]
    dns_records: Annotated[list[DnsRecord], Meta(description="DNS records to enter")] | None
    attention: (
        Annotated[str, Meta(description="warning about a domain that works but needs attention; null for none")] | None
    )
    attention_since: Annotated[Moment, Meta(description="since when the domain needs attention")] | None
    verified_at: Annotated[Moment, Meta(description="when the domain was verified")] | None
    failed_at: Annotated[Moment, Meta(description="when the domain stopped being verified; null if it did not")] | None
    checked_at: Annotated[Moment, Meta(description="when DNS was last checked")] | None
    next_check_at: Annotated[Moment, Meta(description="when DNS is checked next; null if no check is planned")] | None
    created_at: Moment
    updated_at: Moment


def _serialize_domain(row: models.SendingDomain) -> SendingDomain:
    plain: dict[str, Any] = {name: getattr(row, name) for name in ("id", "name", "provider", "status", "attention")}
    return SendingDomain(
        **plain,
        dns_records=[
            DnsRecord(
                record.record_type, record.name, record.value, record.priority, record.valid, record.purpose,
                record.required, record.found, record.problem, iso(record.checked_at),
            )
            for record in records.get_records(row)
        ],
        attention_since=iso(row.attention_since), verified_at=iso(row.verified_at),
        failed_at=iso(row.failed_at), checked_at=iso(row.checked_at), next_check_at=iso(row.next_check_at),
        created_at=iso(row.created_at) or "", updated_at=iso(row.updated_at) or "",
    )  # fmt: skip


@ROUTES.add(
    "GET",
    "/domains",
    scope="domains:read",
    agent_scope="domains:read",
    query_type=DomainQuery,
    response_type=SendingDomain,
    returns_list=True,
)
async def list_domains(request: ApiRequest) -> ApiResponse:
    """List sending domains, newest first."""
    page = await fetch(store.list_domains, request.account_id, request.query)
    return ApiResponse(await fetch(lambda: [_serialize_domain(row) for row in page.rows]), headers=page_headers(page))


def _validate_domain(account_id: int, request: DomainCreate, _: int | None) -> None:
    if isinstance(request.domain, store.DomainName) and isinstance(request.domain.name, str):
        store.validate_name(account_id, request)


@ROUTES.add("POST", "/domains", scope="domains:write", body_type=DomainCreate, response_type=SendingDomain, status=201,
            validate=validator(_validate_domain))  # fmt: skip
async def create_domain(request: ApiRequest) -> ApiResponse:
    """Add a sending domain; the response lists the DNS records it needs."""
    await fetch(store.validate_name, request.account_id, request.body)
    pairs = await asyncio.to_thread(keys.generate_keys)
    domain = await commit(store.create, request.account_id, request.body, pairs, request.caller)
    return ApiResponse(await fetch(_serialize_domain, domain))


@ROUTES.add("GET", "/domains/{id}", scope="domains:read", agent_scope="domains:read", response_type=SendingDomain)
async def get_domain(request: ApiRequest) -> ApiResponse:
    """Get a sending domain."""
    return ApiResponse(await fetch(lambda: _serialize_domain(store.get(request.account_id, request.id))))


@ROUTES.add("DELETE", "/domains/{id}", scope="domains:write", response_type=SendingDomain)
async def delete_domain(request: ApiRequest) -> ApiResponse:
    """Delete a sending domain with its DKIM keys."""

    def write() -> SendingDomain:
        shaped = _serialize_domain(store.get(request.account_id, request.id))
        store.delete(request.account_id, request.id, request.caller)
        return shaped

    return ApiResponse(await commit(write))


@ROUTES.add("POST", "/domains/{id}/verify", scope="domains:write", response_type=SendingDomain)
async def verify_domain(request: ApiRequest) -> ApiResponse:
    """Check the DNS records of a sending domain now."""
    question = await fetch(lambda: store.prepare_check(store.get(request.account_id, request.id).id))
    if question is not None:
        await store.check_now(question)
    return await get_domain(request)


@ROUTES.add("POST", "/domains/{id}/rotate_key", scope="domains:write", response_type=SendingDomain)
async def rotate_dkim_key(request: ApiRequest) -> ApiResponse:
    """Create the next DKIM key; it signs once its record is in DNS."""
    await fetch(store.get, request.account_id, request.id)
    pairs = await asyncio.to_thread(keys.generate_keys)
    return ApiResponse(
        await fetch(
            _serialize_domain, await commit(store.rotate_key, request.account_id, request.id, pairs, request.caller)
        )
    )
