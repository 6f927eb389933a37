"""The links of a campaign: the check of a draft's links, the link map of the report, and the stored links of a send.

The check runs in the background, only if the operator enabled it, and leads to warnings at most. Each URL is requested
with HEAD, and with GET if HEAD fails. Results are cached in memory for one revision of the draft; the next revision
reuses the results that are younger than `FRESH_SECONDS`. A URL that is not on the public web, or that contains a merge
tag, is not requested and is reported as unchecked.
"""

import asyncio
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from html import escape
from typing import Any, Literal

import msgspec
from msgspec import Struct

from appliance.accounts.public_urls import base_url_of
from appliance.campaigns import variants
from appliance.campaigns.findings import Finding, PreflightInput
from appliance.campaigns.report import LinkFigures
from appliance.content import brand as brands
from appliance.content.designs import document, merge
from appliance.content.designs import links as numbered
from appliance.content.designs.links import Link
from appliance.content.designs.merge_limits import MAX_LINK_SECONDS, TOO_SLOW, MergeError, render_deadline
from appliance.content.templates import translations
from appliance.content.templates.revisions import to_document
from appliance.core import signals
from appliance.core.i18n import gettext, gettext_noop, gettext_stored, ngettext, translate_stored
from appliance.core.limited_process import FairShares
from appliance.sending.delivery import safe_http
from appliance.sending.delivery.safe_http import RequestFailed
from appliance.sending.messages import (
    compose,
    languages,
    merge_tags,
    preview,
    section_conditions,
    shared_content,
    utm_links,
)
from appliance.sending.messages.compose import PreparedMessage
from appliance.settings import config
from appliance.storage.database import run
from appliance.storage.models import Account, Campaign
from appliance.storage.models import Link as LinkRow
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.links")
_MAX_CONCURRENT, _MAX_LINKS, _REQUEST_SECONDS, _CHECK_SECONDS = 4, 100, 5.0, 60.0
# The maximum age of a result, also across revisions of a draft.
FRESH_SECONDS = 600.0
_MAX_ACCOUNT_CHECKS, _MAX_RESPONSE_BYTES, _MAX_NAMED = 50, 4096, 10
# Statuses with which a server may reject an automated request for a page that people can open.
_ACCESS_STATUSES = frozenset({401, 403, 405, 406, 407, 429, 451, 999})
_MERGE_TAG_MARKS = ("{{", "{%")


class LinkResult(Struct):
    """The result for one URL: `explanation` is the problem, or why the URL is unchecked.

    `at` is the time of the request in monotonic seconds, 0 if there was none.
    """

    href: str
    state: Literal["waiting", "fine", "broken", "unchecked"] = "waiting"
    explanation: str = ""
    at: float = 0.0


class LinkCheck(Struct):
    """The check of the links in one revision of a draft, with its results by URL."""

    account_id: int
    revision: int
    results: dict[str, LinkResult]
    status: Literal["waiting", "running", "complete"] = "waiting"


_lock = threading.Lock()
_checks: "OrderedDict[int, LinkCheck]" = OrderedDict()
_shares = FairShares()


def get_link_check(case: PreflightInput) -> LinkCheck | None:
    """Return the check of the draft's current links, and start one if it is missing or out of date.

    Only the first `_MAX_LINKS` web links are checked. Returns None if link checks are off or the draft has no content.
    """
    if not config.current().network.check_links or case.content is None:
        return None
    template, now = case.campaign.template, time.monotonic()
    hrefs = dict.fromkeys(link.href for link in case.links if link.href.lower().startswith(("http:", "https:")))
    with _lock:
        check = _checks.get(template.id)
        if check is None or check.revision != template.revision or _is_expired(check, now):
            known_results = check.results if check is not None else {}
            fresh = {
                href: result for href, result in known_results.items() if result.at and result.at > now - FRESH_SECONDS
            }
            results = {href: fresh.get(href) or _create_result(href) for href in list(hrefs)[:_MAX_LINKS]}
            check = _checks[template.id] = LinkCheck(template.account_id, template.revision, results)
            own_ids = [number for number, other in _checks.items() if other.account_id == template.account_id]
            for number in own_ids[:-_MAX_ACCOUNT_CHECKS]:
                del _checks[number]
        _checks.move_to_end(template.id)
    if check.status == "waiting":
        signals.wake("links")
    return check


def _is_expired(check: LinkCheck, now: float) -> bool:
    return check.status == "complete" and any(
        result.at and result.at < now - FRESH_SECONDS for result in check.results.values()
    )


def _create_result(href: str) -> LinkResult:
    if any(tag in href for tag in _MERGE_TAG_MARKS):
        return LinkResult(href, "unchecked", gettext_noop("it contains a merge tag"))
    fault = safe_http.find_url_fault(href)
    return LinkResult(href, "unchecked", fault) if fault else LinkResult(href)


def run_pending_checks(stopping: threading.Event) -> None:
    """Run the waiting checks until none is left or `stopping` is set.

    The accounts take turns; of an account, the most recently requested check is the first.
    """
    while not stopping.is_set():
        with _lock:
            waiting = {check.account_id: check for check in _checks.values() if check.status == "waiting"}
            if not waiting:
                return
            check = waiting[_shares.next(waiting)]
            check.status = "running"
        started_at = time.monotonic()
        try:
            asyncio.run(_run_check(check, stopping))
        finally:
            check.status = "complete"
            _shares.charge(check.account_id, time.monotonic() - started_at)


async def _run_check(check: LinkCheck, stopping: threading.Event) -> None:
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

    async def fetch(result: LinkResult) -> None:
        async with semaphore:
            if not stopping.is_set():
                result.state, result.explanation = await _fetch_link(result.href)
                result.at = time.monotonic()

    waiting = [result for result in check.results.values() if result.state == "waiting"]
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await asyncio.gather(*map(fetch, waiting))
    except TimeoutError:
        log.info("links: check timed out seconds=%g", _CHECK_SECONDS)
    for result in waiting:
        if result.state == "waiting":
            result.state, result.explanation = "unchecked", gettext_noop("there was not enough time")


_ANSWERS = gettext_stored("answers %(status)s")
_ANSWERS_MACHINE = gettext_stored("it returns %(status)s to automated requests")


async def _fetch_link(href: str) -> tuple[Literal["fine", "broken", "unchecked"], str]:
    """Request a URL with HEAD, and with GET if HEAD fails; return (state, explanation), without explanation if fine."""
    address, status = href.partition("#")[0], 0
    for method in ("HEAD", "GET"):
        try:
            status = (
                await safe_http.request(
                    method, address, max_bytes=_MAX_RESPONSE_BYTES, timeout_seconds=_REQUEST_SECONDS, truncate=True
                )
            ).status
        except RequestFailed:
            continue
        if status < 400:
            return "fine", ""
    if status in _ACCESS_STATUSES:
        return "unchecked", _ANSWERS_MACHINE % {"status": status}
    return "broken", _ANSWERS % {"status": status} if status else gettext_noop("does not answer")


def describe_check(check: LinkCheck) -> dict[str, Any]:
    """Return the facts of a link check for preflight.

    Keys: `status`, `fine` (the number of working links), and `broken` and `unchecked` (lists of `href` and `why`).
    """
    results = list(check.results.values())
    by_state = {
        state: [
            {"href": result.href, "why": translate_stored(result.explanation)}
            for result in results
            if result.state == state
        ]
        for state in ("broken", "unchecked")
    }
    return {
        "status": check.status,
        "fine": sum(result.state == "fine" for result in results),
        **msgspec.to_builtins(by_state),
    }


def find_broken_links(case: PreflightInput, check: LinkCheck) -> list[Finding]:
    """Return a warning for each broken link, up to `_MAX_NAMED`, and one warning for all unchecked links together."""
    results = check.results.values()
    broken, unchecked = ([result for result in results if result.state == state] for state in ("broken", "unchecked"))
    findings = [
        Finding(
            "link_broken",
            gettext(
                "a link is broken (%(reason)s): %(url)s",
                reason=translate_stored(result.explanation),
                url=result.href[:200],
            ),
            find_section(case.campaign.template.design, result.href),
        )
        for result in broken[:_MAX_NAMED]
    ]
    if unchecked:
        message = ngettext(
            "%(num)s link was not checked (%(reason)s): %(url)s",
            "%(num)s links were not checked, the first because of this (%(reason)s): %(url)s",
            len(unchecked),
            reason=translate_stored(unchecked[0].explanation),
            url=unchecked[0].href[:200],
        )
        findings.append(
            Finding("link_unchecked", message, find_section(case.campaign.template.design, unchecked[0].href))
        )
    return findings


def find_slow_links(case: PreflightInput) -> list[Finding]:
    """Return a warning for each link whose URL takes too long to fill when it is clicked, up to `_MAX_NAMED`."""
    hrefs = {link.href for link in case.links if "{" in link.href}
    values = _get_sample_values(case.campaign) if hrefs else {}
    slow = [href for href in sorted(hrefs) if numbered.has_literal_host(href) and _is_slow(href, values)]
    design, limit = case.campaign.template.design, f"{MAX_LINK_SECONDS * 1000:.0f}"
    message = gettext_noop("a link’s merge tags take longer than %(limit)s ms to fill, so clicks will fail: %(url)s")
    return [
        Finding("link_slow", gettext(message, limit=limit, url=href[:200]), find_section(design, href))
        for href in slow[:_MAX_NAMED]
    ]


def _is_slow(href: str, values: dict[str, Any]) -> bool:
    """Return whether filling a URL is too slow twice; a pause of the process can make the first attempt slow."""
    for _ in range(2):
        try:
            merge.compile_template(href, "url").render(values, render_deadline(MAX_LINK_SECONDS))
        except MergeError as error:
            if error.message != TOO_SLOW:
                return False
        else:
            return False
    return True


def find_section(design: Any, href: str) -> str:
    """Return the path of the innermost section that contains a link, or the path of the body if no section does."""
    for entry in reversed(document.list_entries(design)):
        own = {**entry.section.props, "columns": None}
        if any(href in text or href.replace("&", "&amp;") in text for text in merge.iterate_strings(own)):
            return f"template_attributes.design.{entry.section.path}"
    return "template_attributes.body"


# The link map of a report: the message with a mark after each link, which shows the link's number and clicks.

_LINK_END = re.compile(r"</a\s*>", re.IGNORECASE)
# The marks are visible on any background: dark with a light border, or light with a gray border for links without
# clicks.
_MARK = (
    '<span class="campanero-mark" style="display:inline-block;margin:0 0 0 4px;padding:0 6px;border-radius:9px;'
    "font:600 11px/18px ui-sans-serif,system-ui,sans-serif;letter-spacing:0;text-decoration:none;text-transform:none;"
    'white-space:nowrap;vertical-align:middle;{}">{}&#160;&#183;&#160;{}</span>'
)
_CLICKED_STYLE = "background:#1b1f27;color:#ffffff;border:1px solid #ffffff"
_UNCLICKED_STYLE = "background:#ffffff;color:#5c6068;border:1px solid #8a8d93"


def render_link_map(campaign: Campaign, links: list[LinkFigures]) -> str:
    """Return a campaign's message as HTML, filled with sample values, with a mark after each tracked link.

    A mark shows the link's number and how many people clicked it. Raises MergeError if the message does not render.
    """
    figures = {link.number: link for link in links}
    if campaign.channel == "sms":
        return _render_text_map(campaign, figures)
    content = shared_content.compile_shared(campaign.id, base_url_of(campaign.account)).content
    template = merge.compile_template(_mark_links(content.html.source, figures), "html")
    return template.render(
        _get_sample_values(campaign) | section_conditions.get_show_values(campaign.account_id, None, content.conditions)
    )


def _mark_links(source: str, figures: dict[int, LinkFigures]) -> str:
    """Insert a mark at the end of each link of an HTML source; links are numbered from 1 in order of appearance."""
    parts: list[str] = []
    position = 0
    places = numbered.find_positions_in_html(source)
    for number, link_position in enumerate(places, 1):
        until = places[number].start if number < len(places) else len(source)
        end = _LINK_END.search(source, link_position.end, until)
        if number in figures and end is not None:
            parts += (source[position : end.start()], _render_mark(figures[number]))
            position = end.start()
    return "".join((*parts, source[position:]))


def _render_text_map(campaign: Campaign, figures: dict[int, LinkFigures]) -> str:
    tagger = utm_links.build_tagger(campaign.pinned.get("utm")) if campaign.tracking else None
    body = shared_content.tag_sms(campaign.template.body, tagger) or ""
    text = preview.fill_sms_preview(
        campaign.account_id, body, _get_sample_values(campaign), True, False, campaign.name
    ).body
    page = compose.render_sms_page(text)
    for link in figures.values():
        page = page.replace(escape(link.url), f"{escape(link.url)}{_render_mark(link)}", 1)
    return page


def _render_mark(link: LinkFigures) -> str:
    if not link.counted:
        return ""
    return _MARK.format(
        _CLICKED_STYLE if link.clicked.count else _UNCLICKED_STYLE,
        link.number,
        f"{link.clicked.count:,}".replace(",", "\u202f"),
    )


def _get_sample_values(campaign: Campaign) -> dict[str, Any]:
    account = Account.get_by_id(campaign.account_id)
    sample_name = {"first_name": "Anna", "last_name": "Example"}
    person = merge_tags.get_contact_values(None, "anna@example.org")
    return {
        **person, **sample_name, "contact": {**person["contact"], **sample_name},
        **merge_tags.get_account_values(account, brands.get(account.id)), "campaign": {"name": campaign.name},
        "unsubscribe_url": "#", "preferences_url": "#", "view_url": "#",
    }  # fmt: skip


# The stored links of a campaign, numbered when it goes live, so that later changes of brand and design do not affect
# them.

_INSERT_BATCH = 500


def save_links(campaign: Campaign, message: PreparedMessage) -> None:
    """Store the links of a campaign's content in place of earlier ones; raises MergeError if it does not compile."""
    require_write_transaction()
    delete_links(campaign.id)
    values = [
        {"account": campaign.account_id, "campaign": campaign.id, "template": campaign.template_id,
         "number": link.number, "url": link.href, "words": link.words}
        for link in _collect_links(campaign, message)
    ]  # fmt: skip
    for start in range(0, len(values), _INSERT_BATCH):
        LinkRow.insert_many(values[start : start + _INSERT_BATCH]).execute()


def _collect_links(campaign: Campaign, message: PreparedMessage) -> list[Link]:
    """Return the links of a campaign in all its variants and languages, numbered as `number_links` says."""
    links_by_language: list[Sequence[Link]] = []
    look = brands.build_look(brands.get(campaign.account_id))
    views = [(None, campaign), *((variant.number, view) for variant, view in variants.list_views(campaign))]
    for number, view in views:
        document = to_document(view.template)
        tagger = utm_links.build_tagger(campaign.pinned.get("utm"), number)
        if campaign.channel == "sms":
            tagger = tagger if campaign.tracking else None
            bodies = [translated["body"] for _, translated in translations.list_messages(document, "sms")]
            links_by_language += [compose.find_sms_links(shared_content.tag_sms(body, tagger)) for body in bodies]
        else:
            sources = languages.build_sources(document, look, campaign.account.locale)
            contents = (message.compile(source) for source in sources.values())
            links_by_language += [compose.tag_links(content, tagger).links for content in contents]
    numbered_links = shared_content.number_links(
        [(link.href, link.words) for link in links] for links in links_by_language
    )
    return [Link(number, href, words) for number, (href, words) in enumerate(numbered_links, 1)]


def delete_links(campaign_id: int) -> None:
    """Delete the stored links of a campaign."""
    require_write_transaction()
    run("DELETE FROM link WHERE campaign_id = ?", (campaign_id,))
