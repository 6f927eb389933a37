"""Doors for recipients, signed links without login or cookie, and for providers.

Reading never changes consent (docs/decisions.md#16).
"""

from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic

from appliance.content import media
from appliance.content import media as pictures
from appliance.core import assets
from appliance.public import answers, clicks, confirm, forms, hooks, preferences, reading, unsubscribe
from appliance.storage.work import call

# Serves the pictures of mails: to everybody who has the address, for ever, as a picture and nothing else.

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # Webmail shows it from its own pages
    "Cross-Origin-Resource-Policy": "cross-origin",
    "X-Robots-Tag": "noindex",
}
# What is behind a name never changes
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


async def show_picture(request: Request, signed_id: str) -> HTTPResponse:
    """Return the picture of an address."""
    tag = f'"{signed_id}"'
    asked = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
    has_it = bool(asked & {tag, "*"})
    if has_it and await call(media.is_kept, signed_id):
        return HTTPResponse(b"", 304, {**_HEADERS, **_KEPT, "ETag": tag})
    found = await call(media.served, signed_id)
    if found is None:
        return HTTPResponse("There is no picture here.", 404, {**_HEADERS, "Cache-Control": "no-store"}, "text/plain")
    return HTTPResponse(found.content, 200, {**_HEADERS, **_KEPT, "ETag": tag}, content_type=found.content_type)


_READ, _ANY = ("GET", "HEAD"), ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HOOKS = "/hooks/"
# Path, methods, and the function behind them. The ones of hooks say themselves which method they take
_DOORS = (
    ("/u/<token:str>", _READ, unsubscribe.show),
    ("/u/<token:str>", ("POST",), unsubscribe.act),
    ("/p/<token:str>", _READ, preferences.show),
    ("/p/<token:str>", ("POST",), preferences.act),
    ("/d/<token:str>", _READ, confirm.show),
    ("/d/<token:str>", ("POST",), confirm.act),
    ("/f/<token:str>", _READ, forms.show),
    ("/f/<token:str>", ("POST",), forms.act),
    ("/v/<token:str>", _READ, reading.show),
    ("/c/<token:str>", _READ, clicks.click),
    ("/o/<token:str>", _READ, clicks.seen),
    (f"{pictures.PATH}<signed_id:str>", _READ, show_picture),
    (f"{_HOOKS}<name:str>", _ANY, hooks.take),
    (f"{_HOOKS}<provider:str>/<name:str>", _ANY, hooks.take_of_provider),
)
_PATHS = ("/u/", "/p/", "/d/", "/f/", "/v/", "/c/", "/o/", pictures.PATH, "/public.css", "/robots.txt")


def owns(path: str) -> bool:
    """Return whether a path is a recipient's link, so that its errors are the friendly page."""
    # The path may have lost the slash at its end (`heads.path`)
    return f"{path}/".startswith(_PATHS)


def owns_hook(path: str) -> bool:
    """Return whether a path is a provider's, so that its errors are JSON."""
    return f"{path}/".startswith(_HOOKS)


def mount(app: "Sanic[Any, Any]") -> None:
    """Add the links of recipients and the hooks of providers to the server."""
    app.ctx.desk = None
    blueprint = Blueprint("public")
    for path, methods, handler in _DOORS:
        name = f"{handler.__module__.rpartition('.')[2]}_{handler.__name__}"
        blueprint.add_route(handler, path, methods, name=name, error_format="text")
    blueprint.add_route(_style, "/public.css", ["GET"], error_format="text")
    blueprint.add_route(_robots, "/robots.txt", ["GET"], error_format="text")
    app.blueprint(blueprint)
    app.after_server_stop(_stop)


def fault(status: int) -> HTTPResponse:
    """Return the friendly page for what went wrong."""
    return answers.unavailable() if status >= 500 else answers.lost()


async def _stop(app: "Sanic[Any, Any]") -> None:
    if app.ctx.desk is not None:
        app.ctx.desk.close()


async def _style(request: Request) -> HTTPResponse:
    body = assets.path("appliance", "public", "html", "public.css").read_bytes()
    return HTTPResponse(body, 200, {"Cache-Control": "max-age=3600"}, content_type="text/css; charset=utf-8")


async def _robots(request: Request) -> HTTPResponse:
    return HTTPResponse("User-agent: *\nDisallow: /\n", content_type="text/plain; charset=utf-8")
