"""Which events meet a trigger: one condition over the event (`happened`) and its contact (`c`), for one or for many."""

import json
import logging
from collections.abc import Sequence

from appliance.db.dialect.documents import each_of, field_of, type_of
from appliance.db.dialect.hints import THEN_JOIN
from appliance.db.dialect.texts import position_of, stripped
from appliance.db.disk_guard import storage_error
from appliance.db.open import rows
from appliance.filters import compile, read
from appliance.filters.fold import fold
from appliance.filters.scope import Binder, Compiled
from appliance.flows import triggers
from appliance.flows.triggers import DATE, EVENT, LIST_EVENTS, MANUAL, SEGMENT_EVENTS, TAG_EVENTS, Start
from appliance.segments import people

log = logging.getLogger("campanero.flows")

# What programs did that open and click by themselves is nobody's act
MACHINE = (
    f"({{0}}.generated = 1 AND {field_of('{0}.data', 'verdict')} = 'machine' "
    "AND substr({0}.event, 1, 4) IN ('emai', 'sms_'))"
)
_ENDS = "' .,;:!?\"'''"
_SAID = (
    f"folded(coalesce({field_of(EVENT + '.data', 'keyword')}, {field_of(EVENT + '.data', 'text')}, "
    f"{field_of(EVENT + '.data', 'body')}, ''))"
)
_WORD = stripped(_SAID, _ENDS)


def condition(account_id: int, flow_id: int, start: Start, prefix: str = "t") -> Compiled:
    """Compile whether an event and its contact meet a trigger; raises Invalid if its filters can be read no more."""
    if start.event == MANUAL or triggers.lacks(start):
        return Compiled("0", {})
    here = triggers.scope(account_id)
    binder = Binder(f"{prefix}_", here)
    parts = [
        f"{EVENT}.account_id = {binder.add(account_id)} AND {EVENT}.event = {binder.add(start.event)}",
        f"{MACHINE.format(EVENT)} IS NOT TRUE",
        _own(flow_id, start, binder),
        *_members(start, binder),
        *_words(start, binder),
    ]
    values = binder.values
    if start.segment_id is not None and start.event != "segment_exit":
        held = people.of_segment(account_id, start.segment_id, f"{prefix}s")
        parts.append(f"({held.sql})")
        values = values | held.parameters
    asked = compile.condition(read.filters(start.data.get("where") or [], here), here, f"{prefix}w")
    return Compiled(" AND ".join([*parts, f"({asked.sql})"]), values | asked.parameters)


def _said(key: str) -> str:
    return field_of(EVENT + ".data", key)


def _own(flow_id: int, start: Start, binder: Binder) -> str:
    """Keep a flow from being started by its own messages and runs; dates are found for one flow each."""
    own = f"({EVENT}.generated = 1 AND {_said('flow_id')} = {binder.add(flow_id)})"
    return own if start.event == DATE else f"{own} IS NOT TRUE"


def _members(start: Start, binder: Binder) -> list[str]:
    """Return the conditions on the list and the segment that an event names, or on who is in the list."""
    parts = []
    if start.contact_list_id is not None:
        wanted = binder.add(start.contact_list_id)
        if start.event in LIST_EVENTS:
            parts.append(f"{_said('contact_list_id')} = {wanted}")
        else:
            parts.append(
                f"EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = {wanted} AND m.contact_id = c.id)"
            )
    if start.event in SEGMENT_EVENTS:
        parts.append(f"{_said('segment_id')} = {binder.add(start.segment_id)}")
    return parts


def _words(start: Start, binder: Binder) -> list[str]:
    """Return the conditions on a tag and on keywords: the whole message, or the word it begins with."""
    parts = []
    tag = start.data.get("tag")
    if tag:
        wanted = binder.add(fold(tag))
        if start.event in TAG_EVENTS:
            parts.append(f"folded({_said('tag')}) = {wanted}")
        else:
            parts.append(
                f"({type_of('c.data', 'tags')} = 'array' AND EXISTS (SELECT 1 FROM {each_of('c.data', 'tags')} own "
                f"WHERE own.type = 'text' AND folded(own.value) = {wanted}))"
            )
    if start.data.get("keywords"):
        wanted = binder.add(json.dumps([fold(word).strip(" .,;:!?\"'") for word in start.data["keywords"]]))
        space = position_of("' '", f"{_WORD} || ' '")
        first = stripped(f"substr({_WORD}, 1, {space} - 1)", _ENDS)
        parts.append(f"EXISTS (SELECT 1 FROM {each_of(wanted)} k WHERE k.value IN ({_WORD}, {first}))")
    return parts


def met(account_id: int, flow_id: int, start: Start, event_ids: Sequence[int]) -> list[int]:
    """Return which of some events meet a trigger.

    A trigger that can be asked no more starts nothing, and keeps no other from being asked.
    """
    try:
        asked = condition(account_id, flow_id, start)
        found = rows(
            f"SELECT {EVENT}.id FROM {each_of(':events')} one {THEN_JOIN} event {EVENT} ON {EVENT}.id = one.value "
            f"{THEN_JOIN} contact c ON c.id = {EVENT}.contact_id WHERE {asked.sql} ORDER BY {EVENT}.id",
            {**asked.parameters, "events": json.dumps(list(event_ids))},
        )
    except Exception as error:
        if storage_error(error) is not None:
            raise
        log.exception("the trigger of flow %s cannot be asked, so it starts nobody", flow_id)
        return []
    return [row[0] for row in found]
