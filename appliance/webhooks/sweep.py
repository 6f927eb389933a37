"""Removes what is left of deleted webhooks, and the log of deliveries that is older than it is kept.

Brings back what a clock that ran ahead has put off for longer than anything waits.
"""

from appliance import clock, config
from appliance.db.dialect.hints import THEN_JOIN
from appliance.db.open import one, run, scalar
from appliance.db.work import writing
from appliance.webhooks.outcomes import LADDER_MS

_BITE = 1_000
_AHEAD = (
    f"SELECT d.id FROM webhook AS w {THEN_JOIN} webhook_delivery AS d ON d.webhook_id = w.id AND d.status = 'pending' "
    "AND d.next_attempt_at > ? WHERE w.enabled LIMIT ?"
)


def has_deleted() -> bool:
    """Return whether there is a webhook that was deleted and still has rows."""
    return one("SELECT 1 FROM webhook WHERE deleted_at IS NOT NULL LIMIT 1") is not None


def deleted() -> bool:
    """Remove a bite of what deleted webhooks leave; says if there was any."""
    writing()
    found = scalar("SELECT id FROM webhook WHERE deleted_at IS NOT NULL ORDER BY id LIMIT 1")
    if found is None:
        return False
    gone = run(
        "DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery WHERE webhook_id = ? LIMIT ?)",
        (found, _BITE),
    )
    if gone < _BITE:
        run("DELETE FROM webhook WHERE id = ?", (found,))
    return True


def old() -> bool:
    """Remove a bite of deliveries that are kept too long; what waits for a webhook that is on stays."""
    writing()
    before = clock.now_ms() - int(1000 * config.seconds(config.current().webhooks.keep))
    gone = run(
        "DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery AS d "
        "WHERE id < coalesce((SELECT id FROM webhook_delivery WHERE created_at >= ?1 ORDER BY id LIMIT 1), 1 << 62) "
        "AND NOT (status = 'pending' AND EXISTS (SELECT 1 FROM webhook WHERE webhook.id = d.webhook_id AND enabled)) "
        "ORDER BY id LIMIT ?2)",
        (before, _BITE),
    )
    return gone == _BITE


def is_put_off() -> bool:
    """Return whether a delivery waits for longer than the longest pause: when that began the clock was wrong."""
    return one(_AHEAD, (clock.now_ms() + LADDER_MS[-1], 1)) is not None


def put_off() -> bool:
    """Let a bite of those be due now; says if there was any."""
    writing()
    now = clock.now_ms()
    return bool(
        run(
            f"UPDATE webhook_delivery SET next_attempt_at = ?, updated_at = ? WHERE id IN ({_AHEAD})",
            (now, now, now + LADDER_MS[-1], _BITE),
        )
    )
