"""The pages for recipients, in the style and language of the account.

They are the web version of a message (`/v/`), and the pages to unsubscribe (`/u/`), to change preferences (`/p/`), and
to confirm a sign-up or erasure (`/d/`). Sign-up forms are in `forms.py`.
"""

import re
import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from jinja2 import Environment, StrictUndefined
from sanic import HTTPResponse, Request

from appliance.audience.consent import Evidence, Tracking
from appliance.content import brand as brands
from appliance.content import media
from appliance.content.brand import PageStyle
from appliance.content.designs.merge_limits import MergeError
from appliance.core import crypto, executable, i18n, recipient_texts
from appliance.core.errors import RateLimitExceeded, Unavailable
from appliance.forms import confirmations
from appliance.forms.confirmations import ConfirmationPage
from appliance.sending.messages import links
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage.models import Message
from appliance.storage.transactions import commit, fetch_public, render_view
from appliance.tracking import unsubscribes
from appliance.tracking.unsubscribes import PreferenceChange, PreferenceChoices, PreferencesPage, UnsubscribePage

_PAGE_POLICY = (
    "default-src 'none'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; form-action 'self'{leads}; "
    "base-uri 'none'; frame-ancestors {frames}"
)
PAGE_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_TAG_PATTERN = re.compile(r"<[^<>]+>")


@cache
def get_environment() -> Environment:
    """Return the Jinja environment with the templates of the pages for recipients."""
    jinja_environment = Environment(
        loader=executable.template_loader("appliance/public/html"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja_environment.globals["MEDIA"] = media.URL_PATH
    return jinja_environment


def render_page(
    name: str,
    style: PageStyle | None,
    status: int = 200,
    /,
    language: str = "en",
    leads: str = "",
    frames: str = "'none'",
    **values: Any,
) -> HTTPResponse:
    """Render the template `name` with the style of an account, or without a style in the given language.

    `leads` is the origin that the page's form may redirect to. `frames` are the origins that may embed the page,
    separated by spaces.
    """
    nonce = secrets.token_urlsafe(16)
    language = style.language if style is not None else language
    look = brands.build_css(style) if style is not None else ""
    body = get_environment().get_template(name).render(
        style=style, language=language, translate=recipient_texts.get_translator(language), look=look, nonce=nonce,
        **values,
    )  # fmt: skip
    policy = _PAGE_POLICY.format(nonce=nonce, leads=leads and f" {leads}", frames=frames)
    headers = {**PAGE_HEADERS, "Content-Security-Policy": policy}
    return HTTPResponse(body, status, headers, content_type="text/html; charset=utf-8")


def render_plain_text(language: str, *phrases: str, **values: Any) -> str:
    """Return page texts by their keys, without HTML tags and filled in with `values`, as consent evidence."""
    texts = recipient_texts.get_texts(language)
    return " ".join(_TAG_PATTERN.sub("", texts[phrase]).format(**values) for phrase in phrases)


def build_evidence(request: Request, source: str, text: str | None) -> Evidence:
    """Return the consent evidence of a recipient's action on a page, with the IP address and user agent.

    `text` is the text of the page beside the button.
    """
    return Evidence(source, "recipient", request.ctx.client, request.headers.get("user-agent"), text)


def detect_language(request: Request) -> str:
    """Return the browser's first language if the pages have texts in it, else English."""
    return recipient_texts.language_of_locale(read_browser_language(request) or "en")


def read_browser_language(request: Request) -> str | None:
    """Return the first language of the Accept-Language header as a tag, or None; quality values are ignored."""
    preferred = (request.headers.get("accept-language") or "").partition(",")[0].partition(";")[0]
    return i18n.normalize_language_tag(preferred[:35])


def read_form(request: Request) -> Mapping[str, list[str]]:
    """Return the values of each field of a submitted HTML form; empty for any other body."""
    posted = request.form
    return {name: posted.getlist(name) for name in posted} if posted else {}


def not_found_page(status: int = 404, language: str = "en") -> HTTPResponse:
    """Return the error page for invalid links and invalid requests."""
    return render_page("note.html", None, status, language, heading="lost_heading", lead="lost_lead")


def unavailable_page(language: str = "en") -> HTTPResponse:
    """Return the error page (503) for a temporary failure that changed nothing."""
    response = render_page("note.html", None, 503, language, heading="later_heading", lead="later_lead")
    response.headers["Retry-After"] = "5"
    return response


# The web version of a message may have inline styles and images from anywhere, but no scripts.
_MESSAGE_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation; "
    "default-src 'none'; style-src 'unsafe-inline'; img-src * data:; base-uri 'none'; frame-ancestors 'none'"
)


async def show_message(request: Request, token: str) -> HTTPResponse:
    """Show the web version of a message.

    The response is the page "not found" if the link is invalid or the message cannot be rendered. It is the page for
    temporary failures if the message cannot be read, or if too many messages of the account are being rendered.
    """
    try:
        message = await fetch_public(find_message, token)
        if message is None:
            return not_found_page(language=detect_language(request))
        html = await render_view(message.account_id, render_message, message)
    except MergeError:
        return not_found_page(language=detect_language(request))
    except (RateLimitExceeded, Unavailable):
        return unavailable_page(detect_language(request))
    headers = {**PAGE_HEADERS, "Content-Security-Policy": _MESSAGE_POLICY}
    return HTTPResponse(html, 200, headers, content_type="text/html; charset=utf-8")


def find_message(token: str) -> Message | None:
    """Return the message that the token of a web version link names, or None for an invalid token.

    None is also returned if the message belongs to a campaign or flow and its contact was deleted.
    """
    message_id = crypto.read_token(links.VIEW, token)
    message = Message.get_or_none(Message.id == message_id) if message_id is not None else None
    if message is None or ((message.campaign_id or message.run_id) is not None and message.contact_id is None):
        return None
    return message


def render_message(message: Message) -> str:
    """Return the HTML of a message as it was sent. Raises MergeError if the message cannot be rendered."""
    return MessagePreparer().fill_again(message).html


# The values of the buttons on the preferences page.
_SAVE, _UNDO, _ERASE = "save", "undo", "erase"


async def show_preferences(request: Request, token: str) -> HTTPResponse:
    """Show the preferences page, or an error page for an invalid token; nothing is changed."""
    try:
        page = await fetch_public(unsubscribes.get_preferences_page, token)
    except Unavailable:
        return unavailable_page(detect_language(request))
    return not_found_page(language=detect_language(request)) if page is None else _preferences_page(page)


async def submit_preferences(request: Request, token: str) -> HTTPResponse:
    """Save the preferences, undo an opt-out, or request an erasure, depending on the button that was pressed.

    An unknown button gets an error page (400), and so does an invalid token (404).
    """
    form = read_form(request)
    language, button = detect_language(request), form.get("act", [""])[0]
    actions = {_SAVE: _save_preferences, _UNDO: _undo_opt_out, _ERASE: _request_erasure}
    if button not in actions:
        return not_found_page(400, language)
    try:
        page = await fetch_public(unsubscribes.get_preferences_page, token)
        if page is None:
            return not_found_page(language=language)
        if page.contact_id is None:
            return _preferences_page(page)
        return await actions[button](request, token, page, form)
    except Unavailable:
        return unavailable_page(language)


async def _save_preferences(
    request: Request, token: str, page: PreferencesPage, form: Mapping[str, list[str]]
) -> HTTPResponse:
    text = render_plain_text(page.style.language, "prefs_heading", "prefs_channels", "prefs_lists", "prefs_tracking")
    evidence = build_evidence(request, "preferences", text)
    changes = await commit(unsubscribes.save_preferences, token, _parse_choices(form), evidence)
    updated_page = await fetch_public(unsubscribes.get_preferences_page, token)
    assert updated_page is not None, "a message is never deleted"
    return _preferences_page(
        updated_page, changes=None if changes is None else _describe_changes(updated_page, changes)
    )


def _parse_choices(form: Mapping[str, list[str]]) -> PreferenceChoices:
    tracking: Any = form.get("tracking", [""])[0]
    is_changed = tracking in get_args(Tracking) and tracking not in form.get("tracking_shown", [])
    language = form.get("language", [""])[0]
    is_other = language in recipient_texts.LANGUAGE_NAMES and language not in form.get("language_shown", [])
    return PreferenceChoices(
        _parse_checkboxes(form, "channel"),
        _parse_checkboxes(form, "list"),
        tracking if is_changed else None,
        language if is_other else None,
    )


def _parse_checkboxes(form: Mapping[str, list[str]], name: str) -> dict[int, bool]:
    """Return whether each checkbox of a group is checked, by the id of its channel or list.

    `{name}_shown` lists the checkboxes of the page with their states when the page was shown, such as `7-on`. A box
    that is checked and was checked then is left out: an opt-out made after the page was loaded must not be reverted.
    """
    ticked = set(form.get(name, []))
    states = {}
    for box in form.get(f"{name}_shown", []):
        box_id, _, before = box.partition("-")
        is_unchanged = box_id in ticked and before == "on"
        if box_id.isdecimal() and len(box_id) < 19 and not is_unchanged:
            states[int(box_id)] = box_id in ticked
    return states


def _describe_changes(page: PreferencesPage, changes: list[PreferenceChange]) -> list[str]:
    """Return a sentence for each change, in the language of the page, which may be one of the changes."""
    translate = recipient_texts.get_translator(page.style.language)
    sentences: list[str] = []
    for change in changes:
        if change.kind == "tracking":
            sentences.append(translate("prefs_noticed", what=translate(f"prefs_{change.name}")))
            continue
        if change.kind == "language":
            sentences.append(translate("prefs_language_now", what=recipient_texts.LANGUAGE_NAMES[change.name]))
            continue
        kind, _, masked = change.name.partition(" ")
        name = change.name if change.kind == "list" else translate(f"prefs_{kind}", address=masked)
        sentences.append(translate("prefs_on" if change.is_on else "prefs_off", what=name))
    return sentences


async def _undo_opt_out(
    request: Request, token: str, page: PreferencesPage, form: Mapping[str, list[str]]
) -> HTTPResponse:
    text = render_plain_text(page.style.language, "left_undo", "left_undo_button")
    is_restored = await commit(unsubscribes.undo_opt_out, token, build_evidence(request, "preferences", text))
    updated_page = await fetch_public(unsubscribes.get_preferences_page, token)
    assert updated_page is not None, "a message is never deleted"
    if not is_restored:
        return _preferences_page(updated_page)
    lead = "back_lead_sms" if updated_page.kind == "phone" else "back_lead"
    return render_page(
        "note.html",
        updated_page.style,
        heading="back_heading",
        lead=lead,
        address=updated_page.masked_address,
        good=True,
        link=f"/p/{token}",
        link_words="choose",
    )


async def _request_erasure(
    request: Request, token: str, page: PreferencesPage, form: Mapping[str, list[str]]
) -> HTTPResponse:
    lead = "erase_lead" if page.has_mailbox else "erase_lead_unmailed"
    text = render_plain_text(page.style.language, lead, "erase_button", company=page.style.company)
    outcome = await commit(unsubscribes.request_erasure, token, build_evidence(request, "preferences", text))
    if outcome is None:
        return not_found_page(language=page.style.language)
    heading, lead = f"erase_{outcome}_heading", f"erase_{outcome}_lead"
    return render_page("note.html", page.style, heading=heading, lead=lead, address=page.masked_address, good=True)


def _preferences_page(page: PreferencesPage, changes: list[str] | None = None) -> HTTPResponse:
    away = f"/u/{crypto.sign_token(links.UNSUBSCRIBE, page.message_id)}"
    return render_page(
        "preferences.html", page.style, page=page, changes=changes, away=away, languages=recipient_texts.LANGUAGE_NAMES
    )


_PHRASE_PREFIXES = {"opt_in": "confirm", "erase": "erasing"}
_DONE_PREFIXES = {"opt_in": "confirmed", "erase": "erased"}


async def show_confirmation(request: Request, token: str) -> HTTPResponse:
    """Show the page with the button that confirms a sign-up or erasure; loading it confirms nothing."""
    try:
        page = await fetch_public(confirmations.load_page, token)
    except Unavailable:
        return unavailable_page(detect_language(request))
    return not_found_page(language=detect_language(request)) if page is None else _confirmation_page(page)


async def submit_confirmation(request: Request, token: str) -> HTTPResponse:
    """Confirm a sign-up or erasure; repeating it changes nothing. An invalid or expired token gets an error page."""
    language = detect_language(request)
    if "1" not in read_form(request).get("confirm", []):
        return not_found_page(400, language)
    try:
        page = await fetch_public(confirmations.load_page, token)
        if page is None:
            return not_found_page(language=language)
        agent = request.headers.get("user-agent")
        state = await commit(confirmations.confirm, token, request.ctx.client, agent, _confirmation_text(page))
    except Unavailable:
        return unavailable_page(language)
    return not_found_page(language=language) if state is None else _confirmation_page(page._replace(state=state))


def _confirmation_text(page: ConfirmationPage) -> str:
    kind = _PHRASE_PREFIXES[page.purpose]
    phrases = [f"{kind}_heading", f"{kind}_lead", f"{kind}_button"]
    if kind == "confirm" and page.lists:
        phrases.insert(2, "confirm_lists")
    values = {"address": page.masked_address, "company": page.style.company, "lists": ", ".join(page.lists)}
    return render_plain_text(page.style.language, *phrases, **values)


def _confirmation_page(page: ConfirmationPage) -> HTTPResponse:
    if page.state == "expired":
        return render_page("note.html", page.style, 404, heading="expired_heading", lead="expired_lead")
    if page.state == "done":
        kind = _DONE_PREFIXES[page.purpose]
        link = None
        if page.purpose == "opt_in" and page.message_id is not None:
            link = f"/p/{crypto.sign_token(links.PREFERENCES, page.message_id)}"
        return render_page(
            "note.html", page.style, heading=f"{kind}_heading", lead=f"{kind}_lead", address=page.masked_address,
            good=True, link=link, link_words="choose",
        )  # fmt: skip
    return render_page("confirm.html", page.style, page=page, kind=_PHRASE_PREFIXES[page.purpose])


ONE_CLICK = "List-Unsubscribe"


async def show_unsubscribe(request: Request, token: str) -> HTTPResponse:
    """Show the unsubscribe page; loading it changes nothing, so link scanners cannot unsubscribe anyone."""
    try:
        page = await fetch_public(unsubscribes.get_unsubscribe_page, token)
    except Unavailable:
        return unavailable_page(detect_language(request))
    return not_found_page(language=detect_language(request)) if page is None else _unsubscribe_page(page, is_done=False)


async def submit_unsubscribe(request: Request, token: str) -> HTTPResponse:
    """Opt the recipient out after a click on the button of the page, or by one-click (RFC 8058, section 3.1).

    No cookie is needed, and the response is not a redirect. A request without either value gets an error page (400),
    and an invalid token gets one, too (404).
    """
    form = read_form(request)
    # Some mailbox providers end the body with a line break.
    one_click = "One-Click" in (value.strip() for value in form.get(ONE_CLICK, []))
    language = detect_language(request)
    if not one_click and "1" not in form.get("confirm", []):
        return not_found_page(400, language)
    try:
        page = await fetch_public(unsubscribes.get_unsubscribe_page, token)
        if page is None:
            return not_found_page(language=language)
        text = f"{ONE_CLICK}=One-Click" if one_click else _unsubscribe_text(page)
        agent = request.headers.get("user-agent")
        source = "one_click" if one_click else "link"
        await commit(unsubscribes.opt_out, token, source, request.ctx.client, agent, text)
        page = await fetch_public(unsubscribes.get_unsubscribe_page, token)
    except Unavailable:
        return unavailable_page(language)
    return not_found_page(language=language) if page is None else _unsubscribe_page(page, is_done=True)


def _unsubscribe_text(page: UnsubscribePage) -> str:
    of = "_sms" if page.kind == "phone" else ""
    phrases = (f"leave_heading{of}", f"leave_lead{of}", "leave_button")
    return render_plain_text(page.style.language, *phrases, address=page.masked_address, company=page.style.company)


def _unsubscribe_page(page: UnsubscribePage, is_done: bool) -> HTTPResponse:
    preferences = f"/p/{crypto.sign_token(links.PREFERENCES, page.message_id)}"
    out = is_done or not page.subscribed
    return render_page("unsubscribe.html", page.style, page=page, out=out, preferences=preferences)
