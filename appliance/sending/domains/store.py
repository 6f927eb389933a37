"""Sending domains: added, listed, deleted, and given their next key."""

import secrets

from msgspec import Struct

from appliance.accounts import audit
from appliance.accounts.acting import By
from appliance.core import clock
from appliance.core.errors import Invalid, NotFound
from appliance.core.fields import Name, PageQuery
from appliance.core.pagination import Page, paginate
from appliance.sending.domains import keys, records, schedule
from appliance.sending.domains.keys import Pair
from appliance.storage.models import SendingDomain
from appliance.storage.open import fetch_one, rows
from appliance.storage.work import writing


class DomainName(Struct):
    """What a domain is called."""

    name: Name


class DomainCreate(Struct):
    """A new sending domain."""

    domain: DomainName


class DomainQuery(PageQuery):
    """How domains are asked for."""


def page(account_id: int, query: DomainQuery) -> Page:
    """List domains, newest first."""
    found = SendingDomain.select().where(SendingDomain.account == account_id)
    return paginate(found.order_by(SendingDomain.created_at.desc(), SendingDomain.id.desc()), query.page, query.size())


def get(account_id: int, domain_id: int) -> SendingDomain:
    """Return a domain; raises NotFound."""
    found = SendingDomain.get_or_none(SendingDomain.account == account_id, SendingDomain.id == domain_id)
    if found is None:
        raise NotFound
    return found


def read(account_id: int, request: DomainCreate) -> str:
    """Return the name that a request asks for; raises Invalid if it is none or taken."""
    try:
        name = records.read_domain(request.domain.name)
    except ValueError as error:
        raise Invalid({"domain.name": [str(error)]}) from None
    if fetch_one("SELECT 1 FROM sending_domain WHERE account_id = ? AND name = ?", (account_id, name)):
        raise Invalid({"domain.name": ["has already been taken"]})
    return name


def create(account_id: int, request: DomainCreate, pairs: tuple[Pair, ...], by: By) -> SendingDomain:
    """Add a domain with keys that were made before; nothing is asked of DNS. Raises Invalid."""
    writing()
    name = read(account_id, request)
    now = clock.now_ms()
    made = SendingDomain.create(
        account=account_id, name=name, ownership_token=secrets.token_hex(16), created_at=now, updated_at=now,
        next_check_at=schedule.first(now),
    )  # fmt: skip
    keys.make(made, pairs)
    audit.record(account_id, by.actor, "domain_add", f"domain:{made.id}", {"name": name}, by.ip)
    return get(account_id, made.id)


def delete(account_id: int, domain_id: int, by: By) -> SendingDomain:
    """Delete a domain with its keys and answer it as it was; raises NotFound, or Invalid while it is needed."""
    writing()
    found = get(account_id, domain_id)
    used = _campaigns_from(found) + _flows_from(found)
    if used:
        raise Invalid({"base": ["is in use"]}, reason="in_use", used_by=used)
    audit.record(account_id, by.actor, "domain_delete", f"domain:{domain_id}", {"name": found.name}, by.ip)
    SendingDomain.delete().where(SendingDomain.id == domain_id).execute()
    return found


def rotate(account_id: int, domain_id: int, pairs: tuple[Pair, ...], by: By) -> SendingDomain:
    """Give a domain its next key, which signs once its record was seen; one that waits for that already stays it.

    The record is looked for soon, as the first ones of a new domain are. Raises NotFound.
    """
    writing()
    found = get(account_id, domain_id)
    waiting = {key.algorithm for key in keys.published(found) if key.state == "next"}
    if keys.RSA in waiting:
        return found
    made = keys.rotate(found, tuple(pair for pair in pairs if pair.algorithm not in waiting))
    now = clock.now_ms()
    found.updated_at, found.next_check_at = now, min(found.next_check_at or now, schedule.first(now))
    found.save(only=["updated_at", "next_check_at"])
    data = {"name": found.name, "selectors": [key.selector for key in made]}
    audit.record(account_id, by.actor, "domain_rotate_key", f"domain:{domain_id}", data, by.ip)
    return get(account_id, domain_id)


def _campaigns_from(domain: SendingDomain) -> list[dict[str, object]]:
    """Return the armed campaigns that are from an address of a domain."""
    armed = rows(
        "SELECT c.id, c.name, coalesce(json_extract(c.sender, '$.email'), t.from_email, a.email_from_email, '') "
        "FROM campaign c JOIN template t ON t.id = c.template_id JOIN account a ON a.id = c.account_id "
        "WHERE c.account_id = ? AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL AND c.channel = 'email'",
        (domain.account_id,),
    )
    return [
        {"campaign_id": number, "name": name}
        for number, name, sender in armed
        if records.of_address(sender or f"hello@{first_verified(domain.account_id)}") == domain.name
    ]


def _flows_from(domain: SendingDomain) -> list[dict[str, object]]:
    """Return the live flows with a step from an address of a domain, in the plans that somebody may come to."""
    found = rows(
        "SELECT DISTINCT f.id, f.name, json_extract(s.pinned, '$.sender.email') FROM flow f "
        "JOIN step s ON s.flow_id = f.id WHERE f.account_id = ? AND f.hidden = 0 AND f.status IN ('active', 'paused') "
        "AND f.deleted_at IS NULL AND s.kind = 'email' AND (s.version = f.version OR EXISTS (SELECT 1 FROM run r "
        "WHERE r.flow_id = f.id AND r.status = 'live' AND r.version = s.version)) ORDER BY f.id",
        (domain.account_id,),
    )
    used = {number: name for number, name, sender in found if sender and records.of_address(sender) == domain.name}
    return [{"flow_id": number, "name": name} for number, name in used.items()]


def first_verified(account_id: int) -> str | None:
    """Return the verified domain that mail is from where nobody chose another."""
    found = fetch_one(
        "SELECT name FROM sending_domain WHERE account_id = ? AND status = 'verified' AND enabled ORDER BY id LIMIT 1",
        (account_id,),
    )
    return found[0] if found else None


def is_verified(account_id: int, name: str) -> bool:
    """Return whether mail may be from exactly this domain; one above or below it is another."""
    return _has(account_id, name, "verified")


def attention(account_id: int, name: str) -> str | None:
    """Return what a person should look at in a domain's records, though mail still goes out."""
    found = fetch_one("SELECT attention FROM sending_domain WHERE account_id = ? AND name = ?", (account_id, name))
    return found[0] if found else None


def has_failed(account_id: int, name: str) -> bool:
    """Return whether a domain was added here and has lost its records, or never had them in time."""
    return _has(account_id, name, "failed")


def _has(account_id: int, name: str, status: str) -> bool:
    return bool(
        fetch_one(
            "SELECT 1 FROM sending_domain WHERE account_id = ? AND name = ? AND status = ? AND enabled",
            (account_id, name, status),
        )
    )
