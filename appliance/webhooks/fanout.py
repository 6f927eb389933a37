"""Events behind the cursor become deliveries, one for each webhook that asked for them."""

from appliance import clock
from appliance.db.dialect.documents import each_of
from appliance.db.open import one, run, scalar
from appliance.db.work import writing

_CURSOR = "webhooks"
# So many events times webhooks are looked at in one transaction, that nobody else waits for long
_BITE, _LEAST = 1_000, 50

_NEWEST = "SELECT coalesce(max(id), 0) FROM event"
_WRITE = f"""
INSERT INTO webhook_delivery (webhook_id, event_id, status, attempts, next_attempt_at, created_at, updated_at)
SELECT webhook.id, event.id, 'pending', 0, ?1, ?1, ?1 FROM event CROSS JOIN webhook
WHERE event.id > ?2 AND event.id <= ?3 AND webhook.account_id = event.account_id AND webhook.enabled
AND webhook.deleted_at IS NULL AND event.id > webhook.after_event_id
AND (webhook.events = '[]' OR EXISTS (SELECT 1 FROM {each_of("webhook.events")} WHERE value = event.event))
ORDER BY event.id, webhook.id ON CONFLICT (webhook_id, event_id) DO NOTHING
"""
_MOVE = (
    "INSERT INTO cursor (name, event_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET event_id = excluded.event_id"
)


def is_listened_to() -> bool:
    """Return whether there is a webhook that hears of events."""
    return one("SELECT 1 FROM webhook WHERE enabled LIMIT 1") is not None


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
