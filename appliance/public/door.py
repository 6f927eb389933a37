"""Doors for recipients, signed links without login or cookie, and for providers.

Reading never changes consent (docs/decisions.md#16).
"""

from typing import Any

from sanic import HTTPResponse, Request, Sanic

from appliance import assets, loading, media
from appliance.routing import Promised, promise

_READ, _ANY = ("GET", "HEAD"), ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HOOKS = "/hooks/"
# Path, methods, and the function behind them. The ones of hooks say themselves which method they take
_DOORS = (
    ("/u/<token:str>", _READ, "unsubscribe.show"),
    ("/u/<token:str>", ("POST",), "unsubscribe.act"),
    ("/p/<token:str>", _READ, "preferences.show"),
    ("/p/<token:str>", ("POST",), "preferences.act"),
    ("/d/<token:str>", _READ, "confirm.show"),
    ("/d/<token:str>", ("POST",), "confirm.act"),
    ("/f/<token:str>", _READ, "forms.show"),
    ("/f/<token:str>", ("POST",), "forms.act"),
    ("/v/<token:str>", _READ, "reading.show"),
    ("/c/<token:str>", _READ, "clicks.click"),
    ("/o/<token:str>", _READ, "clicks.seen"),
    (f"{media.PATH}<signed_id:str>", _READ, "media.show"),
    (f"{_HOOKS}<name:str>", _ANY, "hooks.take"),
    (f"{_HOOKS}<provider:str>/<name:str>", _ANY, "hooks.take_of_provider"),
)
_PATHS = ("/u/", "/p/", "/d/", "/f/", "/v/", "/c/", "/o/", media.PATH, "/public.css", "/robots.txt")


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
    for path, methods, what in _DOORS:
        name, _, function = what.partition(".")
        answer = loading.handler(f"{__package__}.{name}", function)
        promise(app, [Promised(path, f"public.{what}", methods, answer, "text")])
    promise(app, [Promised("/public.css", "public.style", ("GET",), _style, "text")])
    promise(app, [Promised("/robots.txt", "public.robots", ("GET",), _robots, "text")])
    app.after_server_stop(_stop)


async def fault(status: int) -> HTTPResponse:
    """Return the friendly page for what went wrong."""
    answers = await loading.module(f"{__package__}.answers")
    answer: HTTPResponse = answers.unavailable() if status >= 500 else answers.lost()
    return answer


async def _stop(app: "Sanic[Any, Any]") -> None:
    if app.ctx.desk is not None:
        app.ctx.desk.close()


async def _style(request: Request) -> HTTPResponse:
    body = assets.path("appliance", "public", "html", "public.css").read_bytes()
    return HTTPResponse(body, 200, {"Cache-Control": "max-age=3600"}, content_type="text/css; charset=utf-8")


async def _robots(request: Request) -> HTTPResponse:
    return HTTPResponse("User-agent: *\nDisallow: /\n", content_type="text/plain; charset=utf-8")
