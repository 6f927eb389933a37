"""Templates: queries, writes with a revision for each change, archive and owners. Undo is in `template_edits`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, json
from peewee import fn

from appliance.accounts import access
from appliance.content.designs import document as designs
from appliance.content.designs.merge import make_readable
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import revisions, translations, validation
from appliance.content.templates.revisions import Origin, to_document
from appliance.content.templates.translations import CheckedTexts
from appliance.content.templates.validation import (
    Content,
    TemplateQuery,
    TemplateWrite,
    TextFaults,
    normalize_field,
    validate_content,
)
from appliance.core import clock
from appliance.core.errors import Conflict, Faults, Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext, gettext_noop, gettext_stored
from appliance.core.signals import Provider, Signal
from appliance.core.validation import sent_fields
from appliance.storage.database import Page, contains_words, fetch_one, paginate
from appliance.storage.models import Campaign, Flow, Template, User, Variant
from appliance.storage.transactions import require_write_transaction

UNTITLED = gettext_noop("Untitled template")
_COPIED = gettext_stored("Copied from %(name)s", revisions.HISTORY)
# The sort keys of the template list; a minus before the key means descending.
ORDERS = {"name": fn.name_order(Template.name), "updated": Template.updated_at, "created": Template.created_at}
# By message source: the links of the compiled message as (address, text), or the error of a message that does not
# compile.
StepMessages = Mapping[Any, tuple[tuple[str, str], ...] | MergeError]
NO_STEP_MESSAGES: StepMessages = {}
# Sent when the template of a flow's step changed, in the transaction of the change.
step_template_changed = Signal[[Template, StepMessages]]()
# Compiles the message of a live flow's step from its template and its new fields; called before the transaction.
compile_step_template: Provider[[Template, dict[str, Any]], StepMessages] = Provider(NO_STEP_MESSAGES)


def fetch_page(account_id: int, query: TemplateQuery, order: str = "-created") -> Page:
    """Return a page of the matching templates, by default newest first.

    `order` is a name of `ORDERS`, with a minus for descending.
    """
    column = ORDERS[order.removeprefix("-")]
    ordering = [column.desc(), Template.id.desc()] if order.startswith("-") else [column.asc(), Template.id.asc()]
    return paginate(build_query(account_id, query).order_by(*ordering), query.page, query.size())


def build_query(account_id: int, query: TemplateQuery) -> Any:
    """Return an unordered query of the matching templates.

    Archived templates and templates of deleted campaigns, flows and steps, and of steps only in a draft, are left out.
    """
    deleted = Campaign.select(Campaign.flow).where(Campaign.deleted_at.is_null(False))
    deleted_flows = Flow.select(Flow.id).where(Flow.deleted_at.is_null(False))
    templates = Template.select().where(
        Template.account == account_id,
        Template.removed_at.is_null(),
        Template.flow.is_null() | (Template.flow.not_in(deleted) & Template.flow.not_in(deleted_flows)),
    )
    if isinstance(query.channel, str):
        templates = templates.where(Template.channel == query.channel)
    if query.standalone is not UNSET:
        templates = templates.where(Template.flow.is_null(bool(query.standalone)))
    if isinstance(query.search, str) and query.search.strip():
        templates = templates.where(contains_words(query.search, Template.name, Template.subject))
    return templates


def count_by_channel(account_id: int) -> dict[str, int]:
    """Return the number of stand-alone templates by channel; a channel without templates is left out."""
    templates = build_query(account_id, TemplateQuery(standalone=True))
    return dict(templates.select(Template.channel, fn.count(Template.id)).group_by(Template.channel).tuples())


def get(account_id: int, template_id: int) -> Template:
    """Return a template of the account, also an archived one; raises NotFound."""
    template = Template.get_or_none(Template.account == account_id, Template.id == template_id)
    if template is None:
        raise NotFound
    return template


class PreparedContent(NamedTuple):
    """A change of a template, validated and parsed before the write transaction by `prepare` or `prepare_values`.

    A write uses `faults` only for the same request and channel, and `variables` only for the same texts; otherwise it
    computes them again.
    """

    request: Content | None
    channel: str
    faults: TextFaults
    texts: dict[str, Any]  # the fields that may have variables, as they are after the change
    variables: dict[str, Any]
    step_messages: StepMessages  # the message of the live flow's step that owns the template
    checked_texts: CheckedTexts = MappingProxyType({})  # the results of `translations.check_texts`

    def get_faults(self, request: Content, channel: str) -> TextFaults | None:
        """Return the errors found for this request and channel, or None if they were found for another one."""
        return self.faults if (request, channel) == (self.request, self.channel) else None


def prepare(
    account_id: int, request: Content, template_id: int | None = None, channel: str = "email"
) -> PreparedContent:
    """Validate and parse a request that creates a template or changes `template_id`.

    Errors are not raised but returned in `faults`; the write raises them. Call it outside of the write transaction.
    """
    own = (Template.account == account_id) & (Template.id == template_id)
    template = None if template_id is None else Template.get_or_none(own)
    if template is None:
        channel = request.channel if isinstance(request, TemplateWrite) and request.channel else channel
        template = Template(
            account=account_id, channel=channel, name=UNTITLED if isinstance(request, TemplateWrite) else None
        )
    faults = validation.find_text_faults(request, template.channel)
    return prepare_values(template, normalize_content(template, request))._replace(request=request, faults=faults)


def prepare_values(template: Template, values: dict[str, Any]) -> PreparedContent:
    """Parse the document that a template will have once `values`, fields in their stored form, are written."""
    document = to_document(template) | values
    document["translations"] = prune_translations(document, to_document(template), template.channel)
    texts = {name: document[name] for name in validation.FIELDS_WITH_VARIABLES}
    variables = validation.find_variables(texts, template.channel)
    messages = NO_STEP_MESSAGES if template.action_id is None else compile_step_template(template, document)
    return PreparedContent(None, template.channel, (), texts, variables, messages)


def create(
    account_id: int, request: TemplateWrite, flow_id: int | None = None, user_id: int | None = None,
    label: str = "Created", action_id: int | None = None, channel: str = "email",
    prepared: PreparedContent | None = None, source: Template | None = None,
) -> Template:  # fmt: skip
    """Create a template with its first revision; raises Invalid with all errors.

    `source` is the template that the content was copied from, whose translations of the same texts are copied too.

    Give `flow_id` and `action_id` for the template of a flow's step, and only `flow_id` for the template of a campaign.
    """
    require_write_transaction()
    channel = request.channel if isinstance(request.channel, str) else channel
    faults = Faults()
    validate_content(account_id, request, "", faults, channel, prepared and prepared.get_faults(request, channel))
    faults.check()
    now = clock.now_ms()
    template = Template(
        account=account_id, flow=flow_id, action_id=action_id, channel=channel, created_at=now, updated_at=now
    )
    for name, value in normalize_content(template, request).items():
        setattr(template, name, value)
    if flow_id is None and template.name is None:
        template.name = UNTITLED
    if source is not None:
        template.translations = translations.keep_current(source.translations, to_document(template), channel)
    template.variables = _find_variables(template, prepared)
    template.save(force_insert=True)
    revisions.add_revision(template, label, user_id, Origin(1, None, None))
    return template


def duplicate(account_id: int, template_id: int, user_id: int | None = None, name: str = "") -> Template:
    """Copy a template, which may belong to a campaign or flow, to a new stand-alone template.

    Without a `name`, the copy is named after the source, followed by " (copy)". Raises NotFound, or Invalid for a name
    that is too long.
    """
    require_write_transaction()
    source = get(account_id, template_id)
    now = clock.now_ms()
    copied = Template(
        account=account_id, channel=source.channel, created_at=now, updated_at=now, variables=source.variables
    )
    for field, value in to_document(source).items():
        setattr(copied, field, value)
    source_name = source.name or make_readable(source.subject or "") or UNTITLED
    faults = Faults()
    validate_content(account_id, TemplateWrite(name=name or source_name), "", faults, source.channel)
    faults.check()
    copied.name = name or gettext("%(name)s (copy)", name=source_name[:240])
    copied.save(force_insert=True)
    revisions.add_revision(copied, _COPIED % {"name": source_name}, user_id, Origin(1, None, None))
    return copied


def update(
    account_id: int, template_id: int, request: TemplateWrite, user_id: int | None = None,
    revision: int | None = None, prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Update a template; raises NotFound, Invalid with all errors, or Conflict if it has changed since it was read.

    The state that was read is identified by `request.updated_at` or by the number of the `revision`; without both there
    is no check. Also raises the errors of `write`.
    """
    require_write_transaction()
    template = get(account_id, template_id)
    require_unchanged(template, request.updated_at if isinstance(request.updated_at, int) else None, revision)
    faults = Faults()
    if isinstance(request.channel, str) and request.channel != template.channel:
        faults.add("channel", gettext("cannot be changed: make another template"))
    known_faults = prepared and prepared.get_faults(request, template.channel)
    validate_content(account_id, request, "", faults, template.channel, known_faults)
    faults.check()
    write(template, normalize_content(template, request), user_id, begins=True, prepared=prepared)
    return template


def require_unchanged(template: Template, moment: int | None = None, revision: int | None = None) -> None:
    """Raise Conflict, with the dict of `describe_conflict`, if a template is newer than a time or a revision."""
    if (moment is None or moment >= template.updated_at) and revision in (None, template.revision):
        return
    raise Conflict(
        gettext("The template was changed by another user since it was read."),
        **describe_conflict(template, moment, revision),
    )


def describe_conflict(template: Template, moment: int | None = None, revision: int | None = None) -> dict[str, Any]:
    """Return what changed in a template since a time in milliseconds or a revision, and who changed it last.

    Keys: `updated_at`, `revision`, `changed` (names of fields; None if the earlier revision is not stored) and
    `changed_by` (name or email of the user; None if a program made the change).
    """
    base = None
    if revision is not None and revision in revisions.fetch_origins(template.id):
        base = revisions.get(template.account_id, template.id, revision)
    elif moment is not None:
        base = revisions.find_at(template, moment)
    last = revisions.get(template.account_id, template.id, template.revision)
    author = User.get_or_none(User.id == last.user_id) if last.user_id is not None else None
    return {
        "updated_at": clock.iso(template.updated_at), "revision": template.revision,
        "changed": revisions.find_changed_fields(base.document, to_document(template)) if base is not None else None,
        "changed_by": (author.name or author.email) if author is not None else None,
    }  # fmt: skip


def write(
    template: Template, values: dict[str, Any], user_id: int | None = None, label: str | None = None,
    restored_number: int | None = None, is_undo_step: bool = False, edited_field: str | None = None,
    begins: bool = False, starts_over: bool = False, prepared: PreparedContent | None = None,
) -> bool:  # fmt: skip
    """Write fields in their stored form, with a revision if any changed; return whether any changed.

    `label` is the text in the history, by default the changed fields. `edited_field` names the changed value if only
    one changed: quick further changes of it by the same user share the revision. `restored_number` is the revision that
    the values come from. `is_undo_step` marks a step of undo or redo, which adds a revision even if nothing changed. If
    `begins` is set and the write fills an empty template, undo cannot go back to the empty state. `starts_over` means
    that the fields replace the whole content, as with a chosen template: undo cannot go back behind this revision.

    A change of a campaign's template resets the approval of the campaign. Raises Invalid (`campaign_locked`) if the
    campaign can no longer be edited, and NotAllowed if the campaign is scheduled and the user may not send.
    """
    require_write_transaction()
    campaign = require_unlocked(template)
    if campaign is not None and campaign.phase == "scheduled":
        _require_sender(user_id)
    previous_revision = template.revision
    changed = _write_fields(
        template, values, user_id, label, restored_number, is_undo_step, edited_field, begins, starts_over, prepared
    )
    if template.revision != previous_revision:
        if campaign is not None:
            _reset_approval(campaign, user_id)
        elif template.action_id is not None:
            step_template_changed.send(template, prepared.step_messages if prepared else NO_STEP_MESSAGES)
    return changed


def fill(
    template: Template, request: Content, user_id: int | None = None, prepared: PreparedContent | None = None,
    source: Template | None = None,
) -> Template:  # fmt: skip
    """Write validated content into a template; the caller has checked that the template's campaign is not locked.

    `source` is the template that the content was copied from, as in `create`.
    """
    require_write_transaction()
    values = normalize_content(template, request)
    if source is not None:
        document = to_document(template) | values
        values["translations"] = translations.keep_current(source.translations, document, template.channel)
    _write_fields(template, values, user_id, begins=True, prepared=prepared)
    return template


def write_silently(template: Template, values: dict[str, Any], user_id: int | None = None) -> None:
    """Write fields into the template of a flow's step, with a revision, without sending `step_template_changed`.

    For fields that `hold_back_draft` puts back afterwards.
    """
    require_write_transaction()
    _write_fields(template, values, user_id)


def _write_fields(
    template: Template, values: dict[str, Any], user_id: int | None, label: str | None = None,
    restored_number: int | None = None, is_undo_step: bool = False, edited_field: str | None = None,
    begins: bool = False, starts_over: bool = False, prepared: PreparedContent | None = None,
) -> bool:  # fmt: skip
    was_empty, former = is_empty(template), to_document(template)
    # The values are compared as JSON, because another order of keys and `1.0` instead of `1` are changes too.
    changed = [name for name, value in values.items() if json.encode(value) != json.encode(getattr(template, name))]
    for name in changed:
        setattr(template, name, values[name])
    template.translations = prune_translations(to_document(template), former, template.channel)
    if not changed and not is_undo_step:
        return False
    template.variables = _find_variables(template, prepared)
    folded = revisions.pop_mergeable_revision(template, edited_field, user_id)
    parent_number = folded.parent_number if folded is not None else None
    is_beginning = starts_over or (begins and was_empty and not is_empty(template))
    if not is_undo_step and folded is None and not is_beginning:
        parent_number = revisions.fetch_origins(template.id)[template.revision].position
    template.revision += 1
    template.updated_at = max(clock.now_ms(), template.updated_at + 1)
    template.save()
    origin = Origin(template.revision, parent_number, restored_number)
    revisions.add_revision(template, label or revisions.describe_change(changed), user_id, origin, edited_field)
    return bool(changed)


def prune_translations(document: dict[str, Any], former: dict[str, Any], channel: str) -> dict[str, Any]:
    """Return a document's translations without the texts of sections that it no longer has.

    The texts of list entries that were moved follow them.
    """
    stored: dict[str, Any] = document["translations"] or {}
    if stored and channel == "email":
        stored = translations.follow_entries(stored, document, former)
    return translations.prune(stored, document, channel) if stored else stored


def is_empty(template: Template) -> bool:
    """Return whether a template has neither sections nor a body."""
    return not template.body and not designs.get_sections(template.design)


def normalize_content(template: Template, request: Content) -> dict[str, Any]:
    """Return the sent fields of a request in their stored form, by name."""
    return {name: normalize_field(name, value) for name, value in sent_fields(request).items()
              if name not in ("updated_at", "channel")}  # fmt: skip


def delete(account_id: int, template_id: int) -> Template:
    """Delete a stand-alone template and return it.

    Raises NotFound, or Invalid for a template of a campaign or flow, which `used_by` then names.
    """
    require_write_transaction()
    template = get(account_id, template_id)
    _require_standalone(template, gettext("is in use"))
    Template.delete().where(Template.id == template_id).execute()
    return template


def _require_standalone(template: Template, message: str) -> None:
    if template.flow_id is None:
        return
    try:
        owner = find_owner(template)
        used_by = [{f"{owner.kind}_id": owner.id, "name": owner.name}]
    except NotFound:  # It was deleted, and its template is kept for the history.
        used_by = []
    raise Invalid({"base": [message]}, reason="in_use", used_by=used_by)


CAMPAIGN_LOCK_MS = 5 * 60 * 1000


def is_editable(campaign: Campaign) -> bool:
    """Return whether a campaign may be edited: a draft, or scheduled for more than CAMPAIGN_LOCK_MS from now."""
    if campaign.phase == "draft":
        return True
    return bool(campaign.phase == "scheduled" and campaign.scheduled_at - clock.now_ms() > CAMPAIGN_LOCK_MS)


def require_unlocked(template: Template) -> Campaign | None:
    """Return the campaign that a template belongs to, or None.

    Raises Invalid (`campaign_locked`) if the campaign is not editable.
    """
    if template.flow_id is None:
        return None
    campaign: Campaign | None = Campaign.get_or_none(Campaign.flow == template.flow_id, Campaign.deleted_at.is_null())
    if campaign is not None and not is_editable(campaign):
        raise Invalid({"base": [gettext("is locked")]}, reason="campaign_locked", status=campaign.status)
    return campaign


def _require_sender(user_id: int | None) -> None:
    """Raise NotAllowed for a user who may not send.

    A scheduled campaign is sent without a further decision, so only users who may send can change its content.
    """
    person = User.get_or_none(User.id == user_id) if user_id is not None else None
    if person is not None and not access.role_can_send(person.role):
        raise NotAllowed(
            gettext("This campaign is scheduled; only a user who may send can change it."),
            required_scope="campaigns:send",
        )


def _reset_approval(campaign: Campaign, user_id: int | None) -> None:
    """Mark a changed campaign for review; a scheduled campaign becomes a draft if the account requires approval."""
    updated_at = max(clock.now_ms(), campaign.updated_at + 1)
    values: dict[str, Any] = {"approval_state": "pending_review", "edited_by": user_id, "updated_at": updated_at}
    if campaign.phase == "scheduled" and campaign.account.approval_required:
        values |= {"status": "draft", "phase": "draft"}
    Campaign.update(**values).where(Campaign.id == campaign.id).execute()


def _find_variables(template: Template, prepared: PreparedContent | None) -> dict[str, Any]:
    """Return the merge variables of a template by name: dicts of `default`, `sample` and `required`."""
    texts = {name: getattr(template, name) for name in validation.FIELDS_WITH_VARIABLES}
    if prepared is not None and (prepared.texts, prepared.channel) == (texts, template.channel):
        return prepared.variables
    return validation.find_variables(texts, template.channel)


def validate(account_id: int, request: Content, template_id: int | None = None) -> None:
    """Raise Invalid with every error of a request that its types do not exclude; NotFound for an unknown template."""
    template = None if template_id is None else get(account_id, template_id)
    channel = getattr(request, "channel", UNSET)
    faults = Faults()
    validate_content(
        account_id,
        request,
        "",
        faults,
        template.channel if template else channel if isinstance(channel, str) else "email",
    )
    faults.check()


# Archived templates are hidden from lists and keep all their data.


def fetch_archived_page(account_id: int, number: int, limit: int, search: str = "") -> Page:
    """Return a page of archived templates, last archived first; `search` is a part of the name or subject."""
    archived = build_archive_query(account_id, search)
    return paginate(archived.order_by(Template.removed_at.desc(), Template.id.desc()), number, limit)


def build_archive_query(account_id: int, search: str = "") -> Any:
    """Return an unordered query of the archived templates whose name or subject contains `search`."""
    archived = Template.select().where(
        Template.account == account_id, Template.flow.is_null(), Template.removed_at.is_null(False)
    )
    return archived.where(contains_words(search, Template.name, Template.subject)) if search.strip() else archived


def count_archived(account_id: int) -> int:
    """Return the number of archived templates."""
    row = fetch_one(
        "SELECT count(*) FROM template WHERE account_id = ? AND flow_id IS NULL AND removed_at IS NOT NULL",
        (account_id,),
    )
    return int(row[0]) if row else 0


def archive(account_id: int, template_id: int) -> Template:
    """Archive a stand-alone template; raises NotFound, or Invalid for a template of a campaign or flow."""
    return _set_archived(account_id, template_id, clock.now_ms())


def unarchive(account_id: int, template_id: int) -> Template:
    """Restore a template from the archive; raises NotFound, or Invalid for a template of a campaign or flow."""
    return _set_archived(account_id, template_id, None)


def _set_archived(account_id: int, template_id: int, moment: int | None) -> Template:
    require_write_transaction()
    template = get(account_id, template_id)
    _require_standalone(template, gettext("belongs to a campaign or a flow"))
    template.removed_at = moment
    template.save(only=[Template.removed_at])
    return template


def count_sent_messages(template_ids: list[int]) -> dict[int, int]:
    """Return the number of single messages that were created from each template, by template id.

    Templates without messages are left out.
    """
    counts = {
        number: fetch_one("SELECT count(*) FROM message WHERE template_id = ?", (number,)) for number in template_ids
    }
    return {number: int(row[0]) for number, row in counts.items() if row and row[0]}


# The owner of a template is a campaign, a step of a flow, or the template itself if it is stand-alone.


class TemplateOwner(Struct):
    """The owner of a template: its kind, id and name, the id of the step in a flow, and whether editing is locked.

    `phase` is the phase of a campaign or the status of a flow. `variant` is the number, from 2, and `variant_name` the
    name or letter of the variant of an A/B test whose own content it is.
    """

    kind: Literal["template", "campaign", "flow"]
    id: int
    name: str
    step: int | None = None
    phase: str = ""
    is_locked: bool = False
    variant: int | None = None
    variant_name: str = ""


def find_owner(template: Template) -> TemplateOwner:
    """Return the owner of a template: a campaign, a flow with the step, or the template itself.

    Raises NotFound if the campaign, the flow or the step was deleted, or the step is only in the draft of the flow.
    """
    if template.flow_id is None:
        return TemplateOwner("template", template.id, template.name or gettext(UNTITLED))
    campaign = Campaign.get_or_none(Campaign.flow == template.flow_id)
    if campaign is not None:
        if campaign.deleted_at is not None:
            raise NotFound
        variant = Variant.get_or_none((Variant.template == template.id) & (Variant.number > 1))
        return TemplateOwner(
            "campaign", campaign.id, campaign.name, None, campaign.phase, not is_editable(campaign),
            None if variant is None else variant.number,
            "" if variant is None else variant.name or chr(ord("A") + variant.number - 1),
        )  # fmt: skip
    flow = Flow.get_by_id(template.flow_id)
    if flow.deleted_at is not None or template.removed_at is not None:
        raise NotFound
    return TemplateOwner("flow", flow.id, flow.name, template.action_id, flow.status)


def get_campaign_template(account_id: int, campaign_id: int) -> Template:
    """Return the template of a campaign; raises NotFound, also for a deleted campaign."""
    campaign = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    )
    if campaign is None:
        raise NotFound
    return get(account_id, campaign.template_id)


def get_step_template(account_id: int, flow_id: int, action_id: int) -> Template:
    """Return the template of a flow's step; raises NotFound, also for a deleted flow or a step only in its draft."""
    template: Template | None = (
        Template.select()
        .join(Flow, on=(Template.flow == Flow.id))
        .where(
            Template.account == account_id, Template.flow == flow_id, Template.action_id == action_id,
            Template.removed_at.is_null(), Flow.deleted_at.is_null(), ~Flow.hidden,
        )
        .first()
    )  # fmt: skip
    if template is None:
        raise NotFound
    return template
