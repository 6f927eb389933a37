"""Entry into flows: new events are matched against triggers and goals, and users enroll contacts by hand.

A cursor marks the last processed event. It moves in the transaction that applies the effects of the events, so that no
event is lost or applied twice, whenever the process stops. Event ids ascend in the order of commits, because there is
only one writer.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience import lists
from appliance.audience.segments import members
from appliance.audience.segments import store as segments
from appliance.audience.segments.condition_budget import ConditionsTooSlow, get_spent
from appliance.core import clock, signals
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.core.validation import Id
from appliance.events import log as events_log
from appliance.events.log import NewEvent
from appliance.flows import entry_caps, event_effects, event_waits, holdouts, run_ends, store, triggers
from appliance.flows.condition_limits import (
    TOO_COSTLY,
    Budget,
    count_costly_contact,
    has_spent_share,
    pause_slow_flow,
    write_budget,
)
from appliance.flows.event_effects import Effect, EffectKind, Event
from appliance.flows.holdouts import CONTROL_GROUP, NO_HOLDOUT, Holdout
from appliance.flows.triggers import HELD_OUT, TriggerSpec
from appliance.storage import transactions
from appliance.storage.database import connection, fetch_one, rows, run, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.transactions import after_commit, require_write_transaction

log = logging.getLogger("campanero.flows")

# Steps of flows record events, which may start other flows. An event at this depth of such a chain starts no flow.
MAX_CHAIN_DEPTH = 5
ALREADY_INSIDE, FREQUENCY, TOO_DEEP = "already_inside", "frequency", "depth"

# The cached plans (`versions.load_plan`) are not used, because this version may not be committed yet.
_SELECT_FIRST_STEP = "SELECT action_id FROM step WHERE flow_id = ? AND version = ? ORDER BY position LIMIT 1"
_INSERT_RUN = (
    "INSERT INTO run (account_id, flow_id, version, contact_id, event_id, event_data, status, exit_reason, action_id, "
    "due_at, chain_depth, test, ended_at, created_at, updated_at) "
    "SELECT ?1, ?2, ?3, c.id, ?5, coalesce((SELECT data FROM event WHERE id = ?5), '{}'), 'live', NULL, ?8, ?9, ?6, "
    "?7, NULL, ?10, ?10 FROM contact c WHERE c.id = ?4 AND c.account_id = ?1 "
    "RETURNING id, contact_id, chain_depth, test"
)
_INSERT_IGNORED_RUN = (
    "INSERT INTO run (account_id, flow_id, version, contact_id, event_id, event_data, status, exit_reason, "
    "chain_depth, test, ended_at, created_at, updated_at) "
    "SELECT ?1, ?2, ?3, c.id, ?5, '{}', 'ignored', ?8, ?6, ?7, ?9, ?9, ?9 "
    "FROM contact c WHERE c.id = ?4 AND c.account_id = ?1"
)


class OpenFlow(NamedTuple):
    """An active flow that contacts can enter; `frequency` is as in `triggers.get_frequency`."""

    account_id: int
    flow_id: int
    name: str
    version: int
    frequency: str | int
    test: bool = False  # activated by a test key, so that it accepts test runs only
    max_per_hour: int = 0  # the number of runs that may begin in an hour, 0 for any number
    holdout: Holdout = NO_HOLDOUT


class Entrant(NamedTuple):
    """A contact that is about to enter a flow.

    `event_id` is the id of the triggering event, or None if a user enrolls the contact; `depth` is the event's chain
    depth.
    """

    contact_id: int
    event_id: int | None = None
    depth: int = 0
    test: bool = False


class StartResult(NamedTuple):
    """The number of started runs, and the number of refused entrants by reason."""

    started: int
    ignored: dict[str, int]


def start_runs(flow: OpenFlow, entrants: Sequence[Entrant]) -> StartResult:
    """Start a run for each entrant, in order, and count those that are refused.

    An entrant is refused if the contact is already in the flow, if the frequency or `MAX_CHAIN_DEPTH` forbids it, or if
    the contact is in the holdout or control group. A refused entrant is recorded as an ignored run: because of the
    holdout group once for each contact, for any other reason if it has an event. Test runs are separate from others,
    and not limited by the frequency. A test flow drops entrants that are not tests, without counting them.
    """
    require_write_transaction()
    now = clock.now_ms()
    entrants = [entrant for entrant in entrants if entrant.test or not flow.test]
    accepted, refused = _split_entrants(flow, entrants, now)
    first_step = scalar(_SELECT_FIRST_STEP, (flow.flow_id, flow.version)) if accepted else None
    beginnings = entry_caps.plan_beginnings(flow.flow_id, flow.max_per_hour, [each.test for each in accepted], now)
    common = (flow.account_id, flow.flow_id, flow.version)
    db = connection()
    started = db.executemany(
        _INSERT_RUN,
        [
            (*common, entrant.contact_id, entrant.event_id, entrant.depth, entrant.test, first_step, begins_at, now)
            for entrant, begins_at in zip(accepted, beginnings, strict=True)
        ],
    ).fetchall()
    db.executemany(
        _INSERT_IGNORED_RUN,
        [(*common, entrant.contact_id, entrant.event_id, entrant.depth, entrant.test, reason, now)
         for entrant, reason in _select_recorded(flow, refused)],
    ).fetchall()  # fmt: skip
    if started:
        _record_entries(flow, started, now)
    ignored: dict[str, int] = {}
    for _, reason in refused:
        ignored[reason] = ignored.get(reason, 0) + 1
    return StartResult(len(started), ignored)


def _select_recorded(flow: OpenFlow, refused: Sequence[tuple[Entrant, str]]) -> list[tuple[Entrant, str]]:
    """Return the refused entrants to record: those with an event, and each contact of the holdout group once."""
    held_out = [entrant.contact_id for entrant, reason in refused if reason == HELD_OUT]
    recorded = holdouts.find_recorded(flow.flow_id, held_out)
    selected = []
    for entrant, reason in refused:
        if reason != HELD_OUT:
            if entrant.event_id is not None:
                selected.append((entrant, reason))
        elif entrant.contact_id not in recorded:
            recorded.add(entrant.contact_id)
            selected.append((entrant, reason))
    return selected


def _split_entrants(
    flow: OpenFlow, entrants: Sequence[Entrant], now: int
) -> tuple[list[Entrant], list[tuple[Entrant, str]]]:
    """Return the accepted entrants, and the refused ones with the reason.

    Later entrants of the same contact are checked as if the accepted one were already in the flow.
    """
    contact_ids = json.dumps(sorted({entrant.contact_id for entrant in entrants}))
    inside = {
        (row[0], bool(row[1]))
        for row in rows(
            "SELECT contact_id, test FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) "
            "AND flow_id = ? AND status = 'live'",
            (contact_ids, flow.flow_id),
        )
    }
    last_started: dict[int, int] = {}
    if flow.frequency != "every_time":
        last_started = dict(
            rows(
                "SELECT contact_id, max(created_at) FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) "
                "AND flow_id = ? AND status IN ('live', 'completed', 'exited') AND test = 0 GROUP BY contact_id",
                (contact_ids, flow.flow_id),
            )
        )
    excluded = holdouts.find_excluded(
        flow.account_id, flow.flow_id, flow.holdout, sorted({each.contact_id for each in entrants if not each.test})
    )
    accepted: list[Entrant] = []
    refused: list[tuple[Entrant, str]] = []
    for entrant in entrants:
        reason = _get_refusal(
            flow.frequency,
            entrant,
            (entrant.contact_id, entrant.test) in inside,
            last_started.get(entrant.contact_id),
            now,
        )
        if reason is None and not entrant.test:
            reason = excluded.get(entrant.contact_id)
        if reason is not None:
            refused.append((entrant, reason))
            continue
        accepted.append(entrant)
        inside.add((entrant.contact_id, entrant.test))
        if not entrant.test:
            last_started[entrant.contact_id] = now
    return accepted, refused


def _get_refusal(
    frequency: str | int, entrant: Entrant, is_inside: bool, last_started: int | None, now: int
) -> str | None:
    if entrant.depth >= MAX_CHAIN_DEPTH:
        return TOO_DEEP
    if is_inside:
        return ALREADY_INSIDE
    if entrant.test or last_started is None or frequency == "every_time":
        return None
    if frequency == "once" or now - last_started < int(frequency) * 1000:
        return FREQUENCY
    return None


def _record_entries(flow: OpenFlow, started: Sequence[tuple[int, int, int, int]], now: int) -> None:
    real_count = sum(1 for row in started if not row[3])
    run("UPDATE flow SET entered_count = entered_count + ? WHERE id = ?", (real_count, flow.flow_id))
    run(
        "UPDATE trigger SET triggered_count = triggered_count + ?, last_triggered_at = ? WHERE flow_id = ?",
        (real_count, now, flow.flow_id),
    )
    events_log.record_many(
        [
            NewEvent(
                flow.account_id, "flow_enter", contact_id, {"flow_id": flow.flow_id, "run_id": run_id},
                resource_uid=f"flow:{flow.flow_id}", resource_name=flow.name, test=bool(test), chain_depth=depth + 1,
            )
            for run_id, contact_id, depth, test in started
        ]
    )  # fmt: skip
    after_commit(lambda: signals.wake("flows"))


CURSOR_NAME = "flows"
# The largest number of effects in one transaction, which should take at most 20 ms.
_MAX_EFFECTS = 100
# The largest size of event data in one transaction; each run stores the data of its event.
_MAX_EFFECT_BYTES = 500_000
# The number of events without effects, and the time, by which the stored cursor may lag, so that it is not written
# after every event.
_MAX_CURSOR_LAG, _MAX_CURSOR_LAG_SECONDS = 1_000, 1.0
_cursor_written_at = 0.0


def get_cursor() -> int:
    """Return the id of the last processed event."""
    return int(scalar("SELECT event_id FROM cursor WHERE name = ?", (CURSOR_NAME,)) or 0)


def is_due() -> bool:
    """Return whether there are unprocessed events."""
    return int(scalar("SELECT max(id) FROM event") or 0) > get_cursor()


def process_events() -> bool:
    """Process a batch of new events: start or ignore runs, and complete those whose contact reached the goal.

    If the conditions of a flow cost too much, the flow is paused before the cursor moves. Return False if nothing is
    left to do now; events without effects may be left to a later call.
    """
    # The cursor moves at most to the event that is the newest now; later ones belong to the next batch.
    cursor, newest = get_cursor(), int(scalar("SELECT max(id) FROM event") or 0)
    if newest <= cursor:
        return False
    flows, goals, waits = event_effects.load_live_flows(), event_effects.load_goals(), event_waits.list_waits()
    late_names = {goal.event for goal in goals} | {wait.event for wait in waits}
    names = {flow.trigger.event for flow in flows} | late_names
    events = event_effects.fetch_events(cursor, newest, names, late_names) if names else []
    new_cursor = events[-1].id if len(events) == event_effects.MAX_EVENTS else newest
    effects, slow_flows = event_effects.list_effects(events, flows, goals, waits)
    effects.sort(key=lambda effect: (effect.event.id, effect.kind, effect.flow_id))
    for flow_id in sorted(slow_flows):
        transactions.write(pause_slow_flow, flow_id)
    if (
        not effects
        and new_cursor == newest
        and new_cursor - cursor < _MAX_CURSOR_LAG
        and clock.monotonic() - _cursor_written_at < _MAX_CURSOR_LAG_SECONDS
    ):
        return False
    for batch, batch_end in _split_into_batches(effects, new_cursor):
        try:
            is_applied = transactions.write(_apply_batch, cursor, batch_end, batch)
        except ConditionsTooSlow:
            is_applied = _apply_one_by_one(cursor, batch_end, batch)
        if not is_applied:
            return True  # Another thread moved the cursor; the next call starts from there.
        cursor = batch_end
    _mark_cursor_written()
    return new_cursor < newest or bool(effects)


def _mark_cursor_written() -> None:
    global _cursor_written_at
    _cursor_written_at = clock.monotonic()


def _split_into_batches(effects: Sequence[Effect], new_cursor: int) -> Iterator[tuple[list[Effect], int]]:
    """Yield batches of effects, each with the event id that the cursor moves to.

    All effects of one event are in the same batch. The last batch, which may be empty, moves the cursor to
    `new_cursor`.
    """
    batch: list[Effect] = []
    size = 0
    for _, group in groupby(effects, key=lambda effect: effect.event.id):
        group_effects = list(group)
        group_bytes = sum(effect.event.size for effect in group_effects if effect.kind == EffectKind.START)
        if batch and (len(batch) + len(group_effects) > _MAX_EFFECTS or size + group_bytes > _MAX_EFFECT_BYTES):
            yield batch, batch[-1].event.id
            batch, size = [], 0
        batch, size = batch + group_effects, size + group_bytes
    yield batch, new_cursor


def _apply_one_by_one(cursor: int, new_cursor: int, effects: Sequence[Effect]) -> bool:
    """Apply the effects of each event in a separate transaction, after they cost too much for all together.

    Arguments and result are as in `_apply_batch`.
    """
    groups = [list(group) for _, group in groupby(effects, key=lambda effect: effect.event.id)]
    for index, group in enumerate(groups):
        end = new_cursor if index == len(groups) - 1 else group[-1].event.id
        if not transactions.write(_apply_batch, cursor, end, group, True):
            return False
        cursor = end
    return True


def _apply_batch(cursor: int, new_cursor: int, effects: Sequence[Effect], is_single: bool = False) -> bool:
    """Apply effects and move the cursor to `new_cursor`.

    Return False, and do nothing, if the cursor is no longer at the event `cursor`. Raises ConditionsTooSlow if the
    conditions cost too much. With `is_single`, all effects are of one event; then its contact's waiting runs end
    instead.
    """
    require_write_transaction()
    if get_cursor() != cursor:
        return False
    if cursor == 0:
        run("INSERT INTO cursor (name, event_id) VALUES (?, 0) ON CONFLICT DO NOTHING", (CURSOR_NAME,))
    run("UPDATE cursor SET event_id = ? WHERE name = ?", (new_cursor, CURSOR_NAME))
    budgets: defaultdict[int, Budget] = defaultdict(write_budget)
    # Flows do not affect each other here, so the effects are grouped by flow, in order within each flow.
    for flow_id, group in groupby(
        sorted(_refresh_contacts(effects), key=lambda effect: effect.flow_id), key=lambda effect: effect.flow_id
    ):
        for kind, group_effects in groupby(group, key=lambda effect: effect.kind):
            kind_events = [effect.event for effect in group_effects]
            _apply_isolated(_APPLY_EFFECTS[kind], flow_id, kind_events, budgets[kind_events[0].account_id], is_single)
    return True


def _refresh_contacts(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects with the current contact of each event, without those whose contact was deleted.

    A contact may have been merged into another one since the events were read.
    """
    event_ids = json.dumps([effect.event.id for effect in effects])
    contact_ids = dict(
        rows("SELECT id, contact_id FROM event WHERE id IN (SELECT value FROM json_each(?))", (event_ids,))
    )
    refreshed = ((effect, contact_ids.get(effect.event.id)) for effect in effects)
    return [
        effect._replace(event=effect.event._replace(contact_id=contact_id))
        for effect, contact_id in refreshed
        if contact_id is not None
    ]


def _apply_isolated(
    apply: "_ApplyEffects", flow_id: int, events: Sequence[Event], budget: Budget, is_single: bool
) -> None:
    """Apply effects on one flow in a savepoint; log an error, so that it does not block other flows.

    Raises ConditionsTooSlow if the conditions cost more than the budget allows; with `is_single`, the runs of the
    contact that wait for the event end instead. Raises storage errors.
    """
    db, spent = connection(), get_spent()
    db.execute("SAVEPOINT enrollment")
    try:
        apply(flow_id, events, budget)
    except ConditionsTooSlow:
        if not is_single:
            raise
        db.execute("ROLLBACK TO enrollment")
        event_waits.end_costly_runs(flow_id, events[0].contact_id, events[0].event)
    except Exception as error:
        if to_storage_error(error) is not None:
            raise
        db.execute("ROLLBACK TO enrollment")
        log.exception("flows: applying events failed flow=%s events=%s", flow_id, len(events))
    db.execute("RELEASE enrollment")
    if is_single and has_spent_share(spent):
        count_costly_contact(flow_id, events[0].contact_id)


def get_open_flow(flow_id: int) -> OpenFlow | None:
    """Return a flow if it is active and not deleted, else None."""
    row = fetch_one(
        "SELECT f.account_id, f.name, f.version, f.test, t.event, t.segment_id, t.contact_list_id, t.data FROM flow f "
        "JOIN trigger t ON t.flow_id = f.id WHERE f.id = ? AND f.status = 'active' AND f.hidden = 0 "
        "AND f.deleted_at IS NULL",
        (flow_id,),
    )
    if row is None:
        return None
    account_id, name, version, test, event, segment_id, list_id, data = row
    start = TriggerSpec(event, segment_id, list_id, msgspec.json.decode(data))
    return OpenFlow(
        account_id, flow_id, name, version, triggers.get_frequency(start), bool(test),
        start.data.get("max_per_hour", 0), holdouts.get_holdout(start.data),
    )  # fmt: skip


def _start_runs(flow_id: int, events: Sequence[Event], _: Budget) -> None:
    flow = get_open_flow(flow_id)
    if flow is not None:
        # The flow may have been activated again since these events were matched, even with another trigger.
        live_from = int(scalar("SELECT live_from FROM flow WHERE id = ?", (flow_id,)))
        events_since = [event for event in events if event.id > live_from]
        start_runs(
            flow, [Entrant(event.contact_id, event.id, event.chain_depth, bool(event.test)) for event in events_since]
        )


def _complete_runs(flow_id: int, events: Sequence[Event], _: Budget) -> None:
    """Complete the live runs of a flow whose contact reached the goal after the run started.

    A run started before the goal event if the event that started it has a lower id or, for an enrolled contact, if it
    was created no later than the goal event was recorded. A quiet event, such as an imported one, completes only runs
    that were created before it happened.
    """
    event_rows: list[tuple[Any, ...]] = [
        (
            event.id,
            event.contact_id,
            bool(event.test),
            event.recorded_at,
            event.happened_at if event.quiet else None,
            event.event,
        )
        for event in events
    ]
    run_rows = rows(
        "SELECT r.id, f.goal FROM json_each(?) one CROSS JOIN run r ON r.contact_id = one.value ->> 1 "
        "AND r.flow_id = ? AND r.status = 'live' AND r.test = one.value ->> 2 "
        "AND CASE WHEN r.event_id IS NULL THEN r.created_at <= one.value ->> 3 "
        "ELSE r.event_id < one.value ->> 0 END AND r.created_at <= coalesce(one.value ->> 4, "
        "r.created_at) CROSS JOIN flow f ON f.id = r.flow_id AND f.goal = one.value ->> 5",
        (json.dumps(event_rows), flow_id),
    )
    if run_rows:
        ids, now = sorted({row[0] for row in run_rows}), clock.now_ms()
        # For example, a contact who has bought must not get a message about the purchase that was held for quiet hours.
        run_ends.cancel_messages(ids, now, keep_transactional=True)
        run_ends.complete_runs_at_goal(ids, run_rows[0][1], now)


def _end_waits(flow_id: int, events: Sequence[Event], budget: Budget) -> None:
    event_waits.end_waits(flow_id, [event.id for event in events], budget)


def _refuse_runs(flow_id: int, events: Sequence[Event], _: Budget) -> None:
    """Record that an event of a contact started no run, because the conditions of the trigger cost too much."""
    flow, now = get_open_flow(flow_id), clock.now_ms()
    if flow is None:
        return
    newest = {event.contact_id: event for event in events}
    common = (flow.account_id, flow.flow_id, flow.version)
    connection().executemany(
        _INSERT_IGNORED_RUN,
        [(*common, event.contact_id, event.id, event.chain_depth, bool(event.test), TOO_COSTLY, now)
         for event in newest.values()],
    ).fetchall()  # fmt: skip
    for contact_id in newest:
        count_costly_contact(flow_id, contact_id)


def _end_costly_waits(flow_id: int, events: Sequence[Event], _: Budget) -> None:
    """End the runs of contacts that wait for an event, because the conditions of the wait cost too much for them."""
    for contact_id, event in {event.contact_id: event for event in events}.items():
        event_waits.end_costly_runs(flow_id, contact_id, event.event)
        count_costly_contact(flow_id, contact_id)


_ApplyEffects = Callable[[int, Sequence[Event], Budget], None]
_APPLY_EFFECTS: dict[EffectKind, _ApplyEffects] = {
    EffectKind.GOAL: _complete_runs, EffectKind.WAIT: _end_waits, EffectKind.START: _start_runs,
    EffectKind.COSTLY_WAIT: _end_costly_waits, EffectKind.COSTLY_START: _refuse_runs,
}  # fmt: skip


# Enrollment by a user, for contacts that existed before the trigger.

# The number of contacts in one transaction, which should take at most 20 ms.
BATCH_SIZE = 100


class EnrollWrite(Struct):
    """Contacts to enroll in a flow: either `contact_ids`, or all current members of a segment."""

    contact_ids: (
        Annotated[list[Id], Meta(max_length=10_000), Meta(description="ids of the contacts to add")] | None | UnsetType
    ) = UNSET
    segment_id: (
        Annotated[Id, Meta(description="id of the segment whose current contacts are added")] | None | UnsetType
    ) = UNSET
    confirm_send_to_all: (
        Annotated[bool, Meta(description="confirms that all contacts are meant, if nothing narrows the audience")]
        | UnsetType
    ) = UNSET


class EnrollmentResult(Struct):
    """The result of an enrollment: how many contacts entered, and how many could not, by reason."""

    enrolled: Annotated[int, Meta(description="number of contacts added")] = 0
    already_inside: Annotated[int, Meta(description="number of contacts already in the flow")] = 0
    frequency: Annotated[
        int, Meta(description="number of contacts that were in the flow before and cannot enter again")
    ] = 0
    held_out: Annotated[int, Meta(description="number of contacts in the holdout group of the flow")] = 0
    control_group: Annotated[int, Meta(description="number of contacts in the control group of the account")] = 0


def resolve_contacts(account_id: int, flow_id: int, request: EnrollWrite) -> list[int]:
    """Return the ids of the contacts that a request selects, each once and in ascending order.

    Conditions of the trigger are not checked, because a user chose these contacts. Raises NotFound, or Invalid with all
    errors, with the reason `confirmation_required` for an unconfirmed segment without filters, or if selecting the
    contacts takes too long (`members.time_limit`).
    """
    check_enrollment(account_id, request, flow_id)
    if isinstance(request.segment_id, int):
        return _list_segment_contacts(account_id, request.segment_id, request.confirm_send_to_all is True)
    return sorted(set(request.contact_ids or []))


def check_enrollment(account_id: int, request: EnrollWrite, flow_id: int) -> None:
    """Raise NotFound, or Invalid with all errors of a request, such as unknown ids or a flow that is not active."""
    flow = store.find(account_id, flow_id)
    faults = Faults()
    if flow.status != "active":
        faults.add("base", gettext("is not active"))
    contact_ids = request.contact_ids if isinstance(request.contact_ids, list) else None
    segment_id = request.segment_id if isinstance(request.segment_id, int) else None
    if contact_ids is None and segment_id is None:
        faults.add("contact_ids", gettext("can't be blank"))
    if contact_ids is not None and segment_id is not None:
        faults.add("base", gettext("must name either contacts or a segment"))
    if contact_ids is not None and lists.find_unknown_contacts(account_id, contact_ids):
        faults.add("contact_ids", gettext("must exist"))
    if segment_id is not None and not rows(
        "SELECT 1 FROM segment WHERE account_id = ? AND id = ?", (account_id, segment_id)
    ):  # fmt: skip
        faults.add("segment_id", gettext("must exist"))
    faults.check()


def _list_segment_contacts(account_id: int, segment_id: int, is_confirmed: bool) -> list[int]:
    filters = segments.get(account_id, segment_id).filters
    if not filters and not is_confirmed:
        message = "confirm that everybody enters"
        blocker = {"code": "confirmation_required", "message": message, "field": "confirm_send_to_all"}
        raise Invalid({"confirm_send_to_all": [message]}, reason="confirmation_required", blockers=[blocker])
    scope = members.build_scope(account_id)
    selection = members.select_members(account_id, members.parse_filters(account_id, filters), scope)
    with members.time_limit():
        return [row[0] for row in rows(f"SELECT c.id {selection.sql} ORDER BY c.id", selection.parameters)]


def enroll(flow_id: int, contact_ids: Sequence[int], test: bool) -> EnrollmentResult | None:
    """Start runs of a flow for up to `BATCH_SIZE` contacts; return None if the flow is not active.

    With `test`, the runs are test runs.
    """
    require_write_transaction()
    flow = get_open_flow(flow_id)
    if flow is None:
        return None
    result = start_runs(flow, [Entrant(contact_id, test=test or flow.test) for contact_id in contact_ids])
    reasons = (ALREADY_INSIDE, FREQUENCY, HELD_OUT, CONTROL_GROUP)
    return EnrollmentResult(result.started, *(result.ignored.get(reason, 0) for reason in reasons))
