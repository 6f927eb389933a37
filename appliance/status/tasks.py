"""What is under way: sends, imports, exports, and what is done with many people at once."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from appliance import clock
from appliance.db.dialect.documents import field_of
from appliance.db.dialect.texts import sum_or_zero
from appliance.db.open import one, rows, scalar
from appliance.exporting import going
from appliance.status.shape import Task

_MINUTE_MS = 60_000
_LIVE = (
    "SELECT id, account_id, name, channel, phase, audience_count, hold_until, pause_reason, started_at, "
    "freezing IS NOT NULL FROM campaign WHERE phase IN ('holding', 'sending', 'paused') AND deleted_at IS NULL "
    "ORDER BY id"
)
# Newest first are read over the index of what happened, so only the last minute is
_LATELY = (
    "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? "
    f"AND {field_of('data', 'campaign_id')} = ?"
)
_IMPORTS = (
    "SELECT id, account_id, filename, status, phase, dry_run, total, processed, created + updated, restored "
    "FROM import WHERE status IN ('pending', 'processing') OR phase = 'undoing' ORDER BY id"
)
_ACTS = {
    "list_add": "add to a list", "list_remove": "take off a list", "tag_add": "tag", "tag_remove": "take off a tag",
    "unsubscribe": "unsubscribe", "delete": "delete",
}  # fmt: skip


def under_way(directory: Path, process: int | None) -> list[Task]:
    """Return all of it; what only the running process knows is told by that."""
    exports = _exports(directory, process) if process is not None else ()
    found = [*_sends(), *_imports(), *exports, *_acts()]
    if process is None:
        # Nothing goes on until the service is started
        found = [structs.replace(one, per_second=None, left_seconds=None) for one in found]
    return found


def _task(
    kind: str, number: int | None, account_id: int, name: str, state: str, words: str, done: int, total: int | None,
    speed: float | None,
) -> Task:  # fmt: skip
    left = (total - done) / speed if total is not None and speed else None
    return Task(kind, number, account_id, name, state, words, done, total, speed, left)


def _sends() -> Iterator[Task]:
    now = clock.now_ms()
    for number, account_id, name, channel, phase, audience, hold, why, started, is_drawn in rows(_LIVE):
        counted = dict(rows("SELECT status, count(*) FROM message WHERE campaign_id = ? GROUP BY status", (number,)))
        open_rows = sum(counted.get(status, 0) for status in ("queued", "held", "sending"))
        done, total = sum(counted.values()) - open_rows, max(audience or 0, sum(counted.values()))
        span = min(_MINUTE_MS, max(now - (started or now), 1))
        lately = scalar(_LATELY, (account_id, f"{channel}_sent", now - span, number))
        speed = lately / span * 1000 if lately and phase == "sending" else None
        words = "the audience is being written" if is_drawn else ""
        if phase == "holding" and hold:
            words = f"held until {clock.iso(hold)}"
        yield _task("send", number, account_id, name, phase, (why or words) if phase == "paused" else words,
                    done, total, speed)  # fmt: skip


def _imports() -> Iterator[Task]:
    for number, account_id, name, status, phase, is_dry, total, done, wrote, restored in rows(_IMPORTS):
        if phase == "undoing":
            yield _task("import", number, account_id, name, "undoing", "", restored, wrote or None, None)
        elif status == "pending":
            yield _task("import", number, account_id, name, "waiting", "waits for its turn", 0, None, None)
        elif phase != "applying":
            words = f"{total:,} lines read" if total else "is being read"
            yield _task("import", number, account_id, name, "reading", words, 0, None, None)
        else:
            state = "checking" if is_dry else "writing"
            yield _task("import", number, account_id, name, state, "", done, total, _speed(number, done))


def _speed(import_id: int, done: int) -> float | None:
    begun = scalar("SELECT created_at FROM import_chunk WHERE import_job_id = ? ORDER BY number LIMIT 1", (import_id,))
    if begun is None or not done:
        return None
    return done / max((clock.now_ms() - int(begun)) / 1000, 0.5)


def _exports(directory: Path, process: int) -> Iterator[Task]:
    for found in going.told(directory, process):
        took = max((clock.now_ms() - found.begun_at) / 1000, 0.5)
        speed = found.rows / took if found.rows else None
        yield _task("export", None, found.account_id, found.name, "sending", "", found.rows, found.total, speed)


def _acts() -> Iterator[Task]:
    found = "SELECT id, account_id, act, number, changed, skipped FROM crowd_act WHERE state = 'working' ORDER BY id"
    parts = f"SELECT count(*), {sum_or_zero('done')} FROM crowd_part WHERE act_id = ?"
    for number, account_id, act, people, *_ in rows(found):
        many, ended = one(parts, (number,)) or (0, 0)
        done = int(people * ended / many) if many else 0
        yield _task("act", number, account_id, _ACTS.get(act, act), "working", "", done, people, None)
