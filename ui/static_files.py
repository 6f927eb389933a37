"""Serve static files from memory under a digest of all files, so that browsers may cache them for a year."""

import gzip
import hashlib
import io
import json
import mimetypes
import re
import secrets
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

from sanic import Request, Sanic
from sanic.response import HTTPResponse

from appliance.core import i18n, shipped

# Replacements that shorten a style sheet: comments, indentation, and spaces around punctuation are removed.
_CSS_REPLACEMENTS = ((re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL), ""), (re.compile(r"\s+"), " "),
    (re.compile(r" ?([{};,]) ?"), r"\1"),
          (re.compile(r"(?<=[\w-]): (?=[^{}]*[;}])"), ":"), (re.compile(r";}"), "}"))  # fmt: skip
_CONTENT_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
    ".webp": "image/webp"}  # fmt: skip

# Compressing a page that fits into one packet gains nothing.
_MIN_COMPRESS_BYTES = 1400


class StaticFile(NamedTuple):
    """The content type and the bytes of a static file."""

    kind: str
    plain: bytes


@cache
def load_all() -> tuple[str, dict[str, StaticFile]]:
    """Return the digest of all static files, and the files by their path below `static`; style sheets are minified."""
    files: dict[str, StaticFile] = {}
    digest = hashlib.sha256()
    for name, file in shipped.list_files(shipped.find("static")):
        content = file.read_bytes()
        if name.endswith(".css"):
            content = minify_css(content.decode()).encode()
        digest.update(name.encode() + b"\0" + content)
        kind = _CONTENT_TYPES.get(PurePath(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        files[name] = StaticFile(kind, content)
    return digest.hexdigest()[:12], files


def minify_css(sheet: str) -> str:
    """Return a style sheet without comments and unneeded spaces.

    Its strings must not contain comments or several spaces in a row.
    """
    for pattern, instead in _CSS_REPLACEMENTS:
        sheet = pattern.sub(instead, sheet)
    return sheet.strip()


def url(name: str) -> str:
    """Return the URL of a static file; raises KeyError for an unknown name."""
    digest, files = load_all()
    if name not in files:
        raise KeyError(f"no static file {name}")
    return f"/static/{digest}/{name}"


def has(name: str) -> bool:
    """Return whether there is a static file with this path below `static`."""
    return name in load_all()[1]


def read(name: str) -> bytes:
    """Return the content of a static file; raises KeyError for an unknown name."""
    return load_all()[1][name].plain


# A text of a script: the first argument of the function `t` of static/js/ui.js.
_SCRIPT_TEXT = re.compile(r"""\bt\("((?:[^"\\]|\\.)*)\"""")


@cache
def list_script_texts() -> tuple[str, ...]:
    """Return the English texts that scripts show."""
    scripts = (file.plain.decode() for name, file in load_all()[1].items() if name.startswith("js/"))
    return tuple(sorted({json.loads(f'"{text}"') for script in scripts for text in _SCRIPT_TEXT.findall(script)}))


def script_texts() -> dict[str, str]:
    """Return the texts of the scripts in the language of the request, by their English text; empty for English."""
    if i18n.get_language() == i18n.DEFAULT_LANGUAGE:
        return {}
    return {text: i18n.translate(text) for text in list_script_texts()}


def compress_response(request: Request, response: HTTPResponse) -> None:
    """Compress an HTML response of at least `_MIN_COMPRESS_BYTES` with gzip if the browser accepts it.

    The gzip header contains a name of random length, so that the length of a page does not reveal its content (BREACH).
    """
    page = response.body or b""
    if not (response.content_type or "").startswith("text/html") or len(page) < _MIN_COMPRESS_BYTES:
        return
    params = [response.headers.get("vary"), "accept-encoding"]
    response.headers["vary"] = ", ".join(item for item in params if item)
    if _accepts_gzip(request) and "content-encoding" not in response.headers:
        compressed = io.BytesIO()
        with gzip.GzipFile("x" * secrets.randbelow(100), "wb", 4, compressed, mtime=0) as packing:
            packing.write(page)
        response.body = compressed.getvalue()
        response.headers["content-encoding"] = "gzip"


def _accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


# A file is compressed on its first request, since the largest one is used by a single page.
@cache
def _compress(file: StaticFile) -> bytes:
    return gzip.compress(file.plain, mtime=0)


def is_static_path(path: str) -> bool:
    """Return whether a path belongs to a static file; such paths are served during shutdown too."""
    return path.startswith("/static/")


def mount(app: Sanic[Any, Any]) -> None:
    """Add the route of the static files to an app."""
    app.add_route(_serve, "/static/<digest:str>/<name:path>", ["GET", "HEAD"], name="static_files", error_format="text")


async def _serve(request: Request, digest: str, name: str) -> HTTPResponse:
    current, files = load_all()
    file = files.get(name)
    if file is None:
        return HTTPResponse("Not found", 404, {"x-content-type-options": "nosniff"}, "text/plain")
    # A page that was opened before an update requests the old digest: the browser gets the current file and must not
    # cache it.
    stored = "public, max-age=31536000, immutable" if digest == current else "no-cache"
    headers = {"cache-control": stored, "x-content-type-options": "nosniff", "vary": "accept-encoding"}
    if _accepts_gzip(request) and file.kind != "image/webp":
        headers["content-encoding"] = "gzip"
        return HTTPResponse(_compress(file), 200, headers, file.kind)
    return HTTPResponse(file.plain, 200, headers, file.kind)
