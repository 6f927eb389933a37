"""What recipients' doors answer with: the friendly pages, and the headers of all that a signed link opens."""

from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sanic import HTTPResponse

from appliance import assets

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@cache
def _pages() -> Environment:
    return Environment(
        loader=FileSystemLoader(assets.path("appliance", "public", "html")), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def page(name: str, status: int = 200, **values: Any) -> HTTPResponse:
    """Answer one of the pages for people who follow a link of ours."""
    body = _pages().get_template(name).render(**values)
    return HTTPResponse(
        body, status, {**HEADERS, "Content-Security-Policy": _POLICY}, content_type="text/html; charset=utf-8"
    )


def lost() -> HTTPResponse:
    """Answer a link that is not ours: one page for every kind of wrong."""
    return page("lost.html", 404)


def unavailable() -> HTTPResponse:
    """Say that nothing was done and that trying again helps; never a false `done`."""
    answer = page("later.html", 503)
    answer.headers["Retry-After"] = "5"
    return answer
