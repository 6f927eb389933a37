"""The canvas of an editor: an email in a frame of its own, with one script of ours in it, and its rows one by one."""

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.requests import ContactQuery
from appliance.content.templates import store as templates
from appliance.core import errors
from appliance.sending.messages import canvas, sample_render
from appliance.settings import config
from appliance.storage.models import Contact
from appliance.storage.work import call, render
from ui import files, guard, mail, view, words
from ui.editor import drawing
from ui.forms import number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_canvas", url_prefix="/templates")
_SHOWN = 7
_SCRIPTS = tuple(f"js/{name}.js" for name in ("canvas", "swap", "hand", "drag", "caret"))
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}\Z")
_HEAD_ENDS = re.compile(r"</head\s*>", re.IGNORECASE)


@pages.get("/<template_id:int>/canvas", name="show")
@signed_in
async def show(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """The email as the editor's frame shows it: `as` is a contact."""
    try:
        drawn = await render(canvas.draw, visit.account_id, template_id, _person(request))
    except errors.Invalid as refused:
        return mail.broken(_why(refused))
    have = ",".join((drawn.digest, *(one.digest for one in drawn.rows or ())))
    head = view.environment().get_template("canvas/head.html").render(have=have)
    html = drawn.html if "<" in drawn.html else f"<p>{drawn.html}</p>"
    if _HEAD_ENDS.search(html):
        html = _HEAD_ENDS.sub(lambda found: head + found[0], html, count=1)
    else:
        html = f"<!doctype html><html><head>{head}</head>{html}</html>"
    headers = {"content-security-policy": _policy(request), "referrer-policy": "no-referrer"}
    return HTTPResponse(html, 200, headers, "text/html; charset=utf-8")


@pages.get("/<template_id:int>/rows", name="rows")
@signed_in
async def rows(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """What a canvas shows now: every row by its digest, with its HTML where the canvas does not `have` it."""
    have = set((request.args.get("have") or "").split(","))
    try:
        drawn = await render(canvas.draw, visit.account_id, template_id, _person(request))
    except errors.Invalid as refused:
        return _json({"error": _why(refused)}, 422)
    return _json(drawing.told(drawn, have))


@pages.get("/<template_id:int>/size", name="size")
@signed_in
async def size(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """How large the email is as it is sent, beside what Gmail shows of one."""
    found = await render(canvas.weight, visit.account_id, template_id)
    if not view.is_part(request):
        return view.go(request, f"/templates/{template_id}/edit")
    near = found is not None and found > sample_render.GMAIL_NEARLY
    over = found is not None and found > sample_render.GMAIL_CLIPS
    return view.fragment(request, "editor/size.html", size=found, near=near, over=over)


@pages.get("/<template_id:int>/people", name="people")
@signed_in
async def people(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Whose email a canvas may show: the last ones added, whoever is looked for, somebody without a first name."""
    search = (request.args.get("search") or "").strip()[:254]
    await call(templates.get, visit.account_id, template_id)
    if not view.is_part(request):
        return view.go(request, f"/templates/{template_id}/edit")
    found, nameless = await call(_found, visit.account_id, search)
    return view.page(request, "canvas/people.html", rows=found, nameless=nameless, search=search)


def _found(account_id: int, search: str) -> tuple[list[Contact], Contact | None]:
    if search:
        return list(contacts.find(account_id, search, 1, _SHOWN).rows), None
    found = list(contacts.page(account_id, ContactQuery(limit=_SHOWN)).rows)
    return found, store.nameless(account_id)


def _person(request: Request) -> int | None:
    return number(request.args.get("as"), 0, 10**9) or None


def _why(refused: errors.Invalid) -> str:
    return words.sentence(next(iter(refused.fields.values()))[0])


def _json(content: Any, status: int = 200) -> HTTPResponse:
    return HTTPResponse(msgspec.json.encode(content), status, content_type="application/json")


def _policy(request: Request) -> str:
    """Return the policy of mail in a page, with scripts and one sheet of ours.

    They are named by address: the frame has no origin of its own, so not every browser knows what 'self' is. The host
    is the one that was asked for, and that of `base_url`: a proxy may ask us by another name than the browser did.
    """
    asked = request.host if _HOST.match(request.host) else "invalid."
    hosts = dict.fromkeys((asked, urlsplit(config.base_url(config.current())).netloc))

    def at(*names: str) -> str:
        places = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return " ".join(f"{place}{files.url(name)}" for name in names for place in places)

    policy = guard.mail_policy().partition(";")[2].replace("style-src ", f"style-src {at('css/canvas.css')} ")
    return f"sandbox allow-scripts;{policy}; script-src {at(*_SCRIPTS)}"
