"""Pages and links for recipients, which need no login, and webhooks of providers.

Loading a page never changes consent (docs/decisions.md#16); only submitting its form does. A webhook request is
acknowledged after it is stored (docs/decisions.md#15).
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import MethodNotAllowed, PayloadTooLarge
from sanic.response import json

from appliance.api.endpoints import FORM_SUBMISSION_PATH
from appliance.content import media
from appliance.content.designs.sections import social
from appliance.core import crypto, shipped, validation
from appliance.core.errors import NotFound
from appliance.inbound import delivery_reports, incoming_sms, providers
from appliance.inbound.delivery_reports import MessageInFlight
from appliance.inbound.providers.base import HookPayload, HookRequest
from appliance.public import clicks, forms, pages
from appliance.sending.messages import links
from appliance.sending.sms import error_codes as sms
from appliance.settings import config
from appliance.storage.database import scalar
from appliance.storage.transactions import commit, fetch_public
from appliance.tracking import unsubscribes

_PICTURE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # Webmail services embed the picture in pages of another origin.
    "Cross-Origin-Resource-Policy": "cross-origin",
    "X-Robots-Tag": "noindex",
}
# A later version may have another icon under the same name.
_CACHE_WEEK = {"Cache-Control": "public, max-age=604800"}
# The picture with an id never changes.
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
# Enough for delivery receipts, or for a percent-encoded SMS of 1,600 characters with metadata.
_MAX_SMS_BODY_BYTES = 65_536


async def show_picture(request: Request, signed_id: str) -> HTTPResponse:
    """Serve an uploaded picture to anyone who knows its id.

    The status is 304 if the browser has the picture in its cache, and 404 if the picture does not exist.
    """
    tag = f'"{signed_id}"'
    known_tags = {value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")}
    is_cached = bool(known_tags & {tag, "*"})
    if is_cached and await fetch_public(media.exists, signed_id):
        return HTTPResponse(b"", 304, {**_PICTURE_HEADERS, **_CACHE_FOREVER, "ETag": tag})
    picture = await fetch_public(media.find_served, signed_id)
    if picture is None:
        return HTTPResponse("Not found.", 404, {**_PICTURE_HEADERS, "Cache-Control": "no-store"}, "text/plain")
    return HTTPResponse(
        picture.content, 200, {**_PICTURE_HEADERS, **_CACHE_FOREVER, "ETag": tag}, content_type=picture.content_type
    )


async def show_icon(request: Request, name: str) -> HTTPResponse:
    """Serve an icon of a social network; the status is 404 if there is no such icon."""
    content = _load_icons().get(name)
    if content is None:
        return HTTPResponse("Not found.", 404, {**_PICTURE_HEADERS, "Cache-Control": "no-store"}, "text/plain")
    return HTTPResponse(content, 200, {**_PICTURE_HEADERS, **_CACHE_WEEK}, content_type="image/png")


@cache
def _load_icons() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in shipped.find(social.ICONS).iterdir() if path.name.endswith(".png")}


def _require_open_post(request: Request, is_open: bool) -> None:
    """Raise NotFound if the webhook is not enabled (`is_open`), and MethodNotAllowed for methods other than POST."""
    if not is_open:
        raise NotFound
    if request.method != "POST":
        raise MethodNotAllowed("only POST", request.method, ["POST"])


async def receive_email_webhook(request: Request, name: str) -> HTTPResponse:
    """Receive reports from an email provider, or from an SMS provider that has only one webhook.

    Raises NotFound if the webhook is not enabled, MethodNotAllowed unless the method is POST, NotAllowed for a forged
    request, Invalid for a malformed body, PayloadTooLarge for too many values, Unavailable if the reports cannot be
    stored now, and MessageInFlight if a report arrived before its message was recorded as sent. For an SMS provider it
    raises the errors of `_receive_sms_webhook`.
    """
    if providers.find_sms_provider(name) is not None:
        return await _receive_sms_webhook(request, name)
    _require_open_post(request, providers.is_enabled(name))
    body = request.body
    if validation.has_too_many_values(body):
        raise PayloadTooLarge("the request has too many values")
    payload = await providers.read_request(
        name, HookRequest({key.lower(): value for key, value in request.headers.items()}, body)
    )
    # Store all reports that can be stored now. The error response makes the provider repeat the request for the other
    # reports; reports that are stored already do not count twice.
    waiting = [await commit(_record_reports, name, part, body) for part in providers.split_payload(payload)]
    for error in filter(None, waiting):
        raise error
    return json({"received": len(payload.reports) + len(payload.opt_outs)})


def _record_reports(name: str, payload: HookPayload, body: bytes) -> MessageInFlight | None:
    written = providers.write_payload(name, payload, body)
    for opt_out in written.opt_outs:
        unsubscribes.opt_out(crypto.sign_token(links.UNSUBSCRIBE, opt_out.message_id), name, None, None)
    return written.in_flight


async def receive_provider_webhook(request: Request, provider: str, name: str) -> HTTPResponse:
    """Receive reports from an SMS provider that has several webhooks, each with its own `name`."""
    return await _receive_sms_webhook(request, f"{provider}/{name}")


async def _receive_sms_webhook(request: Request, hook: str) -> HTTPResponse:
    """Receive reports and incoming SMS from an SMS provider, and store all of a request in one transaction.

    Raises NotFound if the webhook is not enabled, MethodNotAllowed unless the method is POST, PayloadTooLarge, and the
    errors of `read_sms_hook`.
    """
    _require_open_post(request, providers.is_sms_hook_enabled(hook))
    if len(request.body) > _MAX_SMS_BODY_BYTES:
        raise PayloadTooLarge(f"at most {_MAX_SMS_BODY_BYTES} bytes")
    # The signature covers the public URL with the path and query as received. The Host header is ignored, because the
    # base URL is configured.
    target = request.raw_url.decode("latin-1")
    headers = {key.lower(): value for key, value in request.headers.items()}
    provider, contents = providers.read_sms_hook(
        hook, sms.HookRequest(config.base_url(config.current()) + target, headers, bytes(request.body))
    )
    await commit(_record_sms_reports, provider, contents)
    return HTTPResponse(contents.reply, 200, content_type=contents.media)


def _record_sms_reports(provider: str, contents: sms.HookContents) -> None:
    delivery_reports.apply_receipts(provider, contents.receipts)
    for message in contents.incoming:
        incoming_sms.receive_sms(provider, message)


_READ_METHODS, _ALL_METHODS = ("GET", "HEAD"), ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_WEBHOOK_PREFIX = "/hooks/"


async def _serve_css(request: Request) -> HTTPResponse:
    body = shipped.find("appliance", "public", "html", "public.css").read_bytes()
    return HTTPResponse(body, 200, {"Cache-Control": "max-age=3600"}, content_type="text/css; charset=utf-8")


async def _serve_robots(request: Request) -> HTTPResponse:
    return HTTPResponse("User-agent: *\nDisallow: /\n", content_type="text/plain; charset=utf-8")


# A function that returns the id of the account to which an object belongs, by the parameter of the path, or None if
# there is no such object.
FindOwner = Callable[[str], int | None]


def has_no_owner(_: str) -> int | None:
    """Return None: the marker for routes that are the same for all accounts, and for tracked links.

    The account of a tracked link is checked where the link is looked up.
    """
    return None


def _find_owner(sql: str, key: str | int | None) -> int | None:
    owner_id: int | None = scalar(sql, (key,))
    return owner_id


def _find_message_owner(purpose: str, token: str) -> int | None:
    return _find_owner("SELECT account_id FROM message WHERE id = ?", crypto.read_token(purpose, token))


def _find_confirmation_owner(token: str) -> int | None:
    return _find_owner("SELECT account_id FROM confirmation WHERE id = ?", crypto.read_token(links.CONFIRM, token))


def _find_form_owner(public_key: str) -> int | None:
    return _find_owner("SELECT account_id FROM form WHERE public_key = ?", public_key)


def _find_picture_owner(signed_id: str) -> int | None:
    return _find_owner("SELECT account_id FROM media WHERE signed_id = ?", signed_id)


# How to find the owner of the object in the path, for each route that is served at the public address of an account
# (`http/account_hosts.py`). A route that is not in this table is not served there.
_OWNERS: dict[str, FindOwner] = {
    "/u/<token:str>": partial(_find_message_owner, links.UNSUBSCRIBE),
    "/p/<token:str>": partial(_find_message_owner, links.PREFERENCES),
    "/v/<token:str>": partial(_find_message_owner, links.VIEW),
    "/d/<token:str>": _find_confirmation_owner,
    "/f/<token:str>": _find_form_owner,
    "/c/<token:str>": has_no_owner,
    "/o/<token:str>": has_no_owner,
    f"{media.URL_PATH}{media.ICONS_DIRECTORY}/<name:str>": has_no_owner,
    f"{media.URL_PATH}<signed_id:str>": _find_picture_owner,
    "/public.css": has_no_owner,
    "/robots.txt": has_no_owner,
}
# The path, methods and handler of each route. The webhook handlers check the method themselves, so that a request with
# any method to an unknown webhook gets 404.
_ROUTES = (
    ("/u/<token:str>", _READ_METHODS, pages.show_unsubscribe),
    ("/u/<token:str>", ("POST",), pages.submit_unsubscribe),
    ("/p/<token:str>", _READ_METHODS, pages.show_preferences),
    ("/p/<token:str>", ("POST",), pages.submit_preferences),
    ("/d/<token:str>", _READ_METHODS, pages.show_confirmation),
    ("/d/<token:str>", ("POST",), pages.submit_confirmation),
    ("/f/<token:str>", _READ_METHODS, forms.show_form),
    ("/f/<token:str>", ("POST",), forms.submit_form),
    ("/v/<token:str>", _READ_METHODS, pages.show_message),
    ("/c/<token:str>", _READ_METHODS, clicks.follow_link),
    ("/o/<token:str>", _READ_METHODS, clicks.serve_pixel),
    (f"{media.URL_PATH}{media.ICONS_DIRECTORY}/<name:str>", _READ_METHODS, show_icon),
    (f"{media.URL_PATH}<signed_id:str>", _READ_METHODS, show_picture),
    ("/public.css", _READ_METHODS, _serve_css),
    ("/robots.txt", _READ_METHODS, _serve_robots),
    (f"{_WEBHOOK_PREFIX}<name:str>", _ALL_METHODS, receive_email_webhook),
    (f"{_WEBHOOK_PREFIX}<provider:str>/<name:str>", _ALL_METHODS, receive_provider_webhook),
)
_PATH_PREFIXES = ("/u/", "/p/", "/d/", "/f/", "/v/", "/c/", "/o/", media.URL_PATH, "/public.css", "/robots.txt")


def owns_path(path: str) -> bool:
    """Return whether a path belongs to the pages for recipients, so that its errors are HTML pages."""
    # `path` has no trailing slash, and the prefixes have one.
    return f"{path}/".startswith(_PATH_PREFIXES)


def owns_webhook_path(path: str) -> bool:
    """Return whether a path belongs to webhooks of providers, so that its errors are JSON."""
    return f"{path}/".startswith(_WEBHOOK_PREFIX)


def mount(app: "Sanic[Any, Any]") -> None:
    """Add the routes for recipients and providers to the server."""
    app.ctx.hit_recorder = None
    blueprint = Blueprint("public")
    for path, methods, handler in _ROUTES:
        name = f"{handler.__module__.rpartition('.')[2]}_{handler.__name__}"
        blueprint.add_route(handler, path, methods, name=name, error_format="text", ctx_find_owner=_OWNERS.get(path))
    submission_path = FORM_SUBMISSION_PATH.replace("{public_key}", "<public_key:str>")
    for form_handler, method in ((forms.submit_form_as_api, "POST"), (forms.allow_form_submission, "OPTIONS")):
        blueprint.add_route(
            form_handler, submission_path, [method], error_format="json", ctx_find_owner=_find_form_owner
        )
    app.blueprint(blueprint)
    app.after_server_stop(_close_recorder)


def error_page(status: int) -> HTTPResponse:
    """Return the HTML page for an error: from status 500 the page "unavailable", else the page "not found".

    The status is 404, except for a form with an invalid boundary (400) or one that is too large (413).
    """
    if status >= 500:
        return pages.unavailable_page()
    return pages.not_found_page(status if status in (400, 413) else 404)


async def _close_recorder(app: "Sanic[Any, Any]") -> None:
    if app.ctx.hit_recorder is not None:
        app.ctx.hit_recorder.close()
