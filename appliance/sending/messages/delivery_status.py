"""The delivery status: the state of the senders, and the queue depth, obstacles, rates and outbox of an account."""

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Literal, NamedTuple

from appliance.accounts.accounts import RESTORED, describe_restore_stop
from appliance.core import clock, data_dir, i18n
from appliance.core.cache import CostAwareCache
from appliance.core.i18n import gettext, ngettext
from appliance.sending.messages import ledger, queue_reader, senders, sms_rules
from appliance.sending.messages.senders import WarmUpDay
from appliance.settings import config, transports
from appliance.settings.schema import Email, Sms
from appliance.storage import disk_guard, send_lease
from appliance.storage.database import Page, fetch_one, rows, scalar
from appliance.storage.models import Account

# The current state of the senders in this process. Each sender sets a function that returns its state; without senders
# the state is empty. Times are milliseconds since 1970 UTC.


class PausedTransport(NamedTuple):
    """A transport that was unreachable or rejected every message; nothing is sent to it before `until`.

    `text` is the error, `since` the time at which it was paused.
    """

    provider: str
    text: str
    since: int
    until: int


class ThrottledGroup(NamedTuple):
    """A recipient group whose servers asked for a lower rate.

    Nothing is sent to it before `until` (None: now). `connections` is the current limit, `text` the servers' reply.
    """

    provider: str
    group: str
    text: str
    since: int
    until: int | None
    connections: int


class ExhaustedLimit(NamedTuple):
    """An hourly limit that allows no message before `until`.

    `name` is `*` for all mail, `from` and a sending domain, `via` and the key of a transport, or a recipient group.
    """

    name: str
    per_hour: int
    until: int


class WarmingDomain(NamedTuple):
    """A sending domain in warm-up: its day, and whether the quota of that day is used up."""

    day: WarmUpDay
    is_full: bool


class SendStatus(NamedTuple):
    """The state of the senders of one channel; `connections` is the number of their open connections."""

    paused_transports: tuple[PausedTransport, ...] = ()
    throttled_groups: tuple[ThrottledGroup, ...] = ()
    exhausted_limits: tuple[ExhaustedLimit, ...] = ()
    connections: int = 0
    warming_domains: tuple[WarmingDomain, ...] = ()


_reporters: dict[str, Callable[[], SendStatus]] = {}


def set_reporter(channel: str, function: Callable[[], SendStatus]) -> None:
    """Set the function that returns the state of a channel (`email` or `sms`) when called on any thread."""
    _reporters[channel] = function


def get_send_status(channel: str = "email") -> SendStatus:
    """Return the current state of a channel; it is empty if no sender has set a reporter."""
    return _reporters[channel]() if channel in _reporters else SendStatus()


# The depth of a channel's queue is counted campaign by campaign, because the indexes of open rows begin with the
# campaign. Counting a million open messages takes a third of a second, so frequent callers cache the result.

CHANNELS = ("email", "sms")
# Messages of a paused flow have no due time and are not counted.
_OPEN = "status IN ('queued', 'held') AND due_at IS NOT NULL"
_SINGLE = "campaign_id IS NULL AND channel = ? AND run_id IS NULL AND account_id = ?"
# An SQL condition for messages, and its values.
_SourceCondition = tuple[str, tuple[Any, ...]]

_LIVE_CAMPAIGNS = (
    "SELECT id, phase FROM campaign WHERE account_id = coalesce(?, account_id) AND channel = ? "
    "AND phase IN ('holding', 'sending', 'paused') AND deleted_at IS NULL"
)


class QueueDepth(NamedTuple):
    """Numbers of queued messages by the reason why they wait, and for how long the oldest due message has waited."""

    due: int = 0
    later: int = 0  # due in the future
    paused: int = 0  # of paused campaigns, not counted in `due` and `later`
    sending: int = 0
    oldest_seconds: float = 0.0


def measure_depth(channel: str, account_id: int | None = None) -> QueueDepth:
    """Return the depth of a channel's queue for one account, or for all accounts if `account_id` is None."""
    now = clock.now_ms()
    campaigns = rows(_LIVE_CAMPAIGNS, (account_id, channel))
    due = later = 0
    oldest: list[int] = []
    active_ids = [campaign_id for campaign_id, phase in campaigns if phase != "paused"]
    for where, values in _list_sources(channel, account_id, active_ids):
        waiting, ready = _count_open(where, values, now)
        due, later = due + ready, later + waiting - ready
        oldest += _find_oldest_due(where, values, now)
    paused = sum(_count_paused(campaign_id) for campaign_id, phase in campaigns if phase == "paused")
    sending = sum(
        _count_sending(campaign_id, channel, account_id)
        for campaign_id in (None, *(campaign_id for campaign_id, _ in campaigns))
    )
    return QueueDepth(due, later, paused, sending, (now - min(oldest, default=now)) / 1000)


def _list_sources(channel: str, account_id: int | None, campaign_ids: Iterable[int]) -> list[_SourceCondition]:
    """Return conditions that together match a channel's messages: single ones, of flows, and of each campaign.

    Each is answered by one index. Without an account, they match single messages and messages of flows of all accounts.
    """
    # The index of single messages begins with the account.
    account_ids = queue_reader.list_accounts_with_single_messages() if account_id is None else [account_id]
    of_flows: _SourceCondition = ("channel = ? AND run_id IS NOT NULL", (channel,))
    if account_id is not None:
        of_flows = ("channel = ? AND run_id IS NOT NULL AND account_id = ?", (channel, account_id))
    return [
        *((_SINGLE, (channel, number)) for number in account_ids),
        of_flows,
        *(("campaign_id = ? AND run_id IS NULL", (number,)) for number in campaign_ids),
    ]


def _list_sources_of_account(account_id: int, campaigns: Sequence[tuple[int, str]]) -> list[_SourceCondition]:
    """Return the conditions of both channels for an account; `campaigns` are (id, channel)."""
    sources: list[_SourceCondition] = []
    for channel in CHANNELS:
        campaign_ids = [campaign_id for campaign_id, its_channel in campaigns if its_channel == channel]
        sources += _list_sources(channel, account_id, campaign_ids)
    return sources


def _find_oldest_due(where: str, values: tuple[Any, ...], now: int) -> list[int]:
    """Return a list with the time since which the first open message of a source has been due, if it is due at `now`.

    `due_at` of a message without a delay is near zero (`ledger.DUE_NOW`), so its wait begins at `created_at`.
    """
    sql = f"SELECT max(due_at, created_at) FROM message WHERE {where} AND {_OPEN} ORDER BY due_at, id LIMIT 1"
    return [row[0] for row in rows(sql, values) if row[0] <= now]


def _count_open(where: str, values: tuple[Any, ...], now: int) -> tuple[int, int]:
    """Return (open messages, due messages): the numbers that match an SQL condition, the latter due at `now`."""
    sql = f"SELECT count(*), count(*) FILTER (WHERE due_at <= ?) FROM message WHERE {where} AND {_OPEN}"
    waiting, ready = fetch_one(sql, (now, *values)) or (0, 0)
    return int(waiting), int(ready)


def _count_paused(campaign_id: int) -> int:
    sql = "SELECT count(*) FROM message WHERE campaign_id = ? AND status IN ('queued', 'held')"
    return int(scalar(sql, (campaign_id,)))


def _count_sending(campaign_id: int | None, channel: str, account_id: int | None) -> int:
    """Return the number of messages of a campaign that are being sent.

    If `campaign_id` is None, messages without a campaign are counted.
    """
    sql = (
        "SELECT count(*) FROM message WHERE campaign_id IS NOT DISTINCT FROM ? AND status = 'sending' AND +channel = ?"
    )
    if account_id is None:
        return int(scalar(sql, (campaign_id, channel)))
    return int(scalar(f"{sql} AND +account_id = ?", (campaign_id, channel, account_id)))


_LIVE_CAMPAIGNS_OF_ACCOUNT = (
    "SELECT id FROM campaign WHERE account_id = ? AND channel = ? AND phase IN ('holding', 'sending', 'paused')"
)

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000


class Obstacle(NamedTuple):
    """A reason why messages are not being sent now. Times are milliseconds since 1970 UTC, None if unknown."""

    code: str
    text: str
    since: int | None = None
    until: int | None = None
    blocks_all: bool = True  # False: only messages of one provider, domain or limit


class WaitingCounts(NamedTuple):
    """Numbers of messages that wait, are due and are being sent, and since when the oldest has been due."""

    waiting: int  # including those that are due
    due: int
    sending: int
    oldest_due_at: int | None  # milliseconds since 1970 UTC; None if no message is due


class ChannelStatus(NamedTuple):
    """The delivery status of one channel."""

    settings: Email | Sms
    obstacles: list[Obstacle]
    send_status: SendStatus
    waiting: WaitingCounts
    last_minute: int  # messages sent in the last minute
    last_hour: int


class DeliveryStatus(NamedTuple):
    """The content of `GET /delivery/status`."""

    account: Account
    email: ChannelStatus
    sms: ChannelStatus
    warm_up_days: list[WarmUpDay]
    stop_file: bool
    storage: str | None  # why the disk guard stops sending, or None


def get_status(account_id: int) -> DeliveryStatus:
    """Return the delivery status of an account, with both channels."""
    account, settings = Account.get_by_id(account_id), config.current()
    email, sms = (
        _get_channel_status(account, "email", settings.email),
        _get_channel_status(account, "sms", settings.sms),
    )
    return DeliveryStatus(
        account,
        email,
        sms,
        _list_warm_up_days(account_id, email.send_status),
        data_dir.has_stop_file(settings.data_dir),
        disk_guard.send_blocker(),
    )


def _get_channel_status(account: Account, channel: str, settings: Email | Sms) -> ChannelStatus:
    status = get_send_status(channel)
    # The queue is counted before sent messages, so that a message sent between the two queries is not missed by both.
    waiting = count_waiting(account.id, channel)
    minute, hour = (_count_sent(account.id, channel, clock.now_ms() - span) for span in (_MINUTE_MS, _HOUR_MS))
    obstacles = find_obstacles(account, status, list_transports(settings)) + (
        _find_parts_obstacle(account) if isinstance(settings, Sms) else []
    )
    return ChannelStatus(settings, obstacles, status, waiting, minute, hour)


def _find_parts_obstacle(account: Account) -> list[Obstacle]:
    """Return a list with an obstacle if today's SMS parts are used up (`sms.parts_per_day`), else an empty list."""
    settings = config.current().sms
    until = sms_rules.get_parts_limit_end(account.id, account.time_zone, clock.now_ms())
    if until is None or settings.transport == "capture":
        return []
    text = f"all {settings.parts_per_day} parts of today are used up (sms.parts_per_day)"
    return [Obstacle("parts_per_day", text, None, until)]


def _list_warm_up_days(account_id: int, status: SendStatus) -> list[WarmUpDay]:
    own_domains = senders.get_account_domains(account_id) if status.warming_domains else set()
    return [warming.day for warming in status.warming_domains if warming.day.domain in own_domains]


def list_transports(settings: Email | Sms) -> tuple[str, ...]:
    """Return the keys of the transports by which messages of a channel may be sent; for SMS, the one provider."""
    if isinstance(settings, Email) and settings.transport != transports.CAPTURE:
        return transports.list_keys(settings)
    return (settings.transport,)


def list_unavailable_transports(status: SendStatus) -> set[str]:
    """Return the transports that are paused, or have used up an hourly limit of their own."""
    full = (limit.name.removeprefix("via ") for limit in status.exhausted_limits if limit.name.startswith("via "))
    return {*(item.provider for item in status.paused_transports), *full}


def find_obstacles(account: Account, status: SendStatus, keys: Sequence[str]) -> list[Obstacle]:
    """Return the obstacles of a channel that sends with the transports `keys`.

    The order is: the stop of the account (by a user or a restore), the STOP file, the disk guard, the lease,
    unavailable transports, warm-up quotas, hourly limits. An unavailable transport, or one whose hourly limit is used
    up, blocks all messages only if none of `keys` is available.
    """
    obstacles = []
    if account.sending_stopped:
        text = account.stop_reason or "stopped by a person"
        obstacles.append(Obstacle("sending_stopped", describe_restore_stop() if text == RESTORED else text))
    directory = config.current().data_dir
    if data_dir.has_stop_file(directory):
        reason = "a file STOP in the data directory stops all sending"
        obstacles.append(Obstacle("stop_file", reason, data_dir.stop_file_time(directory)))
    blocker = disk_guard.send_blocker()
    if blocker is not None:
        obstacles.append(Obstacle("storage", blocker))
    lease_blocker = send_lease.find_blocker()
    if lease_blocker is not None:
        obstacles.append(Obstacle("lease", lease_blocker))
    are_all_unavailable = set(keys) <= list_unavailable_transports(status)
    obstacles += [
        Obstacle(
            "unreachable",
            f"{transport_status.provider}: {transport_status.text}",
            transport_status.since,
            transport_status.until,
            blocks_all=transport_status.provider in keys and are_all_unavailable,
        )
        for transport_status in status.paused_transports
    ]
    own_domains = senders.get_account_domains(account.id) if status.warming_domains else set()
    for warming in status.warming_domains:
        if warming.is_full and warming.day.domain in own_domains:
            obstacles.append(
                Obstacle("warm_up", senders.describe_full_day(warming.day), None, warming.day.ends_at, blocks_all=False)
            )
    for limit in status.exhausted_limits:
        is_transport = limit.name.startswith("via ")
        scope = "" if limit.name == "*" else f" {limit.name}"
        scope = scope if is_transport or not scope or limit.name.startswith("from ") else f" to {limit.name}"
        reason = f"limit of {limit.per_hour} an hour{scope} is used up"
        blocks_all = limit.name == "*" or (is_transport and are_all_unavailable)
        obstacles.append(Obstacle("hour_limit", reason, None, limit.until, blocks_all=blocks_all))
    return obstacles


def count_waiting(account_id: int, channel: str) -> WaitingCounts:
    """Return the counts of an account's open messages of a channel, including messages of paused campaigns."""
    now, open_rows, ready = clock.now_ms(), 0, 0
    oldest: list[int] = []
    campaign_ids = [row[0] for row in rows(_LIVE_CAMPAIGNS_OF_ACCOUNT, (account_id, channel))]
    for where, values in _list_sources(channel, account_id, campaign_ids):
        waiting, due = _count_open(where, values, now)
        open_rows, ready = open_rows + waiting, ready + due
        oldest += _find_oldest_due(where, values, now)
    sending = sum(_count_sending(campaign_id, channel, account_id) for campaign_id in (None, *campaign_ids))
    return WaitingCounts(open_rows, ready, sending, min(oldest, default=None))


def _count_sent(account_id: int, channel: str, since: int) -> int:
    sql = "SELECT count(*) FROM event WHERE account_id = ? AND event = ? AND created_at >= ?"
    return int(scalar(sql, (account_id, f"{channel}_sent", since)))


# The summary is shown on every page, so it must be fast to read.

_SENDING_CAMPAIGNS = (
    "SELECT id, channel FROM campaign WHERE account_id = ? AND deleted_at IS NULL AND phase IN ('holding', 'sending')"
)


class SendingSummary(NamedTuple):
    """The state of sending for an account, as every page shows it.

    `waiting` counts open messages, `due` those that are due. `until` is when sending continues, in milliseconds since
    1970 UTC, or None if that is unknown. `text` is the reason why messages are not being sent, or None. `per_hour` is
    the hourly limit of email; 0 is unlimited.
    """

    state: Literal["idle", "busy", "waiting", "stopped"]
    waiting: int = 0
    due: int = 0
    until: int | None = None
    text: str | None = None
    per_hour: int = 0


_summaries: CostAwareCache[SendingSummary] = CostAwareCache(min_age_seconds=1.5)


def get_summary(account_id: int) -> SendingSummary:
    """Return an account's summary from a cache, which keeps it for at least 1.5 seconds."""
    return _summaries.get((account_id, i18n.get_language()), lambda: read_summary(account_id))


def forget_summary(account_id: int) -> None:
    """Remove an account's summary from the cache in all languages, so that the next `get_summary` reads it again."""
    for language in i18n.LANGUAGES:
        _summaries.invalidate((account_id, language))


def read_summary(account_id: int) -> SendingSummary:
    """Return an account's summary as of now, without the cache."""
    settings = config.current()
    per_hour = settings.email.rate_per_hour
    waiting, due, sending, first_due_at = _count_queue(account_id)
    stopped = _get_stop_reason(account_id)
    if stopped is not None:
        return SendingSummary("stopped", waiting, due, None, stopped, per_hour)
    if not waiting and not sending:
        return SendingSummary("idle", per_hour=per_hour)
    blocked = _get_blocked_until(settings)
    if due and blocked is not None and not sending:
        return SendingSummary("waiting", waiting, due, blocked[0], blocked[1], per_hour)
    if due or sending:
        return SendingSummary("busy", waiting, due, per_hour=per_hour)
    return SendingSummary("waiting", waiting, due, first_due_at, per_hour=per_hour)


def _get_stop_reason(account_id: int) -> str | None:
    row = fetch_one("SELECT sending_stopped, stop_reason FROM account WHERE id = ?", (account_id,))
    if row is not None and row[0]:
        return str(row[1] or gettext("stopped by a user"))
    if data_dir.has_stop_file(config.current().data_dir):
        return gettext("a file STOP in the data directory")
    return disk_guard.send_blocker() or send_lease.find_blocker()


def _get_blocked_until(settings: Any) -> tuple[int, str] | None:
    """Return (time, reason) of the block that ends first, of both channels, or None if there is no block.

    A block is an unavailable transport or an exhausted hourly limit of all mail. The time is in milliseconds since 1970
    UTC.
    """
    channels: dict[str, Email | Sms] = {"email": settings.email, "sms": settings.sms}
    blocks: list[tuple[int, str]] = []
    for channel, own_settings in channels.items():
        status, keys = get_send_status(channel), list_transports(own_settings)
        are_all_unavailable = set(keys) <= list_unavailable_transports(status)
        blocks += [
            (block.until, block.text)
            for block in status.paused_transports
            if block.provider in keys and are_all_unavailable
        ]
        blocks += [
            (
                block.until,
                ngettext(
                    "the limit of %(num)s message per hour is reached",
                    "the limit of %(num)s messages per hour is reached",
                    block.per_hour,
                ),
            )
            for block in status.exhausted_limits
            if block.name == "*" or (are_all_unavailable and block.name.startswith("via "))
        ]
    return min(blocks, default=None)


def _count_queue(account_id: int) -> tuple[int, int, int, int | None]:
    """Return (waiting, due, being sent, earliest `due_at` or None): three counts of messages and a time.

    Both channels are counted together. Messages of paused campaigns are left out.
    """
    now, waiting, due, due_times = clock.now_ms(), 0, 0, []
    for where, values in _list_sources_of_account(account_id, rows(_SENDING_CAMPAIGNS, (account_id,))):
        sql = (
            f"SELECT count(*), count(*) FILTER (WHERE due_at <= ?), min(due_at) FROM message WHERE {where} AND {_OPEN}"
        )
        [(count, ready, first_due_at)] = rows(sql, (now, *values))
        waiting, due = waiting + count, due + int(ready)
        due_times += [] if first_due_at is None else [first_due_at]
    # Few messages are being sent at a time, so this count is fast.
    sending_sql = (
        "SELECT count(*) FROM message WHERE campaign_id IS NOT DISTINCT FROM ? AND status = 'sending' "
        "AND +account_id = ?"
    )
    campaign_ids = [row[0] for row in rows(_SENDING_CAMPAIGNS, (account_id,))]
    return (
        waiting,
        due,
        sum(int(scalar(sending_sql, (campaign_id, account_id))) for campaign_id in (None, *campaign_ids)),
        min(due_times, default=None),
    )


# The outbox lists messages that wait, are being sent, failed, or need a decision. Each state is read by an index that
# begins with the campaign: campaign by campaign, then all messages without a campaign. So the sent messages, which are
# many more, are not read.

OutboxState = Literal["waiting", "retrying", "sending", "failed", "uncertain"]
OUTBOX_STATES: tuple[OutboxState, ...] = ("waiting", "retrying", "sending", "failed", "uncertain")
# Largest offset of a page: an offset costs time, and people do not read further into a queue.
_MAX_OFFSET = 5_000

_OPEN_CAMPAIGNS = (
    "SELECT id, channel, coalesce(hold_until, 0) FROM campaign WHERE account_id = ? AND deleted_at IS NULL "
    "AND phase IN ('holding', 'sending', 'paused')"
)

_BY_STATUS = (
    "FROM message m WHERE m.campaign_id IN (SELECT id FROM campaign WHERE account_id = ?1 AND deleted_at IS NULL) "
    "AND m.status = ?2",
    "FROM message m WHERE m.campaign_id IS NULL AND m.status = ?2 AND +m.account_id = ?1",
)


def count_outbox(account_id: int) -> dict[OutboxState, int]:
    """Return the number of an account's messages in each state; `waiting` includes the messages of `retrying`."""
    counts: dict[OutboxState, int] = {
        "waiting": _count_sources(_get_waiting_sources(account_id)),
        "retrying": _count_sources(_get_retrying_sources(account_id)),
    }
    for status in ("sending", "failed", "uncertain"):
        counts[status] = count_by_status(account_id, status)
    return counts


def count_by_status(account_id: int, status: str) -> int:
    """Return the number of an account's messages with a status, without messages of deleted campaigns."""
    return sum(int(scalar(f"SELECT count(*) {part}", (account_id, status))) for part in _BY_STATUS)


def list_outbox(account_id: int, state: OutboxState, page: int, limit: int, total: int) -> Page:
    """Return a page of messages in a state: waiting and retrying messages by due time, all others newest first.

    Pass the count of `count_outbox` as `total`; it becomes the page's total. A page that would begin after
    `_MAX_OFFSET` messages begins there.
    """
    offset = min((page - 1) * limit, _MAX_OFFSET)
    if state in ("waiting", "retrying"):
        sources = _get_waiting_sources(account_id) if state == "waiting" else _get_retrying_sources(account_id)
        sql = "SELECT due_at, id FROM message WHERE {} AND " + _OPEN + " ORDER BY due_at, id LIMIT ?"
        lists = [rows(sql.format(where), (*values, offset + limit)) for where, values in sources]
        ids = [row[1] for row in islice(merge(*lists), offset, offset + limit)]
    else:
        union = " UNION ALL ".join(f"SELECT m.id {part}" for part in _BY_STATUS)
        ids = [
            row[0] for row in rows(f"{union} ORDER BY 1 DESC LIMIT ?3 OFFSET ?4", (account_id, state, limit, offset))
        ]
    messages = {row.id: row for row in ledger.get_by_ids(ids)}
    return Page([messages[message_id] for message_id in ids if message_id in messages], total, page, limit)


def list_outbox_ids(account_id: int, state: Literal["failed", "uncertain"], before: int, limit: int) -> list[int]:
    """Return the ids of up to `limit` messages in a state, newest first, all of them smaller than `before`."""
    union = " UNION ALL ".join(f"SELECT m.id {part} AND m.id < ?4" for part in _BY_STATUS)
    return [row[0] for row in rows(f"{union} ORDER BY 1 DESC LIMIT ?3", (account_id, state, limit, before))]


def _get_waiting_sources(account_id: int) -> list[_SourceCondition]:
    """Return the conditions that together match all waiting messages of an account, including paused campaigns."""
    return _list_sources_of_account(account_id, [row[:2] for row in rows(_OPEN_CAMPAIGNS, (account_id,))])


def _get_retrying_sources(account_id: int) -> list[_SourceCondition]:
    """Return the SQL conditions, with their values, that together match an account's messages that wait for a retry.

    In a campaign, messages that were not tried yet are due when the campaign's hold ends. The condition compares
    `due_at` with that time, so that the index skips these messages.
    """
    sources: list[_SourceCondition] = [
        ("campaign_id = ? AND run_id IS NULL AND due_at > ? AND attempts > 0", (campaign_id, hold))
        for campaign_id, _, hold in rows(_OPEN_CAMPAIGNS, (account_id,))
    ]
    single = f"{_SINGLE} AND attempts > 0"
    of_flows = "channel = ? AND run_id IS NOT NULL AND account_id = ? AND attempts > 0"
    for channel in ("email", "sms"):
        sources += [(single, (channel, account_id)), (of_flows, (channel, account_id))]
    return sources


def _count_sources(sources: list[_SourceCondition]) -> int:
    return sum(
        int(scalar(f"SELECT count(*) FROM message WHERE {where} AND {_OPEN}", values)) for where, values in sources
    )
