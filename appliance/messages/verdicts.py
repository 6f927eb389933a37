"""What a refusal does to an address: kept with its class, and the address is suppressed once that is enough.

The same whether a server said it at once (`outcomes`) or a report brought it later (`feedback.record`). What is about
size, content, policy, reputation or ourselves never counts against a recipient (docs/decisions.md#9).
"""

from appliance import clock, tokens
from appliance.addresses import Address
from appliance.contacts import suppress
from appliance.contacts.consent import Evidence
from appliance.contacts.suppress import Case
from appliance.db.dialect.texts import larger
from appliance.db.open import rows, run, scalar
from appliance.db.work import after_commit, writing
from appliance.delivery import classes
from appliance.delivery.classes import Class
from appliance.messages import message_counters, warm_up
from appliance.messages.ledger import Claim
from appliance.work import wake_ups

_DAY_MS = 24 * 3600 * 1000
# So long what speaks against an address is remembered, and so often it may
_WINDOW_MS = 30 * _DAY_MS
_ENOUGH = {"second": 2, "third": 3, "fifth": 5}
# A message that was accepted arrived if nothing came back for so long
_ARRIVED_AFTER_MS = 2 * _DAY_MS
_SOFT = tuple(one.name for one in classes.ALL if one.against in ("second", "fifth"))
_TWICE = tuple(one.name for one in classes.ALL if one.against == "second")
_THRICE = tuple(one.name for one in classes.ALL if one.against == "third")
# A network that refuses us, not our recipients: who is registered wrongly is told so, and so is what is filtered
_OURS = {"strangers": ("authentication", "unregistered"), "filtered": ("filtered",)}
_WATCHED = tuple(kind for kinds in _OURS.values() for kind in kinds)
_TAKEN = "CASE WHEN status = 'sent' AND sent_at <= ?1 THEN sent_at ELSE 0 END"
_SUCCESS = (
    f"SELECT max({larger('coalesce(delivered_at, 0)', 'coalesce(clicked_at, 0)', _TAKEN)}) FROM message "
    "WHERE account_id = ?2 AND recipient_key = ?3 AND test = 0 AND status IN ('sent', 'delivered', 'complained') "
)


def against(row: Claim, found: Class, source: str, text: str) -> Class:
    """Keep what speaks against the address of a message, and answer what it comes to with what there was before.

    A test and an address that was erased meanwhile are nobody's fault.
    """
    writing()
    contact = rows("SELECT contact_id, recipient_key FROM message WHERE id = ?", (row.id,))
    if row.test or not contact or contact[0][1] is None:
        return found
    now, hashed = clock.now_ms(), tokens.address_hash(row.kind, row.recipient_key)
    run(
        "INSERT INTO returned (account_id, message_id, campaign_id, address_hash, kind, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (message_id) DO UPDATE SET kind = excluded.kind, "
        "created_at = excluded.created_at",
        (row.account_id, row.id, row.campaign_id, hashed, found.name, now),
    )
    message_counters.bounced(row, found.name)
    if found.name in _WATCHED and row.campaign_id is not None:
        after_commit(lambda: wake_ups.ring("campaigns"))
    if found is classes.HARD:
        warm_up.came_back(row, "hard")
    if found.against == "nobody":
        return found
    if found.against in ("at_once", "left"):
        _suppress(row, "hard_bounce" if found.against == "at_once" else "stop_keyword", source, text)
        return found
    if row.channel == "email":
        run("UPDATE contact SET email_soft_bounce_count = email_soft_bounce_count + 1 WHERE id = ?", (contact[0][0],))
    since = max(now - _WINDOW_MS, _last_success(row, contact[0][0], now))
    if found.against == "second" and _count(row.account_id, hashed, since, _TWICE) >= _ENOUGH["second"]:
        _suppress(row, "hard_bounce", source, text)
        return classes.HARD
    if found.against == "third" and _count(row.account_id, hashed, since, _THRICE) >= _ENOUGH["third"]:
        _suppress(row, "soft_bounce", source, text)
    if _count(row.account_id, hashed, since, _SOFT) >= _ENOUGH["fifth"]:
        _suppress(row, "soft_bounce", source, text)
    return found


def unwelcome(campaign_id: int) -> dict[str, int]:
    """Count the messages of a campaign that came back for what we are: not known as ours, or taken for unwanted."""
    words = f"SELECT kind, count(*) FROM returned WHERE campaign_id = ? AND kind IN {_WATCHED!r} GROUP BY kind"
    found = dict(rows(words, (campaign_id,)))
    return {name: sum(found.get(kind, 0) for kind in kinds) for name, kinds in _OURS.items()}


def of_unwelcome(campaign_id: int) -> tuple[str, str | None, str | None] | None:
    """Return (class, code, words) of the last message of a campaign that came back for what we are."""
    found = rows(
        f"SELECT r.kind, m.error_enhanced, m.error_text FROM returned r JOIN message m ON m.id = r.message_id "
        f"WHERE r.campaign_id = ? AND r.kind IN {_WATCHED!r} ORDER BY r.created_at DESC, r.id DESC LIMIT 1",
        (campaign_id,),
    )
    return found[0] if found else None


def _count(account_id: int, address_hash: bytes, since: int, kinds: tuple[str, ...]) -> int:
    words = (
        "SELECT count(*) FROM returned WHERE account_id = ? AND address_hash = ? AND created_at > ? "
        f"AND kind IN ({','.join('?' * len(kinds))})"
    )
    return int(scalar(words, (account_id, address_hash, since, *kinds)))


def _last_success(row: Claim, contact_id: int | None, now: int) -> int:
    # Each of the two has its index
    values = (now - _ARRIVED_AFTER_MS, row.account_id, row.recipient_key)
    if contact_id is None:
        return int(scalar(f"{_SUCCESS} AND contact_id IS NULL", values) or 0)
    return int(scalar(f"{_SUCCESS} AND contact_id = ?4", (*values, contact_id)) or 0)


def _suppress(row: Claim, reason: str, source: str, text: str) -> None:
    suppress.add(
        row.account_id, Address(row.kind, row.recipient, row.recipient_key),
        Case(reason, source=source, diagnostic=text[:1000] or None),
        Evidence(source=source, actor="system", message_id=row.id),
    )  # fmt: skip
