"""`/p/{token}`: what somebody wants to get, and what is kept about them."""

from collections.abc import Mapping
from typing import Any, get_args

from sanic import HTTPResponse, Request

from appliance.audience.contacts.consent import Tracking
from appliance.core import tokens
from appliance.core.errors import Unavailable
from appliance.public import answers
from appliance.sending.messages import links
from appliance.storage.work import call, commit
from appliance.tracking import erasing, unsubscribes
from appliance.tracking.unsubscribes import Change, Chosen, Sheet

# What the buttons of the page say
_SAVE, _UNDO, _ERASE = "save", "undo", "erase"


async def show(request: Request, token: str) -> HTTPResponse:
    """Show what may be chosen; reading changes nothing."""
    try:
        sheet = await call(unsubscribes.preferences_sheet, token)
    except Unavailable:
        return answers.unavailable(answers.language_of(request))
    return answers.lost(language=answers.language_of(request)) if sheet is None else _page(sheet)


async def act(request: Request, token: str) -> HTTPResponse:
    """Save what was chosen, take an opt-out back, or ask to be erased: each by its own button."""
    form = answers.form(request)
    language, wanted = answers.language_of(request), form.get("act", [""])[0]
    acts = {_SAVE: _save, _UNDO: _undo, _ERASE: _erase}
    if wanted not in acts:
        return answers.lost(400, language)
    try:
        sheet = await call(unsubscribes.preferences_sheet, token)
        if sheet is None:
            return answers.lost(language=language)
        if sheet.contact_id is None:
            return _page(sheet)
        return await acts[wanted](request, token, sheet, form)
    except Unavailable:
        return answers.unavailable(language)


async def _save(request: Request, token: str, sheet: Sheet, form: Mapping[str, list[str]]) -> HTTPResponse:
    text = answers.shown(sheet.face.language, "prefs_heading", "prefs_channels", "prefs_lists", "prefs_tracking")
    said = answers.evidence(request, "preferences", text)
    changes = await commit(unsubscribes.save_preferences, token, _chosen(form), said)
    after = await call(unsubscribes.preferences_sheet, token)
    assert after is not None, "a message is never deleted"
    return _page(after, changes=None if changes is None else _told(sheet, changes))


def _chosen(form: Mapping[str, list[str]]) -> Chosen:
    tracking: Any = form.get("tracking", [""])[0]
    meant = tracking in get_args(Tracking) and tracking not in form.get("tracking_shown", [])
    return Chosen(_boxes(form, "channel"), _boxes(form, "list"), tracking if meant else None)


def _boxes(form: Mapping[str, list[str]], name: str) -> dict[int, bool]:
    """Return what was ticked, or not, of all that the page showed; a box that was not there says nothing.

    Nor does a tick that was there when it was shown (`7-on`): a page that lay open takes back nothing left since.
    """
    ticked = set(form.get(name, []))
    found = {}
    for box in form.get(f"{name}_shown", []):
        one, _, before = box.partition("-")
        kept = one in ticked and before == "on"
        if one.isdecimal() and len(one) < 19 and not kept:
            found[int(one)] = one in ticked
    return found


def _told(sheet: Sheet, changes: list[Change]) -> list[str]:
    """Return what is different now."""
    say = answers.sayer(sheet.face.language)
    found = []
    for one in changes:
        if one.what == "tracking":
            found.append(say("prefs_noticed", what=say(f"prefs_{one.name}")))
            continue
        kind, _, masked = one.name.partition(" ")
        what = one.name if one.what == "list" else say(f"prefs_{kind}", address=masked)
        found.append(say("prefs_on" if one.on else "prefs_off", what=what))
    return found


async def _undo(request: Request, token: str, sheet: Sheet, form: Mapping[str, list[str]]) -> HTTPResponse:
    text = answers.shown(sheet.face.language, "left_undo", "left_undo_button")
    back = await commit(unsubscribes.undo_opt_out, token, answers.evidence(request, "preferences", text))
    after = await call(unsubscribes.preferences_sheet, token)
    assert after is not None, "a message is never deleted"
    if not back:
        return _page(after)
    lead = "back_lead_sms" if after.kind == "phone" else "back_lead"
    return answers.page(
        "note.html", after.face, heading="back_heading", lead=lead, address=after.masked, good=True, link=f"/p/{token}",
        link_words="choose",
    )  # fmt: skip


async def _erase(request: Request, token: str, sheet: Sheet, form: Mapping[str, list[str]]) -> HTTPResponse:
    lead = "erase_lead" if sheet.has_mailbox else "erase_lead_unmailed"
    text = answers.shown(sheet.face.language, lead, "erase_button", company=sheet.face.company)
    asked = await commit(erasing.ask, token, answers.evidence(request, "preferences", text))
    if asked is None:
        return answers.lost(language=sheet.face.language)
    heading, lead = f"erase_{asked}_heading", f"erase_{asked}_lead"
    return answers.page("note.html", sheet.face, heading=heading, lead=lead, address=sheet.masked, good=True)


def _page(sheet: Sheet, changes: list[str] | None = None) -> HTTPResponse:
    away = f"/u/{tokens.sign(links.UNSUBSCRIBE, sheet.message_id)}"
    return answers.page("preferences.html", sheet.face, sheet=sheet, changes=changes, away=away)
