"""Sending domains over the API."""

import asyncio
from typing import Any, Literal

from msgspec import Struct

from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.api.shapes import Moment
from appliance.core.clock import iso
from appliance.sending.domains import keys, records, store, verify
from appliance.sending.domains.records import Purpose, Valid
from appliance.sending.domains.store import DomainCreate, DomainQuery
from appliance.storage.models import SendingDomain as Row
from appliance.storage.work import call, commit

ROUTES = Routes()


class DnsRecord(Struct):
    """A record to enter in DNS, and what was found there."""

    record_type: Literal["TXT", "MX", "CNAME"]
    name: str
    value: str
    priority: str
    valid: Valid
    purpose: Purpose
    required: bool
    found: list[str]
    problem: str | None
    checked_at: Moment | None


class SendingDomain(Struct):
    """A domain mail may come from."""

    id: int
    name: str
    provider: str
    status: Literal["pending", "verified", "failed"]
    dns_records: list[DnsRecord] | None
    attention: str | None
    attention_since: Moment | None
    verified_at: Moment | None
    failed_at: Moment | None
    checked_at: Moment | None
    next_check_at: Moment | None
    created_at: Moment
    updated_at: Moment


def _shaped(row: Row) -> SendingDomain:
    plain: dict[str, Any] = {name: getattr(row, name) for name in ("id", "name", "provider", "status", "attention")}
    return SendingDomain(
        **plain,
        dns_records=[
            DnsRecord(
                one.record_type, one.name, one.value, one.priority, one.valid, one.purpose, one.required, one.found,
                one.problem, iso(one.checked_at),
            )
            for one in records.of(row)
        ],
        attention_since=iso(row.attention_since), verified_at=iso(row.verified_at),
        failed_at=iso(row.failed_at), checked_at=iso(row.checked_at), next_check_at=iso(row.next_check_at),
        created_at=iso(row.created_at) or "", updated_at=iso(row.updated_at) or "",
    )  # fmt: skip


@ROUTES.add("GET", "/domains", scope="domains:read", query=DomainQuery, returns=SendingDomain, many=True)
async def index(request: Call) -> Answer:
    """List sending domains, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer(await call(lambda: [_shaped(row) for row in page.rows]), headers=page_headers(page))


def _look_over(account_id: int, request: DomainCreate, _: int | None) -> None:
    if isinstance(request.domain, store.DomainName) and isinstance(request.domain.name, str):
        store.read(account_id, request)


@ROUTES.add("POST", "/domains", scope="domains:write", reads=DomainCreate, returns=SendingDomain, status=201,
            inside=checked(_look_over))  # fmt: skip
async def create(request: Call) -> Answer:
    """Add a sending domain; the answer says which DNS records it needs."""
    await call(store.read, request.account_id, request.body)
    pairs = await asyncio.to_thread(keys.generate)
    made = await commit(store.create, request.account_id, request.body, pairs, request.by)
    return Answer(await call(_shaped, made))


@ROUTES.add("GET", "/domains/{id}", scope="domains:read", returns=SendingDomain)
async def show(request: Call) -> Answer:
    """Get a sending domain."""
    return Answer(await call(lambda: _shaped(store.get(request.account_id, request.id))))


@ROUTES.add("DELETE", "/domains/{id}", scope="domains:write", returns=SendingDomain)
async def delete(request: Call) -> Answer:
    """Delete a sending domain with its keys."""

    def verb() -> SendingDomain:
        shaped = _shaped(store.get(request.account_id, request.id))
        store.delete(request.account_id, request.id, request.by)
        return shaped

    return Answer(await commit(verb))


@ROUTES.add("POST", "/domains/{id}/verify", scope="domains:write", returns=SendingDomain)
async def check(request: Call) -> Answer:
    """Look a sending domain's records up now."""
    asked = await call(lambda: verify.question(store.get(request.account_id, request.id).id))
    if asked is not None:
        await verify.check(asked)
    return await show(request)


@ROUTES.add("POST", "/domains/{id}/rotate_key", scope="domains:write", returns=SendingDomain)
async def rotate_key(request: Call) -> Answer:
    """Make the next DKIM key; it signs once its record is in DNS."""
    await call(store.get, request.account_id, request.id)
    pairs = await asyncio.to_thread(keys.generate)
    return Answer(await call(_shaped, await commit(store.rotate, request.account_id, request.id, pairs, request.by)))
