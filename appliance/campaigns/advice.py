"""What is worth a second look before a send; nothing of it refuses one. Each is one function and one line."""

from collections.abc import Callable, Iterator
from typing import Any

from appliance import clock, config
from appliance.campaigns import audience, audience_cache, sms_checks
from appliance.campaigns.findings import Case, Finding, persons
from appliance.campaigns.rehearsal import Rehearsal
from appliance.campaigns.rehearse import Outcome
from appliance.campaigns.rehearse_sms import MAX_MADE
from appliance.db.dialect.documents import text_of
from appliance.db.open import one, rows
from appliance.designs import merge
from appliance.messages import senders
from appliance.messages.sample_render import GMAIL_CLIPS, GMAIL_NEARLY
from appliance.templates import placeholders
from appliance.templates.store import document

_DAY_MS = 86_400_000
_DESIGN, _BODY, _AUDIENCE = "template_attributes.design.", "template_attributes.body", "trigger_attributes"
_MAX_NAMED = 10


def warnings(case: Case, facts: dict[str, Any], rehearsed: Rehearsal | None) -> list[Finding]:
    """Return everything worth a second look; `rehearsed` is what the rehearsal found so far."""
    found = [finding for look in (*_LOOKS, *(_MAIL if case.email else sms_checks.LOOKS)) for finding in look(case)]
    found += _size(case, max(facts["html_bytes"], rehearsed.outcome.html_bytes if rehearsed else 0))
    if audience.is_set(case.campaign) and facts["sendable"] == 0:
        found.append(Finding("nobody", "nobody in this audience may be written to", _AUDIENCE))
    if rehearsed is None:
        return found
    return [*found, *_rehearsed(rehearsed), *(() if case.email else sms_checks.rehearsed(case, rehearsed))]


def _sender(case: Case) -> Iterator[Finding]:
    if not case.real and not (case.brand.physical_address or "").strip():
        yield Finding("postal_address", "no postal address in the brand: mail that leaves needs one", "base")
    address = senders.resolve(case.account, case.campaign.template.from_email)
    for code, words in senders.advice(case.account.id, address, case.real):
        yield Finding(code, words, "template_attributes.from_email")
    if case.real and config.base_url(config.current()).startswith("http://"):
        words = "links use http: mailbox providers want https for one-click unsubscribing (RFC 8058)"
        yield Finding("base_url_http", words, "base")


def _content(case: Case) -> Iterator[Finding]:
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
    tested = one(
        "SELECT 1 FROM message WHERE template_id = ? AND test = 1 AND created_at >= ? LIMIT 1",
        (template.id, template.updated_at),
    )
    if case.is_readable and tested is None:
        yield Finding("not_tested", "nobody got a test since the last change", "base")


def _dormant(case: Case) -> Iterator[Finding]:
    if not audience.is_set(case.campaign):
        return
    sent, added = audience_cache.mailed(case.campaign)
    since = clock.now_ms() - 180 * _DAY_MS
    if added is not None and (sent < since if sent else added < since):
        words = "nobody of this audience got mail for six months: many addresses will be dead, begin with a few"
        yield Finding("dormant", words, _AUDIENCE)


def _repeated(case: Case) -> Iterator[Finding]:
    subject = (case.campaign.template.subject or "").strip()
    mine = (case.campaign.account_id, case.campaign.id)
    same = one(
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
        f"SELECT c.name, t.contact_list_id, t.segment_id, {text_of('t.data', 'contact_list_ids')} FROM campaign c "
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
_MAIL: tuple[_Look, ...] = (_sender, _content, _placeholders, _links, _dormant, _repeated)


def _size(case: Case, largest: int) -> list[Finding]:
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
