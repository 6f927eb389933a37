"""Events behind the cursor become deliveries, one for each webhook that asked for them."""

from appliance.core import clock
from appliance.settings import config
from appliance.storage.open import fetch_one, run, scalar
from appliance.storage.work import writing
from appliance.webhooks.outcomes import LADDER_MS

_CURSOR = "webhooks"
# So many events times webhooks are looked at in one transaction, that nobody else waits for long
_BITE, _LEAST = 1_000, 50

_NEWEST = "SELECT coalesce(max(id), 0) FROM event"
_WRITE = """
INSERT INTO webhook_delivery (webhook_id, event_id, status, attempts, next_attempt_at, created_at, updated_at)
SELECT webhook.id, event.id, 'pending', 0, ?1, ?1, ?1 FROM event CROSS JOIN webhook
WHERE event.id > ?2 AND event.id <= ?3 AND webhook.account_id = event.account_id AND webhook.enabled
AND webhook.deleted_at IS NULL AND event.id > webhook.after_event_id
AND (webhook.events = '[]' OR EXISTS (SELECT 1 FROM json_each(webhook.events) WHERE value = event.event))
ORDER BY event.id, webhook.id ON CONFLICT (webhook_id, event_id) DO NOTHING
"""
_MOVE = (
    "INSERT INTO cursor (name, event_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET event_id = excluded.event_id"
)


def is_listened_to() -> bool:
    """Return whether there is a webhook that hears of events."""
    return fetch_one("SELECT 1 FROM webhook WHERE enabled LIMIT 1") is not None


def is_behind() -> bool:
    """Return whether there are events that nobody has looked at."""
    return bool(_place() < scalar(_NEWEST))


def take_in() -> bool:
    """Look at a bite of events, in one transaction with the cursor; says if there were any."""
    writing()
    place, listening = _place(), scalar("SELECT count(*) FROM webhook WHERE enabled")
    if listening:
        bite = max(_LEAST, _BITE // listening)
        last = scalar("SELECT max(id) FROM (SELECT id FROM event WHERE id > ? ORDER BY id LIMIT ?)", (place, bite))
    else:
        last = scalar(_NEWEST)
    if last is None or last <= place:
        return False
    if listening:
        run(_WRITE, (clock.now_ms(), place, last))
    run(_MOVE, (_CURSOR, last))
    return True


def _place() -> int:
    return scalar("SELECT event_id FROM cursor WHERE name = ?", (_CURSOR,)) or 0


# Removes what is left of deleted webhooks, and the log of deliveries that is older than it is kept.
#
# Brings back what a clock that ran ahead has put off for longer than anything waits.

_SWEEP_BATCH = 1_000
_AHEAD = (
    "SELECT d.id FROM webhook AS w CROSS JOIN webhook_delivery AS d ON d.webhook_id = w.id AND d.status = 'pending' "
    "AND d.next_attempt_at > ? WHERE w.enabled LIMIT ?"
)


def has_deleted() -> bool:
    """Return whether there is a webhook that was deleted and still has rows."""
    return fetch_one("SELECT 1 FROM webhook WHERE deleted_at IS NOT NULL LIMIT 1") is not None


def deleted() -> bool:
    """Remove a bite of what deleted webhooks leave; says if there was any."""
    writing()
    found = scalar("SELECT id FROM webhook WHERE deleted_at IS NOT NULL ORDER BY id LIMIT 1")
    if found is None:
        return False
    gone = run(
        "DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery WHERE webhook_id = ? LIMIT ?)",
        (found, _SWEEP_BATCH),
    )
    if gone < _SWEEP_BATCH:
        run("DELETE FROM webhook WHERE id = ?", (found,))
    return True


def remove_old() -> bool:
    """Remove a bite of deliveries that are kept too long; what waits for a webhook that is on stays."""
    writing()
    before = clock.now_ms() - int(1000 * config.seconds(config.current().webhooks.keep))
    gone = run(
        "DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery AS d "
        "WHERE id < coalesce((SELECT id FROM webhook_delivery WHERE created_at >= ?1 ORDER BY id LIMIT 1), 1 << 62) "
        "AND NOT (status = 'pending' AND EXISTS (SELECT 1 FROM webhook WHERE webhook.id = d.webhook_id AND enabled)) "
        "ORDER BY id LIMIT ?2)",
        (before, _SWEEP_BATCH),
    )
    return gone == _SWEEP_BATCH


def is_put_off() -> bool:
    """Return whether a delivery waits for longer than the longest pause: when that began the clock was wrong."""
    return fetch_one(_AHEAD, (clock.now_ms() + LADDER_MS[-1], 1)) is not None


def put_off() -> bool:
    """Let a bite of those be due now; says if there was any."""
    writing()
    now = clock.now_ms()
    return bool(
        run(
            f"UPDATE webhook_delivery SET next_attempt_at = ?, updated_at = ? WHERE id IN ({_AHEAD})",
            (now, now, now + LADDER_MS[-1], _SWEEP_BATCH),
        )
    )
