"""Replays of flows: a flow with its unpublished changes, and its live version, against the events of the past.

A replay is a job, because it may take a minute. Its row is written when it is requested, and a child process that only
reads the database runs it. The result is stored until the next replay of the flow, or for `RETENTION_MS`. A replay that
a stop or a kill of the service interrupts begins again at the next start. Nothing is sent, and only its row is written.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.accounts import accounts
from appliance.audience.segments.condition_budget import ConditionsTooSlow
from appliance.core import clock, crypto, signals
from appliance.core.errors import Conflict, Faults, NotFound
from appliance.core.executable import read_task, run_child, send_to_parent
from appliance.core.i18n import gettext
from appliance.core.limited_process import FairShares
from appliance.core.validation import EventName, When
from appliance.events import log as event_log
from appliance.flows import drafts, replay_result, store, triggers, versions
from appliance.flows.document import Step, StepsWrite
from appliance.flows.drafts import FlowDraft
from appliance.flows.replay_events import Feed, FeedRequest
from appliance.flows.replay_result import OrderInput, PersonRow, ReplayResult
from appliance.flows.replay_simulator import (
    CLOCK_MS,
    FREE_MS,
    RECENT_MS,
    FlowReplay,
    ReplayOutcome,
    ReplayVersion,
    choose_interval,
)
from appliance.flows.simulation import parse_tried_steps
from appliance.flows.triggers import TriggerSpec
from appliance.settings import config
from appliance.storage import database, models, transactions
from appliance.storage.database import fetch_one, open_database, rows, run, scalar
from appliance.storage.models import Flow, Trigger
from appliance.storage.transactions import after_commit, require_write_transaction

log = logging.getLogger("campanero.replays")
DEFAULT_DAYS, MAX_DAYS, MAX_SEED = 90, 90, 2**31 - 1
# The minimum time between the end of a replay and now
_MAX_BACK_MS = 365 * clock.DAY_MS
RETENTION_MS = 14 * clock.DAY_MS
State = Literal["none", "waiting", "running", "complete", "failed", "cancelled"]
# The codes in the column `error`
TOO_SLOW, FAILED, TOO_LONG = "conditions_too_slow", "failed", "too_long"
# The time limit of a replay; without it, costly conditions would occupy a processor for hours.
MAX_SECONDS = 600.0
_PROGRESS_SECONDS = 0.3
# The settings that decide what is sent, without those that contain secrets.
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "sms": ("transport", "countries", "opt_out_hint", "plain_quotes", "require_evidence", "parts_per_day", "give_up",
            "stop_words"),
    "email": ("allow_unverified_domains",),
}  # fmt: skip


class ReplayRequest(Struct):
    """A replay of a flow against the events of the last `days` days."""

    days: (
        Annotated[int, Meta(ge=1, le=MAX_DAYS), Meta(description="number of past days to replay; default: 90")]
        | UnsetType
    ) = UNSET
    seed: (
        Annotated[
            int,
            Meta(ge=0, le=MAX_SEED),
            Meta(description="decides random splits and the sample; the same seed gives the same result; default: 1"),
        ]
        | UnsetType
    ) = UNSET
    until: Annotated[When, Meta(description="end of the replayed time; default: now")] | None | UnsetType = UNSET
    order_event: (
        Annotated[
            EventName,
            Meta(description="event that counts as an order; default: the goal of the flow, or events with an amount"),
        ]
        | None
        | UnsetType
    ) = UNSET
    sms_price: (
        Annotated[float, Meta(ge=0, le=1_000), Meta(description="price of a part of an SMS")] | None | UnsetType
    ) = UNSET
    steps: Annotated[StepsWrite, Meta(description="steps to replay instead of the stored ones")] | UnsetType = UNSET


class PreparedReplay(NamedTuple):
    """The values of a replay's row, computed outside of the writer."""

    flow_id: int
    values: dict[str, Any]


class ReplayTask(Struct):
    """The input of the child process: the id of the replay's row, and the settings and key of the service."""

    replay_id: int
    data_dir: str
    base_url: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    key: bytes = b""  # the installation's secret key


# The progress of running replays, by id. It is not stored, because it changes every second.
_progress: dict[int, float] = {}
_shares = FairShares()


def _parse_request(account_id: int, flow_id: int, request: ReplayRequest) -> tuple[FlowDraft, list[Step] | None, int]:
    """Return the draft of a flow, the steps to try (None: those that are live), and the end of the replayed time.

    Raises NotFound, or Invalid with all errors of the request.
    """
    draft, faults, now = drafts.load_draft(account_id, flow_id), Faults(), clock.now_ms()
    steps = parse_tried_steps(store.get(account_id, flow_id), request.steps, faults)
    until = request.until if isinstance(request.until, int) else now
    if not now - _MAX_BACK_MS <= until <= now:
        faults.add("until", gettext("is invalid"))
    faults.check()
    if steps is None and (draft.is_changed or not draft.flow.version):
        steps = draft.steps
    return draft, steps, until


def prepare(account_id: int, flow_id: int, request: ReplayRequest) -> PreparedReplay:
    """Return the row of a replay of a flow; raises NotFound, or Invalid with all errors of the request or the flow."""
    draft, steps, until = _parse_request(account_id, flow_id, request)
    flow, faults = draft.flow, Faults()
    trigger = draft.trigger if draft.is_changed else triggers.get_spec(Trigger.get(Trigger.flow == flow_id))
    for key, message in [
        *triggers.list_missing(trigger),
        *triggers.list_broken_conditions(account_id, trigger),
    ]:
        faults.add(f"trigger.{key}", message)
    if not (steps if steps is not None else flow.steps):
        faults.add("steps", gettext("can't be blank"))
    faults.check()
    days = request.days if isinstance(request.days, int) else DEFAULT_DAYS
    goal = draft.goal if draft.is_changed else flow.goal
    order_event = request.order_event if isinstance(request.order_event, str) else choose_order_event(goal)
    return PreparedReplay(flow_id, {
        "account": account_id, "flow": flow_id, "state": "waiting", "days": days, "until": until,
        "seed": request.seed if isinstance(request.seed, int) else 1, "order_event": order_event,
        "sms_price": float(request.sms_price) if isinstance(request.sms_price, int | float) else None,
        "steps": steps, "trigger": {**trigger._asdict(), "data": dict(trigger.data)}, "goal": goal,
        "live_version": flow.version or None, "created_at": clock.now_ms(),
    })  # fmt: skip


def choose_order_event(goal: str | None) -> str | None:
    """Return the event that counts as an order if a request names none: the goal if clients submit it, else None."""
    return goal if goal is not None and event_log.find_name_error(goal) is None else None


def check_request(account_id: int, request: ReplayRequest, flow_id: int) -> None:
    """Raise NotFound, or Invalid with all errors of a request; nothing is started."""
    _parse_request(account_id, flow_id, request)


def start(prepared: PreparedReplay, actor: str) -> models.FlowReplay:
    """Store a replay in place of the last one of the flow, and wake the job that runs it.

    Raises Conflict while a replay of the flow waits or runs.
    """
    require_write_transaction()
    state = scalar("SELECT state FROM flow_replay WHERE flow_id = ?", (prepared.flow_id,))
    if state in ("waiting", "running"):
        raise Conflict(gettext("A replay of this flow is running. Wait for its end, or cancel it."), state=state)
    run("DELETE FROM flow_replay WHERE flow_id = ?", (prepared.flow_id,))
    row = models.FlowReplay.create(**prepared.values, requested_by=actor)
    after_commit(lambda: signals.wake("replays"))
    return row


def find(account_id: int, flow_id: int) -> models.FlowReplay | None:
    """Return the last replay of a flow without the column `people`, or None. Raises NotFound for an unknown flow."""
    store.find(account_id, flow_id)
    table = models.FlowReplay
    columns = [column for name, column in table._meta.fields.items() if name != "people"]
    return table.select(*columns).where(table.account == account_id, table.flow == flow_id).first()  # type: ignore[no-any-return]  # Peewee has no type annotations


def get(account_id: int, flow_id: int) -> models.FlowReplay:
    """Return the last replay of a flow, without the column `people`; raises NotFound if there is none."""
    row = find(account_id, flow_id)
    if row is None:
        raise NotFound
    return row


def get_progress(row: models.FlowReplay) -> float:
    """Return the progress of a replay, from 0 to 1."""
    return 1.0 if row.state == "complete" else _progress.get(row.id, 0.0)


def get_people(account_id: int, flow_id: int) -> list[PersonRow]:
    """Return the rows of each contact's messages in the last replay of a flow, [] without a result.

    Raises NotFound for an unknown flow.
    """
    store.find(account_id, flow_id)
    row = fetch_one(
        "SELECT people FROM flow_replay WHERE account_id = ? AND flow_id = ? AND state = 'complete'",
        (account_id, flow_id),
    )
    if row is None or row[0] is None:
        return []
    return replay_result.unpack_people(row[0])


def read_result(row: models.FlowReplay) -> ReplayResult | None:
    """Return the stored result of a replay, or None while there is none."""
    return None if row.result is None else msgspec.convert(row.result, ReplayResult)


def cancel(account_id: int, flow_id: int) -> models.FlowReplay:
    """Cancel a replay that waits or runs, and return it; one that has ended is only returned. Raises NotFound."""
    require_write_transaction()
    get(account_id, flow_id)
    run(
        "UPDATE flow_replay SET state = 'cancelled', ended_at = ? WHERE flow_id = ? AND state IN "
        "('waiting', 'running')",
        (clock.now_ms(), flow_id),
    )
    return get(account_id, flow_id)


# -- the job -----------------------------------------------------------------------------------------------------------


def is_due() -> bool:
    """Return whether a replay waits, or was interrupted by the end of another process."""
    open_replays = {row[0] for row in rows("SELECT id FROM flow_replay WHERE state IN ('waiting', 'running')")}
    return bool(open_replays - _progress.keys())


def run_pending(stopping: threading.Event) -> None:
    """Run the waiting replays, one after the other and the accounts in turns, until `stopping` is set.

    Only one thread may call this at a time. An interrupted replay is run again from its beginning.
    """
    while not stopping.is_set() and (next_replay := _take_next()) is not None:
        replay_id, account_id = next_replay
        started_at = time.monotonic()
        try:
            transactions.write(
                run,
                "UPDATE flow_replay SET state = 'running', started_at = ? WHERE id = ? AND state IN ('waiting', "
                "'running')",
                (clock.now_ms(), replay_id),
            )
            _run_child(replay_id, stopping)
        except Exception:
            log.exception("replays: failed replay=%s", replay_id)
            transactions.write(_end, replay_id, "failed", FAILED)
        finally:
            _progress.pop(replay_id, None)
            _shares.charge(account_id, time.monotonic() - started_at)


def _take_next() -> tuple[int, int] | None:
    waiting = rows("SELECT account_id, id FROM flow_replay WHERE state IN ('waiting', 'running') ORDER BY id DESC")
    if not waiting:
        return None
    by_account = dict(waiting)  # the first one of each account
    account_id = _shares.next(by_account)
    _progress[by_account[account_id]] = 0.0
    return by_account[account_id], account_id


def _run_child(replay_id: int, stopping: threading.Event) -> None:
    """Run a replay in a child process, until it ends, is cancelled, exceeds the time limit, or the service stops."""
    started_at = time.monotonic()
    with run_child("replay-flow", _build_task(replay_id)) as messages:
        for message in messages:
            if "done" in message:
                done = message["done"]
                transactions.write(_store, replay_id, done)
                return
            _progress[replay_id] = message.get("share", _progress.get(replay_id, 0.0))
            if stopping.is_set():
                return
            if not _is_open(replay_id):
                # The flow was deleted, or a user cancelled the replay; the row says so already.
                transactions.write(_end, replay_id, "cancelled", None)
                return
            if time.monotonic() - started_at > MAX_SECONDS:
                transactions.write(_end, replay_id, "failed", TOO_LONG)
                return


def _is_open(replay_id: int) -> bool:
    sql = "SELECT 1 FROM flow_replay r JOIN flow f ON f.id = r.flow_id WHERE r.id = ? AND r.state = 'running'"
    return fetch_one(f"{sql} AND f.deleted_at IS NULL", (replay_id,)) is not None


def _build_task(replay_id: int) -> ReplayTask:
    current = config.current()
    settings = {
        section: {name: getattr(getattr(current, section), name) for name in names}
        for section, names in _SETTINGS.items()
    }
    return ReplayTask(replay_id, str(current.data_dir), config.base_url(current), settings, crypto.loaded_key())


def _store(replay_id: int, done: dict[str, Any]) -> None:
    """Store the result of a replay that is still running, or why it has none."""
    require_write_transaction()
    if "error" in done:
        _end(replay_id, "failed", done["error"])
        return
    run(
        "UPDATE flow_replay SET state = 'complete', result = ?, people = ?, ended_at = ? "
        "WHERE id = ? AND state = 'running'",
        (
            msgspec.json.encode(done["result"]).decode(), msgspec.convert(done["people"], bytes, strict=False),
            clock.now_ms(), replay_id,
        ),
    )  # fmt: skip


def _end(replay_id: int, state: State, error: str | None) -> None:
    require_write_transaction()
    run(
        "UPDATE flow_replay SET state = ?, error = ?, ended_at = ? WHERE id = ? AND state IN ('waiting', 'running')",
        (state, error, clock.now_ms(), replay_id),
    )


def list_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` replays that ended more than `RETENTION_MS` ago, or whose flow was deleted."""
    sql = (
        "SELECT id FROM flow_replay WHERE ended_at < ?1 UNION SELECT r.id FROM flow_replay r JOIN flow f "
        "ON f.id = r.flow_id WHERE f.deleted_at NOT NULL LIMIT ?2"
    )
    return [row[0] for row in rows(sql, (clock.now_ms() - RETENTION_MS, limit))]


def delete(ids: Sequence[int]) -> int:
    """Delete the replays with these ids and return their number."""
    require_write_transaction()
    return run(f"DELETE FROM flow_replay WHERE id IN ({','.join(map(str, ids))})")


# -- the child process -------------------------------------------------------------------------------------------------


def main() -> int:
    """Run one replay in this child process: read the task from the service, and send it the result."""
    os.nice(10)
    task = read_task(ReplayTask)
    loaded = config.load({"data_dir": task.data_dir, "base_url": task.base_url}, {}).config
    for section, values in task.settings.items():
        part = msgspec.structs.replace(getattr(loaded, section), **values)
        loaded = msgspec.structs.replace(loaded, **{section: part})
    config.set_current(loaded)
    crypto.use_key(task.key)
    open_database(Path(task.data_dir, "campanero.db"))
    database.set_read_only()
    row = models.FlowReplay.get_by_id(task.replay_id)
    try:
        result, people = run_replay(row, _report)
    except ConditionsTooSlow:
        send_to_parent({"done": {"error": TOO_SLOW}})
        return 0
    send_to_parent({"done": {"result": result, "people": replay_result.pack_people(people)}})
    return 0


_reported_at = 0.0


def _report(share: float) -> None:
    global _reported_at
    if time.monotonic() - _reported_at >= _PROGRESS_SECONDS:
        _reported_at = time.monotonic()
        send_to_parent({"share": round(share, 3)})


def run_replay(row: models.FlowReplay, report: Callable[[float], None]) -> tuple[ReplayResult, list[PersonRow]]:
    """Run a replay on this thread, and return its result and the rows of each contact's messages.

    `report` is called with the progress from 0 to 1. Equal rows, events and settings give equal results. Raises
    ConditionsTooSlow if conditions cost too much.
    """
    flow = Flow.get_by_id(row.flow_id)
    trigger = TriggerSpec(**row.trigger)
    live_trigger = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
    draft = ReplayVersion(row.steps, trigger, row.goal)
    live = ReplayVersion(None, live_trigger, flow.goal) if flow.version else None
    is_changed = row.steps is not None or live is None or draft != live
    plan = versions.read_plan(flow.id, flow.version)
    documents = [draft.steps or [], [{**node.props, "type": node.kind} for node in plan.nodes.values()]]
    all_triggers = [trigger] if live is None or trigger == live_trigger else [trigger, live_trigger]
    goals = sorted({goal for goal in (row.goal, flow.goal) if goal})
    start = row.until - row.days * clock.DAY_MS
    feed = Feed(FeedRequest(row.account_id, flow.id, start, row.until, row.seed, all_triggers, documents, goals))
    whole = [*documents, *(dict(spec.data) for spec in all_triggers)]
    resolution_ms = _find_resolution(flow, all_triggers, whole)
    interval_ms = choose_interval(len(feed.items), resolution_ms)
    outcomes: list[ReplayOutcome] = []
    played = [draft, *([live] if live is not None and is_changed else [])]
    for number, version in enumerate(played):

        def report_part(share: float, number: int = number) -> None:
            report((number + share) / len(played))

        outcomes.append(FlowReplay(flow, version, feed, interval_ms, row.seed, report_part).run())
    live_outcome = outcomes[-1] if live is not None else None
    days = accounts.get(row.account_id).attribution_days
    orders = OrderInput(row.account_id, row.order_event, days, row.sms_price)
    result, people = replay_result.build_result(feed, outcomes[0], live_outcome, orders, is_changed)
    rounded_ms = interval_ms if resolution_ms < FREE_MS else 0
    result.warnings = replay_result.list_warnings(feed, result, outcomes[0], whole, rounded_ms)
    return result, people


def _find_resolution(flow: Flow, specs: Sequence[TriggerSpec], documents: Sequence[Any]) -> int:
    """Return the length of an interval in milliseconds that is precise enough for the conditions of a flow.

    `documents` are the steps and conditions of both versions.
    """
    quiet_hours, cap = fetch_one(
        "SELECT sms_quiet_hours, frequency_cap FROM account WHERE id = ?", (flow.account_id,)
    ) or (None, None)
    if flow.data.get("quiet_hours") or quiet_hours or any(spec.data.get("max_per_hour") for spec in specs):
        return CLOCK_MS
    text = json.dumps(documents)
    # Conditions with `within_days`, `days_ago`, or `since` with a number of days compare with the current time.
    return RECENT_MS if cap or "days" in text else FREE_MS
