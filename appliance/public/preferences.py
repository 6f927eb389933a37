"""The pages to unsubscribe (`/u/`), to change preferences (`/p/`), and to confirm a sign-up or erasure (`/d/`)."""

from collections.abc import Mapping
from typing import Any, get_args

from sanic import HTTPResponse, Request

from appliance.audience.consent import Tracking
from appliance.core import crypto, recipient_texts
from appliance.core.errors import Unavailable
from appliance.forms import confirmations
from appliance.forms.confirmations import ConfirmationPage
from appliance.public import pages
from appliance.sending.messages import links
from appliance.storage.transactions import commit, fetch_public
from appliance.tracking import unsubscribes
from appliance.tracking.unsubscribes import PreferenceChange, PreferenceChoices, PreferencesPage, UnsubscribePage

# The values of the buttons on the preferences page.
_SAVE, _UNDO, _ERASE = "save", "undo", "erase"


async def show_preferences(request: Request, token: str) -> HTTPResponse:
    """Show the preferences page, or an error page for an invalid token; nothing is changed."""
    try:
        page = await fetch_public(unsubscribes.get_preferences_page, token)
    except Unavailable:
        return pages.unavailable_page(pages.detect_language(request))
    return pages.not_found_page(language=pages.detect_language(request)) if page is None else _preferences_page(page)


async def submit_preferences(request: Request, token: str) -> HTTPResponse:
    """Save the preferences, undo an opt-out, or request an erasure, depending on the button that was pressed."""
    form = pages.read_form(request)
    language, button = pages.detect_language(request), form.get("act", [""])[0]
    actions = {_SAVE: _save_preferences, _UNDO: _undo_opt_out, _ERASE: _request_erasure}
    if button not in actions:
        return pages.not_found_page(400, language)
    try:
        page = await fetch_public(unsubscribes.get_preferences_page, token)
        if page is None:
            return pages.not_found_page(language=language)
        if page.contact_id is None:
            return _preferences_page(page)
        return await actions[button](request, token, page, form)
    except Unavailable:
        return pages.unavailable_page(language)


async def _save_preferences(
    request: Request, token: str, page: PreferencesPage, form: Mapping[str, list[str]]
) -> HTTPResponse:
    text = pages.render_plain_text(
        page.style.language, "prefs_heading", "prefs_channels", "prefs_lists", "prefs_tracking"
    )
    evidence = pages.build_evidence(request, "preferences", text)
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
    that was checked then and still is checked is left out, because a page that stayed open must not revert an opt-out
    that was made since.
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
    """Return a sentence for each change, in the language of the page, which may have changed, too."""
    say = recipient_texts.get_translator(page.style.language)
    sentences: list[str] = []
    for change in changes:
        if change.kind == "tracking":
            sentences.append(say("prefs_noticed", what=say(f"prefs_{change.name}")))
            continue
        if change.kind == "language":
            sentences.append(say("prefs_language_now", what=recipient_texts.LANGUAGE_NAMES[change.name]))
            continue
        kind, _, masked = change.name.partition(" ")
        name = change.name if change.kind == "list" else say(f"prefs_{kind}", address=masked)
        sentences.append(say("prefs_on" if change.is_on else "prefs_off", what=name))
    return sentences


async def _undo_opt_out(
    request: Request, token: str, page: PreferencesPage, form: Mapping[str, list[str]]
) -> HTTPResponse:
    text = pages.render_plain_text(page.style.language, "left_undo", "left_undo_button")
    is_restored = await commit(unsubscribes.undo_opt_out, token, pages.build_evidence(request, "preferences", text))
    updated_page = await fetch_public(unsubscribes.get_preferences_page, token)
    assert updated_page is not None, "a message is never deleted"
    if not is_restored:
        return _preferences_page(updated_page)
    lead = "back_lead_sms" if updated_page.kind == "phone" else "back_lead"
    return pages.render_page(
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
    text = pages.render_plain_text(page.style.language, lead, "erase_button", company=page.style.company)
    outcome = await commit(unsubscribes.request_erasure, token, pages.build_evidence(request, "preferences", text))
    if outcome is None:
        return pages.not_found_page(language=page.style.language)
    heading, lead = f"erase_{outcome}_heading", f"erase_{outcome}_lead"
    return pages.render_page(
        "note.html", page.style, heading=heading, lead=lead, address=page.masked_address, good=True
    )


def _preferences_page(page: PreferencesPage, changes: list[str] | None = None) -> HTTPResponse:
    away = f"/u/{crypto.sign_token(links.UNSUBSCRIBE, page.message_id)}"
    return pages.render_page(
        "preferences.html", page.style, page=page, changes=changes, away=away, languages=recipient_texts.LANGUAGE_NAMES
    )


_PHRASE_PREFIXES = {"opt_in": "confirm", "erase": "erasing"}
_DONE_PREFIXES = {"opt_in": "confirmed", "erase": "erased"}


async def show_confirmation(request: Request, token: str) -> HTTPResponse:
    """Show the page with the button that confirms a sign-up or erasure; loading it confirms nothing."""
    try:
        page = await fetch_public(confirmations.load_page, token)
    except Unavailable:
        return pages.unavailable_page(pages.detect_language(request))
    return pages.not_found_page(language=pages.detect_language(request)) if page is None else _confirmation_page(page)


async def submit_confirmation(request: Request, token: str) -> HTTPResponse:
    """Confirm a sign-up or erasure; repeating it changes nothing. An invalid or expired token gets an error page."""
    language = pages.detect_language(request)
    if "1" not in pages.read_form(request).get("confirm", []):
        return pages.not_found_page(400, language)
    try:
        page = await fetch_public(confirmations.load_page, token)
        if page is None:
            return pages.not_found_page(language=language)
        agent = request.headers.get("user-agent")
        state = await commit(confirmations.confirm, token, request.ctx.client, agent, _confirmation_text(page))
    except Unavailable:
        return pages.unavailable_page(language)
    return pages.not_found_page(language=language) if state is None else _confirmation_page(page._replace(state=state))


def _confirmation_text(page: ConfirmationPage) -> str:
    kind = _PHRASE_PREFIXES[page.purpose]
    phrases = [f"{kind}_heading", f"{kind}_lead", f"{kind}_button"]
    if kind == "confirm" and page.lists:
        phrases.insert(2, "confirm_lists")
    values = {"address": page.masked_address, "company": page.style.company, "lists": ", ".join(page.lists)}
    return pages.render_plain_text(page.style.language, *phrases, **values)


def _confirmation_page(page: ConfirmationPage) -> HTTPResponse:
    if page.state == "expired":
        return pages.render_page("note.html", page.style, 404, heading="expired_heading", lead="expired_lead")
    if page.state == "done":
        kind = _DONE_PREFIXES[page.purpose]
        link = None
        if page.purpose == "opt_in" and page.message_id is not None:
            link = f"/p/{crypto.sign_token(links.PREFERENCES, page.message_id)}"
        return pages.render_page(
            "note.html", page.style, heading=f"{kind}_heading", lead=f"{kind}_lead", address=page.masked_address,
            good=True, link=link, link_words="choose",
        )  # fmt: skip
    return pages.render_page("confirm.html", page.style, page=page, kind=_PHRASE_PREFIXES[page.purpose])


ONE_CLICK = "List-Unsubscribe"


async def show_unsubscribe(request: Request, token: str) -> HTTPResponse:
    """Show the unsubscribe page; loading it changes nothing, so link scanners cannot unsubscribe anyone."""
    try:
        page = await fetch_public(unsubscribes.get_unsubscribe_page, token)
    except Unavailable:
        return pages.unavailable_page(pages.detect_language(request))
    return (
        pages.not_found_page(language=pages.detect_language(request))
        if page is None
        else _unsubscribe_page(page, is_done=False)
    )


async def submit_unsubscribe(request: Request, token: str) -> HTTPResponse:
    """Opt the recipient out after a click on the button of the page, or by one-click (RFC 8058, section 3.1).

    The request needs no cookie, and the response is no redirect.
    """
    form = pages.read_form(request)
    # Some senders end the body with a line break.
    one_click = "One-Click" in (value.strip() for value in form.get(ONE_CLICK, []))
    language = pages.detect_language(request)
    if not one_click and "1" not in form.get("confirm", []):
        return pages.not_found_page(400, language)
    try:
        page = await fetch_public(unsubscribes.get_unsubscribe_page, token)
        if page is None:
            return pages.not_found_page(language=language)
        text = f"{ONE_CLICK}=One-Click" if one_click else _unsubscribe_text(page)
        agent = request.headers.get("user-agent")
        source = "one_click" if one_click else "link"
        await commit(unsubscribes.opt_out, token, source, request.ctx.client, agent, text)
        page = await fetch_public(unsubscribes.get_unsubscribe_page, token)
    except Unavailable:
        return pages.unavailable_page(language)
    return pages.not_found_page(language=language) if page is None else _unsubscribe_page(page, is_done=True)


def _unsubscribe_text(page: UnsubscribePage) -> str:
    of = "_sms" if page.kind == "phone" else ""
    phrases = (f"leave_heading{of}", f"leave_lead{of}", "leave_button")
    return pages.render_plain_text(
        page.style.language, *phrases, address=page.masked_address, company=page.style.company
    )


def _unsubscribe_page(page: UnsubscribePage, is_done: bool) -> HTTPResponse:
    preferences = f"/p/{crypto.sign_token(links.PREFERENCES, page.message_id)}"
    out = is_done or not page.subscribed
    return pages.render_page("unsubscribe.html", page.style, page=page, out=out, preferences=preferences)
