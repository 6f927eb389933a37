"""One look at everything, for one account or for whoever runs the installation."""

import math
import re
from collections.abc import Iterable, Iterator

from appliance.core import clock, counters
from appliance.core.counters import Family, Histogram, gauge
from appliance.core.rested import Rested
from appliance.ops.metrics import machine
from appliance.sending.messages import queue_order
from appliance.sending.messages.queue_order import CHANNELS
from appliance.storage.open import fetch_one, rows, scalar

# What stands in the tables: what waits, and for how long. Read over indexes; kept for a while where that is dear.

# A queue of a million is counted in a third of a second: then for six seconds the same is told again
_known: Rested[list[Family]] = Rested(rests=20, cheap=0.01)
_IMPORTS = {"waiting": "status = 'pending'", "running": "status = 'processing'", "failed": "status = 'failed'"}


def families(account_id: int | None) -> list[Family]:
    """Return what stands in the tables, of an account or of all, as it is or was a moment ago."""
    return _known.get(account_id, lambda: [*_queue(account_id), *_work(account_id), *_webhooks(account_id)])


def _queue(account_id: int | None) -> Iterator[Family]:
    found = {channel: queue_order.depth_of(channel, account_id) for channel in CHANNELS}
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
    own = "AND +account_id = coalesce(?, account_id)"
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
        found = fetch_one("SELECT count(*), min(next_attempt_at) FROM webhook_delivery WHERE webhook_id = ? "
                    "AND status = 'pending'", (number,)) or (0, None)  # fmt: skip
        waiting += found[0]
        oldest += [found[1]] if found[1] is not None else []
    yield gauge("webhook_deliveries_waiting", "Events that webhooks have not taken yet.", [({}, waiting)])
    late = max(0, now - min(oldest, default=now)) / 1000
    yield gauge("webhook_oldest_due_seconds", "For how long the oldest delivery could have been tried.", [({}, late)])
    failing = sum(since is not None for _, since in hooks)
    yield gauge("webhooks_failing", "Webhooks whose last attempts all failed.", [({}, failing)])


# Writes numbers as Prometheus reads them (text format 0.0.4).

KIND = "text/plain; version=0.0.4"
_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_VALUE = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def written(families: Iterable[Family]) -> str:
    """Return the text: each name once, with what it means and of which type it is, and then its numbers."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.words.translate(_HELP)}", f"# TYPE {family.name} {family.kind}"]
        for suffix, labels, value in family.samples:
            named = ",".join(f'{name}="{one.translate(_VALUE)}"' for name, one in labels)
            lines.append(f"{family.name}{suffix}{f'{{{named}}}' if named else ''} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def scrape(account_id: int | None) -> str:
    """Return all numbers as text: of the whole installation (None), or those of one account and no others.

    Of the machine an account sees nothing: how the database grows tells how much others send.
    """
    found: list[Family] = [*counters.families(account_id), *families(account_id)]
    found += [] if account_id is not None else machine.families()
    return written(sorted(found, key=lambda one: one.name))


# How long requests take, by the pattern of their path: never by a path as it was asked for.

_TOOK = Histogram(
    "http_request_seconds",
    "From a request to the beginning of its answer, by the pattern of its path and the class of its status.",
    ("method", "route", "status"),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PLACE = re.compile(r"<(\w+)(?::[^>]*)?>")


def note_request(method: str, route: str | None, status: int, seconds: float) -> None:
    """Note a request that was answered; `route` is how the router writes its path, None where it knows none."""
    pattern = "unknown" if route is None else "/" + _PLACE.sub(r"{\1}", route.strip("/")).replace("{number}", "{id}")
    _TOOK.observe(seconds, method if method in _METHODS else "other", pattern, f"{status // 100}xx")
