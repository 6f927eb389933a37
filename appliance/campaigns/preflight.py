"""What stands between a draft and its send: blockers refuse, warnings advise; one list for page and API."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.campaigns import audience, audience_snapshot, link_check, rehearsal, sms_checks, store
from appliance.campaigns.audience import Arithmetic, Audience
from appliance.campaigns.findings import Case, Finding, persons, transport
from appliance.campaigns.rehearsal import Rehearsal
from appliance.campaigns.rehearse import MAX_MADE, Outcome
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import merge, variables
from appliance.content.designs.merge import MergeError
from appliance.content.templates import placeholders
from appliance.content.templates.store import document
from appliance.core import clock
from appliance.sending.messages import compose, sample_render, senders, sms_senders
from appliance.sending.messages.compose import Source
from appliance.sending.messages.sample_render import GMAIL_CLIPS, GMAIL_NEARLY
from appliance.settings import config
from appliance.storage.models import Account, Campaign
from appliance.storage.open import fetch_one, rows

# How many people of an audience lack what a message says about them: one look at all of them together.

_COLUMNS = ("first_name", "last_name", "country_code", "source")
_BARE = ("first_name", "last_name", "email")
_CHANNELS = ("phone", "email")
# Beyond it a statement would be longer than SQLite reads
_MAX_VARIABLES = 200


def count_missing(audience: Audience, names: Iterable[str]) -> dict[str, int]:
    """Return for each variable about a contact how many lack it: those for whom a `default` would be shown.

    Variables about anything else are left out, for they are the same for everybody.
    """
    parameters: dict[str, Any] = dict(audience.parameters)
    asked: dict[str, str] = {}
    for name in sorted(set(names)):
        sql = _lacks(name, f"lack{len(asked)}", parameters)
        if sql is not None and len(asked) < _MAX_VARIABLES:
            asked[name] = sql
    if not asked:
        return {}
    sums = ", ".join(f"count(*) FILTER (WHERE {sql})" for sql in asked.values())
    found = fetch_one(f"SELECT {sums} FROM contact c WHERE c.id IN ({audience.sql})", parameters)
    return {name: int(value) for name, value in zip(asked, found or [0] * len(asked), strict=True)}


def _lacks(name: str, placeholder: str, parameters: dict[str, Any]) -> str | None:
    """Return as SQL whether the contact `c` lacks a variable; None for one that is not about contacts."""
    root, _, rest = name.partition(".")
    if root != "contact":
        rest = root if root in _BARE and not rest else ""
    if rest in _COLUMNS:
        return f"coalesce(c.{rest}, '') = ''"
    if rest in _CHANNELS:
        return f"NOT EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.kind = '{rest}')"
    head, _, path = rest.partition(".")
    if head != "data" or not path or '"' in path:
        return None
    steps = (f"[{one_step}]" if one_step.isascii() and one_step.isdigit() else f'."{one_step}"'
             for one_step in path.split("."))  # fmt: skip
    parameters[placeholder] = f"${''.join(steps)}"
    empty = f"json_extract(c.data, :{placeholder}) IN ('', '[]', '{{}}')"
    return f"(coalesce(json_type(c.data, :{placeholder}), 'null') IN ('null', 'false') OR {empty} IS TRUE)"


# What is worth a second look before a send; nothing of it refuses one. Each is one function and one line.

_DAY_MS = 86_400_000
_DESIGN, _BODY, _AUDIENCE = "template_attributes.design.", "template_attributes.body", "trigger_attributes"
_MAX_NAMED = 10


def warnings(case: Case, facts: dict[str, Any], rehearsed: Rehearsal | None) -> list[Finding]:
    """Return everything worth a second look; `rehearsed` is what the rehearsal found so far."""
    found = [finding for look in (*_LOOKS, *(_MAIL if case.email else sms_checks.LOOKS)) for finding in look(case)]
    found += _size_advice(case, max(facts["html_bytes"], rehearsed.outcome.html_bytes if rehearsed else 0))
    if audience.is_set(case.campaign) and facts["sendable"] == 0:
        found.append(Finding("nobody", "nobody in this audience may be written to", _AUDIENCE))
    if rehearsed is None:
        return found
    return [*found, *_rehearsed(rehearsed), *(() if case.email else sms_checks.rehearsed(case, rehearsed))]


def _sender_advice(case: Case) -> Iterator[Finding]:
    if not case.real and not (case.brand.physical_address or "").strip():
        yield Finding("postal_address", "no postal address in the brand: mail that leaves needs one", "base")
    address = senders.resolve(case.account, case.campaign.template.from_email)
    for code, words in senders.advice(case.account.id, address, case.real):
        yield Finding(code, words, "template_attributes.from_email")
    if case.real and config.base_url(config.current()).startswith("http://"):
        words = "links use http: mailbox providers want https for one-click unsubscribing (RFC 8058)"
        yield Finding("base_url_http", words, "base")


def _content_advice(case: Case) -> Iterator[Finding]:
    if not case.campaign.template.preheader:
        words = "without a preheader inboxes show the first words of the message"
        yield Finding("preheader_missing", words, "template_attributes.preheader")
    if case.content is None:
        return
    for name in merge.unknown(case.content.variables()):
        yield Finding("unknown_merge_tag", f"{name} is known to nobody and stays empty", _BODY)
    for advice in case.content.advice:
        if advice.code != "unknown_section":  # which is a blocker
            yield Finding(advice.code, advice.message, _DESIGN + advice.path)


def _placeholders(case: Case) -> Iterator[Finding]:
    """Name the texts and links that are still those of their section or starter."""
    for code, words, path in placeholders.find(document(case.campaign.template)):
        yield Finding(code, words, f"template_attributes.{path}")


def _links(case: Case) -> Iterator[Finding]:
    links = case.content.links if case.content is not None else ()
    plain = [link for link in links if link.href.lower().startswith("http://")]
    if plain:
        more = f" and {len(plain) - 1} more" if len(plain) > 1 else ""
        yield Finding("link_not_https", f"a link is not https: {plain[0].href[:100]}{more}", _BODY)


def _tested(case: Case) -> Iterator[Finding]:
    template = case.campaign.template
    tested = fetch_one(
        "SELECT 1 FROM message WHERE template_id = ? AND test = 1 AND created_at >= ? LIMIT 1",
        (template.id, template.updated_at),
    )
    if case.is_readable and tested is None:
        yield Finding("not_tested", "nobody got a test since the last change", "base")


def _dormant(case: Case) -> Iterator[Finding]:
    if not audience.is_set(case.campaign):
        return
    sent, added = audience.last_mailed(case.campaign)
    since = clock.now_ms() - 180 * _DAY_MS
    if added is not None and (sent < since if sent else added < since):
        words = "nobody of this audience got mail for six months: many addresses will be dead, begin with a few"
        yield Finding("dormant", words, _AUDIENCE)


def _repeated(case: Case) -> Iterator[Finding]:
    subject = (case.campaign.template.subject or "").strip()
    mine = (case.campaign.account_id, case.campaign.id)
    same = fetch_one(
        "SELECT c.name FROM campaign c JOIN template t ON t.id = c.template_id WHERE c.account_id = ? AND c.id <> ? "
        "AND c.test = 0 AND c.started_at >= ? AND trim(t.subject) = ? ORDER BY c.started_at DESC LIMIT 1",
        (*mine, clock.now_ms() - 7 * _DAY_MS, subject),
    )
    if subject and same is not None:
        yield Finding("same_subject", f"{same[0]} had the same subject this week", "template_attributes.subject")


def _crowded(case: Case) -> Iterator[Finding]:
    """Look for another campaign to the same lists or segment within a day."""
    trigger = case.campaign.trigger
    mine = {*(trigger.data.get("contact_list_ids") or ()), trigger.contact_list_id} - {None}
    now = clock.now_ms()
    for name, list_id, segment_id, lists in rows(
        "SELECT c.name, t.contact_list_id, t.segment_id, t.data ->> '$.contact_list_ids' FROM campaign c "
        "JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ? AND c.id <> ? AND c.test = 0 "
        "AND c.deleted_at IS NULL AND (c.started_at >= ? OR (c.phase = 'scheduled' AND c.scheduled_at <= ?))",
        (case.campaign.account_id, case.campaign.id, now - _DAY_MS, now + _DAY_MS),
    ):
        theirs = {list_id, *(int(one) for one in (lists or "").strip("[]").split(",") if one.strip())} - {None}
        if theirs & mine or (segment_id is not None and segment_id == trigger.segment_id):
            yield Finding("crowded", f"{name} goes to the same people within 24 hours", _AUDIENCE)
            return


_Look = Callable[[Case], Iterator[Finding]]
_LOOKS: tuple[_Look, ...] = (_tested, _crowded)
_MAIL: tuple[_Look, ...] = (_sender_advice, _content_advice, _placeholders, _links, _dormant, _repeated)


def _size_advice(case: Case, largest: int) -> list[Finding]:
    if case.content is None or largest <= GMAIL_NEARLY:
        return []
    if largest <= GMAIL_CLIPS:
        words = f"{largest // 1024} KB of HTML: Gmail cuts off what is over 102 KB"
        return [Finding("nearly_too_long", words, _BODY)]
    return [Finding("too_long", "over 102 KB: Gmail cuts it off", _BODY)]


def _broke_off(outcome: Outcome) -> bool:
    """Return whether there was no time for all; of very many SMS only some are made by intention."""
    return outcome.sms is None or outcome.done < min(outcome.total, MAX_MADE)


def _rehearsed(rehearsed: Rehearsal) -> Iterator[Finding]:
    """Return what the render for every recipient found."""
    outcome = rehearsed.outcome
    if rehearsed.status == "failed":
        yield Finding("rehearsal", "the rehearsal for every recipient broke off: the log says why", "base")
    elif rehearsed.status == "complete" and outcome.done < outcome.total and _broke_off(outcome):
        words = f"it takes long to make: rehearsed for {outcome.done:,} of {outcome.total:,} people only"
        yield Finding("rehearsal", words, _BODY)
    if outcome.failed:
        words = f"cannot be made for {persons(outcome.failed)}, who will be skipped: {outcome.failures[0].error}"
        yield Finding("render_error", words, _BODY)
    lacking = [lack for lack in outcome.lacking if lack.count]
    for lack in lacking[:_MAX_NAMED]:
        words = f"{lack.name} is empty for {lack.count:,} of {outcome.done:,} people, and has no default"
        yield Finding("missing_value", words, _BODY)


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
    advised = warnings(case, facts, rehearsed)
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
    for name, count in count_missing(audience.of(case.campaign), wanted).items():
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
