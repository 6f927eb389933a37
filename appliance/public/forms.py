"""`/f/{public_key}`: the page of a form, where people sign up; forms on other pages may post here too."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from sanic import HTTPResponse, Request

from appliance.core import clock, tokens
from appliance.core.errors import Invalid, NotFound, TooMany, Unavailable
from appliance.forms import intake, reading, store
from appliance.forms.reading import Submitted
from appliance.public import answers
from appliance.storage.models import Form
from appliance.storage.work import call
from appliance.tracking import account_look

# Nobody reads and fills in a page in less
QUICKEST_MS = 700
_TIME = "f"
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")


async def show(request: Request, token: str) -> HTTPResponse:
    """Show the form."""
    try:
        form = await call(store.by_key, token)
        return await _page(form, {}, {}, tokens.sign(_TIME, clock.now_ms(), 8))
    except NotFound:
        return answers.lost(language=answers.language_of(request))
    except Unavailable:
        return answers.unavailable(answers.language_of(request))


async def act(request: Request, token: str) -> HTTPResponse:
    """Take what was typed; what is wrong with it stands at its field, and nothing typed is lost."""
    language = answers.language_of(request)
    raw = {name: values[0] for name, values in answers.form(request).items() if values}
    try:
        form = await call(store.by_key, token)
        said, errors = await call(_read, form, raw)
        if errors or said is None:
            return await _page(form, raw, errors, raw.get("t", ""), 422)
        if not reading.is_trapped(raw):
            await intake.take(form, said, request.ctx.client, request.headers.get("user-agent"))
    except NotFound:
        return answers.lost(language=language)
    except Unavailable:
        return answers.unavailable(language)
    except TooMany as refused:
        answer = answers.page("note.html", None, 429, language, heading="form_many_heading", lead="form_many_lead")
        answer.headers["Retry-After"] = str(refused.retry_after)
        return answer
    leads = store.leads_to(form)
    if leads:
        return HTTPResponse("", 303, {**answers.HEADERS, "Location": leads})
    asks = "form_mailed" if form.double_opt_in else "form_done"
    return answers.page(
        "note.html",
        await call(account_look.of, form.account_id),
        heading=f"{asks}_heading",
        lead=f"{asks}_lead",
        good=True,
    )


def _read(form: Form, raw: dict[str, str]) -> tuple[Submitted | None, dict[str, str]]:
    """Return what was typed, or the phrase for each field that is wrong."""
    try:
        said = reading.read(form, raw)
    except Invalid as refused:
        either = {one.name for one in store.fields_of(form) if not one.required} & {"email", "phone"}
        return None, {name: _phrase(name, messages[0], either) for name, messages in refused.fields.items()}
    shown_at = tokens.read(_TIME, raw.get("t", ""), 8)
    if shown_at is not None and clock.now_ms() - shown_at < QUICKEST_MS:
        return None, {"base": "form_again"}
    return said, {}


def _phrase(name: str, message: str, either: set[str]) -> str:
    if message == "can't be blank":
        return "form_either" if name in either else "form_blank"
    if name in ("email", "phone"):
        return f"form_{name}_wrong"
    return "form_long"


async def _page(
    form: Form, raw: Mapping[str, str], errors: Mapping[str, str], shown_at: str, status: int = 200
) -> HTTPResponse:
    shown = await call(account_look.of, form.account_id)
    frames = " ".join(form.origins) or "'none'"
    return answers.page(
        "form.html", shown, status, form=form, fields=store.fields_of(form), raw=raw, errors=errors, shown_at=shown_at,
        leads=_origin(store.leads_to(form)), frames=frames,
    )  # fmt: skip


def _origin(url: str | None) -> str:
    """Return the origin of an address, for the policy of a page; a browser follows a form's redirect only there."""
    parts = urlsplit(url or "")
    return f"{parts.scheme}://{parts.netloc}" if _HOST.fullmatch(parts.netloc) else ""
