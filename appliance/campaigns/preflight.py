"""Preflight: the checks of a draft before it is sent. Blockers prevent the send; warnings are advice.

The composer and the API show the same findings.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.accounts import approvals, limits
from appliance.accounts.audit import Actor
from appliance.accounts.public_urls import base_url_of
from appliance.audience.segments.store import AUDIENCE_DELETED
from appliance.campaigns import (
    audience,
    audience_snapshot,
    local_preflight,
    resends,
    special_preflight,
    store,
    variant_preflight,
    variants,
)
from appliance.campaigns import links as link_check
from appliance.campaigns.audience import Audience, AudienceCounts
from appliance.campaigns.audience_snapshot import AudienceSize
from appliance.campaigns.findings import Finding, PreflightInput, find_transport
from appliance.campaigns.rehearsal import (
    MAX_RENDERED,
    Rehearsal,
    RehearsalResult,
    describe_rehearsal,
    get_rehearsal,
)
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import placeholders
from appliance.content.templates.revisions import to_document
from appliance.core import clock
from appliance.core.i18n import format_number, gettext, ngettext
from appliance.sending.messages import compose, languages, preview, senders
from appliance.sending.messages.compose import CompiledMessage, MessageSource, PreparedMessage
from appliance.sending.messages.preview import GMAIL_CLIP_BYTES, GMAIL_WARN_BYTES
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import Account, Campaign

# The number of contacts who lack the value of a merge tag, from one query for all merge tags.

_CONTACT_COLUMNS = ("first_name", "last_name", "country_code", "source")
_ROOT_NAMES = ("first_name", "last_name", "email")
_CHANNELS = ("phone", "email")
# With more variables than this, the statement would exceed limits of SQLite; further variables are not counted.
_MAX_VARIABLES = 200


def count_missing_values(audience: Audience, names: Iterable[str]) -> dict[str, int]:
    """Return for each variable the number of members of the audience who have no value for it.

    Only fields of contacts are counted, at most `_MAX_VARIABLES` of them. Other variables are left out, because they
    are the same for every recipient.
    """
    parameters: dict[str, Any] = dict(audience.parameters)
    conditions: dict[str, str] = {}
    for name in sorted(set(names)):
        sql = _missing_value_sql(name, f"lack{len(conditions)}", parameters)
        if sql is not None and len(conditions) < _MAX_VARIABLES:
            conditions[name] = sql
    if not conditions:
        return {}
    sums = ", ".join(f"count(*) FILTER (WHERE {sql})" for sql in conditions.values())
    counts = fetch_one(f"SELECT {sums} FROM contact c WHERE c.id IN ({audience.sql})", parameters)
    return {name: int(value) for name, value in zip(conditions, counts or [0] * len(conditions), strict=True)}


def _missing_value_sql(name: str, placeholder: str, parameters: dict[str, Any]) -> str | None:
    """Return SQL that is true if contact `c` lacks a variable, or None if the variable is not a contact field.

    The path of a field in the contact's data goes into `parameters` under the name `placeholder`.
    """
    root, _, rest = name.partition(".")
    if root != "contact":
        rest = root if root in _ROOT_NAMES and not rest else ""
    if rest in _CONTACT_COLUMNS:
        return f"coalesce(c.{rest}, '') = ''"
    if rest in _CHANNELS:
        return f"NOT EXISTS (SELECT 1 FROM channel h WHERE h.contact_id = c.id AND h.kind = '{rest}')"
    head, _, path = rest.partition(".")
    if head != "data" or not path or '"' in path:
        return None
    steps = (f"[{step}]" if step.isascii() and step.isdigit() else f'."{step}"'
             for step in path.split("."))  # fmt: skip
    parameters[placeholder] = f"${''.join(steps)}"
    empty = f"json_extract(c.data, :{placeholder}) IN ('', '[]', '{{}}')"
    return f"(coalesce(json_type(c.data, :{placeholder}), 'null') IN ('null', 'false') OR {empty} IS TRUE)"


# The warnings, which never prevent a send. Each check is a function, listed in `_CHECKS` or `_EMAIL_CHECKS`.

_DESIGN, _BODY, _AUDIENCE = "template_attributes.design.", "template_attributes.body", "trigger_attributes"
_MAX_NAMED = 10


def find_warnings(case: PreflightInput, facts: dict[str, Any], rehearsal: Rehearsal | None) -> list[Finding]:
    """Return all warnings of a draft, except those about broken links.

    `facts` come from `run_preflight`. `rehearsal` may be unfinished; None leaves its warnings out.
    """
    findings = [
        finding
        for check in (*_CHECKS, *(_EMAIL_CHECKS if case.is_email else special_preflight.SMS_CHECKS))
        for finding in check(case)
    ]
    findings += _find_variant_warnings(case, findings)
    findings += variant_preflight.advise_test(case, facts["sendable"])
    findings += special_preflight.find_translation_warnings(case, facts.get("languages", []))
    findings += _size_advice(case, max(facts["html_bytes"], rehearsal.result.html_bytes if rehearsal else 0))
    if audience.is_set(case.campaign) and facts["sendable"] == 0:
        findings.append(Finding("no_recipients", gettext("no contact in this audience can receive it"), _AUDIENCE))
    if rehearsal is None:
        return findings
    return [
        *findings,
        *_check_rehearsal(rehearsal),
        *(() if case.is_email else special_preflight.check_rehearsed_sms(case, rehearsal)),
    ]


def _check_sender_advice(case: PreflightInput) -> Iterator[Finding]:
    if not case.is_real and not (case.brand.physical_address or "").strip():
        message = gettext("your brand has no postal address, which is required to send outside test mode")
        yield Finding("postal_address", message, "base")
    address = senders.resolve_email(case.account, case.campaign.template.from_email)
    for code, message in senders.find_email_advice(case.account.id, address, case.is_real):
        yield Finding(code, message, "template_attributes.from_email")
    if case.is_real and base_url_of(case.account).startswith("http://"):
        message = gettext("links use http, but one-click unsubscribe requires https (RFC 8058)")
        yield Finding("base_url_http", message, "base")


def _check_content_advice(case: PreflightInput) -> Iterator[Finding]:
    if not case.campaign.template.preheader:
        message = gettext("no preview text: inboxes will show the first words of the email")
        yield Finding("preheader_missing", message, "template_attributes.preheader")
    if case.content is None:
        return
    for name in merge.find_unknown_variables(case.content.variables()):
        yield Finding(
            "unknown_merge_tag", gettext("%(tag)s is not a known merge tag and will be blank", tag=name), _BODY
        )
    for advice in case.content.advice:
        if advice.code != "unknown_section":  # An unknown section is a blocker.
            yield Finding(advice.code, advice.message, _DESIGN + advice.path)


def _check_placeholders(case: PreflightInput) -> Iterator[Finding]:
    """Warn of texts and links that are still the placeholders of their section or starter."""
    for code, message, path in placeholders.find_placeholders(to_document(case.campaign.template)):
        yield Finding(code, message, f"template_attributes.{path}")


def _check_links(case: PreflightInput) -> Iterator[Finding]:
    plain = [link for link in case.links if link.href.lower().startswith("http://")]
    if plain:
        message = ngettext(
            "%(num)s link does not use https: %(link)s",
            "%(num)s links do not use https, such as %(link)s",
            len(plain),
            link=plain[0].href[:100],
        )
        yield Finding("link_not_https", message, _BODY)
    yield from link_check.find_slow_links(case)


def _check_test_sent(case: PreflightInput) -> Iterator[Finding]:
    template = case.campaign.template
    test_message = fetch_one(
        "SELECT 1 FROM message WHERE template_id = ? AND test = 1 AND created_at >= ? LIMIT 1",
        (template.id, template.updated_at),
    )
    if case.is_readable and test_message is None:
        yield Finding("not_tested", gettext("you have not sent a test since the last change"), "base")


def _check_dormant_recipients(case: PreflightInput) -> Iterator[Finding]:
    if not audience.is_set(case.campaign):
        return
    last_sent_at, last_added_at = audience.find_last_sent_and_added(case.campaign)
    since = clock.now_ms() - 180 * clock.DAY_MS
    if last_added_at is not None and (last_sent_at < since if last_sent_at else last_added_at < since):
        message = gettext(
            "this audience got no email in the last six months: many addresses may bounce, so start with a small batch"
        )
        yield Finding("dormant", message, _AUDIENCE)


def _check_recent_campaign(case: PreflightInput) -> Iterator[Finding]:
    subject = (case.campaign.template.subject or "").strip()
    campaign_key = (case.campaign.account_id, case.campaign.id)
    previous = fetch_one(
        "SELECT c.name FROM campaign c JOIN template t ON t.id = c.template_id WHERE c.account_id = ? AND c.id <> ? "
        "AND c.test = 0 AND c.started_at >= ? AND trim(t.subject) = ? ORDER BY c.started_at DESC LIMIT 1",
        (*campaign_key, clock.now_ms() - 7 * clock.DAY_MS, subject),
    )
    if subject and previous is not None:
        message = gettext("a campaign of the last 7 days has the same subject: %(name)s", name=previous[0])
        yield Finding("same_subject", message, "template_attributes.subject")


def _check_frequency_cap(case: PreflightInput) -> Iterator[Finding]:
    """Warn of another campaign to the same list or segment that started, or is scheduled, within 24 hours."""
    trigger = case.campaign.trigger
    # The first send of a resend goes to the same list, which is its purpose.
    resent = resends.find_resent_campaign(case.campaign)
    own_lists = {*(trigger.data.get("contact_list_ids") or ()), trigger.contact_list_id} - {None}
    now = clock.now_ms()
    for campaign_id, name, list_id, segment_id, lists in rows(
        "SELECT c.id, c.name, t.contact_list_id, t.segment_id, t.data ->> '$.contact_list_ids' FROM campaign c "
        "JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ? AND c.id <> ? AND c.test = 0 "
        "AND c.deleted_at IS NULL AND (c.started_at >= ? OR (c.phase = 'scheduled' AND c.scheduled_at <= ?))",
        (case.campaign.account_id, case.campaign.id, now - clock.DAY_MS, now + clock.DAY_MS),
    ):
        if resent is not None and resent.id == campaign_id:
            continue
        other_lists = {
            list_id,
            *(int(list_text) for list_text in (lists or "").strip("[]").split(",") if list_text.strip()),
        } - {None}
        if other_lists & own_lists or (segment_id is not None and segment_id == trigger.segment_id):
            message = gettext("another campaign goes to the same list or segment within 24 hours: %(name)s", name=name)
            yield Finding("overlapping_campaign", message, _AUDIENCE)
            return


_Check = Callable[[PreflightInput], Iterator[Finding]]
_CHECKS: tuple[_Check, ...] = (_check_test_sent, _check_frequency_cap)
_EMAIL_CHECKS: tuple[_Check, ...] = (
    _check_sender_advice,
    _check_content_advice,
    _check_placeholders,
    _check_links,
    _check_dormant_recipients,
    _check_recent_campaign,
    local_preflight.check_calendar,
)


def _find_variant_warnings(case: PreflightInput, known: list[Finding]) -> list[Finding]:
    """Return the warnings about the content of the variants of an A/B test, in addition to those of the campaign."""
    checks = (
        (_check_content_advice, _check_placeholders, _check_size) if case.is_email else special_preflight.SMS_CHECKS
    )
    load = partial(load_input, confirmed=case.is_confirmed, by=case.by)
    return list(variant_preflight.find_of_variants(case.campaign, load, checks, known))


def _check_size(case: PreflightInput) -> list[Finding]:
    return _size_advice(case, _measure_size(case))


def _size_advice(case: PreflightInput, largest: int) -> list[Finding]:
    if case.content is None or largest <= GMAIL_WARN_BYTES:
        return []
    if largest <= GMAIL_CLIP_BYTES:
        size = format_number(largest // 1024)
        message = gettext("the HTML has %(size)s KB: Gmail clips emails over 102 KB", size=size)
        return [Finding("nearly_too_long", message, _BODY)]
    return [Finding("too_long", gettext("the email is over 102 KB, so Gmail will clip it"), _BODY)]


def _is_incomplete(outcome: RehearsalResult) -> bool:
    """Return whether a complete rehearsal that did not render for every recipient ran out of time.

    Of more than `MAX_RENDERED` SMS only a sample is rendered, on purpose.
    """
    return outcome.sms is None or outcome.done < min(outcome.total, MAX_RENDERED)


def _check_rehearsal(rehearsal: Rehearsal) -> Iterator[Finding]:
    """Yield the warnings of a rehearsal: that it failed or ran out of time, render errors, and missing values."""
    result = rehearsal.result
    if rehearsal.status == "failed":
        message = gettext("preflight could not finish: see the server log")
        yield Finding("rehearsal", message, "base")
    elif rehearsal.status == "complete" and result.done < result.total and _is_incomplete(result):
        message = ngettext(
            "personalising takes long, so only %(done)s of %(num)s recipient was checked",
            "personalising takes long, so only %(done)s of %(num)s recipients were checked",
            result.total,
            done=format_number(result.done),
        )
        yield Finding("rehearsal", message, _BODY)
    if result.failed:
        message = ngettext(
            "cannot be personalised for %(num)s contact, who will be skipped: %(error)s",
            "cannot be personalised for %(num)s contacts, who will be skipped: %(error)s",
            result.failed,
            error=result.failures[0].error,
        )
        yield Finding("render_error", message, _BODY)
    missing_values = [missing for missing in result.lacking if missing.count]
    for missing in missing_values[:_MAX_NAMED]:
        message = ngettext(
            "%(tag)s is empty for %(empty)s of %(num)s contact and has no fallback",
            "%(tag)s is empty for %(empty)s of %(num)s contacts and has no fallback",
            result.done,
            tag=missing.name,
            empty=format_number(missing.count),
        )
        yield Finding("missing_value", message, _BODY)


class Preflight(Struct):
    """The result of a preflight: `ok` is true without blockers, and `facts` are figures to show beside the findings."""

    ok: bool
    blockers: list[Finding]
    warnings: list[Finding]
    facts: dict[str, Any]


def run_preflight(
    account_id: int,
    campaign_id: int,
    by: Actor = Actor(),
    count: Callable[[Campaign], AudienceCounts] = audience.count_audience,
    can_read_contacts: bool = True,
    can_check_links: bool = True,
) -> Preflight:
    """Run all checks on a draft as if `by` sent it, and start its link check and rehearsal if they are out of date.

    `count` returns the size of the audience; a page may pass a cached count. Without `can_read_contacts` there is no
    rehearsal, because its result reveals values of contacts. Without `can_check_links` no link is requested, because
    an agent that was misled could put what it has read into a link. Raises NotFound.
    """
    campaign = store.get(account_id, campaign_id)
    case = load_input(campaign, False, by)
    blockers = find_blockers(case)
    counts = count(campaign) if audience.is_set(campaign) else AudienceCounts(0, 0, {})
    facts: dict[str, Any] = {
        "audience": counts.members, "sendable": counts.sendable, "skipped": counts.reasons,
        "transport": find_transport(campaign), "html_bytes": _measure_size(case),
    }  # fmt: skip
    if not case.is_email:
        facts["sms"] = special_preflight.describe_sms(case)
    if case.translated and audience.is_set(campaign):
        facts["languages"] = special_preflight.count_languages(campaign, case.account)
    links = link_check.get_link_check(case) if can_check_links else None
    if links is not None:
        facts["links"] = link_check.describe_check(links)
    rehearsal = None
    if can_read_contacts and case.is_readable and facts["sendable"] and campaign.phase in ("draft", "scheduled"):
        rehearsal = get_rehearsal(campaign)
        facts["rehearsal"] = describe_rehearsal(rehearsal)
        if not case.is_email:
            facts["sms"] |= special_preflight.describe_rehearsed_sms(rehearsal)
    warnings = find_warnings(case, facts, rehearsal)
    if can_read_contacts:
        warnings += local_preflight.find_passed_times(campaign)
        warnings += local_preflight.find_unknown_hours(campaign)
    return Preflight(
        not blockers, blockers, warnings + (link_check.find_broken_links(case, links) if links else []), facts
    )


def _measure_size(case: PreflightInput) -> int:
    """Return the bytes of an email's HTML for a sample recipient, or of its source if it does not render.

    For an email in several languages only the longest source is measured: all have the same sections and merge tags,
    and rendering each would multiply the time. Returns 0 without content and for SMS.
    """
    if case.content is None:
        return 0
    contents: dict[str | None, CompiledMessage] = {None: case.content} | {
        message.language: message.content for message in case.translated if message.content is not None
    }
    sizes = {language: len(content.html.source.encode()) for language, content in contents.items()}
    largest = max(sizes, key=lambda language: sizes[language])
    try:
        return preview.measure_rendered_bytes(
            case.account.id, to_document(case.campaign.template), case.campaign.tracking, largest
        )
    except MergeError:
        return sizes[largest]


class PreparedSend(NamedTuple):
    """The slow parts of a send, prepared outside of the write transaction by `prepare_send`.

    The send uses a part only if it was made from the campaign's current content or audience; otherwise it makes the
    part again. An SMS is not prepared, because it compiles in microseconds.
    """

    message: PreparedMessage = compose.NOT_PREPARED
    audience: AudienceSize | None = None


NOT_PREPARED = PreparedSend()


def prepare_send(account_id: int, campaign_id: int, content: Any = None, trigger: Any = None) -> PreparedSend:
    """Compile the message and measure the audience of a campaign, as they will be after a send request.

    `content` and `trigger` are the changes of the request, if any. Raises NotFound. Other errors are not raised here;
    the send reports them.
    """
    campaign = store.get(account_id, campaign_id)
    document = to_document(campaign.template)
    document |= {name: value for name in document if isinstance(value := getattr(content, name, None), str | dict)}
    message = compose.NOT_PREPARED
    if campaign.channel == "email" and has_content(document):
        original, *translated = _build_sources(document, Account.get_by_id(account_id)).values()
        message = compose.prepare_message(original)
        views = [to_document(view.template) for _, view in variants.list_views(campaign)]
        account = Account.get_by_id(account_id)
        others = [source for view in views for source in _build_sources(view, account).values()]
        for source in (*translated, *others):  # The cache of compiled emails keeps them for the transaction.
            compose.try_compile(source)
    return PreparedSend(message, audience_snapshot.measure_audience(campaign, trigger))


def has_content(document: Mapping[str, Any]) -> bool:
    """Return whether a template's document has sections or a body."""
    return bool((document["body"] or "").strip() or designs.get_sections(document["design"]))


def _build_sources(document: Mapping[str, Any], account: Account) -> dict[str | None, MessageSource]:
    return languages.build_sources(document, brands.build_look(brands.get(account.id)), account.locale)


def load_input(campaign: Campaign, confirmed: bool, by: Actor, prepared: PreparedSend = NOT_PREPARED) -> PreflightInput:
    """Load what the checks of a campaign need, and compile its content unless `prepared` has the compiled content.

    `confirmed` is True if the request confirms a send to all contacts.
    """
    account = Account.get_by_id(campaign.account_id)
    content = text = error = None
    template = campaign.template
    document = to_document(template)
    sources: dict[str | None, MessageSource] = {}
    try:
        if campaign.channel == "sms":
            text = special_preflight.compile_sms(campaign)
        elif template.subject and has_content(document):
            sources = _build_sources(document, account)
            content = prepared.message.compile(sources[None])
    except MergeError as merge_error:
        error = merge_error.describe()
    real, brand = find_transport(campaign) != "capture", brands.get(account.id)
    translated = special_preflight.compile_translations(campaign, sources) if document["translations"] else ()
    return PreflightInput(campaign, account, brand, confirmed, by, content, text, error, real, translated)


def _check_audience(case: PreflightInput) -> Iterator[Finding]:
    field = "trigger_attributes.contact_list_id"
    if not audience.is_set(case.campaign):
        yield Finding("audience_required", gettext("select a list, a segment or all contacts"), field)
    elif case.campaign.trigger.data.get(AUDIENCE_DELETED):
        # What remains may be a larger audience: a list without the segment that limited it.
        yield Finding("audience_required", gettext("a selected list or segment was deleted: select another"), field)
    for key in audience.find_missing_references(case.campaign):
        message = gettext("a selected list or segment was deleted: select another")
        yield Finding("audience_required", message, f"trigger_attributes.data.{key}")


def _check_confirmation(case: PreflightInput) -> Iterator[Finding]:
    data = case.campaign.trigger.data
    if audience.is_unbounded(case.campaign) and not (case.is_confirmed or data.get("confirm_send_to_all") is True):
        message = gettext("confirm that you want to send to all contacts")
        yield Finding("confirmation_required", message, "confirm_send_to_all")


def _check_content(case: PreflightInput) -> Iterator[Finding]:
    template = case.campaign.template
    if case.is_email and not (template.subject or "").strip():
        yield Finding("content_required", gettext("write a subject"), "template_attributes.subject")
    if not (template.body or "").strip() and not (case.is_email and designs.get_sections(template.design)):
        yield Finding("content_required", gettext("write the message"), "template_attributes.body")


def _check_sender(case: PreflightInput) -> Iterator[Finding]:
    if not case.is_email:
        for field, message in senders.find_sms_problems(case.account, find_transport(case.campaign)):
            yield Finding("sender_not_ready", message, field)
        return
    sender = str(get_sender(case.campaign, case.account)["email"])
    for field, message in senders.find_email_problems(
        case.account, sender, find_transport(case.campaign), marketing=True
    ):
        yield Finding("sender_not_ready", message, field if field == "base" else f"template_attributes.{field}")


def _check_approval(case: PreflightInput) -> Iterator[Finding]:
    if message := approvals.find_blocker(case.campaign, case.by):
        yield Finding("approval_required", message, "base")


def _check_rendering(case: PreflightInput) -> Iterator[Finding]:
    if case.content_error:
        message = gettext("the message cannot be rendered: %(error)s", error=case.content_error)
        yield Finding("preflight_failed", message, "template_attributes.body")
    yield from special_preflight.check_translated_rendering(case)
    if not case.is_email:
        yield from special_preflight.check_length(case)
        return
    unknown = designs.find_unknown(case.campaign.template.design)
    if unknown:
        kinds = sorted({section.type or gettext("without type") for section in unknown})
        path = f"template_attributes.design.{unknown[0].path}"
        message = gettext("unknown section kind: %(kinds)s", kinds=", ".join(kinds))
        yield Finding("preflight_failed", message, path)


def _check_missing_values(case: PreflightInput) -> Iterator[Finding]:
    """Yield a blocker for each merge tag without default that is empty for a member (docs/decisions.md#14).

    Yields nothing unless the account has `block_on_missing_variable` set.
    """
    if not case.account.block_on_missing_variable or not case.is_readable or not audience.is_set(case.campaign):
        return
    template = case.campaign.template
    variables = merge.find_variables(
        template.__data__ if case.is_email else {"body": template.body, "translations": template.translations}
    )
    required = [name for name, variable in variables.items() if variable["required"]]
    for name in required:
        if name.partition(".")[0] in ("data", "event"):
            message = gettext("%(tag)s will be blank for all contacts: campaigns have no value for it", tag=name)
            yield Finding("preflight_failed", message, "template_attributes.body")
    for name, count in count_missing_values(audience.build_audience(case.campaign), required).items():
        if count:
            message = ngettext(
                "%(tag)s is empty for %(num)s contact and has no fallback",
                "%(tag)s is empty for %(num)s contacts and has no fallback",
                count,
                tag=name,
            )
            yield Finding("preflight_failed", message, "template_attributes.body")


# In the order of docs/decisions.md#3: the code of the first blocker becomes the `reason` of the error.
def _check_account_limit(case: PreflightInput) -> Iterator[Finding]:
    """Block a campaign to more contacts than the account may send messages to now."""
    if case.by.is_test or case.campaign.started_at is not None or not audience.is_set(case.campaign):
        return
    left = limits.count_messages_left(case.account.id)
    if left is None:
        return
    recipients = audience.count_audience(case.campaign).sendable
    if recipients > left[0]:
        message = gettext(
            "this campaign has %(recipients)s recipients, and the account may send %(left)s more messages for now",
            recipients=format_number(recipients), left=format_number(left[0]),
        )  # fmt: skip
        yield Finding(limits.ERROR_CODE, f"{message}. {limits.describe(left[1])}", "base")


_BLOCKERS: tuple[Callable[[PreflightInput], Iterator[Finding]], ...] = (
    _check_audience, _check_confirmation, _check_content, _check_sender, _check_approval, _check_rendering,
    _check_missing_values, variant_preflight.check_test, local_preflight.check_local_time,
    _check_account_limit,
)  # fmt: skip
# Those that variants of an A/B test can have too
_VARIANT_BLOCKERS = (_check_content, _check_sender, _check_rendering, _check_missing_values)


def find_blockers(case: PreflightInput) -> list[Finding]:
    """Return all blockers of a send, in the order of docs/decisions.md#3; those of variants come last."""
    findings = [finding for check in _BLOCKERS for finding in check(case)]
    load = partial(load_input, confirmed=case.is_confirmed, by=case.by)
    return [*findings, *variant_preflight.find_of_variants(case.campaign, load, _VARIANT_BLOCKERS, findings)]


def get_sender(campaign: Campaign, account: Account) -> dict[str, str | None]:
    """Return the sender of a campaign (docs/decisions.md#6, Sender).

    Keys: `email`, `name` and `reply_to`; for SMS also `number`, the default sender (some countries have another one).
    `name` is the account's; a From name in the content replaces it.
    """
    template = campaign.template
    if campaign.channel == "sms":
        number = senders.find_default_sms(account, find_transport(campaign))
        return {"email": None, "number": number, "name": account.name, "reply_to": None}
    address = senders.resolve_email(account, template.from_email)
    return {
        "email": address, "name": account.email_from_name or account.name,
        "reply_to": template.reply_to or account.email_reply_to,
    }  # fmt: skip
