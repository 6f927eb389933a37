"""Static files, held in memory and served under a digest of all of them, so that browsers may keep them for a year."""

import gzip
import hashlib
import io
import mimetypes
import re
import secrets
from functools import cache
from typing import Any, NamedTuple

from sanic import Request, Sanic
from sanic.response import HTTPResponse

from appliance.core import assets

# What a browser does not need of a sheet: comments, indentation, and the spaces around what ends a rule or a value.
_SPARE = ((re.compile(r"/\*.*?\*/", re.DOTALL), ""), (re.compile(r"\s+"), " "), (re.compile(r" ?([{};,]) ?"), r"\1"),
          (re.compile(r"(?<=[\w-]): (?=[^{}]*[;}])"), ":"), (re.compile(r";}"), "}"))  # fmt: skip
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

# Shorter than a packet, a page gains nothing
_WORTH_PACKING = 1400


class File(NamedTuple):
    """One file as it is sent."""

    kind: str
    plain: bytes


@cache
def shipped() -> tuple[str, dict[str, File]]:
    """Return the digest over all static files, and the files by their path."""
    root = assets.path("static")
    found: dict[str, File] = {}
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        name, content = path.relative_to(root).as_posix(), path.read_bytes()
        if path.suffix == ".css":
            content = compact(content.decode()).encode()
        digest.update(name.encode() + b"\0" + content)
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        found[name] = File(kind, content)
    return digest.hexdigest()[:12], found


def compact(sheet: str) -> str:
    """Return a style sheet of ours without what only people read; strings in it must not hold several spaces."""
    for pattern, instead in _SPARE:
        sheet = pattern.sub(instead, sheet)
    return sheet.strip()


def url(name: str) -> str:
    """Return the address of a static file; a name that is not shipped is a bug and raises."""
    digest, found = shipped()
    if name not in found:
        raise KeyError(f"no static file {name}")
    return f"/static/{digest}/{name}"


def pack(request: Request, response: HTTPResponse) -> None:
    """Send a page in a tenth of its bytes to a browser that unpacks it.

    A name of random length stands in the header, so that the length of a page does not tell what it says beside the
    words of its address.
    """
    page = response.body or b""
    if not (response.content_type or "").startswith("text/html") or len(page) < _WORTH_PACKING:
        return
    asked = [response.headers.get("vary"), "accept-encoding"]
    response.headers["vary"] = ", ".join(one for one in asked if one)
    if _unpacks(request) and "content-encoding" not in response.headers:
        held = io.BytesIO()
        with gzip.GzipFile("x" * secrets.randbelow(100), "wb", 4, held, mtime=0) as packing:
            packing.write(page)
        response.body = held.getvalue()
        response.headers["content-encoding"] = "gzip"


def _unpacks(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


# Once somebody asks: the largest is for one page, and the first visit of any waits for all of them
@cache
def _packed(file: File) -> bytes:
    return gzip.compress(file.plain, mtime=0)


def owns(path: str) -> bool:
    """Return whether a path is one of these files, without which no page looks right."""
    return path.startswith("/static/")


def mount(app: Sanic[Any, Any]) -> None:
    """Serve the static files of this build."""
    app.add_route(_serve, "/static/<digest:str>/<name:path>", name="static_files", error_format="text")


async def _serve(request: Request, digest: str, name: str) -> HTTPResponse:
    current, found = shipped()
    file = found.get(name)
    if file is None:
        return HTTPResponse("Not found", 404, {"x-content-type-options": "nosniff"}, "text/plain")
    # A page opened before an update asks under the old digest: it gets the present file, and must not keep it.
    kept = "public, max-age=31536000, immutable" if digest == current else "no-cache"
    headers = {"cache-control": kept, "x-content-type-options": "nosniff", "vary": "accept-encoding"}
    if _unpacks(request):
        headers["content-encoding"] = "gzip"
        return HTTPResponse(_packed(file), 200, headers, file.kind)
    return HTTPResponse(file.plain, 200, headers, file.kind)
