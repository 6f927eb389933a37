"""Create, verify and delete sending domains; DNS checks set their status (docs/decisions.md#14)."""

import asyncio
import logging
import secrets
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock, signals
from appliance.core.errors import Invalid, NotFound, Unavailable
from appliance.core.i18n import gettext, gettext_stored, translate_stored
from appliance.core.validation import Name, PageQuery
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.sending.domains import dns_checks, keys, records
from appliance.sending.domains.keys import KeyPair
from appliance.sending.domains.records import Record
from appliance.storage import transactions
from appliance.storage.database import Page, fetch_one, paginate, rows
from appliance.storage.models import SendingDomain
from appliance.storage.transactions import after_commit, require_write_transaction

# The schedule of DNS checks (docs/decisions.md#14).

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_FIRST_CHECKS_MS = (1 * _MINUTE_MS, 5 * _MINUTE_MS, 15 * _MINUTE_MS)
_CHECK_INTERVAL_MS, _SETTLED_INTERVAL_MS = _HOUR_MS, 6 * _HOUR_MS
PENDING_TIMEOUT_MS = 72 * _HOUR_MS  # then a domain that was never verified fails
MAX_FAILED_CHECKS = 3  # in a row; then a verified domain fails


def first_check_at(now: int) -> int:
    """Return the time of the first check of a domain added at `now`; both in ms."""
    return now + _FIRST_CHECKS_MS[0]


def next_check_at(status: str, created_at: int, now: int, in_transit: bool = False) -> int:
    """Return the time of the next check of a domain; all times are in ms.

    A pending domain is checked at `_FIRST_CHECKS_MS` after it was added, then hourly. Any other domain is checked every
    six hours, or hourly if `in_transit`, which means that the DNS record of a next key is awaited.
    """
    if status != "pending":
        return now + (_CHECK_INTERVAL_MS if in_transit else _SETTLED_INTERVAL_MS)
    age = now - created_at
    first_delay = next((step for step in _FIRST_CHECKS_MS if step > age), None)
    # Never more than one interval from now, even if the clock was set back
    return min(
        created_at + (first_delay or (max(age, 0) // _CHECK_INTERVAL_MS + 1) * _CHECK_INTERVAL_MS),
        now + _CHECK_INTERVAL_MS,
    )


log = logging.getLogger("campanero.domains")

# Checks: their results set a domain's status to pending, verified or failed (docs/decisions.md#14).

_MAX_CONCURRENT_DOMAINS = 4  # the records of each domain are looked up in parallel
_BATCH_SIZE = 50
_TIMEOUT_SECONDS = 20.0
# Checks on request have a separate pool, so that they do not wait behind scheduled checks with slow DNS servers
_check_pool = ThreadPoolExecutor(_MAX_CONCURRENT_DOMAINS, "domains")
_running: dict[int, "Future[None]"] = {}
_running_lock = threading.Lock()


class CheckRequest(NamedTuple):
    """A domain to check, with the records that should be in DNS."""

    domain_id: int
    name: str
    expected_records: list[Record]


def has_due_checks() -> bool:
    """Return whether any enabled domain is due for a check."""
    row = fetch_one("SELECT 1 FROM sending_domain WHERE enabled AND next_check_at <= ? LIMIT 1", (clock.now_ms(),))
    return row is not None


def run_due_checks(stopping: threading.Event) -> None:
    """Check the due domains, `_MAX_CONCURRENT_DOMAINS` at a time, until none is due or `stopping` is set.

    Raises Unavailable if a result cannot be stored now.
    """
    while not stopping.is_set():
        due_rows = rows(
            "SELECT id FROM sending_domain WHERE enabled AND next_check_at <= ? ORDER BY next_check_at LIMIT ?",
            (clock.now_ms(), _BATCH_SIZE),
        )
        if not due_rows:
            return
        requests = [request for row in due_rows if (request := prepare_check(row[0])) is not None]
        with ThreadPoolExecutor(_MAX_CONCURRENT_DOMAINS, "domains") as pool:
            checks = [(check_request, start_check(check_request, pool, stopping)) for check_request in requests]
        for check_request, check in checks:
            _await_check(check_request, check)


def _await_check(request: CheckRequest, check: "Future[None]") -> None:
    """Wait for a check; raises Unavailable if its result cannot be stored.

    Any other error is logged, and the next check is in an hour.
    """
    try:
        check.result()
    except Unavailable:
        raise
    except Exception:
        log.exception("domains: %s could not be checked", request.name)
        transactions.write(_postpone, request.domain_id)


def _postpone(domain_id: int) -> None:
    next_at = next_check_at("pending", 0, clock.now_ms())
    SendingDomain.update(next_check_at=next_at).where(SendingDomain.id == domain_id).execute()


def prepare_check(domain_id: int) -> CheckRequest | None:
    """Return the request to check a domain, or None if the domain was deleted."""
    domain = SendingDomain.get_or_none(SendingDomain.id == domain_id)
    return CheckRequest(domain.id, domain.name, records.get_records(domain)) if domain is not None else None


def start_check(
    request: CheckRequest, pool: ThreadPoolExecutor = _check_pool, stopping: threading.Event | None = None
) -> "Future[None]":
    """Start a check of a domain and return its future, or the future of the check that is already running.

    The check does nothing if `stopping` is set when it begins, or if the domain was deleted meanwhile. This function
    reads no table, so any thread may call it.
    """
    with _running_lock:
        running = _running.get(request.domain_id)
        if running is None:
            running = _running[request.domain_id] = pool.submit(_run_check, request, stopping)
        return running


async def check_now(request: CheckRequest) -> None:
    """Check a domain and wait up to `_TIMEOUT_SECONDS` for the result to be stored; a slower check continues.

    Raises the error of a check that failed in that time.
    """
    check = asyncio.wrap_future(start_check(request))
    done, _ = await asyncio.wait({check}, timeout=_TIMEOUT_SECONDS)
    if done:
        check.result()


def _run_check(request: CheckRequest, stopping: threading.Event | None) -> None:
    try:
        if stopping is None or not stopping.is_set():
            transactions.write(
                apply_check, request.domain_id, dns_checks.check_records(request.expected_records, request.name)
            )
    finally:
        with _running_lock:
            del _running[request.domain_id]


def apply_check(domain_id: int, checked: list[Record]) -> None:
    """Store the records of a check, activate keys whose records were found, and update the status of the domain.

    A domain that was deleted is ignored.
    """
    require_write_transaction()
    domain = SendingDomain.get_or_none(SendingDomain.id == domain_id)
    if domain is None:
        return
    now = clock.now_ms()
    domain.dns_records = records.to_json(_keep_last_seen(records.get_records(domain), checked))
    _activate_seen_keys(domain)
    current = records.get_records(domain)
    domain.dns_records, domain.checked_at = records.to_json(current), now
    old_status = (domain.status, domain.attention)
    _update_status(domain, current, now)
    if (domain.status, domain.attention) != old_status:
        domain.updated_at = now
    in_transit = any(record.purpose == "dkim_next" for record in current)
    domain.next_check_at = next_check_at(domain.status, domain.created_at, now, in_transit)
    domain.save()


def _keep_last_seen(last_seen: list[Record], checked: list[Record]) -> list[Record]:
    """Return the checked records; a record that could not be looked up keeps the `found` values of its last check."""
    return [
        next(
            (
                msgspec.structs.replace(record, found=known_record.found)
                for known_record in last_seen
                if known_record.is_same_record(record)
            ),
            record,
        )
        if record.valid == "unknown"
        else record
        for record in checked
    ]


def _activate_seen_keys(domain: SendingDomain) -> None:
    """Activate the next keys of a domain whose DNS records are valid, and enter each in the audit log."""
    seen_names = {record.name for record in records.get_records(domain) if record.valid == "valid"}
    for key in keys.fetch_published_keys(domain):
        if key.state == "next" and keys.txt_record(key)[0] in seen_names:
            keys.activate_key(key)
            domain.updated_at = key.activated_at
            data = {"name": domain.name, "selector": key.selector}
            audit.insert_entry(domain.account_id, audit.SYSTEM, "domain_key_active", f"domain:{domain.id}", data)


_LOOKUP_FAILED = gettext_stored("the lookup failed: %(reason)s")


def describe_attention(attention: str) -> str:
    """Return the stored attention of a domain, such as `TXT example.com: ...; MX ...`, in the current language."""
    parts = (part.partition(": ") for part in attention.split("; "))
    return "; ".join(f"{name}{colon}{translate_stored(problem)}" for name, colon, problem in parts)


def _update_status(domain: SendingDomain, current: list[Record], now: int) -> None:
    """Update status and attention from the required records.

    A failed look-up neither verifies a domain nor counts as a failed check; on a verified domain it sets the attention.
    """
    required = [record for record in current if record.required]
    invalid = [record for record in required if record.valid == "invalid"]
    if invalid:
        _record_failure(domain, invalid, now)
    elif all(record.valid == "valid" for record in required):
        domain.failed_checks, domain.attention, domain.attention_since = 0, None, None
        if domain.status != "verified":
            domain.status, domain.verified_at = "verified", now
            _record_event(domain, "domain_verified", {})
    elif domain.status == "verified" and not domain.failed_checks:
        unknown = next(record for record in required if record.valid == "unknown")
        text = f"{unknown.record_type} {unknown.name}: {_LOOKUP_FAILED % {'reason': unknown.problem}}"
        _set_attention(domain, text, now)


def _record_failure(domain: SendingDomain, invalid: list[Record], now: int) -> None:
    words = "; ".join(f"{record.record_type} {record.name}: {record.problem}" for record in invalid)
    if domain.status == "verified":
        domain.failed_checks += 1
        if domain.failed_checks == 1:
            domain.attention_since = None  # an earlier problem was a failed look-up, not a fault of the records
        _set_attention(domain, words, now)
        if domain.failed_checks >= MAX_FAILED_CHECKS:
            _mark_failed(domain, words, now)
    elif domain.status == "pending" and now - domain.created_at >= PENDING_TIMEOUT_MS:
        _set_attention(domain, words, now)
        _mark_failed(domain, words, now)
    elif domain.status == "failed":
        _set_attention(domain, words, now)


def _set_attention(domain: SendingDomain, problem: str, now: int) -> None:
    domain.attention = problem
    domain.attention_since = domain.attention_since or now


def _mark_failed(domain: SendingDomain, problem: str, now: int) -> None:
    domain.status, domain.failed_at = "failed", now
    _record_event(domain, "domain_failed", {"problem": problem})
    after_commit(lambda: signals.wake("campaigns"))


def _record_event(domain: SendingDomain, event: str, data: dict[str, str]) -> None:
    """Record a change of a domain's status as an event, in the audit log and in the log."""
    log.info("domains: %s domain=%s %s", event, domain.name, data.get("problem", ""))
    uid = f"domain:{domain.id}"
    data = {"domain_id": domain.id, "name": domain.name, **data}
    events.record(NewEvent(domain.account_id, event, None, data, uid, domain.name))
    audit.insert_entry(domain.account_id, audit.SYSTEM, event, uid, data)


class DomainName(Struct):
    """The object `domain` of a request to create a sending domain."""

    name: Annotated[Name, Meta(description="domain name without scheme and port; internationalised names are allowed")]


class DomainCreate(Struct):
    """A request to create a sending domain."""

    domain: Annotated[DomainName, Meta(description="domain name")]


class DomainQuery(PageQuery):
    """Query parameters of the list of sending domains."""


def list_domains(account_id: int, query: DomainQuery) -> Page:
    """Return a page of an account's sending domains, newest first."""
    domains = SendingDomain.select().where(SendingDomain.account == account_id)
    return paginate(
        domains.order_by(SendingDomain.created_at.desc(), SendingDomain.id.desc()), query.page, query.size()
    )


def get(account_id: int, domain_id: int) -> SendingDomain:
    """Return a sending domain of an account. Raises NotFound."""
    domain = SendingDomain.get_or_none(SendingDomain.account == account_id, SendingDomain.id == domain_id)
    if domain is None:
        raise NotFound
    return domain


def validate_name(account_id: int, request: DomainCreate) -> str:
    """Return the requested domain name in its stored form.

    Raises Invalid if the name is malformed, reserved, or already a domain of the account.
    """
    try:
        name = records.parse_domain(request.domain.name)
    except ValueError as error:
        raise Invalid({"domain.name": [str(error)]}) from None
    if fetch_one("SELECT 1 FROM sending_domain WHERE account_id = ? AND name = ?", (account_id, name)):
        raise Invalid({"domain.name": [gettext("has already been taken")]})
    return name


def create(account_id: int, request: DomainCreate, pairs: tuple[KeyPair, ...], by: Actor) -> SendingDomain:
    """Create a sending domain with the given first keys, schedule its first check, and return it.

    Raises Invalid as `validate_name` does.
    """
    require_write_transaction()
    name = validate_name(account_id, request)
    now = clock.now_ms()
    domain = SendingDomain.create(
        account=account_id, name=name, ownership_token=secrets.token_hex(16), created_at=now, updated_at=now,
        next_check_at=first_check_at(now),
    )  # fmt: skip
    keys.store_first_keys(domain, pairs)
    audit.insert_entry(account_id, by.name, "domain_add", f"domain:{domain.id}", {"name": name}, by.ip)
    return get(account_id, domain.id)


def delete(account_id: int, domain_id: int, by: Actor) -> SendingDomain:
    """Delete a domain with its keys and return it.

    Raises NotFound, or Invalid while an active or paused campaign or flow sends from it; `used_by` then names the
    campaigns and flows.
    """
    require_write_transaction()
    domain = get(account_id, domain_id)
    users = _campaigns_using(domain) + _flows_using(domain)
    if users:
        raise Invalid({"base": [gettext("is in use")]}, reason="in_use", used_by=users)
    audit.insert_entry(account_id, by.name, "domain_delete", f"domain:{domain_id}", {"name": domain.name}, by.ip)
    SendingDomain.delete().where(SendingDomain.id == domain_id).execute()
    return domain


def rotate_key(account_id: int, domain_id: int, pairs: tuple[KeyPair, ...], by: Actor) -> SendingDomain:
    """Store the next keys of a domain, which sign once a check finds their records, and return the domain.

    A pair is stored only if the domain has no key of its algorithm in the state `next`. If the domain already has such
    an RSA key, nothing is changed. The next check is scheduled as early as for a new domain. Raises NotFound.
    """
    require_write_transaction()
    domain = get(account_id, domain_id)
    waiting_algorithms = {key.algorithm for key in keys.fetch_published_keys(domain) if key.state == "next"}
    if keys.RSA in waiting_algorithms:
        return domain
    next_keys = keys.store_next_keys(domain, tuple(pair for pair in pairs if pair.algorithm not in waiting_algorithms))
    now = clock.now_ms()
    domain.updated_at, domain.next_check_at = now, min(domain.next_check_at or now, first_check_at(now))
    domain.save(only=["updated_at", "next_check_at"])
    data = {"name": domain.name, "selectors": [key.selector for key in next_keys]}
    audit.insert_entry(account_id, by.name, "domain_rotate_key", f"domain:{domain_id}", data, by.ip)
    return get(account_id, domain_id)


def _campaigns_using(domain: SendingDomain) -> list[dict[str, object]]:
    """Return the active and paused email campaigns that send from a domain, as dicts of `campaign_id` and `name`.

    A campaign with an A/B test sends from the domains of all its variants.
    """
    conditions = (
        "c.account_id = ? AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL AND c.channel = 'email'"
    )
    active_campaigns = rows(
        "SELECT c.id, c.name, coalesce(json_extract(c.sender, '$.email'), t.from_email, a.email_from_email, '') "
        "FROM campaign c JOIN template t ON t.id = c.template_id JOIN account a ON a.id = c.account_id "
        f"WHERE {conditions} "
        "UNION SELECT c.id, c.name, coalesce(json_extract(v.sender, '$.email'), t.from_email) FROM campaign c "
        "JOIN experiment x ON x.campaign_id = c.id JOIN variant v ON v.experiment_id = x.id AND v.number > 1 "
        f"JOIN template t ON t.id = v.template_id WHERE {conditions} "
        "AND coalesce(json_extract(v.sender, '$.email'), t.from_email) IS NOT NULL ORDER BY 1",
        (domain.account_id, domain.account_id),
    )
    using = {
        campaign_id: name
        for campaign_id, name, sender in active_campaigns
        if records.domain_of_address(sender or f"hello@{find_default_domain(domain.account_id)}") == domain.name
    }
    return [{"campaign_id": campaign_id, "name": name} for campaign_id, name in using.items()]


def _flows_using(domain: SendingDomain) -> list[dict[str, object]]:
    """Return the active and paused flows with an email step from a domain, as dicts of `flow_id` and `name`.

    Steps of the current version and of versions with live runs count.
    """
    flow_steps = rows(
        "SELECT DISTINCT f.id, f.name, json_extract(s.pinned, '$.sender.email') FROM flow f "
        "JOIN step s ON s.flow_id = f.id WHERE f.account_id = ? AND f.hidden = 0 AND f.status IN ('active', 'paused') "
        "AND f.deleted_at IS NULL AND s.kind = 'email' AND (s.version = f.version OR EXISTS (SELECT 1 FROM run r "
        "WHERE r.flow_id = f.id AND r.status = 'live' AND r.version = s.version)) ORDER BY f.id",
        (domain.account_id,),
    )
    used = {
        flow_id: name
        for flow_id, name, sender in flow_steps
        if sender and records.domain_of_address(sender) == domain.name
    }
    return [{"flow_id": flow_id, "name": name} for flow_id, name in used.items()]


def find_default_domain(account_id: int) -> str | None:
    """Return the name of the account's oldest verified and enabled domain, the default to send from, or None."""
    row = fetch_one(
        "SELECT name FROM sending_domain WHERE account_id = ? AND status = 'verified' AND enabled ORDER BY id LIMIT 1",
        (account_id,),
    )
    return row[0] if row else None


def is_known(account_id: int, name: str) -> bool:
    """Return whether an account has the domain of exactly this name, verified or not."""
    return fetch_one("SELECT 1 FROM sending_domain WHERE account_id = ? AND name = ?", (account_id, name)) is not None


def is_verified(account_id: int, name: str) -> bool:
    """Return whether the domain of exactly this name is verified and enabled; parents and subdomains do not count."""
    return _has_status(account_id, name, "verified")


def get_attention(account_id: int, name: str) -> str | None:
    """Return the present problem of a domain's required records for `describe_attention`, or None.

    A verified domain with a problem still sends mail.
    """
    row = fetch_one("SELECT attention FROM sending_domain WHERE account_id = ? AND name = ?", (account_id, name))
    return row[0] if row else None


def has_failed(account_id: int, name: str) -> bool:
    """Return whether an enabled domain has the status `failed`: it lost its records, or was not verified in time."""
    return _has_status(account_id, name, "failed")


def _has_status(account_id: int, name: str, status: str) -> bool:
    return bool(
        fetch_one(
            "SELECT 1 FROM sending_domain WHERE account_id = ? AND name = ? AND status = ? AND enabled",
            (account_id, name, status),
        )
    )


# The hosts in the return paths of mail, by its From domain.


def get_bounce_host(domain_name: str) -> str:
    """Return the host name under a sending domain that receives its bounces."""
    return f"bounce.{domain_name}"


def find_return_path_host(account_id: int, domain_name: str) -> str | None:
    """Return the host that receives the bounces of mail from a domain, or None.

    It is the bounce host of the domain itself, or else of its nearest parent domain, with which SPF is aligned too. A
    host counts only if its MX record is usable (`_has_mx_record`).
    """
    names = keys.domain_and_parents(domain_name)
    domains = rows(
        "SELECT name, dns_records FROM sending_domain WHERE account_id = ? AND enabled AND name IN "
        f"({', '.join('?' * len(names))})",
        (account_id, *names),
    )
    hosts = [get_bounce_host(name) for name, dns_records in domains if _has_mx_record(name, dns_records)]
    return max(hosts, key=len, default=None)


def _has_mx_record(name: str, dns_records: str | None) -> bool:
    """Return whether the last check of a domain found the MX record of its bounce host, by the JSON of its records.

    If that look-up failed, the values that an earlier check found count.
    """
    type_and_name = ("MX", get_bounce_host(name))
    mx_records = [
        record
        for record in (msgspec.json.decode(dns_records) if dns_records else None) or []
        if (record.get("record_type"), record.get("name")) == type_and_name
    ]
    return any(
        record.get("valid") == "valid"
        or (
            record.get("valid") == "unknown"
            and dns_checks.is_only_primary_mx(record.get("value", ""), record.get("found") or [])
        )
        for record in mx_records
    )
