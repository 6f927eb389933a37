"""Asks DNS about a domain and lets its status follow: pending, verified, failed and back (docs/decisions.md#14)."""

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from appliance.accounts import audit
from appliance.core import clock, wake_ups
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.events.log import Happened
from appliance.sending.domains import keys, look, records, schedule
from appliance.sending.domains.records import Record
from appliance.storage import work
from appliance.storage.models import SendingDomain
from appliance.storage.open import fetch_one, rows
from appliance.storage.work import after_commit, writing

log = logging.getLogger("campanero.domains")

_AT_ONCE = 4  # domains; each asks for all its records side by side
_BATCH = 50
_TIMEOUT_SECONDS = 20.0  # seconds
# For people and programs who want to know now: nobody else waits behind a slow DNS server
_ASKERS = ThreadPoolExecutor(_AT_ONCE, "domains")
_running: dict[int, "Future[None]"] = {}
_running_lock = threading.Lock()


class Question(NamedTuple):
    """The records of a domain that shall be looked up."""

    domain_id: int
    name: str
    wanted: list[Record]


def is_due() -> bool:
    """Return whether the check of a domain is due."""
    found = fetch_one("SELECT 1 FROM sending_domain WHERE enabled AND next_check_at <= ? LIMIT 1", (clock.now_ms(),))
    return found is not None


def tend(stopping: threading.Event) -> None:
    """Check every domain that is due, several at once, until none is or the process ends."""
    while not stopping.is_set():
        due = rows(
            "SELECT id FROM sending_domain WHERE enabled AND next_check_at <= ? ORDER BY next_check_at LIMIT ?",
            (clock.now_ms(), _BATCH),
        )
        if not due:
            return
        questions = [found for row in due if (found := question(row[0])) is not None]
        with ThreadPoolExecutor(_AT_ONCE, "domains") as pool:
            begun = [(asked, begin(asked, pool, stopping)) for asked in questions]
        for asked, check in begun:
            _ended(asked, check)


def _ended(asked: Question, check: "Future[None]") -> None:
    """See how a check ended; one that cannot be made for a fault of ours stops no other."""
    try:
        check.result()
    except Unavailable:
        raise
    except Exception:
        log.exception("%s could not be checked", asked.name)
        work.write(_postpone, asked.domain_id)


def _postpone(domain_id: int) -> None:
    later = schedule.following("pending", 0, clock.now_ms())
    SendingDomain.update(next_check_at=later).where(SendingDomain.id == domain_id).execute()


def question(domain_id: int) -> Question | None:
    """Return what has to be asked about a domain, or None if it is gone."""
    domain = SendingDomain.get_or_none(SendingDomain.id == domain_id)
    return Question(domain.id, domain.name, records.of(domain)) if domain is not None else None


def begin(
    asked: Question, pool: ThreadPoolExecutor = _ASKERS, stopping: threading.Event | None = None
) -> "Future[None]":
    """Begin to ask DNS about a domain and to store what it says; one that waits or runs already is everybody's.

    A domain that is deleted meanwhile is no fault. Reads no table, so it may run on any thread.
    """
    with _running_lock:
        running = _running.get(asked.domain_id)
        if running is None:
            running = _running[asked.domain_id] = pool.submit(_check, asked, stopping)
        return running


async def check(asked: Question) -> None:
    """Look a domain up now and wait for the outcome, as long as somebody likes to; after that it goes on by itself."""
    check = asyncio.wrap_future(begin(asked))
    done, _ = await asyncio.wait({check}, timeout=_TIMEOUT_SECONDS)
    if done:
        check.result()


def _check(asked: Question, stopping: threading.Event | None) -> None:
    try:
        if stopping is None or not stopping.is_set():
            work.write(settle, asked.domain_id, look.look(asked.wanted, asked.name))
    finally:
        with _running_lock:
            del _running[asked.domain_id]


def settle(domain_id: int, found: list[Record]) -> None:
    """Store what a check found and let the status follow."""
    writing()
    domain = SendingDomain.get_or_none(SendingDomain.id == domain_id)
    if domain is None:
        return
    now = clock.now_ms()
    domain.dns_records = records.kept(_with_what_was_there(records.of(domain), found))
    _follow_keys(domain)
    current = records.of(domain)
    domain.dns_records, domain.checked_at = records.kept(current), now
    before = (domain.status, domain.attention)
    _follow_status(domain, current, now)
    if (domain.status, domain.attention) != before:
        domain.updated_at = now
    in_transit = any(one.purpose == "dkim_next" for one in current)
    domain.next_check_at = schedule.following(domain.status, domain.created_at, now, in_transit)
    domain.save()


def _with_what_was_there(before: list[Record], found: list[Record]) -> list[Record]:
    """Keep what was last seen of a record that nobody could be asked for now."""
    return [
        next((msgspec.structs.replace(now, found=one.found) for one in before if one.same(now)), now)
        if now.valid == "unknown"
        else now
        for now in found
    ]


def _follow_keys(domain: SendingDomain) -> None:
    """Let a key sign whose record is there."""
    seen = {one.name for one in records.of(domain) if one.valid == "valid"}
    for key in keys.published(domain):
        if key.state == "next" and keys.record(key)[0] in seen:
            keys.activate(key)
            domain.updated_at = key.activated_at
            data = {"name": domain.name, "selector": key.selector}
            audit.record(domain.account_id, audit.SYSTEM, "domain_key_active", f"domain:{domain.id}", data)


def _follow_status(domain: SendingDomain, current: list[Record], now: int) -> None:
    """Move the status by the required records: a resolver that fails says nothing about them."""
    required = [one for one in current if one.required]
    wrong = [one for one in required if one.valid == "invalid"]
    if wrong:
        _is_wrong(domain, wrong, now)
    elif all(one.valid == "valid" for one in required):
        domain.failed_checks, domain.attention, domain.attention_since = 0, None, None
        if domain.status != "verified":
            domain.status, domain.verified_at = "verified", now
            _say(domain, "domain_verified", {})
    elif domain.status == "verified" and not domain.failed_checks:
        unknown = next(one for one in required if one.valid == "unknown")
        _attend(domain, f"{unknown.record_type} {unknown.name} could not be asked for: {unknown.problem}", now)


def _is_wrong(domain: SendingDomain, wrong: list[Record], now: int) -> None:
    words = "; ".join(f"{one.record_type} {one.name}: {one.problem}" for one in wrong)
    if domain.status == "verified":
        domain.failed_checks += 1
        if domain.failed_checks == 1:
            domain.attention_since = None  # whatever was said before was no fault of the records
        _attend(domain, words, now)
        if domain.failed_checks >= schedule.FAILS_AFTER:
            _fail(domain, words, now)
    elif domain.status == "pending" and now - domain.created_at >= schedule.GIVES_UP_AFTER:
        _attend(domain, words, now)
        _fail(domain, words, now)
    elif domain.status == "failed":
        _attend(domain, words, now)


def _attend(domain: SendingDomain, words: str, now: int) -> None:
    domain.attention = words
    domain.attention_since = domain.attention_since or now


def _fail(domain: SendingDomain, words: str, now: int) -> None:
    domain.status, domain.failed_at = "failed", now
    _say(domain, "domain_failed", {"problem": words})
    after_commit(lambda: wake_ups.ring("campaigns"))


def _say(domain: SendingDomain, event: str, data: dict[str, str]) -> None:
    """Return who listens to events, the audit and the log."""
    log.info("%s: %s %s", event, domain.name, data.get("problem", ""))
    uid = f"domain:{domain.id}"
    data = {"domain_id": domain.id, "name": domain.name, **data}
    events.record(Happened(domain.account_id, event, None, data, uid, domain.name))
    audit.record(domain.account_id, audit.SYSTEM, event, uid, data)
