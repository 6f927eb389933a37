"""The words of a flow's messages: each step that sends has a template of its own, found by the id of the step."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import convert

from appliance import clock
from appliance.db.work import writing
from appliance.flows.document import BRANCHES, Step, walk
from appliance.flows.steps.writing import WORDS
from appliance.tables import Template
from appliance.templates import checks
from appliance.templates import store as templates
from appliance.templates.revisions import FIELDS, document
from appliance.templates.store import Content, TemplateWrite

__all__ = ["FIELDS", "document", "foreseen", "of_flow", "of_flows", "place", "warm", "words"]


def place(account_id: int, flow_id: int, steps: Sequence[Step], user_id: int | None = None) -> list[Step]:
    """Write the words of steps as they were read into their templates; returns the steps as they are stored."""
    writing()
    have = {int(row.action_id or 0): row for row in Template.select().where(Template.flow == flow_id)}
    placed = _placed(account_id, flow_id, steps, have, user_id)
    there = {step["id"] for _, step in walk(placed) if "template_id" in step}
    for action_id, template in have.items():
        if (action_id not in there) == (template.removed_at is None):
            template.removed_at = clock.now_ms() if action_id not in there else None
            template.save(only=[Template.removed_at])
    return placed


def set_apart(account_id: int, flow_id: int, steps: Sequence[Step], user_id: int | None = None) -> list[Step]:
    """Write the words of new steps of a draft into templates that do not count as the flow's yet.

    Those of steps that the flow has are the same as before; `place` makes them all the flow's.
    """
    writing()
    have = {int(row.action_id or 0): row for row in Template.select().where(Template.flow == flow_id)}
    placed = _placed(account_id, flow_id, steps, have, user_id)
    new = [step["template_id"] for _, step in walk(placed) if "template_id" in step and step["id"] not in have]
    Template.update(removed_at=clock.now_ms()).where(Template.id.in_(new)).execute()
    return placed


def warm(account_id: int, steps: Sequence[Step]) -> None:
    """Look at the words of steps as they were read before the writer has to."""
    for _, step in walk(steps):
        if "content" in step:
            templates.warm(account_id, convert(step["content"], Content), step["template_id"])


def foreseen(account_id: int, steps: Sequence[Step]) -> dict[int, dict[str, Any]]:
    """Return the words that steps as they were read bring along, as they will be stored, by step."""
    found = {}
    for _, step in walk(steps):
        if "content" in step:
            found[step["id"]] = {name: checks.kept(name, value) for name, value in _said(account_id, step).items()}
    return found


def of_flow(flow_id: int) -> list[Template]:
    """Return the templates of the steps that a flow has now, in the order in which the steps came to be."""
    found = Template.select().where(Template.flow == flow_id, Template.removed_at.is_null())
    return list(found.order_by(Template.action_id))


def of_flows(flow_ids: Sequence[int]) -> dict[int, list[Template]]:
    """Return the templates of some flows, by flow."""
    found: dict[int, list[Template]] = {number: [] for number in flow_ids}
    asked = Template.select().where(Template.flow.in_(list(flow_ids)), Template.removed_at.is_null())
    for row in asked.order_by(Template.action_id):
        found[row.flow_id].append(row)
    return found


def of_steps(steps: Sequence[Step]) -> list[Template]:
    """Return the templates of steps, also of some that a flow does not have yet."""
    ids = [step["template_id"] for _, step in walk(steps) if step.get("template_id")]
    return list(Template.select().where(Template.id.in_(ids))) if ids else []


def words(rows: Sequence[Template]) -> dict[int, Mapping[str, Any]]:
    """Return what templates say, by template id."""
    return {row.id: {name: getattr(row, name) for name in WORDS} for row in rows}


def _placed(
    account_id: int, flow_id: int, steps: Sequence[Step], have: dict[int, Template], user_id: int | None
) -> list[Step]:
    found = []
    for step in steps:
        kept = {key: value for key, value in step.items() if key != "content"}
        if "content" in step:
            kept["template_id"] = _written(account_id, flow_id, step, have.get(step["id"]), user_id).id
        for branch in BRANCHES:
            if branch in step:
                kept[branch] = _placed(account_id, flow_id, step[branch], have, user_id)
        found.append(kept)
    return found


def _said(account_id: int, step: Step, own: Template | None = None) -> dict[str, Any]:
    """Return the words that a step brings along; those of another template that it names come first."""
    asked = step["template_id"]
    if asked is None or (own is not None and asked == own.id):
        return dict(step["content"])
    other = templates.get(account_id, asked)
    return {name: getattr(other, name) for name in WORDS} | dict(step["content"])


def _written(account_id: int, flow_id: int, step: Step, own: Template | None, user_id: int | None) -> Template:
    said = _said(account_id, step, own)
    if own is None:
        asked_for = convert(said, TemplateWrite)
        return templates.create(
            account_id, asked_for, flow_id=flow_id, user_id=user_id, action_id=step["id"],
            channel="sms" if step["type"] == "sms" else "email",
        )  # fmt: skip
    return templates.fill(own, convert(said, Content), user_id)
