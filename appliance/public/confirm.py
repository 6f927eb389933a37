"""`/d/{token}`: the answer to a mail that asks for one. Reading confirms nothing, one POST does."""

from sanic import HTTPResponse, Request

from appliance.core import tokens
from appliance.core.errors import Unavailable
from appliance.forms import confirm
from appliance.forms.confirm import Sheet
from appliance.public import answers
from appliance.sending.messages import links
from appliance.storage.work import call, commit

_WORDS = {"opt_in": "confirm", "erase": "erasing"}
_DONE = {"opt_in": "confirmed", "erase": "erased"}


async def show(request: Request, token: str) -> HTTPResponse:
    """Show what will be confirmed, and the button."""
    try:
        sheet = await call(confirm.sheet, token)
    except Unavailable:
        return answers.unavailable(answers.language_of(request))
    return answers.lost(language=answers.language_of(request)) if sheet is None else _page(sheet)


async def act(request: Request, token: str) -> HTTPResponse:
    """Confirm, once; again it says the same and changes nothing."""
    language = answers.language_of(request)
    if "1" not in answers.form(request).get("confirm", []):
        return answers.lost(400, language)
    try:
        sheet = await call(confirm.sheet, token)
        if sheet is None:
            return answers.lost(language=language)
        agent = request.headers.get("user-agent")
        state = await commit(confirm.confirm, token, request.ctx.client, agent, _shown(sheet))
    except Unavailable:
        return answers.unavailable(language)
    return answers.lost(language=language) if state is None else _page(sheet._replace(state=state))


def _shown(sheet: Sheet) -> str:
    kind = _WORDS[sheet.purpose]
    phrases = [f"{kind}_heading", f"{kind}_lead", f"{kind}_button"]
    if kind == "confirm" and sheet.lists:
        phrases.insert(2, "confirm_lists")
    values = {"address": sheet.masked, "company": sheet.face.company, "lists": ", ".join(sheet.lists)}
    return answers.shown(sheet.face.language, *phrases, **values)


def _page(sheet: Sheet) -> HTTPResponse:
    if sheet.state == "expired":
        return answers.page("note.html", sheet.face, 404, heading="expired_heading", lead="expired_lead")
    if sheet.state == "done":
        kind = _DONE[sheet.purpose]
        link = None
        if sheet.purpose == "opt_in" and sheet.message_id is not None:
            link = f"/p/{tokens.sign(links.PREFERENCES, sheet.message_id)}"
        return answers.page(
            "note.html", sheet.face, heading=f"{kind}_heading", lead=f"{kind}_lead", address=sheet.masked, good=True,
            link=link, link_words="choose",
        )  # fmt: skip
    return answers.page("confirm.html", sheet.face, sheet=sheet, kind=_WORDS[sheet.purpose])
