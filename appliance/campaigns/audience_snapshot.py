"""The snapshot of a campaign's audience: the message rows of its recipients, fixed when it goes live.

An audience of up to `MAX_AT_ONCE` contacts gets its rows in the transaction of the send. A larger one is written in
batches right after the send, so that no other writer waits long. The transaction of the send stores the audience as
SQL. Then one query writes the members into a recipient list, a database file that is attached as `recipient_list`.
Batches of that list become rows, in the order of contact ids and with one contiguous block of message ids. Sending
starts with the first batch, and the campaign completes only after the last one.

The progress is stored in the campaign. After a crash the work continues after the last batch. If the process died
before the recipient list was complete, or the list is missing (a restored backup has none), a new list is written. It
contains the members at that time whose contact id is higher than the last row's. Later changes of contact lists and
templates have no effect, but opt-outs have: they are checked again before each message. A contact deleted before its
row is written gets a skipped row.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import apsw
from msgspec import UNSET, Struct, convert, to_builtins

from appliance.audience import time_zones
from appliance.campaigns import audience, best_hours, experiment, send_times, states
from appliance.campaigns.audience import Audience
from appliance.campaigns.experiment import RowSql
from appliance.campaigns.store import MAX_AT_ONCE
from appliance.campaigns.trigger import TriggerWrite, validate_trigger
from appliance.core import clock, data_dir, signals
from appliance.core.errors import Faults, Unavailable
from appliance.core.i18n import gettext
from appliance.sending.messages.ledger import DUE_NOW
from appliance.settings import config
from appliance.storage import database as storage_sql
from appliance.storage import transactions
from appliance.storage.database import attach_file, attach_new_file, connection, detach_file, fetch_one, rows, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.models import Campaign
from appliance.storage.transactions import after_commit, require_write_transaction

# The recipient list of a large audience: its members at one moment, in a file beside the database.
#
# The writer thread does not write the list, because that would block other writes. The rows have the positions 1, 2, 3
# and so on in the order of contact ids, each with the channel id and the skip reason if there is one. A complete list
# has its final name; an incomplete list is deleted and written again.

# The suffix changes with the columns, so that a list written by an earlier version is not found, and is written again.
_LIST_SUFFIX = ".recipients4"
# The number of steps of SQLite's virtual machine between two checks whether the service is stopping.
_STEPS_BETWEEN_CHECKS = 200_000
# The SQL of the variant of a contact in a campaign without an A/B test
_NO_GROUP = "NULL"


def get_directory() -> Path:
    """Return the directory of the recipient lists; create it, readable only by this user, if it does not exist."""
    base = Path(config.current().data_dir) / "audiences"
    base.mkdir(mode=0o700, exist_ok=True)
    return base


class SnapshotKey(NamedTuple):
    """The key of one send of a campaign: `moment` is the campaign's `started_at` in Unix milliseconds.

    After an undo the campaign can be sent again, possibly to other contacts; that send has another key.
    """

    campaign_id: int
    moment: int


class WrittenList(NamedTuple):
    """The number of rows of a recipient list; with a local time, also of its recipients by row of `send_time`."""

    size: int
    by_send_time: dict[int, int]


def get_path(key: SnapshotKey) -> Path:
    """Return the path of the recipient list of a send."""
    return get_directory() / f"{key.campaign_id}-{key.moment}{_LIST_SUFFIX}"


def write_audience(
    key: SnapshotKey, members: Audience, kind: str, after: int, is_stopping: Callable[[], bool],
    group: str = _NO_GROUP,
) -> WrittenList:  # fmt: skip
    """Write the file with the recipient list of a send (`get_path`) and return its size.

    The ledger is not changed. The list contains the members with contact ids above `after`, each with its channel of
    the kind `kind` (`email`, `phone`). `group` is the SQL of the variant of an A/B test, by the column `contact`.
    Raises Unavailable as soon as `is_stopping` returns true.
    """
    path = get_path(key)
    partial_path = path.with_suffix(".part")
    for stale_path in (partial_path, path):
        stale_path.unlink(missing_ok=True)
    os.close(os.open(partial_path, os.O_CREAT | os.O_WRONLY, 0o600))
    db = connection()
    attach_new_file(partial_path, "recipient_list")
    db.set_progress_handler(is_stopping, _STEPS_BETWEEN_CHECKS)
    parameters = {**members.parameters, "kind": kind, "after": after}
    campaign = Campaign.get_by_id(key.campaign_id)
    try:
        if members.zone:
            parameters |= send_times.get_list_parameters(campaign)
            members = members._replace(zone=send_times.SLOT_SQL, zone_join=time_zones.JOIN_STORED)
        db.execute(
            "CREATE TABLE recipient_list.person (pos INTEGER PRIMARY KEY, contact INTEGER, channel INTEGER, why TEXT, "
            "variant INTEGER, slot INTEGER)"
        )
        db.execute(
            f"INSERT INTO recipient_list.person SELECT NULL, contact, channel, why, {group}, zone FROM "
            f"({audience.select_members(members)} AND c.id > :after ORDER BY c.id)",
            parameters,
        )
        count = int(scalar("SELECT coalesce(max(pos), 0) FROM recipient_list.person"))
        by_send_time = send_times.finish_list(campaign, count) if members.zone else {}
    except apsw.InterruptError:
        raise Unavailable(gettext("The service is stopping.")) from None
    finally:
        db.set_progress_handler(None)
        detach_file("recipient_list")
    _publish_file(partial_path, path)
    return WrittenList(count, by_send_time)


def _publish_file(partial_path: Path, path: Path) -> None:
    """Sync a complete recipient list to disk, and only then give it its final name."""
    data_dir.sync_to_disk(partial_path)
    partial_path.rename(path)
    data_dir.sync_to_disk(path.parent)


def attach(key: SnapshotKey) -> None:
    """Attach the recipient list of a send to this connection as the schema `recipient_list`.

    Call it outside of a transaction.
    """
    attach_file(get_path(key), "recipient_list")


def detach() -> None:
    """Detach the recipient list from this connection; call it outside of a transaction."""
    detach_file("recipient_list")


def delete_orphans() -> None:
    """Delete all recipient lists; call it when no campaign has a pending snapshot."""
    for path in get_directory().iterdir():
        path.unlink(missing_ok=True)


# An audience whose query takes longer than this, in seconds of a processor, is written in batches, because the query
# would block the writer, and with it the writes of all accounts.
_SLOW_QUERY_SECONDS = 0.25
_INSERT_MESSAGES = (
    "INSERT INTO message (id, account_id, contact_id, campaign_id, flow_id, template_id, channel, recipient, "
    "recipient_key, sender, reply_to, status, skip_reason, source_type, transactional, test, provider, attempts, "
    "uncertain_count, due_at, created_at, updated_at, variant, variant_batch, send_time_id) "
    "SELECT :id + pos, :account, contact, :campaign, :flow, :template, :channel, value, key, {columns}, "
    ":moment, :now, {variant}, {send_time} FROM ({people}) ORDER BY pos"
)
_COLUMNS = (
    ":sender, :reply_to, CASE WHEN why IS NULL THEN :open ELSE 'skipped' END, why, 'campaign', 0, :test, :provider, "
    "0, 0, CASE WHEN why IS NULL THEN :due END"
)
# A message that is sent later than others waits for its time as `queued`: held rows are sent when quiet hours change.
_LOCAL_DUE = "coalesce(local_due, :due)"
_LOCAL_COLUMNS = (
    ":sender, :reply_to, "
    f"CASE WHEN why IS NOT NULL THEN 'skipped' WHEN {_LOCAL_DUE} > :due THEN 'queued' ELSE :open END, why, "
    f"'campaign', 0, :test, :provider, 0, 0, CASE WHEN why IS NULL THEN {_LOCAL_DUE} END"
)
# In an A/B test, a contact who cannot get the campaign has no variant, and is not in the group that is held out.
_VARIANT_COLUMNS = (
    "{sql.sender}, {sql.reply_to}, CASE WHEN why IS NOT NULL OR variant = -1 THEN 'skipped' "
    "WHEN variant = 0 THEN 'held' WHEN {sql.due} > :due THEN 'queued' ELSE :open END, "
    "CASE WHEN why IS NULL AND variant = -1 THEN 'held_out' ELSE why END, 'campaign', 0, :test, :provider, 0, 0, "
    "CASE WHEN why IS NULL AND variant > 0 THEN {sql.due} END"
)
_VARIANT = "CASE WHEN why IS NULL THEN variant END, CASE WHEN why IS NULL AND variant > 0 THEN :batch END"
_SEND_TIME = "CASE WHEN why IS NULL AND variant IS NOT -1 THEN send_time END"
# The group is computed in an inner query, because SQLite would compute it again for each use.
_SELECT_CURRENT = (
    "SELECT row_number() OVER (ORDER BY p.contact) AS pos, p.contact, h.value, h.key, p.why, p.variant, {times} "
    "FROM (SELECT m.*, {group} AS variant FROM ({members}) m) p LEFT JOIN channel h ON h.id = p.channel {join}"
)
# Since the list was written, a contact may have been deleted, or its address moved to another contact. A contact that
# was merged with one already processed has a row already.
_SELECT_LISTED = (
    "SELECT p.pos, CASE WHEN x.id IS NULL THEN c.id END AS contact, h.value, h.key, "
    "CASE WHEN c.id IS NULL OR x.id IS NOT NULL THEN 'contact_deleted' "
    "ELSE coalesce(p.why, CASE WHEN h.id IS NULL THEN 'no_channel' END) END AS why, p.variant, {times} "
    "FROM recipient_list.person p {join} "
    "LEFT JOIN contact c ON c.id = p.contact LEFT JOIN message x ON x.campaign_id = :campaign AND x.contact_id = c.id "
    "LEFT JOIN channel h ON h.id = p.channel AND h.contact_id = c.id AND x.id IS NULL "
    "WHERE p.pos > :after AND p.pos <= :last"
)
_LOCAL_TIMES, _NO_TIMES = "t.id AS send_time, t.due_at AS local_due", "NULL AS send_time, NULL AS local_due"
# These events have a batch: the list of all events shows them as one line, that of the start of the campaign.
_INSERT_SKIP_EVENTS = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
    "chain_depth, batch, created_at, updated_at) SELECT account_id, contact_id, channel || '_skipped', "
    "json_object('message_id', id, 'campaign_id', campaign_id, 'reason', skip_reason), 'message:' || id, ?, test, "
    "1, 0, 0, 'campaign:' || campaign_id, created_at, created_at FROM message WHERE id > ? AND id <= ? "
    "AND campaign_id = ? AND status = 'skipped'"
)


class SnapshotState(Struct):
    """The progress of a snapshot that is written in batches, as stored in the campaign."""

    sql: str
    parameters: dict[str, Any]
    double_opt_in: bool
    provider: str
    total: int | None = None  # number of rows in the end; None until the recipient list is written
    done: int = 0  # number of rows written
    listed: int = 0  # number of rows written from earlier recipient lists
    first_id: int = 0  # the message id of position p in this recipient list is first_id + p
    last: int = 0  # contact id of the last row written
    control: str = ""  # the SQL of the account's control group
    zone: str = ""  # the SQL of the time zone of contacts, for a campaign with a local time
    row_sql: RowSql | None = None  # SQL for the columns of an A/B test
    counts: dict[int, int] = {}  # of an A/B test: the number of rows written by variant

    @property
    def audience(self) -> Audience:
        """Return the audience of the send."""
        return Audience(self.sql, self.parameters, self.double_opt_in, self.control, self.zone)


class AudienceSize(NamedTuple):
    """Whether an audience is too large or too slow to query for the transaction of its send.

    `trigger` identifies the measured audience: list id, segment id and data of the campaign's trigger.
    """

    trigger: tuple[Any, ...]
    is_large: bool


def measure_audience(campaign: Campaign, trigger: Any = None) -> AudienceSize | None:
    """Return whether an audience is too large, or too slow to query, to be inserted in the transaction of the send.

    Call it outside of the write transaction, because it is slow. `trigger` is the `TriggerWrite` of a send request, if
    it has one. It is applied to the given campaign object, which must not be saved. Returns None if the trigger is
    invalid or the campaign has no audience; the send reports that.
    """
    if isinstance(trigger, TriggerWrite):
        faults = Faults()
        validate_trigger(campaign.account_id, trigger, faults)
        if faults.fields:
            return None
        for name in ("contact_list_id", "segment_id", "data"):
            value = getattr(trigger, name)
            if value is not UNSET:
                setattr(campaign.trigger, name, value or ({} if name == "data" else None))
    if not audience.is_set(campaign):
        return None
    return AudienceSize(_describe_trigger(campaign), not _fits_in_send(campaign))


def _describe_trigger(campaign: Campaign) -> tuple[Any, ...]:
    trigger = campaign.trigger
    return trigger.contact_list_id, trigger.segment_id, trigger.data


def _fits_in_send(campaign: Campaign) -> bool:
    """Return whether an audience is small, and found in little processor time, so that its send may write its rows.

    A few contacts with many events may take as long as millions, while no account can write (T22).
    """
    started, db = time.thread_time(), connection()
    db.set_progress_handler(lambda: time.thread_time() - started > _SLOW_QUERY_SECONDS, 10_000, id=_fits_in_send)
    try:
        return audience.estimate_size(campaign, MAX_AT_ONCE + 1) <= MAX_AT_ONCE
    except apsw.InterruptError:
        return False
    finally:
        db.set_progress_handler(None, id=_fits_in_send)


def _is_large(campaign: Campaign, size: AudienceSize | None) -> bool:
    """Return whether the snapshot is written in batches; a `size` measured for another audience is ignored."""
    if size is not None and size.trigger == _describe_trigger(campaign):
        return size.is_large
    return not _fits_in_send(campaign)


def begin_snapshot(campaign: Campaign, provider: str, size: AudienceSize | None = None) -> None:
    """Write a message row for each member of the audience, or, if the audience is large, store its SQL for the batches.

    Sets `audience_count` and, for a large audience, `pending_snapshot`. The caller saves the campaign.
    """
    require_write_transaction()
    members = audience.build_audience(campaign)
    row_sql = experiment.build_row_sql(campaign, "contact", campaign.hold_until or DUE_NOW)
    if _is_large(campaign, size):
        state = SnapshotState(
            members.sql, members.parameters, members.double_opt_in, provider, control=members.control,
            zone=members.zone, row_sql=row_sql,
        )  # fmt: skip
        campaign.pending_snapshot, campaign.audience_count = to_builtins(state, str_keys=True), 0
        after_commit(lambda: signals.wake("audiences"))
        return
    last_used_id = _reserve_ids()
    group = row_sql.group if row_sql is not None else _NO_GROUP
    times, join = (_LOCAL_TIMES, _join_times(campaign, members)) if members.zone else (_NO_TIMES, "")
    sql = _SELECT_CURRENT.format(members=audience.select_members(members), group=group, times=times, join=join)
    _insert_messages(campaign, provider, sql, members.parameters | {"id": last_used_id}, row_sql)
    campaign.audience_count = int(connection().changes())
    last_id = last_used_id + campaign.audience_count
    if members.zone:
        send_times.store_recipients(campaign.id, {})
    if row_sql is not None:
        experiment.store_sizes(campaign.id, experiment.count_new_rows(campaign.id, last_used_id, last_id))
    connection().execute(_INSERT_SKIP_EVENTS, (campaign.name, last_used_id, last_id, campaign.id))


def _join_times(campaign: Campaign, members: Audience) -> str:
    """Return the SQL that joins the row of `send_time` by which a campaign is sent to a member of its audience."""
    hours = send_times.list_hours(campaign)
    if len(hours) == 1:
        return send_times.JOIN_BY_ZONE.format(hour=hours[0])
    weights = best_hours.estimate_of(members.sql, members.parameters, hours[0], hours[-1] + 1)
    return send_times.JOIN_BY_ZONE.format(hour=weights.build_sql("p.contact"))


def _insert_messages(
    campaign: Campaign, provider: str, people: str, values: dict[str, Any], sql: RowSql | None
) -> None:
    """Write a message row for each row of the SQL `people`.

    `sql` is for the columns of an A/B test; None if the campaign has none.
    """
    parameters = _build_parameters(campaign, provider) | values
    is_local = campaign.local_time is not None
    columns, variant = _LOCAL_COLUMNS if is_local else _COLUMNS, "NULL, NULL"
    if sql is not None:
        columns, variant = _VARIANT_COLUMNS.format(sql=sql), _VARIANT
        parameters |= sql.parameters
    send_time = _SEND_TIME if is_local else "NULL"
    connection().execute(
        _INSERT_MESSAGES.format(columns=columns, variant=variant, send_time=send_time, people=people), parameters
    )


def _reserve_ids(count: int = 0) -> int:
    """Reserve the next `count` message ids for one campaign and return the id before the first of them."""
    return storage_sql.reserve_ids("message", count)


def _build_parameters(campaign: Campaign, provider: str) -> dict[str, Any]:
    """Return the SQL parameters that all rows of a campaign share."""
    now = clock.now_ms()
    is_held = campaign.hold_until is not None and campaign.hold_until > now
    return {
        "kind": audience.get_channel_kind(campaign), "account": campaign.account_id, "campaign": campaign.id,
        "flow": campaign.flow_id, "template": campaign.template_id, "channel": campaign.channel,
        "sender": campaign.sender["email"] or campaign.sender.get("number"), "reply_to": campaign.sender["reply_to"],
        "open": "held" if is_held else "queued", "test": campaign.test, "provider": provider,
        "due": campaign.hold_until or DUE_NOW, "moment": campaign.started_at, "now": now,
    }  # fmt: skip


def get_state(campaign: Campaign) -> SnapshotState | None:
    """Return the progress of a snapshot in batches, or None if there is none or it is complete."""
    return (
        None if campaign.pending_snapshot is None else convert(campaign.pending_snapshot, SnapshotState, str_keys=True)
    )


def record_list(key: SnapshotKey, written: WrittenList) -> None:
    """Store the size of the complete recipient list of a send and reserve a message id for each of its rows.

    Do nothing if the send was undone or cancelled meanwhile.
    """
    require_write_transaction()
    campaign = Campaign.get_by_id(key.campaign_id)
    state = get_state(campaign)
    if state is None or campaign.started_at != key.moment:
        return
    state.total, state.listed, state.first_id = state.done + written.size, state.done, _reserve_ids(written.size)
    if state.zone:
        send_times.store_recipients(campaign.id, written.by_send_time)
    _save_state(campaign, state)


def write_batch(key: SnapshotKey, size: int) -> int:
    """Write the message rows of the next `size` members of the attached recipient list.

    Return the number of rows that are still to be written, which is 0 if the send was undone or cancelled meanwhile.
    """
    require_write_transaction()
    campaign = Campaign.get_by_id(key.campaign_id)
    state = get_state(campaign)
    if state is None or state.total is None or campaign.started_at != key.moment:
        return 0
    offset = state.done - state.listed
    last = min(offset + size, state.total - state.listed)
    values = {"id": state.first_id, "after": offset, "last": last}
    times, join = (send_times.SLOT_TIMES, send_times.JOIN_SLOT) if state.zone else (_NO_TIMES, "")
    sql = _SELECT_LISTED.format(times=times, join=join)
    _insert_messages(campaign, state.provider, sql, values, state.row_sql)
    if state.row_sql is not None:
        counts = experiment.count_new_rows(campaign.id, state.first_id + offset, state.first_id + last)
        state.counts = {number: state.counts.get(number, 0) + counts.get(number, 0) for number in state.counts | counts}
    connection().execute(
        _INSERT_SKIP_EVENTS, (campaign.name, state.first_id + offset, state.first_id + last, campaign.id)
    )
    state.last = int(scalar("SELECT contact FROM recipient_list.person WHERE pos = ?", (last,)) or state.last)
    state.done = state.listed + last
    campaign.audience_count = state.done
    _save_state(campaign, state)
    return state.total - state.done


def _save_state(campaign: Campaign, state: SnapshotState) -> None:
    campaign.pending_snapshot = None if state.done == state.total else to_builtins(state, str_keys=True)
    if campaign.pending_snapshot is None:
        if state.row_sql is not None:
            experiment.store_sizes(campaign.id, state.counts)
        after_commit(lambda: signals.wake("campaigns"))
    campaign.save(only=["pending_snapshot", "audience_count"])


# The worker that runs the batches, and the size of a batch.

T = TypeVar("T")
log = logging.getLogger("campanero.audiences")
_MIN_ROWS, _FIRST_ROWS, _MAX_ROWS = 50, 200, 10_000
# The processor time that a batch should take; on a busy machine its wall-clock time is several times as long.
_BATCH_SECONDS = 0.008
# A batch costs its processor time, or this share of its wall-clock time if that is more. Most wall-clock time is spent
# waiting for Python's global lock, which smaller batches would only make more frequent; a slow disk, however, must lead
# to smaller batches.
_MIN_SHARE_OF_CLOCK = 1 / 6
_PAUSE_SECONDS = 0.002
_START_DELAY_SECONDS = 0.1
# The interval between two wake-ups of the sender; one after each batch would cost more than the batch itself.
_SIGNAL_SECONDS = 0.2
_RETRY_SECONDS = 60.0
# What is to be done with the rows of a campaign: cancelled or deleted, written, or given the winner of a test.
_Work = Literal["end", "write", "release"]
_UNFINISHED = "pending_snapshot IS NOT NULL OR pending_end IS NOT NULL"


def is_due() -> bool:
    """Return whether any campaign has a pending snapshot, or rows to cancel, to delete or to release."""
    return (
        fetch_one(f"SELECT 1 FROM campaign WHERE {_UNFINISHED} LIMIT 1") is not None or experiment.has_pending_release()
    )


class BatchRunner:
    """The worker that writes pending snapshots, and cancels, deletes or releases rows, in batches; a process has one.

    Set `stopping` to stop it after the current batch.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._busy = threading.Lock()
        self._retry_at: dict[int, float] = {}

    def run(self) -> None:
        """Process all pending campaigns; return at once if another thread is already processing them.

        A campaign that failed is tried again by a call at least `_RETRY_SECONDS` later. Raises Unavailable if the
        service is stopping, and storage errors such as a full disk.
        """
        if not self._busy.acquire(blocking=False):
            return
        try:
            while not self.stopping.is_set() and (unfinished := self._find_next()) is not None:
                self._process(*unfinished)
            if fetch_one(f"SELECT 1 FROM campaign WHERE {_UNFINISHED} LIMIT 1") is None:
                delete_orphans()
        finally:
            self._busy.release()

    def _find_next(self) -> tuple[int, _Work] | None:
        """Return (id of the next pending campaign, what is to be done with its rows), or None.

        Campaigns whose rows are to be ended come first; campaigns that failed recently are left out.
        """
        now = time.monotonic()
        campaigns = rows(
            f"SELECT id, pending_end IS NOT NULL FROM campaign WHERE {_UNFINISHED} ORDER BY pending_end IS NULL, id",
        )
        work: list[tuple[int, _Work]] = [(row[0], "end" if row[1] else "write") for row in campaigns]
        work += [(campaign_id, "release") for campaign_id in experiment.list_pending_releases()]
        return next((entry for entry in work if self._retry_at.get(entry[0], 0.0) <= now), None)

    def _process(self, campaign_id: int, work: _Work) -> None:
        try:
            if work == "end":
                self._run_batches(states.end_batch, campaign_id)
            elif work == "release":
                self._run_batches(experiment.release_batch, campaign_id, "outbox")
            else:
                self._write_snapshot(campaign_id)
        except Unavailable:
            raise
        except Exception as error:
            storage_error = to_storage_error(error)
            if storage_error is not None:
                raise storage_error from error
            # One failing campaign must not block the others.
            log.exception("campaigns: writing messages failed campaign=%s", campaign_id)
            self._retry_at[campaign_id] = time.monotonic() + _RETRY_SECONDS

    def _write_snapshot(self, campaign_id: int) -> None:
        campaign = Campaign.get_by_id(campaign_id)
        state = get_state(campaign)
        if state is None:
            return
        key = SnapshotKey(campaign_id, campaign.started_at)
        if state.total is None or not get_path(key).exists():
            kind = audience.get_channel_kind(campaign)
            group = state.row_sql.group if state.row_sql is not None else _NO_GROUP
            written = write_audience(key, state.audience, kind, state.last, self.stopping.is_set, group)
            transactions.write(record_list, key, written)
        transactions.run_outside_transaction(attach, key)
        try:
            self._run_batches(write_batch, key, "outbox")
        finally:
            if not transactions.is_stopped():
                transactions.run_outside_transaction(detach)

    def _run_batches(self, process_batch: Callable[[T, int], int], target: T, signal: str | None = None) -> None:
        """Call `process_batch(target, size)` on the writer until it returns 0 or the service stops.

        The size of a batch depends on the time that the previous one took. `signal` names the background job to wake up
        at intervals and at the end.
        """
        size, remaining, signalled_at = _FIRST_ROWS, 1, 0.0
        # The request that caused the work responds first.
        self.stopping.wait(_START_DELAY_SECONDS)
        while remaining and not self.stopping.is_set():
            remaining, cpu_seconds, seconds = transactions.write(_run_timed, process_batch, target, size)
            size = next_batch_size(size, cpu_seconds, seconds)
            if signal is not None and (not remaining or time.monotonic() > signalled_at + _SIGNAL_SECONDS):
                signals.wake(signal)
                signalled_at = time.monotonic()
            time.sleep(_PAUSE_SECONDS)


def next_batch_size(size: int, cpu_seconds: float, seconds: float) -> int:
    """Return the number of rows for the next batch, so that it takes `_BATCH_SECONDS`.

    `size`, `cpu_seconds` and `seconds` (wall-clock) describe the previous batch. The next batch has at most twice as
    many rows, and between `_MIN_ROWS` and `_MAX_ROWS`.
    """
    cost = max(cpu_seconds, seconds * _MIN_SHARE_OF_CLOCK, 0.001)
    return max(_MIN_ROWS, min(_MAX_ROWS, int(size * min(2.0, _BATCH_SECONDS / cost))))


def _run_timed(process_batch: Callable[[T, int], int], target: T, size: int) -> tuple[int, float, float]:
    """Process one batch; return the result of `process_batch`, and its processor and wall-clock seconds."""
    started, cpu_started = time.perf_counter(), time.thread_time()
    remaining = process_batch(target, size)
    return remaining, time.thread_time() - cpu_started, time.perf_counter() - started
