"""Serves the pictures of mails: to everybody who has the address, for ever, as a picture and nothing else."""

from sanic import HTTPResponse, Request

from appliance import media
from appliance.db.work import call

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    # Webmail shows it from its own pages
    "Cross-Origin-Resource-Policy": "cross-origin",
    "X-Robots-Tag": "noindex",
}
# What is behind a name never changes
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


async def show(request: Request, signed_id: str) -> HTTPResponse:
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
