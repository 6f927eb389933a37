"""Whether an SMS may go to a number, and when: rules that hold for every SMS, looked at right before it would leave.

A number that no network has, or that is dear to write to, gets none; nor does a country that is not wanted. Marketing
rests at night by the clocks of whoever gets it.
"""

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock
from appliance.core.errors import TooMany
from appliance.sending.messages import ledger, quiet, sms_days, sms_senders
from appliance.sending.messages.ledger import Claim
from appliance.sending.sms import numbers
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.storage.open import connection, fetch_one, rows
from appliance.storage.work import writing

_HOME = "capture"
# What was kept back leaves within so long, each at its own moment
_SPREAD_MS = 60_000
_STEP_MS = 7_919  # no part of the spread, so that neighbours are far from each other
_FACTS = "SELECT sms_from, sms_quiet_hours, time_zone FROM account WHERE id = ?"
_WHERE = "SELECT trim(json_extract(data, '$.time_zone')), country_code FROM contact WHERE id = ?"
# How they agreed: the words they were shown, an answer of theirs, or a word that they wrote
_EVIDENCE = (
    "SELECT 1 FROM consent WHERE contact_id = ? AND kind = 'phone' AND (act = 'confirmed' OR act = 'opt_in' "
    "AND (trim(coalesce(text, '')) != '' OR source = 'keyword')) LIMIT 1"
)


class _Facts(NamedTuple):
    """What the account of an SMS says."""

    sender: str | None
    quiet_hours: str | None
    time_zone: str


def refused(number: str) -> tuple[str, str] | None:
    """Return (reason, words) why no SMS goes to a number, or None."""
    found = numbers.look(number)
    if not found.is_possible:
        return "invalid_address", "is no number that a network has"
    if found.type in numbers.DEAR:
        return "invalid_address", "is a number that costs extra: premium or shared cost"
    if not _is_wanted(found.country):
        return "country_not_allowed", f"is in {found.country or 'no country'}, which is not among sms.countries"
    return None


def _is_wanted(country: str | None) -> bool:
    wanted = _upper(tuple(config.current().sms.countries))
    return not wanted or country in wanted


@lru_cache(8)
def _upper(codes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(code.upper() for code in codes)


def has_evidence(contact_id: int | None) -> bool:
    """Return whether it is on record how somebody agreed to get SMS and to which words, where that has to be."""
    if not config.current().sms.require_evidence:
        return True
    return contact_id is not None and fetch_one(_EVIDENCE, (contact_id,)) is not None


def refusal(row: Claim) -> str | None:
    """Return why an SMS may not go out at all, beside what its person wants."""
    found = refused(row.recipient_key)
    if found is not None:
        return found[0]
    if not row.transactional and not has_evidence(row.contact_id):
        return "no_consent"
    if row.source_type == "system":
        return None  # an answer is from the number that was written to
    return "sender_not_allowed" if _is_nameless(row.recipient_key, row.provider, _facts(row.account_id)) else None


def foreseen(account_id: int, contact_id: int, number: str, provider: str) -> str | None:
    """Return why a marketing SMS that is not written yet would not go out, as `refusal` will."""
    found = refused(number)
    if found is not None:
        return found[0]
    if not has_evidence(contact_id):
        return "no_consent"
    return "sender_not_allowed" if _is_nameless(number, provider, _facts(account_id)) else None


def _is_nameless(number: str, provider: str, facts: _Facts) -> bool:
    """Return whether whoever it is from can write to others and not to this country."""
    if provider == _HOME or sms_senders.sender_to(facts.sender, numbers.look(number).country):
        return False
    return bool(sms_senders.sender_to(facts.sender, None))


def suspects(rows: Iterable[Claim], now: int) -> set[int]:
    """Return the ids of SMS that have to be looked at closely before they leave: too many of them, never too few.

    Of people who say their time zone themselves nothing is known here: those are left out where rows are marked
    together (`hot`).
    """
    found: set[int] = set()
    facts: dict[int, _Facts] = {}
    full: dict[int, bool] = {}
    for row in rows:
        if row.channel != "sms":
            continue
        known = facts.get(row.account_id) or facts.setdefault(row.account_id, _facts(row.account_id))
        if row.account_id not in full:
            full[row.account_id] = sms_days.full_until(row.account_id, known.time_zone, now) is not None
        is_real = row.provider != _HOME
        if (
            config.current().sms.require_evidence
            or (is_real and (full[row.account_id] or _may_rest(row, known, now)))
            or refused(row.recipient_key or "") is not None
            or _is_nameless(row.recipient_key or "", row.provider, known)
        ):
            found.add(row.id)
    return found


def _may_rest(row: Claim, facts: _Facts, now: int) -> bool:
    """Return whether the number of an SMS may lie in a night, or does not say where it lies."""
    if facts.quiet_hours is None:
        return False
    known = numbers.look(row.recipient_key or "").zones
    return not known or quiet.until_all(msgspec.json.decode(facts.quiet_hours), known, now) is not None


def _facts(account_id: int) -> _Facts:
    return _Facts._make(fetch_one(_FACTS, (account_id,)) or (None, None, "UTC"))


def is_kept_back(row: Claim, now: int) -> bool:
    """Keep an SMS back whose time it is not: until the quiet hours end, or the day of which all parts are used up.

    One that would be too late by then is skipped; whatever goes on later does so one after the other.
    """
    if row.provider == _HOME:
        return False
    facts = _facts(row.account_id)
    end = None
    if not row.transactional and facts.quiet_hours is not None:
        end = quiet.until_all(msgspec.json.decode(facts.quiet_hours), clocks(row, facts.time_zone), now)
        if end is not None and end - (row.dated_at or now) > seconds(config.current().sms.give_up) * 1000:
            ledger.skip(row, "quiet_hours_expired", now)
            return True
    if end is None and row.source_type != "system":  # what answers people is little, and soon of no use
        end = sms_days.full_until(row.account_id, facts.time_zone, now)
    if end is None:
        return False
    values = (end + row.id * _STEP_MS % _SPREAD_MS, now, row.id)
    connection().execute("UPDATE message SET status = 'held', due_at = ?, updated_at = ? WHERE id = ?", values)
    return True


def clocks(row: Claim, own: str) -> tuple[str, ...]:
    """Return the time zones a recipient may live in: their own, the number's, their country's, or the account's.

    An SMS goes when it is no night in any of them.
    """
    said, country = fetch_one(_WHERE, (row.contact_id,)) or (None, None)
    return clocks_of(said, country, row.recipient_key, own)


def clocks_of(said: Any, country: str | None, number: str, own: str) -> tuple[str, ...]:
    """Return the time zones of a number whose person names one themselves, or a country, or neither."""
    if isinstance(said, str) and numbers.is_known(said.strip()):
        return (said.strip(),)
    return numbers.look(number).zones or numbers.of_country(country) or (own,)


# Bounds how many single SMS go to a block of numbers that nobody here knows: somebody may earn by each (SMS
# pumping).
#
# Whoever earns by them has numbers in a row. Numbers of people who want SMS are not counted, nor is what stays in
# the inbox; all is read from the ledger, so a restart forgives nothing.

log = logging.getLogger("campanero.messages")
_HOUR_MS = 3_600_000
_FIRST = "SELECT id FROM message WHERE account_id = ? AND created_at > ? ORDER BY created_at, id LIMIT 1"
_STRANGERS = (
    "m.channel = 'sms' AND m.source_type = 'transactional' AND m.test = 0 AND m.provider != 'capture' "
    "AND m.status != 'skipped' AND NOT EXISTS (SELECT 1 FROM channel h WHERE h.account_id = m.account_id "
    "AND h.kind = 'phone' AND h.key = m.recipient_key AND h.subscribed = 1)"
)
_IN_BLOCK = (
    f"SELECT count(*), min(created_at) FROM (SELECT m.created_at FROM message m INDEXED BY message_texted "
    "WHERE m.recipient_key >= ?1 || '0000' AND m.recipient_key <= ?1 || '9999' AND m.account_id = ?2 AND m.id >= ?3 "
    f"AND length(m.recipient_key) = length(?1) + 4 AND {_STRANGERS} ORDER BY m.id DESC LIMIT ?4)"
)
_FULL = (
    "SELECT substr(m.recipient_key, 1, length(m.recipient_key) - 4) AS block, length(m.recipient_key), count(*) AS n "
    f"FROM message m WHERE m.account_id = ? AND m.created_at > ? AND {_STRANGERS} GROUP BY 1, 2 HAVING n >= ? "
    "ORDER BY n DESC, block"
)
# Blocks of which was told, and when
_told: dict[tuple[int, str], int] = {}
_MAX_TOLD = 1_000


class Block(NamedTuple):
    """Numbers that differ in their last four digits, and how many SMS they got in an hour."""

    prefix: str
    messages: int


def admit(account_id: int, number: str) -> None:
    """Raise TooMany if a single SMS to a number would be one too many for its block; those of subscribers never are."""
    writing()
    most, now = config.current().sms.new_numbers_per_hour, clock.now_ms()
    if not most or _is_wanted_number(account_id, number):
        return
    first = fetch_one(_FIRST, (account_id, now - _HOUR_MS))
    if first is None:
        return
    prefix = numbers.look(number).prefix
    count, oldest = rows(_IN_BLOCK, (prefix, account_id, first[0], most))[0]
    if count >= most:
        _tell(account_id, prefix, most, now)
        words = f"{most} SMS in an hour went to unknown numbers beginning with {prefix}"
        raise TooMany(words, retry_after=max(1, (oldest + _HOUR_MS - now) // 1000 + 1))


def _is_wanted_number(account_id: int, number: str) -> bool:
    asked = "SELECT 1 FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ? AND subscribed = 1"
    return fetch_one(asked, (account_id, number)) is not None


def _tell(account_id: int, prefix: str, most: int, now: int) -> None:
    """Log it, once an hour for each block."""
    if _told.get((account_id, prefix), 0) > now - _HOUR_MS:
        return
    _told[account_id, prefix] = now
    while len(_told) > _MAX_TOLD:
        _told.pop(next(iter(_told)))
    log.warning(
        "account %s: %s single SMS in an hour to unknown numbers %s****; more are refused. Somebody may "
        "earn by them: look who asks for these messages", account_id, most, prefix,
    )  # fmt: skip


def full_blocks(account_id: int) -> list[Block]:
    """Return the blocks that get no more now, those with most first."""
    most = config.current().sms.new_numbers_per_hour
    if not most:
        return []
    found = rows(_FULL, (account_id, clock.now_ms() - _HOUR_MS, most))
    return [Block(prefix, count) for prefix, _, count in found]
