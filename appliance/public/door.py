"""Doors for recipients: signed links, no login, no cookie. Reading never changes consent (decisions, section 16)."""

from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic

from appliance import assets, media
from appliance.db.work import call
from appliance.designs.merge import MergeError
from appliance.errors import Unavailable
from appliance.public import clicks, confirm, forms, preferences, reading, unsubscribe
from appliance.public import media as pictures
from appliance.public.answers import HEADERS, lost, unavailable

__all__ = ["lost", "mount", "owns", "unavailable"]

# A mail read in the browser has its own inline styles and pictures, and nothing in it runs
_MAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation; "
    "default-src 'none'; style-src 'unsafe-inline'; img-src * data:; base-uri 'none'; frame-ancestors 'none'"
)
_PATHS = ("/u/", "/p/", "/d/", "/f/", "/v/", *clicks.PATHS, media.PATH, "/public.css", "/robots.txt")


def owns(path: str) -> bool:
    """Say whether a path is a recipient's link, so that its errors are the friendly page."""
    return path.startswith(_PATHS)


def mount(app: "Sanic[Any, Any]") -> None:
    """Add the recipients' links to the server."""
    blueprint = Blueprint("public")
    for path, module in (("/u", unsubscribe), ("/p", preferences), ("/d", confirm), ("/f", forms)):
        name = path.strip("/")
        blueprint.add_route(
            module.show, f"{path}/<token:str>", methods=["GET", "HEAD"], name=f"{name}_page", error_format="text"
        )
        blueprint.add_route(
            module.act, f"{path}/<token:str>", methods=["POST"], name=f"{name}_act", error_format="text"
        )
    blueprint.add_route(_view, "/v/<token:str>", methods=["GET", "HEAD"], name="view", error_format="text")
    blueprint.add_route(_style, "/public.css", methods=["GET"], name="style", error_format="text")
    blueprint.add_route(_robots, "/robots.txt", methods=["GET"], name="robots", error_format="text")
    app.blueprint(blueprint)
    clicks.mount(app)
    pictures.mount(app)


async def _style(request: Request) -> HTTPResponse:
    body = assets.path("appliance", "public", "html", "public.css").read_bytes()
    return HTTPResponse(body, 200, {"Cache-Control": "max-age=3600"}, content_type="text/css; charset=utf-8")


async def _robots(request: Request) -> HTTPResponse:
    return HTTPResponse("User-agent: *\nDisallow: /\n", content_type="text/plain; charset=utf-8")


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
        html, 200, {**HEADERS, "Content-Security-Policy": _MAIL_POLICY}, content_type="text/html; charset=utf-8"
    )
