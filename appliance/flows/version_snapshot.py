"""What new runs of a flow take: its steps as they stand, and what their messages say, fixed as a new version."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from appliance import brand as brands
from appliance import clock
from appliance.db.dialect.documents import among
from appliance.db.open import rows, run
from appliance.db.work import writing
from appliance.designs import merge
from appliance.designs.document import strings
from appliance.designs.merge import MergeError
from appliance.errors import Invalid
from appliance.flows import contents, plan
from appliance.flows.document import MAX_TAG_CODE, Step, walk
from appliance.messages import flow_content
from appliance.tables import Account, Flow, Template

_HAD = (
    "SELECT s.action_id, s.template_id, s.content_id, r.number, s.pinned FROM step s "
    "JOIN template_revision r ON r.id = s.content_id WHERE s.flow_id = ? AND s.version = ?"
)

_BLANK: dict[str, Any] = dict.fromkeys(contents.FIELDS)

_STANDING = (
    "SELECT t.id, r.id FROM template t JOIN template_revision r ON r.template_id = t.id AND r.number = t.revision "
    "WHERE t.flow_id = ? AND t.removed_at IS NULL"
)
_NAMED = f"UPDATE template_revision SET named = 1, label = ?1 WHERE named = 0 AND id {among('?2')}"


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
    nodes = plan.compiled(flow.steps)
    messages, is_new = _messages(flow)
    if flow.version and not is_new and list(plan.read(flow.id, flow.version).nodes.values()) == nodes:
        return False
    flow.version += 1
    plan.write(flow.id, flow.version, nodes, messages)
    return True


def warm(account_id: int, steps: Sequence[Step], flow: Flow | None = None) -> None:
    """Compile the messages that steps, as they were read or as they are stored, will be: before the writer has to."""
    brand = brands.look(brands.get(account_id))
    locale = Account.get_by_id(account_id).locale
    own = (
        {int(row.action_id or 0): contents.document(row) for row in contents.of_flow(flow.id)}
        if flow is not None
        else {}
    )
    brought = contents.foreseen(account_id, steps)
    if _code_fault([own.get(number, {}) | brought.get(number, {}) for number in own.keys() | brought.keys()]):
        return  # told when it is published
    for _, step in walk(steps):
        if step["type"] == "email":
            document = _BLANK | own.get(step["id"], {}) | brought.get(step["id"], {})
            beside = {"look": brand, "locale": locale, "transactional": step["transactional"]}
            # What cannot be made is told when it is published
            with contextlib.suppress(MergeError):
                flow_content.links(flow_content.source(document, beside))


def foresee(template: Template, document: dict[str, Any]) -> None:
    """Compile the message of a step with the words that its template is about to have, if its flow is live."""
    flow = Flow.get_by_id(template.flow_id)
    steps = (step for _, step in walk(flow.steps) if step.get("template_id") == template.id)
    step = next(steps, None)
    if step is not None and flow.status == "active":
        warm(flow.account_id, [step | {"content": document}])


def _sending(flow: Flow) -> list[tuple[str, Step, Template]]:
    templates = {row.id: row for row in contents.of_flow(flow.id)}
    return [(path, step, templates[step["template_id"]]) for path, step in walk(flow.steps) if "template_id" in step]


def _messages(flow: Flow) -> tuple[dict[int, dict[str, Any]], bool]:
    """Return what the messages of a flow say, by step, and whether any of that is new."""
    had = {
        number: _Had(template_id, content_id, revision, msgspec.json.decode(pinned))
        for number, template_id, content_id, revision, pinned in rows(_HAD, (flow.id, flow.version))
    }
    sending = _sending(flow)
    if words := _code_fault([contents.document(template) for _, _, template in sending]):
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
