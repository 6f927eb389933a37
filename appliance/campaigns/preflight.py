"""What stands between a draft and its send: blockers refuse, warnings advise; one list for page and API."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from appliance import brand as brands
from appliance.account import approving
from appliance.account.acting import By
from appliance.campaigns import (
    advice,
    audience,
    audience_snapshot,
    link_check,
    missing_variables,
    rehearsal,
    sms_checks,
    store,
)
from appliance.campaigns.audience import Arithmetic
from appliance.campaigns.findings import Case, Finding, persons, transport
from appliance.designs import document as designs
from appliance.designs import variables
from appliance.designs.merge import MergeError
from appliance.messages import compose, sample_render, senders, sms_senders
from appliance.messages.compose import Source
from appliance.tables import Account, Campaign
from appliance.templates.store import document


class Preflight(Struct):
    """Everything found, and the facts a person decides by."""

    ok: bool
    blockers: list[Finding]
    warnings: list[Finding]
    facts: dict[str, Any]


def check(
    account_id: int, campaign_id: int, by: By = By(), count: Callable[[Campaign], Arithmetic] = audience.arithmetic
) -> Preflight:
    """Look at a draft as its send by somebody would, with its audience as it is counted; raises NotFound."""
    campaign = store.get(account_id, campaign_id)
    case = open_case(campaign, False, by)
    found = blockers(case)
    sums = count(campaign) if audience.is_set(campaign) else Arithmetic(0, 0, {})
    facts: dict[str, Any] = {
        "audience": sums.members, "sendable": sums.sendable, "skipped": sums.reasons,
        "transport": transport(campaign), "html_bytes": _size(case),
    }  # fmt: skip
    if not case.email:
        facts["sms"] = sms_checks.facts(case)
    links = link_check.of(case)
    if links is not None:
        facts["links"] = link_check.facts(links)
    rehearsed = None
    if case.is_readable and facts["sendable"] and campaign.phase in ("draft", "scheduled"):
        rehearsed = rehearsal.of(campaign)
        facts["rehearsal"] = rehearsal.facts(rehearsed)
        if not case.email:
            facts["sms"] |= sms_checks.foreseen(rehearsed)
    advised = advice.warnings(case, facts, rehearsed)
    return Preflight(not found, found, advised + (link_check.findings(case, links) if links else []), facts)


def _size(case: Case) -> int:
    """Return the bytes of an email's HTML as somebody invented gets it; what cannot be made for them is as written."""
    if case.content is None:
        return 0
    try:
        return sample_render.weigh(case.account.id, document(case.campaign.template), case.campaign.tracking)
    except MergeError:
        return len(case.content.html.source.encode())


def warm(account_id: int, campaign_id: int, content: Any, trigger: Any = None) -> None:
    """Compile a campaign's message and weigh its audience, with what a send brings along, before the writer has to."""
    campaign = store.get(account_id, campaign_id)
    said = document(campaign.template)
    said |= {name: value for name in said if isinstance(value := getattr(content, name, None), str | dict)}
    with contextlib.suppress(MergeError):
        if campaign.channel == "email" and is_written(said):
            compose.compile_source(_source(said, Account.get_by_id(account_id)))
    audience_snapshot.weigh(campaign, trigger)


def is_written(document: Mapping[str, Any]) -> bool:
    """Return whether there is anything to read: sections, or a body."""
    return bool((document["body"] or "").strip() or designs.sections(document["design"]))


def _source(document: Mapping[str, Any], account: Account) -> Source:
    look = brands.look(brands.get(account.id))
    return compose.source_of(document, look, account.locale, marketing=True)


def open_case(campaign: Campaign, confirmed: bool, by: By) -> Case:
    """Gather what the checks look at."""
    account = Account.get_by_id(campaign.account_id)
    content = text = error = None
    template = campaign.template
    said = document(template)
    try:
        if campaign.channel == "sms":
            text = sms_checks.compiled(campaign)
        elif template.subject and is_written(said):
            content = compose.compile_source(_source(said, account))
    except MergeError as fault:
        error = fault.words()
    real = transport(campaign) != "capture"
    return Case(campaign, account, brands.get(account.id), confirmed, by, content, text, error, real)


def _audience(case: Case) -> Iterator[Finding]:
    field = "trigger_attributes.contact_list_id"
    if not audience.is_set(case.campaign):
        yield Finding("audience_required", "choose a list, a segment, or confirm all contacts", field)
    for key in audience.missing(case.campaign):
        words = "names a list or segment that was deleted: choose again"
        yield Finding("audience_required", words, f"trigger_attributes.data.{key}")


def _confirmation(case: Case) -> Iterator[Finding]:
    data = case.campaign.trigger.data
    if audience.is_unbounded(case.campaign) and not (case.confirmed or data.get("confirm_send_to_all") is True):
        yield Finding("confirmation_required", "confirm that all contacts get this", "confirm_send_to_all")


def _content(case: Case) -> Iterator[Finding]:
    template = case.campaign.template
    if case.email and not (template.subject or "").strip():
        yield Finding("content_required", "write a subject", "template_attributes.subject")
    if not (template.body or "").strip() and not (case.email and designs.sections(template.design)):
        yield Finding("content_required", "write the message", "template_attributes.body")


def _sender(case: Case) -> Iterator[Finding]:
    if not case.email:
        for field, words in sms_senders.problems(case.account, transport(case.campaign)):
            yield Finding("sender_not_ready", words, field)
        return
    sender = str(sender_of(case.campaign, case.account)["email"])
    for field, words in senders.problems(case.account, sender, transport(case.campaign), marketing=True):
        yield Finding("sender_not_ready", words, field if field == "base" else f"template_attributes.{field}")


def _approval(case: Case) -> Iterator[Finding]:
    if words := approving.lacks(case.campaign, case.by):
        yield Finding("approval_required", words, "base")


def _renders(case: Case) -> Iterator[Finding]:
    if case.content_error:
        yield Finding("preflight_failed", f"does not render: {case.content_error}", "template_attributes.body")
    if not case.email:
        yield from sms_checks.too_long(case)
        return
    unknown = designs.unknown(case.campaign.template.design)
    if unknown:
        kinds = sorted({one.type or "without type" for one in unknown})
        path = f"template_attributes.design.{unknown[0].path}"
        yield Finding("preflight_failed", f"unknown section kind: {', '.join(kinds)}", path)


def _missing(case: Case) -> Iterator[Finding]:
    """Refuse what some would get with a hole in it, where the account asks for that (docs/decisions.md#14)."""
    if not case.account.block_on_missing_variable or not case.is_readable or not audience.is_set(case.campaign):
        return
    template = case.campaign.template
    asked = variables.of(template.__data__ if case.email else {"body": template.body})
    wanted = [name for name, one in asked.items() if one["required"]]
    for name in wanted:
        if name.partition(".")[0] in ("data", "event"):
            words = f"{name} is empty for everybody: a campaign has none"
            yield Finding("preflight_failed", words, "template_attributes.body")
    for name, count in missing_variables.counts(audience.of(case.campaign), wanted).items():
        if count:
            words = f"{name} is empty for {persons(count)} and has no default"
            yield Finding("preflight_failed", words, "template_attributes.body")


# In the order of docs/decisions.md#3: the first one's code is the reason of a refusal
_BLOCKERS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _audience, _confirmation, _content, _sender, _approval, _renders, _missing,
)  # fmt: skip


def blockers(case: Case) -> list[Finding]:
    """Return everything that refuses a send."""
    return [finding for look in _BLOCKERS for finding in look(case)]


def sender_of(campaign: Campaign, account: Account) -> dict[str, str | None]:
    """Return from whom a campaign is (docs/decisions.md#6, Sender); of SMS `number` may be another by country."""
    template = campaign.template
    if campaign.channel == "sms":
        own = sms_senders.sender_to(account.sms_from, None, transport(campaign)) or None
        return {"email": None, "number": own, "name": account.name, "reply_to": None}
    address = senders.resolve(account, template.from_email)
    return {
        "email": address, "name": account.email_from_name or account.name,
        "reply_to": template.reply_to or account.email_reply_to,
    }  # fmt: skip
