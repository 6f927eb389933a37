"""References: the segments and lists that filters, flows and campaigns name, also in the sections of their emails."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from appliance.audience.filters import compiler
from appliance.audience.filters.compiler import ConditionGroup, FieldCondition, Node
from appliance.audience.filters.fields import FilterPlace
from appliance.audience.segments import members
from appliance.content.designs import document
from appliance.core.errors import Invalid
from appliance.storage.database import rows
from appliance.storage.models import NESTED_STEP_KEYS, Campaign, Flow, Trigger

_MAX_ID_CHARACTERS = 40  # of an id in a text
# The designs of all messages of a flow or campaign: of its templates, also those of variants, unpublished changes and
# removed steps, and the contents that a version or a send has fixed. Most have no conditions.
_DESIGNS = (
    "SELECT design FROM template WHERE flow_id = ?1 AND instr(design, 'show_if') UNION "
    "SELECT json_extract(document, '$.design') FROM template_revision WHERE instr(document, 'show_if') AND id IN "
    "(SELECT content_id FROM step WHERE flow_id = ?1 UNION SELECT content_id FROM campaign WHERE flow_id = ?1) UNION "
    "SELECT json_extract(v.document, '$.design') FROM variant v JOIN template t ON t.id = v.template_id "
    "WHERE t.flow_id = ?1 AND instr(v.document, 'show_if')"
)
# Stand-alone templates, with which programs may send single messages. Those that an agent created count only if a
# message was sent with them.
_STANDALONE = (
    "SELECT id, name, design FROM template WHERE account_id = ? AND flow_id IS NULL AND instr(design, 'show_if') AND "
    "(NOT agent OR EXISTS (SELECT 1 FROM message m WHERE m.template_id = template.id AND m.test = 0))"
)


def find_references(account_id: int, filters: Any) -> set[tuple[str, int]]:
    """Return (kind, id) of the lists and segments that stored filters name directly; none for invalid filters."""
    if not filters:
        return set()
    scope = members.build_scope(account_id)._replace(place=FilterPlace.SPLIT)
    try:
        nodes = compiler.parse_filters(filters, scope)
    except Invalid:
        return set()
    return {(kind, number) for kind, number, _ in iter_references(nodes)}


def find_design_references(account_id: int, design: Any) -> set[tuple[str, int]]:
    """Return (kind, id) of the segments and lists that decide who sees sections of a design (`show_if`)."""
    sections = document.walk_sections(design)
    return {name for section in sections for name in find_references(account_id, section.props.get("show_if"))}


def find_named_segments(account_id: int, value: Any) -> set[tuple[str, int]]:
    """Return (`segment`, id) of all segments whose id is anywhere in a JSON value, as a number or as a text.

    A number that means something else counts too, which at most makes a user review a proposal again.
    """
    numbers: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict | list):
            pending += item.values() if isinstance(item, dict) else item
        elif isinstance(item, int | float) or (isinstance(item, str) and len(item) <= _MAX_ID_CHARACTERS):
            with suppress(ValueError, OverflowError):
                numbers.add(int(item))
    ids = {row[0] for row in rows("SELECT id FROM segment WHERE account_id = ?", (account_id,))} if numbers else set()
    return {("segment", number) for number in numbers & ids}


def find_section_references(account_id: int, flow_id: int) -> set[tuple[str, int]]:
    """Return (kind, id) of the segments and lists that decide who sees sections in messages of a flow or campaign."""
    designs = [msgspec.json.decode(design) for (design,) in rows(_DESIGNS, (flow_id,)) if design]
    return {name for design in designs for name in find_design_references(account_id, design)}


def find_standalone_templates(account_id: int) -> list[tuple[int, str, set[tuple[str, int]]]]:
    """Return (id, name, references) of the stand-alone templates that an agent may not change and that have conditions.

    The references are those of `find_design_references`.
    """
    return [
        (number, name, find_design_references(account_id, msgspec.json.decode(design)))
        for number, name, design in rows(_STANDALONE, (account_id,))
    ]


def iter_references(nodes: list[Node], path: str = "filters") -> Iterator[tuple[str, int, str]]:
    """Yield (kind, id, path of the value) for each list and segment that filters refer to, also within groups."""
    for index, node in enumerate(nodes):
        value_path = f"{path}[{index}].value"
        if isinstance(node, ConditionGroup):
            yield from iter_references(node.parts, value_path)
        elif (
            isinstance(node, FieldCondition)
            and node.field.id_kind in ("segment", "list")
            and node.predicate.key != "present"
        ):
            is_list = isinstance(node.value, list)
            for position, number in enumerate(node.value if is_list else [node.value]):
                yield node.field.id_kind, number, f"{value_path}[{position}]" if is_list else value_path


def find_flow_references(flow: Flow) -> set[tuple[str, int | None]]:
    """Return (kind, id) of the segments and lists on which the entry to a flow, its branches and its emails depend.

    The flow's trigger, its current steps, the conditions of all its stored versions, and those of sections in all its
    messages are considered. The id is None if the trigger names no segment or no list.
    """
    started = Trigger.get(Trigger.flow == flow.id)
    references: set[tuple[str, int | None]] = {("segment", started.segment_id), ("list", started.contact_list_id)}
    steps = compiler.walk(flow.steps, NESTED_STEP_KEYS)
    filter_lists = [started.data.get("where"), *(step.get("filters") for step in steps)]
    plans = "SELECT data FROM step WHERE flow_id = ? AND kind IN ('split', 'wait_until')"
    filter_lists += [msgspec.json.decode(data).get("filters") for (data,) in rows(plans, (flow.id,))]
    for filters in filter_lists:
        references |= find_references(flow.account_id, filters)
    return references | find_section_references(flow.account_id, flow.id)


def find_campaign_references(campaign: Campaign) -> set[tuple[str, int | None]]:
    """Return (kind, id) of the segments and lists that a campaign goes to or excludes; the id may be None.

    Those in conditions of sections of its emails are included.
    """
    trigger = campaign.trigger
    lists, segments = ("contact_list_ids", "exclude_contact_list_ids"), ("exclude_segment_ids",)
    chosen: set[tuple[str, int | None]] = {("segment", trigger.segment_id), ("list", trigger.contact_list_id)}
    for kind, names in (("list", lists), ("segment", segments)):
        chosen |= {(kind, number) for name in names for number in trigger.data.get(name) or []}
    return chosen | find_section_references(campaign.account_id, campaign.flow_id)
