"""What moves: the clock, and the messages that wait."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock, data_dir
from appliance.ops.doctor import ground
from appliance.ops.doctor.findings import Line
from appliance.storage.open import fetch_one, rows

_STEP_MS = 2 * 60_000
_LATE_MS = 15 * 60_000
# What has been due for a while though nothing holds its sender, its campaign or its flow back
_DUE = (
    "SELECT count(*), min(m.due_at) FROM message m JOIN account a ON a.id = m.account_id "
    "LEFT JOIN campaign c ON c.id = m.campaign_id WHERE m.status IN ('queued', 'held') AND m.due_at <= ? "
    "AND a.sending_stopped = 0 AND (c.id IS NULL OR c.status = 'active') AND m.updated_at <= ? AND (m.run_id IS NULL "
    "OR EXISTS (SELECT 1 FROM flow f WHERE f.id = m.flow_id AND f.status = 'active' AND f.deleted_at IS NULL))"
)


def clocks(_: Path) -> Iterator[Line]:
    """Hold the clock against what was written before; nobody outside is asked for the time."""
    now = clock.now_ms()
    latest = max((row[0] or 0) for row in rows(
        "SELECT max(created_at) FROM event UNION ALL SELECT max(updated_at) FROM account UNION ALL "
        "SELECT max(updated_at) FROM message"
    ))  # fmt: skip
    if latest > now + _STEP_MS:
        words = f"it is {clock.iso(now)} here, and something was written at {clock.iso(latest)}: the clock went back"
        yield Line("fail", "clock", words, "timedatectl set-ntp true")
    else:
        yield Line("ok", "clock", f"{clock.iso(now)}, after everything that was written (no time server was asked)")


def queue(directory: Path) -> Iterator[Line]:
    """Look for messages that should have moved."""
    now = clock.now_ms()
    count, oldest = fetch_one(_DUE, (now, now - _LATE_MS)) or (0, None)
    in_hand = fetch_one("SELECT count(*) FROM message WHERE status = 'sending' AND updated_at <= ?", (now - _LATE_MS,))
    in_doubt = fetch_one("SELECT count(*) FROM message WHERE status = 'uncertain'")
    if data_dir.is_stopped(directory) or not ground.runs(directory):
        yield Line("ok", "queue", f"{count} messages wait until sending goes on")
    elif count:
        since = (now - max(oldest or 0, 1)) // 60_000 if oldest and oldest > 1 else None
        words = f"{count} messages are due{f' since {since} minutes' if since else ''} and do not move"
        yield Line("warn", "queue", f"{words}: see /delivery/status for what they wait for")
    else:
        yield Line("ok", "queue", "nothing waits that should have moved")
    if in_hand and in_hand[0] and ground.runs(directory):
        yield Line("warn", "queue", f"{in_hand[0]} messages are in hand for more than 15 minutes: is a server so slow?")
    if in_doubt and in_doubt[0]:
        yield Line(
            "warn", "queue", f"of {in_doubt[0]} messages nobody knows whether they arrived: decide on their page"
        )
