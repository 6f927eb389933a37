"""Templates: what one message says, with a revision for every change."""

from typing import Any

from msgspec import UNSET, json
from peewee import fn

from appliance.accounts import roles
from appliance.content.designs import document as designs
from appliance.content.designs.readable import readable
from appliance.content.templates import checks, revisions
from appliance.content.templates.checks import check, kept
from appliance.content.templates.requests import Content, TemplateQuery, TemplateWrite
from appliance.content.templates.revisions import Origin, document, pin
from appliance.core import clock
from appliance.core.errors import Conflict, Faults, Invalid, NotAllowed, NotFound
from appliance.core.fields import given
from appliance.core.pagination import Page, paginate
from appliance.core.signals import Signal
from appliance.storage.models import Campaign, Flow, Template, User
from appliance.storage.work import writing

__all__ = [
    "Content", "TemplateQuery", "TemplateWrite", "check", "create", "delete", "document", "duplicate", "fill", "get",
    "is_editable", "kept", "page", "pin", "update", "variables", "warm", "write",
]  # fmt: skip

UNTITLED = "Untitled template"
# By what a list of templates may be ordered; a minus before it turns that round
ORDERS = {"name": fn.lower(Template.name), "updated": Template.updated_at, "created": Template.created_at}
# Sent with the template in the transaction that changed the template of a flow's step by itself
step_template_changed = Signal[[Template]]()
# Sent before such a transaction, outside the writer, with the template and the fields that it is about to have
step_template_changing = Signal[[Template, dict[str, Any]]]()


def page(account_id: int, query: TemplateQuery, order: str = "-created") -> Page:
    """List templates, newest first or in one of `ORDERS`."""
    column = ORDERS[order.removeprefix("-")]
    way = [column.desc(), Template.id.desc()] if order.startswith("-") else [column.asc(), Template.id.asc()]
    return paginate(matching(account_id, query).order_by(*way), query.page, query.size())


def matching(account_id: int, query: TemplateQuery) -> Any:
    """Return the templates that a query lets through, as a query without an order."""
    deleted = Campaign.select(Campaign.flow).where(Campaign.deleted_at.is_null(False))
    gone = Flow.select(Flow.id).where(Flow.deleted_at.is_null(False))
    found = Template.select().where(
        Template.account == account_id,
        Template.removed_at.is_null(),
        Template.flow.is_null() | (Template.flow.not_in(deleted) & Template.flow.not_in(gone)),
    )
    if isinstance(query.channel, str):
        found = found.where(Template.channel == query.channel)
    if query.standalone is not UNSET:
        found = found.where(Template.flow.is_null(bool(query.standalone)))
    if isinstance(query.search, str) and query.search.strip():
        words = query.search.strip()
        found = found.where(Template.name.contains(words) | Template.subject.contains(words))
    return found


def counted(account_id: int) -> dict[str, int]:
    """Count the stand-alone templates by their channel."""
    found = matching(account_id, TemplateQuery(standalone=True))
    return dict(found.select(Template.channel, fn.count(Template.id)).group_by(Template.channel).tuples())


def get(account_id: int, template_id: int) -> Template:
    """Return a template; raises NotFound."""
    found = Template.get_or_none(Template.account == account_id, Template.id == template_id)
    if found is None:
        raise NotFound
    return found


def create(
    account_id: int, request: TemplateWrite, flow_id: int | None = None, user_id: int | None = None,
    label: str = "Created", action_id: int | None = None, channel: str = "email",
) -> Template:  # fmt: skip
    """Make a template, one of a flow for the step that sends it; raises Invalid with all faults."""
    writing()
    channel = request.channel if isinstance(request.channel, str) else channel
    faults = Faults()
    check(account_id, request, "", faults, channel)
    faults.check()
    now = clock.now_ms()
    template = Template(
        account=account_id, flow=flow_id, action_id=action_id, channel=channel, created_at=now, updated_at=now
    )
    for name, value in _values(template, request).items():
        setattr(template, name, value)
    if flow_id is None and template.name is None:
        template.name = UNTITLED
    template.variables = variables(template)
    template.save(force_insert=True)
    revisions.remember(template, label, user_id, Origin(1, None, None))
    return template


def duplicate(account_id: int, template_id: int, user_id: int | None = None) -> Template:
    """Make a stand-alone template that says the same, a campaign's or a flow's too; raises NotFound."""
    writing()
    have = get(account_id, template_id)
    now = clock.now_ms()
    made = Template(account=account_id, channel=have.channel, created_at=now, updated_at=now, variables=have.variables)
    for name, value in document(have).items():
        setattr(made, name, value)
    name = have.name or readable(have.subject or "") or UNTITLED
    made.name = f"{name[:240]} (copy)"
    made.save(force_insert=True)
    revisions.remember(made, f"Copied from {name}", user_id, Origin(1, None, None))
    return made


def update(
    account_id: int, template_id: int, request: TemplateWrite, user_id: int | None = None, revision: int | None = None
) -> Template:
    """Change a template; raises NotFound, Conflict if it moved on since it was read, or Invalid with all faults.

    What was read is told by its `updated_at`, or by the number of its revision.
    """
    writing()
    template = get(account_id, template_id)
    require(template, request.updated_at if isinstance(request.updated_at, int) else None, revision)
    faults = Faults()
    if isinstance(request.channel, str) and request.channel != template.channel:
        faults.add("channel", "cannot be changed: make another template")
    check(account_id, request, "", faults, template.channel)
    faults.check()
    write(template, _values(template, request), user_id, begins=True)
    return template


def require(template: Template, moment: int | None = None, revision: int | None = None) -> None:
    """Raise Conflict, with what changed and who changed it, if a template is not what somebody had before them."""
    if (moment is None or moment >= template.updated_at) and revision in (None, template.revision):
        return
    raise Conflict("it was changed by somebody else since it was read", **moved_on(template, moment, revision))


def moved_on(template: Template, moment: int | None = None, revision: int | None = None) -> dict[str, Any]:
    """Return what changed in a template since a moment or a revision; `changed` is null once that is not kept."""
    base = None
    if revision is not None and revision in revisions.origins_of(template.id):
        base = revisions.get(template.account_id, template.id, revision)
    elif moment is not None:
        base = revisions.read_at(template, moment)
    last = revisions.get(template.account_id, template.id, template.revision)
    who = User.get_or_none(User.id == last.user_id) if last.user_id is not None else None
    return {
        "updated_at": clock.iso(template.updated_at), "revision": template.revision,
        "changed": revisions.differing(base.document, document(template)) if base is not None else None,
        "changed_by": (who.name or who.email) if who is not None else None,
    }  # fmt: skip


def write(
    template: Template, values: dict[str, Any], user_id: int | None = None, label: str | None = None,
    restores: int | None = None, moved: bool = False, touched: str | None = None, begins: bool = False,
) -> bool:  # fmt: skip
    """Write fields as they are kept into a template, with a revision if any changed; returns whether any did.

    `touched` names the one value that is changed: what the same person changes of it within moments is one revision.
    With `begins`, content that is put into an empty template is where its undo ends: nobody empties it by a step back.
    A campaign's template raises Invalid (`campaign_locked`) past the lock, and asks for its approval again.
    """
    writing()
    campaign = require_open(template)
    if campaign is not None and campaign.phase == "scheduled":
        _require_sender(user_id)
    before = template.revision
    changed = _put(template, values, user_id, label, restores, moved, touched, begins)
    if template.revision != before:
        if campaign is not None:
            _ask_again(campaign, user_id)
        elif template.action_id is not None:
            step_template_changed.send(template)
    return changed


def fill(template: Template, request: Content, user_id: int | None = None) -> Template:
    """Write checked content into a template whose campaign is already known to be open."""
    writing()
    _put(template, _values(template, request), user_id, begins=True)
    return template


def quietly(template: Template, values: dict[str, Any], user_id: int | None = None) -> None:
    """Write fields as they are kept into the template of a flow's step, and let nobody follow."""
    writing()
    _put(template, values, user_id)


def _put(
    template: Template, values: dict[str, Any], user_id: int | None, label: str | None = None,
    restores: int | None = None, moved: bool = False, touched: str | None = None, begins: bool = False,
) -> bool:  # fmt: skip
    was_empty = is_empty(template)
    # As bytes, for the order of keys and `1.0` for `1` are changes too
    changed = [name for name, value in values.items() if json.encode(value) != json.encode(getattr(template, name))]
    for name in changed:
        setattr(template, name, values[name])
    if not changed and not moved:
        return False
    template.variables = variables(template)
    before = revisions.folded(template, touched, user_id)
    follows = before.follows if before is not None else None
    is_beginning = begins and was_empty and not is_empty(template)
    if not moved and before is None and not is_beginning:
        follows = revisions.origins_of(template.id)[template.revision].position
    template.revision += 1
    template.updated_at = max(clock.now_ms(), template.updated_at + 1)
    template.save()
    origin = Origin(template.revision, follows, restores)
    revisions.remember(template, label or revisions.changed_words(changed), user_id, origin, touched)
    return bool(changed)


def is_empty(template: Template) -> bool:
    """Return whether a template has neither sections nor a body."""
    return not template.body and not designs.sections(template.design)


def _values(template: Template, request: Content) -> dict[str, Any]:
    return {name: kept(name, value) for name, value in given(request).items()
              if name not in ("updated_at", "channel")}  # fmt: skip


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
    """Return whether content, audience and time of a campaign may change: a draft, or scheduled and over 5 min away."""
    if campaign.phase == "draft":
        return True
    return bool(campaign.phase == "scheduled" and campaign.scheduled_at - clock.now_ms() > LOCK_MS)


def require_open(template: Template) -> Campaign | None:
    """Return the campaign that a template belongs to; raises Invalid if it is past its lock."""
    if template.flow_id is None:
        return None
    campaign: Campaign | None = Campaign.get_or_none(
        Campaign.flow == template.flow_id, Campaign.template == template.id, Campaign.deleted_at.is_null()
    )
    if campaign is not None and not is_editable(campaign):
        raise Invalid({"base": ["is locked"]}, reason="campaign_locked", status=campaign.status)
    return campaign


def _require_sender(user_id: int | None) -> None:
    """Raise NotAllowed for a person who may not send: what is armed goes out as those who may want it."""
    person = User.get_or_none(User.id == user_id) if user_id is not None else None
    if person is not None and not roles.starts(person.role):
        raise NotAllowed(
            "it goes out by itself: who may send changes it, or takes it back first", required_scope="campaigns:send"
        )


def _ask_again(campaign: Campaign, user_id: int | None) -> None:
    """Take back the approval of a campaign whose content changed; an armed one that needs it is disarmed."""
    values: dict[str, Any] = {"approval_state": "pending_review", "edited_by": user_id}
    if campaign.phase == "scheduled" and campaign.account.approval_required:
        values |= {"status": "draft", "phase": "draft"}
    Campaign.update(**values).where(Campaign.id == campaign.id).execute()


def variables(template: Template) -> dict[str, Any]:
    """Return the merge variables of a template, each with default, sample and whether it is required."""
    return checks.variables(document(template), template.channel)


def look_over(account_id: int, request: Content, template_id: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a request beyond its types."""
    have = None if template_id is None else get(account_id, template_id)
    channel = getattr(request, "channel", UNSET)
    faults = Faults()
    check(account_id, request, "", faults, have.channel if have else channel if isinstance(channel, str) else "email")
    faults.check()


def warm(account_id: int, request: Any, template_id: int | None = None) -> None:
    """Look at the texts of a request before the writer has to; what is wrong with them is said there."""
    if not isinstance(request, Content):
        return
    have = None if template_id is None else Template.get_or_none(Template.id == template_id)
    check(account_id, request, "", Faults(), have.channel if have is not None else "email")
    template = have or Template(name=UNTITLED if isinstance(request, TemplateWrite) else None)
    said = document(template) | _values(template, request)
    checks.variables(said, template.channel)
    if have is not None and have.action_id is not None:
        step_template_changing.send(have, said)
