"""What stands in the tables: what waits, and for how long. Read over indexes; kept for a while where that is dear."""

from collections.abc import Iterator

from appliance import clock
from appliance.counted import Family, gauge
from appliance.db.dialect.hints import aside
from appliance.db.open import one, rows, scalar
from appliance.messages import queue_depth
from appliance.messages.queue_depth import CHANNELS
from appliance.rested import Rested

# A queue of a million is counted in a third of a second: then for six seconds the same is told again
_known: Rested[list[Family]] = Rested(rests=20, cheap=0.01)
_IMPORTS = {"waiting": "status = 'pending'", "running": "status = 'processing'", "failed": "status = 'failed'"}


def families(account_id: int | None) -> list[Family]:
    """Return what stands in the tables, of an account or of all, as it is or was a moment ago."""
    return _known.get(account_id, lambda: [*_queue(account_id), *_work(account_id), *_webhooks(account_id)])


def _queue(account_id: int | None) -> Iterator[Family]:
    found = {channel: queue_depth.of(channel, account_id) for channel in CHANNELS}
    states = [
        ({"channel": channel, "state": state}, getattr(here, state))
        for channel, here in found.items() for state in ("due", "later", "paused", "in_hand")
    ]  # fmt: skip
    words = "Messages that wait: due now, for a later time, for somebody to resume their campaign; or that are in hand."
    yield gauge("queue_messages", words, states)
    ages = [({"channel": channel}, here.oldest_seconds) for channel, here in found.items()]
    yield gauge("queue_oldest_due_seconds", "For how long the oldest message that is due could have gone.", ages)
    live = "SELECT channel, count(*) FROM campaign WHERE account_id = coalesce(?, account_id) AND phase IN " \
           "('holding', 'sending') AND deleted_at IS NULL GROUP BY channel"  # fmt: skip
    sending = dict(rows(live, (account_id,)))
    numbers = [({"channel": channel}, sending.get(channel, 0)) for channel in CHANNELS]
    yield gauge("campaigns_sending", "Campaigns that are under way.", numbers)


def _work(account_id: int | None) -> Iterator[Family]:
    own = f"AND {aside('account_id')} = coalesce(?, account_id)"
    states = [
        ({"state": state}, scalar(f"SELECT count(*) FROM import WHERE {where} {own}", (account_id,)))
        for state, where in _IMPORTS.items()
    ]
    yield gauge("imports", "Files of people by how they stand; failed ones as long as they are kept.", states)
    active = "FROM flow WHERE status = 'active' AND hidden = 0 AND deleted_at IS NULL"
    flows = f"SELECT count(*) {active} {own}"
    yield gauge("flows_active", "Flows that people can enter.", [({}, scalar(flows, (account_id,)))])
    due = (
        f"SELECT count(*) FROM run WHERE status = 'live' AND due_at <= ? AND flow_id IN (SELECT id {active} "
        "AND account_id = coalesce(?, account_id))"
    )
    late = scalar(due, (clock.now_ms(), account_id))
    yield gauge("flow_runs_due", "People in flows whose next step could be done now.", [({}, late)])


def _webhooks(account_id: int | None) -> Iterator[Family]:
    waiting, oldest, now = 0, [], clock.now_ms()
    hooks = rows("SELECT id, failing_since FROM webhook WHERE enabled AND deleted_at IS NULL "
                 "AND account_id = coalesce(?, account_id)", (account_id,))  # fmt: skip
    for number, _ in hooks:
        found = one("SELECT count(*), min(next_attempt_at) FROM webhook_delivery WHERE webhook_id = ? "
                    "AND status = 'pending'", (number,)) or (0, None)  # fmt: skip
        waiting += found[0]
        oldest += [found[1]] if found[1] is not None else []
    yield gauge("webhook_deliveries_waiting", "Events that webhooks have not taken yet.", [({}, waiting)])
    late = max(0, now - min(oldest, default=now)) / 1000
    yield gauge("webhook_oldest_due_seconds", "For how long the oldest delivery could have been tried.", [({}, late)])
    failing = sum(since is not None for _, since in hooks)
    yield gauge("webhooks_failing", "Webhooks whose last attempts all failed.", [({}, failing)])
