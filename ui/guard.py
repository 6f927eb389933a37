"""What stands before every page: sign-in, the origin check, the page policy, and refusals turned into pages."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import media
from appliance.core import errors
from appliance.settings import config
from ui import files, held, session, view
from ui.forms import Form, local_path
from ui.rights import SAFE, may

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A mail is shown by src= under its own policy: its styles and pictures work, nothing in it runs, and its links open
# in a window of their own.
_MAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src https: data: {}; font-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
# None of a page that sent its answer itself, piece by piece
Handler = Callable[..., Awaitable[HTTPResponse | None]]


def mail_policy() -> str:
    """Return the policy of a mail within a page: its pictures come over https, or are uploads of ours."""
    place = urlsplit(config.base_url(config.current()))
    return _MAIL_POLICY.format(f"{place.scheme}://{place.netloc}{media.PATH}")


def is_foreign(request: Request) -> bool:
    """Return whether an unsafe request did not come from a page of ours, by what only the browser can say of it."""
    if request.method in SAFE:
        return False
    site = request.headers.get("sec-fetch-site")
    if site:
        return bool(site != "same-origin")
    origin = request.headers.get("origin")
    if not origin:
        return True
    # An opaque origin is written "null" and has no host: it is nobody's, ours least of all.
    host = _parts(origin).netloc
    return not host or host not in (request.host, urlsplit(config.base_url(request.app.ctx.config)).netloc)


def _parts(url: str) -> SplitResult:
    """Return the parts of an address that anybody may have written; what is none has none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("/")


def referer(request: Request) -> str:
    """Return the page that a write came from, as an address here: under which name it is reached only browsers know."""
    current = _parts(request.headers.get("referer") or "/")
    return current.path + (f"?{current.query}" if current.query else "")


async def refuse_foreign(request: Request) -> HTTPResponse | None:
    """Return 403 to a write that another site started."""
    if is_foreign(request):
        return problem(request, 403, "foreign")
    return None


async def add_headers(request: Request, response: HTTPResponse) -> None:
    """Give a page its policy, where it did not bring its own, and pack it."""
    for name, value in _ALWAYS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("content-security-policy", PAGE_POLICY)
    files.pack(request, response)


def problem(request: Request, status: int, kind: str, **words: Any) -> HTTPResponse:
    """Return a friendly page for something that did not work."""
    again = local_path(_here(request)) if status == 503 and request.method in SAFE else ""
    context = {"kind": kind, "visit": getattr(request.ctx, "visit", None), "again": again, **words}
    if context["visit"] and view.is_part(request) and (request.method not in SAFE or kind == "stopping"):
        return view.over(request, "trouble.html", status, **context)
    response = view.whole(request, "problem.html", status, **context)
    if view.is_part(request):
        # The part that was asked for is not there to be replaced: the page's content is.
        response.headers.update({"hx-retarget": "#main", "hx-reselect": "#main", "hx-reswap": "outerHTML"})
    return response


async def fault(request: Request, error: Exception) -> HTTPResponse:
    """Return a page for what no page caught: an unknown address, a body too large, a bug."""
    status = int(getattr(error, "status_code", None) or 500)
    known = {404: "not_found", 405: "not_found", 413: "too_large", 503: "unavailable"}
    kind = known.get(status, "broken" if status >= 500 else "unclear")
    return await _outside(request, status, kind, most=request.app.config.REQUEST_MAX_SIZE)


async def stopping(request: Request) -> HTTPResponse:
    """Return a page while the service ends and takes nothing new."""
    response = await _outside(request, 503, "stopping")
    response.headers["retry-after"] = "5"
    return response


async def _outside(request: Request, status: int, kind: str, **words: Any) -> HTTPResponse:
    """Return a problem where no page was asked."""
    try:
        request.ctx.visit = await session.visit(request)
    except errors.Unavailable:
        request.ctx.visit = None
    response = problem(request, status, kind, **words)
    await add_headers(request, response)
    return response


def open_page(function: Handler) -> Handler:
    """Mark a page that needs no sign-in; refusals become pages."""

    @wraps(function)
    async def wrapped(request: Request, *args: Any, **kwargs: Any) -> HTTPResponse | None:
        request.ctx.visit = None
        return await _answer(request, function(request, *args, **kwargs))

    return wrapped


def signed_in(function: Handler) -> Handler:
    """Mark a page for people who are signed in; others go to sign-in and come back here afterwards."""

    @wraps(function)
    async def wrapped(request: Request, *args: Any, **kwargs: Any) -> HTTPResponse | None:
        request.ctx.visit = await session.visit(request)
        if request.ctx.visit is None:
            return _to_sign_in(request)
        if not may(request.ctx.visit.user.role, request.method, request.path):
            return problem(request, 403, "not_allowed", detail="")
        if any(type(one) is int and one >> 63 for one in kwargs.values()):
            # A number that no id can be
            return problem(request, 404, "not_found")
        return await _answer(request, function(request, request.ctx.visit, *args, **kwargs))

    return wrapped


def _here(request: Request) -> str:
    return request.path + (f"?{request.query_string}" if request.query_string else "")


def _to_sign_in(request: Request) -> HTTPResponse:
    """Who was signed out in the middle of something signs in over the page; a form comes back afterwards, as typed."""
    if view.is_part(request):
        return view.over(request, "login/again.html", 401, form=Form())
    back = _here(request)
    if request.method not in SAFE:
        back = referer(request)
        if typed := held.of(request):
            form = Form({"typed": typed, "path": request.path})
            return view.whole(
                request, "login/login.html", 401, form=form, next=local_path(back), bye=False, chosen=False,
                is_new=False,
            )  # fmt: skip
    where = "/login" if back in ("/", "/login", "/logout") else f"/login?next={quote(back)}"
    return view.go(request, where)


async def _answer(request: Request, answer: Awaitable[HTTPResponse | None]) -> HTTPResponse | None:
    try:
        return await answer
    except errors.NotFound:
        return problem(request, 404, "not_found")
    except errors.NotAllowed as refused:
        return problem(request, 403, "not_allowed", detail=refused.message)
    except errors.TooMany as refused:
        return problem(request, 429, "too_many", seconds=refused.retry_after)
    except errors.Invalid as refused:
        # Pages with a form catch this themselves and show it at the field; what comes here is a rule that says no.
        return problem(request, 422, "refused", detail=refused.message)
    except errors.Conflict as refused:
        return problem(request, 409, "refused", detail=refused.message)
    except errors.Unavailable:
        return problem(request, 503, "unavailable")
