"""Hold the messages that the former machine may have sent after the last change that has arrived here.

Message ids are grouped in blocks. The former machine writes a block into the lease before it sends messages of it. So a
due message that is still open in this copy may have been sent if its block is in the lease; no other message has. A
held message gets the status `uncertain`: only a user can send it again or count it as sent (docs/promises.md#p3).
"""

from typing import NamedTuple

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.campaigns import states, store
from appliance.core import clock
from appliance.core.i18n import gettext_noop
from appliance.flows import lifecycle
from appliance.ops.fencing import record as records
from appliance.ops.fencing.record import LeaseRecord
from appliance.sending.messages import ledger, queue
from appliance.storage import database as sql
from appliance.storage import models, sandbox, send_lease
from appliance.storage.database import rows, scalar
from appliance.storage.models import Flow
from appliance.storage.transactions import require_write_transaction

HELD_TEXT = gettext_noop("the former machine may have sent it before this one took over")
PAUSE_REASON = "may_have_started"
# The ids of these tables are published: in links, Message-IDs and return paths, and in webhooks.
_PUBLISHED_TABLES = ("message", "confirmation", "event", "webhook_delivery")
# This number of ids is skipped, because the former machine may have given them to rows since; it cannot have used more.
_SKIPPED_IDS = 10_000_000
_MAX_ROWS = 500
# For so long, at least, the former machine may have gone on sending after the last change that has arrived.
_UNKNOWN_MS = 15 * 60_000
_OPEN = "status IN ('queued', 'held') AND due_at <= :until"
_IN_BLOCKS = (
    "EXISTS (SELECT 1 FROM json_each(:ranges) r WHERE message.id BETWEEN (r.value ->> 0) * :size "
    "AND (r.value ->> 1) * :size + :size - 1)"
)


class HeldCampaign(NamedTuple):
    """A campaign with messages that a user has to decide about; id 0 stands for all other messages of an account."""

    account_id: int
    campaign_id: int
    name: str
    message_count: int


class Held(NamedTuple):
    """The messages that a promotion has held, and the campaigns and flows that it has paused."""

    messages: list[HeldCampaign]
    campaigns: list[tuple[int, str]]  # id and name: scheduled ones that may have been started, paused
    flows: list[tuple[int, str]]  # id and name: flows with steps that may have been taken, paused
    is_exact: bool  # False: the copy is too old for the blocks of the lease, so all due messages were held

    @property
    def message_count(self) -> int:
        """Return the number of held messages."""
        return sum(campaign.message_count for campaign in self.messages)


def hold(lease: LeaseRecord | None, heartbeat_ms: int | None) -> Held:
    """Hold all messages that may have been sent, and pause the campaigns and flows that may have advanced.

    `lease` is the last lease of the former machine, or None. `heartbeat_ms` is the last heartbeat of the former machine
    in this copy, or None. Repeating the call holds only what has become due since, and does not list what it has paused
    before.
    """
    require_write_transaction()
    queue.settle_log()
    is_exact = lease is not None and heartbeat_ms is not None and has_all_blocks(lease, heartbeat_ms)
    until = _estimate_end(lease, heartbeat_ms, is_exact)
    ranges = lease.blocks if lease is not None else []
    _hold_messages(ranges if is_exact else None, until)
    last_block = sql.last_id("message") // send_lease.BLOCK_IDS
    has_unknown = not is_exact or any(last >= last_block for _, last in ranges)
    campaigns = _pause_campaigns(until) if has_unknown else []
    flows = _pause_flows(until, has_unknown)
    _skip_ids()
    return Held(count_held(), campaigns, flows, is_exact)


def _estimate_end(lease: LeaseRecord | None, heartbeat_ms: int | None, is_exact: bool) -> int:
    """Return until when messages may have become due on the former machine, in ms by its clock.

    Its clock may be minutes ahead of that of this machine, or may have been set back. So the last times that it wrote
    count, and the duration of its lease, or without that `_UNKNOWN_MS`, and the present time by the clock here.
    """
    last = max(heartbeat_ms or 0, lease.renewed_at if lease is not None else 0)
    if is_exact and lease is not None:
        return last + lease.seconds * 1000
    return max(last + _UNKNOWN_MS, clock.now_ms())


def has_all_blocks(lease: LeaseRecord, heartbeat_ms: int) -> bool:
    """Return whether a lease names all blocks of which messages may have been sent since the heartbeat of a copy.

    A lease that is much later than the heartbeat does not, because old blocks were removed from it. A lease that ended
    before the heartbeat may not be the last one: an earlier object may have been put in its place.
    """
    behind = lease.renewed_at - heartbeat_ms
    return -2 * lease.seconds * 1000 < behind < lease.kept_seconds * 1000


def _hold_messages(ranges: list[tuple[int, int]] | None, until: int) -> None:
    """Set messages that were being sent, and the due ones whose blocks are in `ranges`, to `uncertain`.

    `ranges` None means all due messages; `until` is the time until which messages count as due.
    """
    condition = "1" if ranges is None else _IN_BLOCKS
    select = (
        f"SELECT id FROM message WHERE id > :after AND (status = 'sending' OR ({_OPEN} AND {condition})) "
        "ORDER BY id LIMIT :limit"
    )
    values = {
        "until": until, "ranges": records.encode_ranges(ranges or []), "size": send_lease.BLOCK_IDS,
        "limit": _MAX_ROWS, "after": 0,
    }  # fmt: skip
    now = clock.now_ms()
    while ids := [row[0] for row in rows(select, values)]:
        for message_id in ids:
            ledger.mark_uncertain(ledger.get_row(message_id), HELD_TEXT, now)
        values["after"] = ids[-1]


def _pause_campaigns(until: int) -> list[tuple[int, str]]:
    """Pause the scheduled campaigns that were due, because the former machine may have started them since.

    Return (id, name) of each.
    """
    due = rows(
        "SELECT account_id, id, name FROM campaign WHERE phase = 'scheduled' AND scheduled_at <= ? "
        "AND deleted_at IS NULL ORDER BY id",
        (until,),
    )
    for account_id, campaign_id, _ in due:
        states.pause_by_service(store.get(account_id, campaign_id), PAUSE_REASON)
    return [(campaign_id, name or "") for _, campaign_id, name in due]


def _pause_flows(until: int, has_unknown: bool) -> list[tuple[int, str]]:
    """Pause the flows whose due requests the former machine may have made; with `has_unknown` also due steps.

    Return (id, name) of each.
    """
    due_run = "EXISTS (SELECT 1 FROM run r WHERE r.flow_id = f.id AND r.status = 'live' AND r.due_at <= :until)"
    due_request = (
        "EXISTS (SELECT 1 FROM flow_request q WHERE q.flow_id = f.id AND q.status = 'pending' "
        "AND q.next_attempt_at <= :until)"
    )
    due = rows(
        "SELECT f.id, f.name FROM flow f WHERE f.status = 'active' AND f.hidden = 0 AND f.deleted_at IS NULL "
        f"AND ({due_request} OR (:unknown AND {due_run})) ORDER BY f.id",
        {"until": until, "unknown": int(has_unknown)},
    )
    for flow_id, _ in due:
        flow = Flow.get_by_id(flow_id)
        lifecycle.pause(flow)
        flow.save()
    return [(flow_id, name or "") for flow_id, name in due]


def _skip_ids() -> None:
    """Reserve the ids that the former machine may have given to rows since: links in its messages have them."""
    moment = min(clock.now_ms(), sandbox.FIRST_SANDBOX_ID // 2)
    for table in (model._meta.table_name for model in models.ALL):
        last = sql.last_id(table)
        target = max(last, moment) if table in _PUBLISHED_TABLES else last + _SKIPPED_IDS
        sql.reserve_ids(table, max(0, target - last))


def count_held() -> list[HeldCampaign]:
    """Return the number of held messages of each campaign.

    After the journal has been replayed there are fewer, because it shows which messages were sent.
    """
    counts = rows(
        "SELECT m.account_id, coalesce(m.campaign_id, 0), max(c.name), count(*) FROM message m LEFT JOIN campaign c "
        "ON c.id = m.campaign_id WHERE m.status = 'uncertain' AND m.error_text = ? GROUP BY 1, 2 ORDER BY 1, 2",
        (HELD_TEXT,),
    )
    return [HeldCampaign(account_id, campaign_id, name or "", count) for account_id, campaign_id, name, count in counts]


def record_promotion(epoch: int | None, held: Held) -> None:
    """Record the promotion in the audit log of each account; `epoch` is None if it was done without a lease."""
    require_write_transaction()
    basis = {"old_machine_is_off": True} if epoch is None else {"epoch": epoch}
    if scalar("SELECT count(*) FROM account"):
        for (account_id,) in rows("SELECT id FROM account ORDER BY id"):
            count = sum(campaign.message_count for campaign in held.messages if campaign.account_id == account_id)
            audit.record(Actor("cli"), account_id, "promote", None, {**basis, "held": count})
