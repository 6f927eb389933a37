"""When each recipient of a campaign with a local time gets it, such as at 09:00 on 1 December in their time zone.

The send stores the moment for each time zone (`SendTime`), and the statement that writes the audience takes the due
time of each message from there (`audience_snapshot.py`). A campaign with a local time is scheduled for the first moment
at which it is that time anywhere.

With `best_hour_until`, each recipient gets it at an hour of their own from the local time to that hour
(`best_hours.py`). In this case the send stores a moment for each zone and hour.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from appliance.accounts import settings
from appliance.audience import time_zones as contact_zones
from appliance.campaigns import best_hours
from appliance.core import clock, time_zones
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.storage.database import connection, reserve_ids, rows, run_set, scalar
from appliance.storage.models import Campaign, SendTime
from appliance.storage.transactions import require_write_transaction

# The row of `send_time` of a member of the audience with the columns `contact` and `zone` (`audience.select_members`),
# as `t`. `hour` is the SQL of the hour at which the contact gets it.
JOIN_BY_ZONE = "LEFT JOIN send_time t ON t.campaign_id = :campaign AND t.time_zone = p.zone AND t.hour = {hour}"
# While a large audience is fixed, the recipient list has a slot for each recipient: `_SLOTS` times the number of the
# zone (`load_numbers`), plus 1 and the hour if the recipient has an hour of their own. The table `slot` has the times.
_SLOTS = 32
SLOT_SQL = f"({contact_zones.NUMBER_SQL}) * {_SLOTS}"
JOIN_SLOT, SLOT_TIMES = "LEFT JOIN recipient_list.slot s ON s.id = p.slot", "s.send_time, s.due_at AS local_due"
_CREATE_SLOTS = "CREATE TABLE recipient_list.slot (id INTEGER PRIMARY KEY, send_time INTEGER, due_at INTEGER)"
_INSERT_SLOTS = (
    f"INSERT INTO recipient_list.slot SELECT n.number * {_SLOTS} + h.value, t.id, t.due_at FROM send_time t "
    "JOIN (SELECT id AS number, name FROM time_zone UNION ALL SELECT 0, :account_zone) n ON n.name = t.time_zone "
    "JOIN (SELECT 0 AS value, :usual_hour AS hour UNION ALL SELECT hour + 1, hour FROM send_time WHERE "
    "campaign_id = :campaign GROUP BY hour) h ON h.hour = t.hour WHERE t.campaign_id = :campaign"
)
# The slots of a part of the list as one text: grouping a whole list in SQL sorts it, which takes four times as long.
_READ_SLOTS = (
    "SELECT json_group_array(slot) FROM recipient_list.person WHERE pos > ? AND pos <= ? AND why IS NULL "
    "AND variant IS NOT -1 AND slot NOT NULL"
)
_SLOTS_AT_ONCE = 50_000
# The time of a recipient who waited for the winner of an A/B test; null without a local time.
NEXT_DUE_SQL = "(SELECT t.next_due_at FROM send_time t WHERE t.id = message.send_time_id)"
_MOVE_TO_OWN_HOURS = (
    "UPDATE recipient_list.person SET slot = slot + 1 + b.hour FROM (SELECT p.pos, k.hour, "
    "max({score}) AS score FROM recipient_list.person p CROSS JOIN click_hour k ON k.contact_id = p.contact "
    "WHERE {condition} GROUP BY p.pos HAVING score > {highest}) b WHERE person.pos = b.pos"
)
# The clicks of this many recipients show those of all well enough.
_MAX_WEIGHED = 20_000
_WEIGHED = "SELECT contact AS id FROM recipient_list.person WHERE pos % :step = 0 AND why IS NULL"
_INSERT = (
    "INSERT INTO send_time (id, campaign_id, time_zone, hour, due_at, recipients) "
    "SELECT value ->> 0, :campaign, value ->> 1, value ->> 2, value ->> 3, 0 FROM json_each(:items)"
)
_LIST_STORED = (
    "SELECT send_time_id, count(*) FROM message WHERE campaign_id = ? AND send_time_id NOT NULL GROUP BY send_time_id"
)
_SET_RECIPIENTS = (
    "UPDATE send_time SET recipients = item.value ->> 1 FROM json_each(:items) AS item "
    "WHERE send_time.id = item.value ->> 0"
)
_SET_NEXT = (
    "UPDATE send_time SET next_due_at = item.value ->> 1 FROM json_each(:items) AS item "
    "WHERE send_time.id = item.value ->> 0"
)
_LIST_TIMES = (
    "SELECT id, time_zone, hour, coalesce(next_due_at, due_at), due_at, recipients FROM send_time "
    "WHERE campaign_id = ? AND recipients > 0 ORDER BY due_at, time_zone"
)
_COUNT_CLICKS = (
    "SELECT t.hour, count(*) FROM message m INDEXED BY message_clicked JOIN send_time t ON t.id = m.send_time_id "
    "WHERE m.campaign_id = ? AND m.clicked_at NOT NULL GROUP BY t.hour"
)
_LIST_WAITING = (
    "SELECT send_time_id, count(*) FROM message INDEXED BY message_due WHERE campaign_id = ? "
    "AND run_id IS NULL AND status IN ('queued', 'held') GROUP BY send_time_id"
)
_OVERDUE = (
    "SELECT c.account_id, c.id FROM campaign c WHERE c.phase = 'sending' AND c.local_time NOT NULL "
    "AND c.deleted_at IS NULL AND EXISTS (SELECT 1 FROM message m INDEXED BY message_due WHERE m.campaign_id = c.id "
    "AND m.run_id IS NULL AND m.status IN ('queued', 'held') AND m.due_at > c.started_at "
    "AND m.due_at > :heartbeat AND m.due_at < :latest AND m.attempts = 0)"
)
_IS_ANY_SENDING = (
    "SELECT 1 FROM campaign WHERE phase = 'sending' AND local_time NOT NULL AND deleted_at IS NULL LIMIT 1"
)


class ZoneProgress(NamedTuple):
    """A time zone of a campaign: when its recipients get it, how many they are, and how many of them wait.

    `hour` is the hour on their clock. `planned_at` is when those get it who did not wait for the winner of an A/B test.
    """

    time_zone: str
    hour: int
    due_at: int
    planned_at: int
    recipients: int
    waiting: int


def get_max_lateness_ms() -> int:
    """Return how much later than its time a campaign may be sent (`limits.max_lateness`), in milliseconds."""
    return int(parse_seconds(config.current().limits.max_lateness) * 1000)


def find_due(local_time: str, zone: str, start: int) -> int:
    """Return when recipients in a time zone get a campaign that starts at `start`; times are Unix milliseconds.

    Where the local time has passed at the start, they get it at once if it is late by at most `limits.max_lateness`,
    else at the same hour of the next day.
    """
    local, zone_info = time_zones.parse_local_time(local_time), ZoneInfo(zone)
    moment = time_zones.find_moment(local, zone_info)
    if moment >= start:
        return moment
    if start - moment <= get_max_lateness_ms():
        return start
    return time_zones.find_next_moment(start, local, zone_info)


def get_start(campaign: Campaign) -> int:
    """Return when a campaign starts, or would if it were confirmed now, in Unix milliseconds."""
    if campaign.started_at is not None:
        return int(campaign.hold_until or campaign.started_at)
    return max(clock.now_ms(), campaign.scheduled_at or 0)


def list_hours(campaign: Campaign) -> range:
    """Return the hours of the day at which recipients get a campaign with a local time: one, or several."""
    first = time_zones.parse_local_time(str(campaign.local_time)).hour
    return range(first, campaign.best_hour_until or first + 1)


def get_local_time(campaign: Campaign, hour: int) -> str:
    """Return the local time of a campaign at one of its hours (`list_hours`)."""
    return time_zones.replace_hour(str(campaign.local_time), hour)


def list_starts(campaign: Campaign, zone: str) -> list[int]:
    """Return when a campaign leaves in a time zone, in Unix milliseconds: once, or at each hour to choose from."""
    start = get_start(campaign)
    if campaign.local_time is None:
        return [start]
    return [find_due(get_local_time(campaign, hour), zone, start) for hour in list_hours(campaign)]


def find_last(local_time: str, best_hour_until: int | None) -> int:
    """Return the last moment at which it is the local time anywhere, or the last of the hours to choose from."""
    last = local_time if best_hour_until is None else time_zones.replace_hour(local_time, best_hour_until - 1)
    return time_zones.find_first_and_last(last)[1]


def store_times(campaign: Campaign) -> None:
    """Store when each time zone gets a campaign, in the transaction of its send; do nothing without a local time."""
    require_write_transaction()
    if campaign.local_time is None:
        return
    delete_times(campaign.id)
    contact_zones.load_numbers()
    zones = {*time_zones.list_zones(), contact_zones.get_account_zone(campaign.account_id).zone.key}
    start, hours = get_start(campaign), [(hour, get_local_time(campaign, hour)) for hour in list_hours(campaign)]
    times = [(zone, hour, find_due(text, zone, start)) for zone in sorted(zones) for hour, text in hours]
    before = reserve_ids("send_time", len(times))
    items = [(row_id, *values) for row_id, values in enumerate(times, before + 1)]
    run_set(_INSERT, items, campaign=campaign.id)


def get_list_parameters(campaign: Campaign) -> dict[str, Any]:
    """Return the parameters of `SLOT_SQL` and its join."""
    account_zone = contact_zones.get_account_zone(campaign.account_id).zone.key
    return {"account_zone": account_zone, "known_to": contact_zones.find_known_to()}


def finish_list(campaign: Campaign, listed: int) -> dict[int, int]:
    """Write the times of all slots into the attached recipient list, which has `listed` rows.

    With several hours, the recipients get their best ones. Return the number of recipients by row of `send_time`.
    """
    hours, handle = list_hours(campaign), connection()
    usual_hour = hours[0] if len(hours) == 1 else _move_to_own_hours(hours, listed)
    account_zone = contact_zones.get_account_zone(campaign.account_id).zone.key
    handle.execute(_CREATE_SLOTS)
    handle.execute(_INSERT_SLOTS, {"campaign": campaign.id, "account_zone": account_zone, "usual_hour": usual_hour})
    counts = Counter[int]()
    for start in range(0, listed, _SLOTS_AT_ONCE):
        counts.update(msgspec.json.decode(scalar(_READ_SLOTS, (start, start + _SLOTS_AT_ONCE))))
    send_times = rows("SELECT id, send_time FROM recipient_list.slot")
    by_send_time = Counter[int]()
    for slot, row_id in send_times:
        by_send_time[row_id] += counts[slot]
    return +by_send_time


def _move_to_own_hours(hours: range, listed: int) -> int:
    """Set the slots of recipients in the attached list who have a best hour of their own.

    Returns the best hour of all other recipients.
    """
    weights = best_hours.estimate_of(_WEIGHED, {"step": -(-listed // _MAX_WEIGHED) or 1}, hours[0], hours[-1] + 1)
    move = _MOVE_TO_OWN_HOURS.format(
        score=weights.build_score(), condition=weights.build_condition(), highest=repr(weights.highest)
    )
    connection().execute(move)
    return weights.best


def delete_times(campaign_id: int) -> None:
    """Delete the times of a campaign whose send was undone."""
    require_write_transaction()
    SendTime.delete().where(SendTime.campaign == campaign_id).execute()


def store_recipients(campaign_id: int, listed: Mapping[int, int]) -> None:
    """Store the number of recipients by row of `send_time`.

    These are the messages so far, plus `listed`: recipients whose messages are written later, by row of `send_time`.
    """
    require_write_transaction()
    counts = Counter(dict(rows(_LIST_STORED, (campaign_id,))))
    counts.update(listed)
    run_set(_SET_RECIPIENTS, list(counts.items()))


def store_next_times(campaign: Campaign) -> None:
    """Store the next moment of the local time in each time zone, for recipients who waited for the winner until now."""
    require_write_transaction()
    if campaign.local_time is None:
        return
    now = clock.now_ms()
    stored = rows("SELECT id, time_zone, hour FROM send_time WHERE campaign_id = ? AND recipients > 0", (campaign.id,))
    local = {hour: time_zones.parse_local_time(get_local_time(campaign, hour)) for hour in list_hours(campaign)}
    items = [(row_id, time_zones.find_next_moment(now, local[hour], ZoneInfo(zone))) for row_id, zone, hour in stored]
    run_set(_SET_NEXT, items)


def list_progress(campaign: Campaign) -> list[ZoneProgress]:
    """Return the time zones of the recipients of a campaign that was sent with a local time, the first to get it first.

    While recipients wait after the winner of an A/B test was chosen, the time of their zone is when they get it.
    """
    waiting = dict(rows(_LIST_WAITING, (campaign.id,)))
    return [
        ZoneProgress(
            zone, hour, next_due_at if row_id in waiting else due_at, due_at, recipients, waiting.get(row_id, 0)
        )
        for row_id, zone, hour, next_due_at, due_at, recipients in rows(_LIST_TIMES, (campaign.id,))
    ]


def count_clicks_by_hour(campaign_id: int) -> dict[int, int]:
    """Return how many recipients clicked a campaign with a local time, by the hour at which they got it."""
    return dict(rows(_COUNT_CLICKS, (campaign_id,)))


def is_any_sending() -> bool:
    """Return whether any campaign with a local time is being sent."""
    return scalar(_IS_ANY_SENDING) is not None


def list_overdue() -> list[tuple[int, int]]:
    """Return (account id, campaign id) of the campaigns with a local time that missed it by over `limits.max_lateness`.

    Call it when the service starts. A message missed its time if it became due while the service was not running, as
    the last heartbeat says. One that became due before and still waits is late because sending is slow.
    """
    values = {"heartbeat": settings.get_heartbeat() or 0, "latest": clock.now_ms() - get_max_lateness_ms()}
    return rows(_OVERDUE, values)
