"""Bounds how many single SMS go to a block of numbers that nobody here knows: somebody may earn by each (SMS pumping).

Whoever earns by them has numbers in a row. Numbers of people who want SMS are not counted, nor is what stays in the
inbox; all is read from the ledger, so a restart forgives nothing.
"""

import logging
from typing import NamedTuple

from appliance import clock, config
from appliance.db.dialect.hints import by_index
from appliance.db.open import one, rows
from appliance.db.work import writing
from appliance.errors import TooMany
from appliance.sms import numbers

log = logging.getLogger("campanero.messages")
_HOUR_MS = 3_600_000
_FIRST = "SELECT id FROM message WHERE account_id = ? AND created_at > ? ORDER BY created_at, id LIMIT 1"
_STRANGERS = (
    "m.channel = 'sms' AND m.source_type = 'transactional' AND m.test = 0 AND m.provider != 'capture' "
    "AND m.status != 'skipped' AND NOT EXISTS (SELECT 1 FROM channel h WHERE h.account_id = m.account_id "
    "AND h.kind = 'phone' AND h.key = m.recipient_key AND h.subscribed = 1)"
)
_IN_BLOCK = (
    f"SELECT count(*), min(created_at) FROM (SELECT m.created_at FROM message m {by_index('message_texted')} "
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
    if not most or _is_wanted(account_id, number):
        return
    first = one(_FIRST, (account_id, now - _HOUR_MS))
    if first is None:
        return
    prefix = numbers.look(number).prefix
    count, oldest = rows(_IN_BLOCK, (prefix, account_id, first[0], most))[0]
    if count >= most:
        _tell(account_id, prefix, most, now)
        words = f"{most} SMS in an hour went to unknown numbers beginning with {prefix}"
        raise TooMany(words, retry_after=max(1, (oldest + _HOUR_MS - now) // 1000 + 1))


def _is_wanted(account_id: int, number: str) -> bool:
    asked = "SELECT 1 FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ? AND subscribed = 1"
    return one(asked, (account_id, number)) is not None


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


def full(account_id: int) -> list[Block]:
    """Return the blocks that get no more now, those with most first."""
    most = config.current().sms.new_numbers_per_hour
    if not most:
        return []
    found = rows(_FULL, (account_id, clock.now_ms() - _HOUR_MS, most))
    return [Block(prefix, count) for prefix, _, count in found]
