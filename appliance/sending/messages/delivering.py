"""How delivery stands for an account, by channel: what is open or in the way, how much waits, how fast it goes."""

from typing import Any, NamedTuple

from appliance.core import clock, data_dir, send_status
from appliance.core.send_status import SendStatus
from appliance.sending.messages import sms_days, warm_up
from appliance.sending.messages.warm_up import Day
from appliance.settings import config
from appliance.settings.schema import Email, Sms
from appliance.storage import disk_guard
from appliance.storage.models import Account
from appliance.storage.open import rows, scalar

# What a flow that is paused wants to send has no time, and is in nobody's way
_OPEN = "status IN ('queued', 'held') AND due_at IS NOT NULL"
_LIVE = "SELECT id FROM campaign WHERE account_id = ? AND channel = ? AND phase IN ('holding', 'sending', 'paused')"
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000


class Obstacle(NamedTuple):
    """Something that keeps all mail, or that of one limit, from leaving."""

    code: str
    text: str
    since: int | None = None
    until: int | None = None
    closes: bool = True


class Queue(NamedTuple):
    """What waits: all of it, what could go now, what is in hand, and since when the oldest could go."""

    waiting: int
    due: int
    in_hand: int
    oldest_due_at: int | None


class Way(NamedTuple):
    """How one channel stands."""

    settings: Email | Sms
    obstacles: list[Obstacle]
    now: SendStatus
    queue: Queue
    last_minute: int
    last_hour: int


class Delivery(NamedTuple):
    """All that `GET /delivery/status` tells."""

    account: Account
    email: Way
    sms: Way
    beginning: list[Day]
    stop_file: bool
    storage: str | None


def status(account_id: int) -> Delivery:
    """Return how delivery stands."""
    account, here = Account.get_by_id(account_id), config.current()
    email, sms = _way(account, "email", here.email), _way(account, "sms", here.sms)
    return Delivery(
        account, email, sms, _beginning(account_id, email.now), data_dir.is_stopped(here.data_dir), disk_guard.trouble()
    )


def _way(account: Account, channel: str, settings: Email | Sms) -> Way:
    now = send_status.now(channel)
    # First what is in hand, then what left: a message that ends in between is counted once at least
    waiting = queue(account.id, channel)
    minute, hour = (_handed_over(account.id, channel, clock.now_ms() - span) for span in (_MINUTE_MS, _HOUR_MS))
    found = obstacles(account, now, settings.transport) + (_parts(account) if isinstance(settings, Sms) else [])
    return Way(settings, found, now, waiting, minute, hour)


def _parts(account: Account) -> list[Obstacle]:
    """Say that all paid parts of SMS of this day are used up."""
    here = config.current().sms
    until = sms_days.full_until(account.id, account.time_zone, clock.now_ms())
    if until is None or here.transport == "capture":
        return []
    words = f"all {here.parts_per_day} parts of today are used up (sms.parts_per_day)"
    return [Obstacle("parts_per_day", words, None, until)]


def _beginning(account_id: int, now: SendStatus) -> list[Day]:
    own = warm_up.domains_of(account_id) if now.beginning else set()
    return [one.day for one in now.beginning if one.day.domain in own]


def obstacles(account: Account, now: SendStatus, transport: str) -> list[Obstacle]:
    """Return what is in the way of a channel, what stops everything first."""
    found = []
    if account.sending_stopped:
        found.append(Obstacle("sending_stopped", account.stop_reason or "stopped by a person"))
    directory = config.current().data_dir
    if data_dir.is_stopped(directory):
        words = "a file STOP in the data directory stops all sending"
        found.append(Obstacle("stop_file", words, data_dir.stopped_since(directory)))
    trouble = disk_guard.trouble()
    if trouble is not None:
        found.append(Obstacle("storage", trouble))
    found += [
        Obstacle("unreachable", f"{one.provider}: {one.text}", one.since, one.until, closes=one.provider == transport)
        for one in now.closed
    ]
    own = warm_up.domains_of(account.id) if now.beginning else set()
    for begun in now.beginning:
        if begun.is_full and begun.day.domain in own:
            found.append(Obstacle("warm_up", warm_up.words(begun.day), None, begun.day.over_at, closes=False))
    for full in now.full:
        whom = "" if full.name == "*" else f" {full.name if full.name.startswith('from ') else f'to {full.name}'}"
        words = f"limit of {full.per_hour} an hour{whom} is used up"
        found.append(Obstacle("hour_limit", words, None, full.until, closes=full.name == "*"))
    return found


def queue(account_id: int, channel: str) -> Queue:
    """Count what waits in a channel, by the index of what is due: campaign by campaign, and the single messages."""
    now, open_rows, ready, in_hand = clock.now_ms(), 0, 0, 0
    oldest: list[int] = []
    sources: list[tuple[str, tuple[Any, ...]]] = [
        (
            "campaign_id IS NULL AND channel = ? AND run_id IS NULL AND +account_id = ?",
            (channel, account_id),
        ),
        ("channel = ? AND run_id IS NOT NULL AND account_id = ?", (channel, account_id)),
    ]
    sources += [
        ("campaign_id = ? AND channel = ? AND run_id IS NULL", (row[0], channel))
        for row in rows(_LIVE, (account_id, channel))
    ]
    for where, values in sources:
        [(waiting, due)] = rows(
            f"SELECT count(*), count(*) FILTER (WHERE due_at <= ?) FROM message WHERE {where} AND {_OPEN}",
            (now, *values),
        )
        open_rows, ready = open_rows + waiting, ready + int(due)
        in_hand += int(scalar(f"SELECT count(*) FROM message WHERE {where} AND status = 'sending'", values))
        # What may go at once has been waiting since it was written
        first = f"SELECT max(due_at, created_at) FROM message WHERE {where} AND {_OPEN} ORDER BY due_at, id LIMIT 1"
        oldest += [row[0] for row in rows(first, values) if row[0] <= now]
    return Queue(open_rows, ready, in_hand, min(oldest, default=None))


def _handed_over(account_id: int, channel: str, since: int) -> int:
    words = "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ?"
    return int(scalar(words, (account_id, f"{channel}_sent", since)))
