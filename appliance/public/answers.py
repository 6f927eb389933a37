"""How a page for recipients is answered: in the account's look and language, with nothing fetched from elsewhere."""

import re
import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from sanic import HTTPResponse, Request

from appliance.audience.contacts.consent import Evidence
from appliance.content import media
from appliance.content.designs.theme import SANS
from appliance.core import assets
from appliance.tracking import words
from appliance.tracking.account_look import Face

_POLICY = (
    "default-src 'none'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; form-action 'self'{leads}; "
    "base-uri 'none'; frame-ancestors {frames}"
)
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_TAG = re.compile(r"<[^<>]+>")


@cache
def environment() -> Environment:
    """Return the one template environment of recipients' pages."""
    made = Environment(
        loader=assets.template_loader("appliance/public/html"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.globals["MEDIA"] = media.PATH
    return made


def page(
    name: str, face: Face | None, status: int = 200, /, language: str = "en", leads: str = "", frames: str = "'none'",
    **values: Any,
) -> HTTPResponse:  # fmt: skip
    """Return a page; without a face it is plain, in the language given.

    `leads` is where its form may lead in the end, `frames` whose pages may show it.
    """
    nonce = secrets.token_urlsafe(16)
    language = face.language if face is not None else language
    body = environment().get_template(name).render(
        face=face, language=language, say=sayer(language), look=_look(face), nonce=nonce, **values
    )  # fmt: skip
    policy = _POLICY.format(nonce=nonce, leads=leads and f" {leads}", frames=frames)
    headers = {**HEADERS, "Content-Security-Policy": policy}
    return HTTPResponse(body, status, headers, content_type="text/html; charset=utf-8")


def sayer(language: str) -> Any:
    """Return a function that says a phrase, with what is filled in escaped."""
    said = words.of(language)

    def say(phrase: str, **values: Any) -> Markup:
        return Markup(said[phrase]).format(**values)  # noqa: S704 - phrases of ours; what is filled in is escaped

    return say


def _look(face: Face | None) -> Markup:
    """Return the colours of a brand as rules; each is `#rrggbb`, and a font is one of known letters."""
    if face is None:
        return Markup("")
    pairs = {
        "paper": "page", "sheet": "card", "ink": "text", "quiet": "muted", "line": "line", "accent": "brand",
        "accent-ink": "on_brand", "link": "link",
    }  # fmt: skip
    rules = [
        f"--{name}:light-dark({getattr(face.light, key)},{getattr(face.dark, key)})" for name, key in pairs.items()
    ]
    font = "" if face.font == SANS else f";--font:{face.font}"
    return Markup(f":root{{{';'.join(rules)}{font}}}")  # noqa: S704 - nothing else can stand in a palette


def shown(language: str, *phrases: str, **values: Any) -> str:
    """Return what a page said, as plain text, for the evidence of what was agreed to."""
    said = words.of(language)
    return " ".join(_TAG.sub("", said[phrase]).format(**values) for phrase in phrases)


def evidence(request: Request, source: str, text: str | None) -> Evidence:
    """Return how an act on a page came about."""
    return Evidence(source, "recipient", request.ctx.client, request.headers.get("user-agent"), text)


def language_of(request: Request) -> str:
    """Return the first language that a browser asks for and we have words in."""
    asked = (request.headers.get("accept-language") or "").partition(",")[0].partition(";")[0]
    return words.language(asked.strip()[:20] or "en")


def form(request: Request) -> Mapping[str, list[str]]:
    """Return what was posted as a form; anything else is an empty one."""
    posted = request.form
    return {name: posted.getlist(name) for name in posted} if posted else {}


def lost(status: int = 404, language: str = "en") -> HTTPResponse:
    """Return a link that is not ours: one page for every kind of wrong."""
    return page("note.html", None, status, language, heading="lost_heading", lead="lost_lead")


def unavailable(language: str = "en") -> HTTPResponse:
    """Say that nothing was done and that trying again helps; never a false `done`."""
    answer = page("note.html", None, 503, language, heading="later_heading", lead="later_lead")
    answer.headers["Retry-After"] = "5"
    return answer
