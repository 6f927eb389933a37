"""Doors for recipients: signed links, no login, no cookie. Reading never changes consent (decisions, section 16)."""

from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic

from appliance import assets, media
from appliance.db.work import call, commit
from appliance.designs.merge import MergeError
from appliance.engagement import unsubscribes
from appliance.errors import Unavailable
from appliance.public import clicks, reading
from appliance.public import media as pictures
from appliance.public.answers import HEADERS as _HEADERS
from appliance.public.answers import lost as lost
from appliance.public.answers import page as _page
from appliance.public.answers import unavailable as unavailable

# A mail read in the browser has its own inline styles and pictures, and nothing in it runs
_MAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation; "
    "default-src 'none'; style-src 'unsafe-inline'; img-src * data:; base-uri 'none'; frame-ancestors 'none'"
)
ONE_CLICK = "List-Unsubscribe"


def owns(path: str) -> bool:
    """Say whether a path is a recipient's link, so that its errors are the friendly page."""
    return path.startswith(("/u/", "/v/", *clicks.PATHS, media.PATH, "/public.css"))


def mount(app: "Sanic[Any, Any]") -> None:
    """Add the recipients' links to the server."""
    blueprint = Blueprint("public")
    blueprint.add_route(_unsubscribe_page, "/u/<token:str>", methods=["GET", "HEAD"])
    blueprint.add_route(_unsubscribe, "/u/<token:str>", methods=["POST"], name="unsubscribe")
    blueprint.add_route(_view, "/v/<token:str>", methods=["GET", "HEAD"], name="view")
    blueprint.add_route(_style, "/public.css", methods=["GET"], name="style")
    app.blueprint(blueprint)
    clicks.mount(app)
    pictures.mount(app)


async def _style(request: Request) -> HTTPResponse:
    body = assets.path("appliance", "public", "html", "public.css").read_bytes()
    return HTTPResponse(body, 200, {"Cache-Control": "max-age=3600"}, content_type="text/css; charset=utf-8")


async def _unsubscribe_page(request: Request, token: str) -> HTTPResponse:
    try:
        door = await call(unsubscribes.door, token)
    except Unavailable:
        return unavailable()
    if door is None:
        return lost()
    return _page("unsubscribe.html", door=door, done=False)


async def _unsubscribe(request: Request, token: str) -> HTTPResponse:
    """Opt out by the page's button or by a mailbox's one-click (RFC 8058, 3.1): no cookie, no redirect."""
    form: Any = request.form or {}
    one_click = form.get(ONE_CLICK) == "One-Click"
    if not one_click and form.get("confirm") != "1":
        return _page("lost.html", 400)
    source = "one_click" if one_click else "link"
    try:
        done = await commit(unsubscribes.opt_out, token, source, request.ctx.client, request.headers.get("user-agent"))
        door = await call(unsubscribes.door, token) if done else None
    except Unavailable:
        return unavailable()
    if door is None:
        return lost()
    return _page("unsubscribe.html", door=door, done=True)


async def _view(request: Request, token: str) -> HTTPResponse:
    try:
        html = await call(reading.html, token)
    except MergeError:
        return lost()
    except Unavailable:
        return unavailable()
    if html is None:
        return lost()
    return HTTPResponse(
        html, 200, {**_HEADERS, "Content-Security-Policy": _MAIL_POLICY}, content_type="text/html; charset=utf-8"
    )
