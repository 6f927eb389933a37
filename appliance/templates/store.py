"""Templates: what one message says, with a revision for every change."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import clock
from appliance.db.work import writing
from appliance.designs import merge
from appliance.errors import Conflict, Faults, Invalid, NotFound
from appliance.fields import EmailText, Line, PageQuery, Short, Subject, Text, When, given
from appliance.pages import Page, paginate
from appliance.tables import Campaign, Template, TemplateRevision

DESIGN_BYTES = 1_048_576
Design = Annotated[dict[str, Any], Meta(extra={"bytes": DESIGN_BYTES})]

# Which merge context each text stands in
_MERGED: dict[str, merge.Context] = {"subject": "header", "preheader": "header", "from_name": "header", "body": "html"}


class Content(Struct):
    """Subject, body and sender of one message."""

    subject: Subject | None | UnsetType = UNSET
    body: Text | None | UnsetType = UNSET
    preheader: Line | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    from_email: EmailText | None | UnsetType = UNSET
    reply_to: EmailText | None | UnsetType = UNSET
    design: Design | None | UnsetType = UNSET


class TemplateWrite(Content):
    """A template as created or changed; `updated_at` of what was read guards against overwriting."""

    name: Line | None | UnsetType = UNSET
    updated_at: When | UnsetType = UNSET


class TemplateQuery(PageQuery):
    """Filters of the template list."""

    standalone: bool | UnsetType = UNSET
    search: Short | UnsetType = UNSET


def page(account_id: int, query: TemplateQuery) -> Page:
    """List templates, newest first."""
    deleted = Campaign.select(Campaign.flow).where(Campaign.deleted_at.is_null(False))
    found = Template.select().where(
        Template.account == account_id, Template.flow.is_null() | Template.flow.not_in(deleted)
    )
    if query.standalone is not UNSET:
        found = found.where(Template.flow.is_null(bool(query.standalone)))
    if isinstance(query.search, str) and query.search.strip():
        words = query.search.strip()
        found = found.where(Template.name.contains(words) | Template.subject.contains(words))
    return paginate(found.order_by(Template.created_at.desc(), Template.id.desc()), query.page, query.size())


def get(account_id: int, template_id: int) -> Template:
    """Answer a template; raises NotFound."""
    found = Template.get_or_none(Template.account == account_id, Template.id == template_id)
    if found is None:
        raise NotFound
    return found


def create(account_id: int, request: TemplateWrite, flow_id: int | None = None) -> Template:
    """Make a template; raises Invalid with all faults."""
    writing()
    faults = Faults()
    check(request, "", faults)
    faults.check()
    now = clock.now_ms()
    template = Template(account=account_id, flow=flow_id, created_at=now, updated_at=now)
    if flow_id is None:
        template.name = "Untitled template"
    _fill(template, request)
    template.save(force_insert=True)
    _remember(template, "Created", None)
    return template


def update(account_id: int, template_id: int, request: TemplateWrite, user_id: int | None = None) -> Template:
    """Change a template; raises NotFound, Conflict if it moved on, or Invalid with all faults."""
    writing()
    template = get(account_id, template_id)
    if request.updated_at is not UNSET and request.updated_at < template.updated_at:
        raise Conflict("it was changed by somebody else since it was read", updated_at=clock.iso(template.updated_at))
    faults = Faults()
    check(request, "", faults)
    faults.check()
    campaign = _open_campaign(template)
    before = template.revision
    fill(template, request, user_id)
    if campaign is not None and template.revision != before:
        _ask_again(campaign)
    return template


def fill(template: Template, request: Content, user_id: int | None = None) -> Template:
    """Write checked content into a template, with a revision if anything changed."""
    writing()
    if _fill(template, request):
        template.revision += 1
        template.updated_at = max(clock.now_ms(), template.updated_at + 1)
        template.save()
        _remember(template, "Edited", user_id)
    return template


def delete(account_id: int, template_id: int) -> Template:
    """Delete a stand-alone template and answer it as it was; raises NotFound, or Invalid for one that is in use."""
    writing()
    template = get(account_id, template_id)
    if template.flow_id is not None:
        raise Invalid({"base": ["is in use"]}, reason="in_use", used_by=[{"flow_id": template.flow_id}])
    Template.delete().where(Template.id == template_id).execute()
    return template


LOCK_MS = 5 * 60 * 1000


def is_editable(campaign: Campaign) -> bool:
    """Say whether a campaign's content, audience, channel and time may change: in draft, armed until 5 min before."""
    if campaign.phase == "draft":
        return True
    return bool(campaign.phase == "scheduled" and campaign.scheduled_at - clock.now_ms() > LOCK_MS)


def _open_campaign(template: Template) -> Campaign | None:
    """Answer the campaign that a template belongs to; raises Invalid if it is past its lock."""
    if template.flow_id is None:
        return None
    campaign: Campaign | None = Campaign.get_or_none(Campaign.template == template.id, Campaign.deleted_at.is_null())
    if campaign is not None and not is_editable(campaign):
        raise Invalid({"base": ["is locked"]}, reason="campaign_locked", status=campaign.status)
    return campaign


def _ask_again(campaign: Campaign) -> None:
    """Take back the approval of a campaign whose content changed; an armed one that needs it is disarmed."""
    values: dict[str, Any] = {"approval_state": "pending_review"}
    if campaign.phase == "scheduled" and campaign.account.approval_required:
        values |= {"status": "draft", "phase": "draft"}
    Campaign.update(**values).where(Campaign.id == campaign.id).execute()


def warm(request: Any) -> None:
    """Compile the texts of a request before the writer has to; what is wrong with them is said there."""
    for name, context in _MERGED.items():
        text = getattr(request, name, None)
        if isinstance(text, str):
            merge.fault(text, context)


def check(request: Content, prefix: str, faults: Faults) -> None:
    """Note merge tags that cannot be parsed, and designs that are no documents."""
    for name, context in _MERGED.items():
        text = getattr(request, name)
        if isinstance(text, str):
            found = merge.fault(text, context)
            if found:
                faults.add(prefix + name, found)
    if isinstance(request.design, dict):
        sections = request.design.get("sections", [])
        if not isinstance(sections, list) or not all(isinstance(section, dict) for section in sections):
            faults.add(prefix + "design.sections", "is invalid")
        elif len(sections) > 200:
            faults.add(prefix + "design.sections", "is too long (maximum is 200 entries)")
        if not isinstance(request.design.get("theme", {}), dict):
            faults.add(prefix + "design.theme", "is invalid")


def variables(template: Template) -> dict[str, Any]:
    """Answer the merge variables of a template, each with default, sample and whether it is required."""
    names: set[str] = set()
    for name, context in _MERGED.items():
        text = getattr(template, name)
        if text and "{" in text:
            names |= set(merge.compile_template(text, context).variables)
    return {name: {"default": None, "sample": None, "required": False} for name in sorted(names)}


def _fill(template: Template, request: Content) -> bool:
    changed = False
    for name, value in given(request).items():
        if name == "updated_at":
            continue
        if name == "design":
            value = {"sections": [], "theme": {}} | (value or {})
        elif isinstance(value, str) and name != "body":
            value = value.strip() or None
        if name == "name" and value is None and template.flow_id is None:
            value = "Untitled template"
        if getattr(template, name) != value:
            setattr(template, name, value)
            changed = True
    if changed:
        template.variables = variables(template)
    return changed


def document(template: Template) -> dict[str, Any]:
    """Answer what a revision keeps of a template."""
    return {
        name: getattr(template, name)
        for name in ("name", "subject", "body", "preheader", "from_name", "from_email", "reply_to", "design")
    }


def _remember(template: Template, label: str, user_id: int | None) -> TemplateRevision:
    return TemplateRevision.create(
        template=template, number=template.revision, document=document(template), label=label, user=user_id,
        created_at=clock.now_ms(),
    )  # fmt: skip


def pin(template: Template, label: str) -> TemplateRevision:
    """Answer the revision that is the template as it stands now, named."""
    writing()
    found = TemplateRevision.get(TemplateRevision.template == template.id, TemplateRevision.number == template.revision)
    found.label = label
    found.save()
    return found
