"""What new runs of a flow take: its steps as they stand, and what their messages say, fixed as a new version."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import convert

from appliance.content import brand as brands
from appliance.content.designs import merge
from appliance.content.designs.document import strings
from appliance.content.designs.merge import MergeError
from appliance.content.templates import checks
from appliance.content.templates import store as templates
from appliance.content.templates.revisions import FIELDS, document
from appliance.content.templates.store import Content, TemplateWrite
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.flows import document as flows_document
from appliance.flows.document import BRANCHES, MAX_TAG_CODE, Step, walk
from appliance.flows.steps.writing import WORDS
from appliance.sending.messages import flow_content
from appliance.storage.models import Account, Flow, Template
from appliance.storage.open import rows, run
from appliance.storage.work import writing

# The words of a flow's messages: each step that sends has a template of its own, found by the id of the step.


def place_words(account_id: int, flow_id: int, steps: Sequence[Step], user_id: int | None = None) -> list[Step]:
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


def warm_contents(account_id: int, steps: Sequence[Step]) -> None:
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


def words_of(rows: Sequence[Template]) -> dict[int, Mapping[str, Any]]:
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


_HAD = (
    "SELECT s.action_id, s.template_id, s.content_id, r.number, s.pinned FROM step s "
    "JOIN template_revision r ON r.id = s.content_id WHERE s.flow_id = ? AND s.version = ?"
)

_BLANK: dict[str, Any] = dict.fromkeys(FIELDS)

_STANDING = (
    "SELECT t.id, r.id FROM template t JOIN template_revision r ON r.template_id = t.id AND r.number = t.revision "
    "WHERE t.flow_id = ? AND t.removed_at IS NULL"
)
_NAMED = (
    "UPDATE template_revision SET named = 1, label = ?1 WHERE named = 0 AND id IN (SELECT value FROM json_each(?2))"
)


class _Had(NamedTuple):
    """What a message says in the version that new runs took until now."""

    template_id: int
    content_id: int
    revision: int
    pinned: dict[str, Any]


def publish(flow: Flow) -> bool:
    """Let new runs take a flow as it stands now; returns whether that differs from what they took.

    The caller saves the flow. Raises Invalid for a message that cannot be made.
    """
    writing()
    nodes = flows_document.compiled(flow.steps)
    messages, is_new = _messages(flow)
    if flow.version and not is_new and list(flows_document.read_plan(flow.id, flow.version).nodes.values()) == nodes:
        return False
    flow.version += 1
    flows_document.write_plan(flow.id, flow.version, nodes, messages)
    return True


def warm(account_id: int, steps: Sequence[Step], flow: Flow | None = None) -> None:
    """Compile the messages that steps, as they were read or as they are stored, will be: before the writer has to."""
    brand = brands.look(brands.get(account_id))
    locale = Account.get_by_id(account_id).locale
    own = {int(row.action_id or 0): document(row) for row in of_flow(flow.id)} if flow is not None else {}
    brought = foreseen(account_id, steps)
    if _code_fault([own.get(number, {}) | brought.get(number, {}) for number in own.keys() | brought.keys()]):
        return  # told when it is published
    for _, step in walk(steps):
        if step["type"] == "email":
            content = _BLANK | own.get(step["id"], {}) | brought.get(step["id"], {})
            beside = {"look": brand, "locale": locale, "transactional": step["transactional"]}
            # What cannot be made is told when it is published
            with contextlib.suppress(MergeError):
                flow_content.links(flow_content.source(content, beside))


def compile_changed_step(template: Template, document: dict[str, Any]) -> None:
    """Compile the message of a step with the fields that its template is about to have, if its flow is live."""
    flow = Flow.get_by_id(template.flow_id)
    steps = (step for _, step in walk(flow.steps) if step.get("template_id") == template.id)
    step = next(steps, None)
    if step is not None and flow.status == "active":
        warm(flow.account_id, [step | {"content": document}])


def _sending(flow: Flow) -> list[tuple[str, Step, Template]]:
    templates = {row.id: row for row in of_flow(flow.id)}
    return [(path, step, templates[step["template_id"]]) for path, step in walk(flow.steps) if "template_id" in step]


def _messages(flow: Flow) -> tuple[dict[int, dict[str, Any]], bool]:
    """Return what the messages of a flow say, by step, and whether any of that is new."""
    had = {
        number: _Had(template_id, content_id, revision, msgspec.json.decode(pinned))
        for number, template_id, content_id, revision, pinned in rows(_HAD, (flow.id, flow.version))
    }
    sending = _sending(flow)
    if words := _code_fault([document(template) for _, _, template in sending]):
        raise Invalid({"steps": [words]}, reason="preflight_failed",
                      blockers=[{"code": "preflight_failed", "message": words, "field": "steps"}])  # fmt: skip
    alike, standing = flow_content.common(flow), dict(rows(_STANDING, (flow.id,)))
    found, changed = {}, []
    for path, step, template in sending:
        beside = flow_content.pinned(alike, template, step["transactional"])
        same = _unchanged(template, beside, had.get(step["id"]))
        if same is None:
            said = _numbered(step, template, beside, path)
            same = {"template": template.id, "content": standing[template.id], "pinned": said}
            changed.append(standing[template.id])
        found[step["id"]] = same
    # Kept for good; one that somebody named keeps its name
    run(_NAMED, (f"Live {clock.iso(clock.now_ms())}", json.dumps(changed)))
    return found, bool(changed) or set(found) != set(had)


def _unchanged(template: Template, beside: dict[str, Any], had: _Had | None) -> dict[str, Any] | None:
    """Return what a message said until now, if it would be the same today."""
    if had is None or (had.template_id, had.revision) != (template.id, template.revision):
        return None
    # As it comes back from where it is kept: tuples are arrays there
    if msgspec.json.decode(msgspec.json.encode(beside)) | {"links": None} != had.pinned | {"links": None}:
        return None
    return {"template": had.template_id, "content": had.content_id, "pinned": had.pinned}


def _code_fault(documents: Sequence[dict[str, Any]]) -> str | None:
    """Return that all messages together hold more in merge tags than the writer may be kept busy with, or None."""
    return merge.code_fault(strings(documents), MAX_TAG_CODE)


def _numbered(step: Step, template: Template, beside: dict[str, Any], path: str) -> dict[str, Any]:
    try:
        return flow_content.numbered(template, beside, step["type"] == "email")
    except MergeError as error:
        words = f"does not render: {error}"
        blockers = [{"code": "preflight_failed", "message": words, "field": f"{path}.body"}]
        raise Invalid({f"{path}.body": [words]}, reason="preflight_failed", blockers=blockers) from None
