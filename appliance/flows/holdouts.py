"""The contacts who are kept out of a flow to measure its effect: its holdout group, and the account's control group.

Whether a contact is held out depends only on the ids of flow and contact, so it is the same at each trigger. The first
entry that was held out is recorded as an ignored run. The effect of the flow is measured as the share of contacts with
the counted event within `CONVERSION_DAYS` after their first entry or held-out entry. A contact of the control group
gets no campaigns either, so it says nothing about the flow and is not counted.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from appliance.core import clock
from appliance.core.validation import EVENT_NAME
from appliance.events.listing import Moment
from appliance.experiments import assignment
from appliance.experiments.assignment import HELD_OUT as HELD_OUT_GROUP
from appliance.experiments.decision import ConfidenceInterval
from appliance.experiments.evidence import Counts
from appliance.experiments.holdout import measure_holdout, to_interval
from appliance.flows.triggers import HELD_OUT, MACHINE_EVENT_SQL
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import Flow, Trigger

EVENT_PATTERN = re.compile(EVENT_NAME)
CONVERSION_DAYS = 30
# The reasons why a trigger started no run
CONTROL_GROUP = "control_group"
_SELECT_RECORDED = (
    "SELECT DISTINCT contact_id FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) AND flow_id = ? "
    f"AND status = 'ignored' AND exit_reason = '{HELD_OUT}' AND created_at >= ?"
)
# Selects each contact with its first entry or held-out entry
_ENTRIES = (
    "SELECT contact_id, min(created_at) AS entered_at, max(status = 'ignored') AS held FROM run WHERE flow_id = :flow "
    f"AND (status IN ('live', 'completed', 'exited') OR (status = 'ignored' AND exit_reason = '{HELD_OUT}')) "
    "AND test = 0 AND created_at >= :since AND contact_id NOT NULL GROUP BY contact_id"
)
_COUNT_ENTRIES = f"SELECT held, count(*) FROM ({_ENTRIES}) GROUP BY 1"
_COUNT_CONVERSIONS = (
    f"WITH entry AS MATERIALIZED ({_ENTRIES}) SELECT n.held, count(DISTINCT e.contact_id) "
    "FROM event e INDEXED BY event_of_name CROSS JOIN entry n ON n.contact_id = e.contact_id "
    "AND e.created_at >= n.entered_at AND e.created_at < n.entered_at + :window "
    "WHERE e.account_id = :account AND e.event = :event AND e.created_at >= :since AND e.test = 0 "
    f"AND {MACHINE_EVENT_SQL.format('e')} IS NOT TRUE GROUP BY 1"
)


class Holdout(NamedTuple):
    """The contacts who do not enter a flow: a share of all, and with `respects_control` the account's control group."""

    share: float = 0.0
    respects_control: bool = False


NO_HOLDOUT = Holdout()


class FlowHoldout(Struct):
    """The holdout group of a flow, compared with the contacts who entered; null while there is no figure yet."""

    share: Annotated[float, Meta(description="share of the contacts who would enter that gets nothing")]
    since: Annotated[Moment, Meta(description="since when it is measured; null: always")] | None
    event: Annotated[str, Meta(description="name of the event that is counted; null without one")] | None
    recipients: Annotated[int, Meta(description="number of contacts who entered")]
    converted: Annotated[int, Meta(description="number of them who have the event within 30 days")]
    held_out: Annotated[int, Meta(description="number of contacts who were held out")]
    held_out_converted: Annotated[int, Meta(description="number of them who have the event within 30 days")]
    rate: Annotated[float, Meta(description="rate of the event of those who entered")]
    held_out_rate: Annotated[float, Meta(description="rate of the event of the held-out")]
    difference: Annotated[ConfidenceInterval, Meta(description="difference of the rates")]
    people: Annotated[ConfidenceInterval, Meta(description="number of conversions that the flow caused")]
    lift: Annotated[ConfidenceInterval, Meta(description="the difference as a part of the held-out rate")]


def get_holdout(data: Mapping[str, Any]) -> Holdout:
    """Return the holdout that the data of a trigger defines."""
    return Holdout(float(data.get("holdout") or 0), bool(data.get("respect_control_group")))


def find_excluded(account_id: int, flow_id: int, holdout: Holdout, contact_ids: Sequence[int]) -> dict[int, str]:
    """Return the reason (`HELD_OUT` or `CONTROL_GROUP`) of each contact that may not enter a flow, by id.

    A contact in both groups has the reason `CONTROL_GROUP`, because it is not part of the comparison.
    """
    excluded: dict[int, str] = {}
    if holdout.share:
        # The 0 makes this seed differ from those of random splits, which contain the id of a step.
        groups = assignment.start_assignment(flow_id << 31, holdout.share)
        excluded |= {number: HELD_OUT for number in contact_ids if _is_held_out(groups, number)}
    control = _get_control_group(account_id) if holdout.respects_control else None
    if control is not None:
        excluded |= {number: CONTROL_GROUP for number in contact_ids if _is_held_out(control, number)}
    return excluded


def _is_held_out(groups: assignment.Assignment, contact_id: int) -> bool:
    return assignment.get_group(groups, contact_id) == HELD_OUT_GROUP


def _get_control_group(account_id: int) -> assignment.Assignment | None:
    row = fetch_one("SELECT control_share, control_seed FROM account WHERE id = ?", (account_id,))
    if row is None or not row[0] or row[1] is None:
        return None
    return assignment.start_assignment(row[1], row[0])


def find_recorded(flow_id: int, contact_ids: Sequence[int]) -> set[int]:
    """Return those of the contacts whose held-out entry was recorded since the measurement began."""
    if not contact_ids:
        return set()
    since = _get_since(flow_id)
    return {row[0] for row in rows(_SELECT_RECORDED, (json.dumps(list(contact_ids)), flow_id, since))}


def _get_since(flow_id: int) -> int:
    row = fetch_one("SELECT held_since FROM trigger WHERE flow_id = ?", (flow_id,))
    return int(row[0] or 0) if row is not None else 0


def measure(flow: Flow) -> FlowHoldout | None:
    """Return the figures of the holdout group of a flow, or None if it has none."""
    trigger = Trigger.get(Trigger.flow == flow.id)
    share = get_holdout(trigger.data).share
    if not share:
        return None
    since, event = int(trigger.held_since or 0), _get_event(flow, trigger.data)
    values = {"flow": flow.id, "since": since}
    entries = dict(rows(_COUNT_ENTRIES, values))
    converted: dict[int, int] = {}
    if event is not None:
        window = CONVERSION_DAYS * clock.DAY_MS
        converted = dict(
            rows(_COUNT_CONVERSIONS, {**values, "account": flow.account_id, "event": event, "window": window})
        )
    # A contact may have entered between the two queries.
    treated, held_out = (
        Counts(max(entries.get(held, 0), converted.get(held, 0)), converted.get(held, 0)) for held in (0, 1)
    )
    result = measure_holdout(treated, held_out)
    return FlowHoldout(
        share, clock.iso(since) if since else None, event, treated.recipients, treated.converted, held_out.recipients,
        held_out.converted, result.treated_rate, result.held_out_rate, to_interval(result.difference),
        to_interval(result.people), to_interval(result.lift),
    )  # fmt: skip


def _get_event(flow: Flow, data: Mapping[str, Any]) -> str | None:
    """Return the counted event: that of the holdout, else the goal of the flow, or None without a goal."""
    event = data.get("holdout_event") or flow.goal
    return str(event) if event and EVENT_PATTERN.fullmatch(event) else None
