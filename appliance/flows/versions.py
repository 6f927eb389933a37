"""Versions of a flow: its steps compiled into rows, and the content of its messages, both fixed at publication.

A run keeps the version with which it entered.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import convert

from appliance.content import brand as brands
from appliance.content.designs import merge, merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import store as templates
from appliance.content.templates import translations, validation
from appliance.content.templates.revisions import CONTENT_FIELDS, to_document
from appliance.content.templates.store import NO_STEP_MESSAGES, PreparedContent, StepMessages
from appliance.content.templates.validation import Content, TemplateWrite
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.flows import branches, jumps, split_tests
from appliance.flows.branches import list_branches, map_branches
from appliance.flows.document import MAX_TAG_CODE, Step, walk
from appliance.flows.steps.base import MESSAGE_FIELDS, Node
from appliance.flows.steps.go_to import JUMPED
from appliance.sending.messages import shared_content, utm_links
from appliance.storage.database import connection, rows, run
from appliance.storage.models import Account, Flow, Template
from appliance.storage.models import Step as tables_Step
from appliance.storage.transactions import after_commit, is_in_write_transaction, require_write_transaction

# The prepared content of steps by step id, computed outside of the write transaction
PreparedContents = Mapping[int, PreparedContent]
NO_CONTENTS: PreparedContents = {}

# Plans are cached, because a plan never changes after the commit that writes it.

_MAX_CACHED_PLANS = 200
_INSERT_STEP = (
    "INSERT INTO step (flow_id, version, action_id, kind, template_id, content_id, pinned, data, next_action, "
    "branches, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Plan(NamedTuple):
    """The compiled steps of one version of a flow, by step id in document order.

    `first` is the id of the first step, or None without steps; then a run completes at once. `repeats` says whether
    there are jumps, so that a run can come to a step again.
    """

    flow_id: int
    version: int
    first: int | None
    nodes: dict[int, Node]
    repeats: bool = False


def compile_steps(steps: Sequence[dict[str, Any]]) -> list[Node]:
    """Return the nodes of nested steps, in document order; each step needs its `id` and `type`."""
    return list(_compile_siblings(jumps.link_targets(steps), None))


def _compile_siblings(steps: Sequence[dict[str, Any]], after: int | None) -> Iterator[Node]:
    """Yield the nodes of sibling steps and of their branches.

    `after` is the step to which the last sibling leads. A branch leads to the step after the step that has the branch.
    """
    for index, step in enumerate(steps):
        following = steps[index + 1]["id"] if index + 1 < len(steps) else after
        nested = list_branches(step)
        first_steps = {branch.key: branch.steps[0]["id"] if branch.steps else following for branch in nested}
        if step["type"] == jumps.KIND:
            first_steps[JUMPED] = step["step_id"]
        yield Node(step["id"], step["type"], branches.get_props(step), following, first_steps)
        for branch in nested:
            yield from _compile_siblings(branch.steps, following)


def write_plan(flow_id: int, version: int, nodes: Sequence[Node], messages: dict[int, dict[str, Any]]) -> None:
    """Write the compiled steps of a version as rows of `step`.

    `messages` maps the id of each sending step to a dict with its template id (`template`), its content revision id
    (`content`), and `pinned`: everything besides the content that is fixed at publication, such as look, locale, sender
    and links.
    """
    require_write_transaction()
    encode = msgspec.json.encode
    values = []
    for position, node in enumerate(nodes):
        message = messages.get(node.id, {})
        pinned = message.get("pinned")
        values.append(
            (
                flow_id, version, node.id, node.kind, message.get("template"), message.get("content"),
                None if pinned is None else encode(pinned).decode(), encode(node.props).decode(), node.next,
                encode(dict(node.branches)).decode(), position,
            )
        )  # fmt: skip
    connection().executemany(_INSERT_STEP, values)


_plan_cache: "OrderedDict[tuple[int, int], Plan]" = OrderedDict()
_plan_lock = threading.Lock()


def load_plan(flow_id: int, version: int) -> Plan:
    """Return the plan of a version of a flow, from the cache if possible.

    In a write transaction, a plan is cached only after the commit, because a later transaction uses the same version
    number if this one fails.
    """
    key = (flow_id, version)
    with _plan_lock:
        if key in _plan_cache:
            _plan_cache.move_to_end(key)
            return _plan_cache[key]
    plan = read_plan(flow_id, version)
    if is_in_write_transaction():
        after_commit(lambda: _cache_plan(key, plan))
    else:
        _cache_plan(key, plan)
    return plan


def _cache_plan(key: tuple[int, int], plan: Plan) -> None:
    with _plan_lock:
        _plan_cache[key] = plan
        while len(_plan_cache) > _MAX_CACHED_PLANS:
            _plan_cache.popitem(last=False)


def read_plan(flow_id: int, version: int) -> Plan:
    """Return the plan of a version of a flow from the database, even if this transaction has just written it."""
    step_rows = (
        tables_Step.select()
        .where(tables_Step.flow == flow_id, tables_Step.version == version)
        .order_by(tables_Step.position)
    )
    nodes = {row.action_id: Node(row.action_id, row.kind, row.data, row.next_action, row.branches) for row in step_rows}
    repeats = any(node.kind == jumps.KIND for node in nodes.values())
    return Plan(flow_id, version, next(iter(nodes), None), nodes, repeats)


# The content of a flow's messages: each sending step has its own template, which stores the id of the step.


def save_contents(
    account_id: int, flow_id: int, steps: Sequence[Step], user_id: int | None = None,
    contents: PreparedContents = NO_CONTENTS,
) -> list[Step]:  # fmt: skip
    """Write the content of parsed steps into their templates; return the steps in their stored form.

    A step without a template gets one. Templates of removed steps are marked as removed; if a step is added again, its
    template is restored. `contents` is from `prepare_contents`. Raises Invalid for invalid content.
    """
    require_write_transaction()
    templates = {int(row.action_id or 0): row for row in Template.select().where(Template.flow == flow_id)}
    stored = _save_step_contents(account_id, flow_id, steps, templates, user_id, contents)
    used_ids = {step["id"] for _, step in walk(stored) if "template_id" in step}
    for action_id, template in templates.items():
        if (action_id not in used_ids) == (template.removed_at is None):
            template.removed_at = clock.now_ms() if action_id not in used_ids else None
            template.save(only=[Template.removed_at])
    return stored


def save_draft_contents(account_id: int, flow_id: int, steps: Sequence[Step], user_id: int | None = None) -> list[Step]:
    """Write the content of a draft's steps into templates; return the steps in their stored form.

    The template of a new step is marked as removed until `save_contents` publishes it.
    """
    require_write_transaction()
    templates = {int(row.action_id or 0): row for row in Template.select().where(Template.flow == flow_id)}
    stored = _save_step_contents(account_id, flow_id, steps, templates, user_id, NO_CONTENTS)
    new = [step["template_id"] for _, step in walk(stored) if "template_id" in step and step["id"] not in templates]
    Template.update(removed_at=clock.now_ms()).where(Template.id.in_(new)).execute()
    return stored


def prepare_contents(account_id: int, steps: Sequence[Step], flow: Flow | None = None) -> PreparedContents:
    """Check and parse the content of parsed steps; return it by step id. Call this outside of the write transaction.

    Raises Invalid for invalid content.
    """
    own = {row.action_id: row for row in list_flow_templates(flow.id)} if flow is not None else {}
    prepared = {}
    for _, step in walk(steps):
        if "content" in step:
            template = own.get(step["id"])
            request = _build_request(_resolve_content(account_id, step, template), template)
            template_id = None if template is None else template.id
            prepared[step["id"]] = templates.prepare(account_id, request, template_id, _get_channel(step))
    return prepared


def build_documents(
    account_id: int, flow_id: int, steps: Sequence[Step], own: Sequence[Template]
) -> dict[int, tuple[dict[str, Any], str]]:  # fmt: skip
    """Return (document, channel) of the templates of parsed steps as `save_contents` would store them, by step id.

    `own` are the templates of the flow, also of removed steps. Nothing is written.
    """
    templates_by_step, documents = {row.action_id: row for row in own}, {}
    for _, step in walk(steps):
        if "content" in step:
            template, channel = templates_by_step.get(step["id"]), _get_channel(step)
            request = _build_request(_resolve_content(account_id, step, template), template)
            row = template or Template(account=account_id, flow=flow_id, channel=channel)
            former = to_document(row)
            document = former | templates.normalize_content(row, request)
            source = _find_copied(account_id, step, template)
            if source is not None:
                document["translations"] = translations.keep_current(source.translations, document, channel)
            document["translations"] = templates.prune_translations(document, former, channel)
            documents[step["id"]] = (document, channel)
    return documents


def _get_new_contents(account_id: int, steps: Sequence[Step]) -> dict[int, dict[str, Any]]:
    """Return the content of parsed steps in its stored form, by step id; steps whose content stays are left out."""
    contents = {}
    for _, step in walk(steps):
        if "content" in step:
            contents[step["id"]] = {
                name: validation.normalize_field(name, value)
                for name, value in _resolve_content(account_id, step).items()
            }
    return contents


def list_flow_templates(flow_id: int) -> list[Template]:
    """Return the templates of the current steps of a flow, in the order in which the steps were created."""
    query = Template.select().where(Template.flow == flow_id, Template.removed_at.is_null())
    return list(query.order_by(Template.action_id))


def load_templates_by_flow(flow_ids: Sequence[int]) -> dict[int, list[Template]]:
    """Return the templates of the current steps of flows, by flow id; the list of a flow may be empty."""
    templates: dict[int, list[Template]] = {number: [] for number in flow_ids}
    query = Template.select().where(Template.flow.in_(list(flow_ids)), Template.removed_at.is_null())
    for row in query.order_by(Template.action_id):
        templates[row.flow_id].append(row)
    return templates


def list_step_templates(steps: Sequence[Step]) -> list[Template]:
    """Return the templates of steps at all levels, published or not."""
    ids = [step["template_id"] for _, step in walk(steps) if step.get("template_id")]
    return list(Template.select().where(Template.id.in_(ids))) if ids else []


def get_contents(rows: Sequence[Template]) -> dict[int, Mapping[str, Any]]:
    """Return the content fields of templates, by template id."""
    return {row.id: {name: getattr(row, name) for name in MESSAGE_FIELDS} for row in rows}


def _save_step_contents(
    account_id: int, flow_id: int, steps: Sequence[Step], templates: dict[int, Template], user_id: int | None,
    contents: PreparedContents,
) -> list[Step]:  # fmt: skip
    stored_steps = []
    for step in steps:
        stored = {key: value for key, value in step.items() if key != "content"}
        if "content" in step:
            own, prepared = templates.get(step["id"]), contents.get(step["id"])
            stored["template_id"] = _write_template(account_id, flow_id, step, own, user_id, prepared).id
        stored_steps.append(
            map_branches(
                stored,
                lambda nested: _save_step_contents(account_id, flow_id, nested, templates, user_id, contents),
            )
        )
    return stored_steps


def _resolve_content(account_id: int, step: Step, own: Template | None = None) -> dict[str, Any]:
    """Return the content of a parsed step; if it names a template to copy, missing fields come from that template.

    `own` is the step's own template, which is not copied.
    """
    source = _find_copied(account_id, step, own)
    if source is None:
        return dict(step["content"])
    return {name: getattr(source, name) for name in MESSAGE_FIELDS} | dict(step["content"])


def _find_copied(account_id: int, step: Step, own: Template | None) -> Template | None:
    """Return the template that a parsed step copies, or None if it names none, or its own."""
    template_id = step["template_id"]
    if template_id is None or (own is not None and template_id == own.id):
        return None
    return templates.get(account_id, template_id)


def _write_template(
    account_id: int, flow_id: int, step: Step, own: Template | None, user_id: int | None,
    prepared: PreparedContent | None,
) -> Template:  # fmt: skip
    request = _build_request(_resolve_content(account_id, step, own), own)
    source = _find_copied(account_id, step, own)
    if own is None:
        return templates.create(
            account_id, request, flow_id=flow_id, user_id=user_id, action_id=step["id"], channel=_get_channel(step),
            prepared=prepared, source=source,
        )  # fmt: skip
    return templates.fill(own, request, user_id, prepared, source)


def _build_request(content: dict[str, Any], own: Template | None) -> Any:
    """Return a request with the content of a step: to update its template `own`, or to create one if `own` is None."""
    return convert(content, TemplateWrite if own is None else Content)


def _get_channel(step: Step) -> str:
    return "sms" if step["type"] == "sms" else "email"


_SELECT_PINNED = (
    "SELECT s.action_id, s.template_id, s.content_id, r.number, s.pinned FROM step s "
    "JOIN template_revision r ON r.id = s.content_id WHERE s.flow_id = ? AND s.version = ?"
)

_EMPTY_CONTENT: dict[str, Any] = dict.fromkeys(CONTENT_FIELDS)

_SELECT_CURRENT_REVISIONS = (
    "SELECT t.id, r.id FROM template t JOIN template_revision r ON r.template_id = t.id AND r.number = t.revision "
    "WHERE t.flow_id = ? AND t.removed_at IS NULL"
)
_LABEL_REVISIONS = (
    "UPDATE template_revision SET named = 1, label = ?1 WHERE named = 0 AND id IN (SELECT value FROM json_each(?2))"
)


class _PinnedMessage(NamedTuple):
    """The message of a step in the last published version, with the number of its template revision."""

    template_id: int
    content_id: int
    revision: int
    pinned: dict[str, Any]


def publish(flow: Flow, compiled: StepMessages = NO_STEP_MESSAGES) -> bool:
    """Publish the current state of a flow as a new version, unless it equals the last version.

    Returns whether a version was published. `compiled` is from `prepare_messages`. The caller saves the flow. Raises
    Invalid if a message does not render, or if all messages together have too much merge tag code.
    """
    require_write_transaction()
    nodes = compile_steps(flow.steps)
    messages, is_new = _pin_messages(flow, compiled)
    if flow.version and not is_new and list(read_plan(flow.id, flow.version).nodes.values()) == nodes:
        return False
    flow.version += 1
    write_plan(flow.id, flow.version, nodes, messages)
    split_tests.start_tests(flow.account_id, flow.id, nodes)
    return True


def prepare_messages(account_id: int, steps: Sequence[Step], flow: Flow | None = None) -> StepMessages:
    """Compile the emails of `steps`; call it outside of the write transaction.

    Content in a step overrides the stored templates of `flow`. Errors are not raised here; `publish` reports them.
    """
    brand = brands.build_look(brands.get(account_id))
    locale = Account.get_by_id(account_id).locale
    own = (
        {int(row.action_id or 0): to_document(row) for row in list_flow_templates(flow.id)} if flow is not None else {}
    )
    new_contents = _get_new_contents(account_id, steps)
    if _check_code_size(
        [own.get(number, {}) | new_contents.get(number, {}) for number in own.keys() | new_contents.keys()]
    ):
        return NO_STEP_MESSAGES
    messages: dict[Any, Any] = {}
    for _, step in walk(steps):
        if step["type"] == "email":
            content = _EMPTY_CONTENT | own.get(step["id"], {}) | new_contents.get(step["id"], {})
            pinned = {"look": brand, "locale": locale, "transactional": step["transactional"]}
            for source in shared_content.build_step_sources(content, pinned):
                try:
                    messages[source] = shared_content.get_step_links(source)
                except MergeError as error:
                    messages[source] = error
    return messages


def prepare_changed_step(template: Template, document: dict[str, Any]) -> StepMessages:
    """Compile the message of a step with new content (`document`) for its template.

    Returns `NO_STEP_MESSAGES` if the flow is not active or no longer has a step with this template.
    """
    flow = Flow.get_by_id(template.flow_id)
    steps = (step for _, step in walk(flow.steps) if step.get("template_id") == template.id)
    step = next(steps, None)
    if step is None or flow.status != "active":
        return NO_STEP_MESSAGES
    return prepare_messages(flow.account_id, [step | {"content": document}])


def _list_message_steps(flow: Flow) -> list[tuple[str, Step, Template]]:
    templates = {row.id: row for row in list_flow_templates(flow.id)}
    return [(path, step, templates[step["template_id"]]) for path, step in walk(flow.steps) if "template_id" in step]


def _pin_messages(flow: Flow, compiled: StepMessages) -> tuple[dict[int, dict[str, Any]], bool]:
    """Return the messages of a flow for `write_plan`, and whether they differ from those of the last version.

    Also labels the revisions that are newly published, so that they are not pruned. Raises Invalid as `publish` does.
    """
    previous = {
        number: _PinnedMessage(template_id, content_id, revision, msgspec.json.decode(pinned))
        for number, template_id, content_id, revision, pinned in rows(_SELECT_PINNED, (flow.id, flow.version))
    }
    sending = _list_message_steps(flow)
    if error := _check_code_size([to_document(template) for _, _, template in sending]):
        raise Invalid({"steps": [error]}, reason="preflight_failed",
                      blockers=[{"code": "preflight_failed", "message": error, "field": "steps"}])  # fmt: skip
    common, current_revisions = (
        shared_content.get_flow_defaults(flow),
        dict(rows(_SELECT_CURRENT_REVISIONS, (flow.id,))),
    )
    messages, changed = {}, []
    for path, step, template in sending:
        utm = utm_links.build_step_utm(flow, flow.account, step)
        beside = shared_content.build_step_snapshot(common, template, step["transactional"], utm)
        message = _reuse_pinned(template, beside, previous.get(step["id"]))
        if message is None:
            numbered = _number_links(step, template, beside, path, compiled)
            message = {"template": template.id, "content": current_revisions[template.id], "pinned": numbered}
            changed.append(current_revisions[template.id])
        messages[step["id"]] = message
    # A label keeps published revisions from being pruned; a revision that a user named keeps its name.
    run(_LABEL_REVISIONS, (f"Live {clock.iso(clock.now_ms())}", json.dumps(changed)))
    return messages, bool(changed) or set(messages) != set(previous)


def _reuse_pinned(template: Template, pinned: dict[str, Any], previous: _PinnedMessage | None) -> dict[str, Any] | None:
    """Return the last version's message in the form of `write_plan` if it would be the same now, else None."""
    if previous is None or (previous.template_id, previous.revision) != (template.id, template.revision):
        return None
    # Both are compared as decoded JSON, in which tuples are lists.
    if msgspec.json.decode(msgspec.json.encode(pinned)) | {"links": None} != previous.pinned | {"links": None}:
        return None
    return {"template": previous.template_id, "content": previous.content_id, "pinned": previous.pinned}


def _check_code_size(documents: Sequence[dict[str, Any]]) -> str | None:
    """Return an error if all messages together have more merge tag code than `MAX_TAG_CODE`, else None."""
    messages = (message for document in documents for _, message in translations.list_messages(document))
    return merge_limits.find_code_error(
        (text for each in messages for text in merge.iterate_strings(each)), MAX_TAG_CODE
    )


def _number_links(
    step: Step, template: Template, pinned: dict[str, Any], path: str, compiled: StepMessages
) -> dict[str, Any]:
    try:
        return shared_content.add_step_links(template, pinned, step["type"] == "email", compiled)
    except MergeError as error:
        message = gettext("does not render: %(error)s", error=error)
        blockers = [{"code": "preflight_failed", "message": message, "field": f"{path}.body"}]
        raise Invalid({f"{path}.body": [message]}, reason="preflight_failed", blockers=blockers) from None
