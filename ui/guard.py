"""Wrappers of page handlers: sign-in, scopes, origin check, security headers, error pages, and double submits."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, limits
from appliance.core import errors, i18n
from appliance.core.i18n import gettext
from appliance.settings import config
from appliance.storage import masking
from appliance.storage.transactions import fetch
from ui import formats, other_accounts, session, static_files, view
from ui.forms import Form, safe_path
from ui.session import Visit

# A form that is sent after the session ended is kept in a field of the sign-in page; the server does not store it.

# Form fields with one of these words in their name are not kept.
_SECRET_NAMES = ("password", "secret", "token")
_DECODER = msgspec.json.Decoder(list[tuple[str, str]])


def dump_form(request: Request) -> str:
    """Return the fields of a posted form as JSON, without fields for secrets; an empty string if no fields remain."""
    posted: dict[str, list[str]] = dict(request.get_form(keep_blank_values=True) or {})
    fields = [
        (name, value)
        for name, values in posted.items()
        if not any(word in name for word in _SECRET_NAMES)
        for value in values
    ]
    return msgspec.json.encode(fields).decode() if fields else ""


def load_fields(text: str) -> list[tuple[str, str]]:
    """Return the (name, value) pairs of a form from `dump_form`, or an empty list if the text is invalid."""
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return []


PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The policy of an email in a frame: styles and images work, scripts do not run, and links open in a new window.
_PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# A handler returns None if it has streamed its response itself.
Handler = Callable[..., Awaitable[HTTPResponse | None]]


def is_cross_origin(request: Request) -> bool:
    """Return whether a write came from another site, judged by headers that a script in a page cannot set.

    A write without these headers counts as cross-origin; reads never do.
    """
    if request.method in SAFE_METHODS:
        return False
    site = request.headers.get("sec-fetch-site")
    if site:
        return bool(site != "same-origin")
    origin = request.headers.get("origin")
    if not origin:
        return True
    # The header of an opaque origin is "null", which has no host and so is never accepted.
    host = _split_url(origin).netloc
    return not host or host not in (request.host, urlsplit(config.base_url(request.app.ctx.config)).netloc)


def _split_url(url: str) -> SplitResult:
    """Return the parts of a URL from a header, or the parts of `/` if it is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("/")


def referring_path(request: Request) -> str:
    """Return the path and query of the page that a write came from.

    The host is ignored, since the service may be reached by many names.
    """
    current = _split_url(request.headers.get("referer") or "/")
    return current.path + (f"?{current.query}" if current.query else "")


async def reject_cross_origin(request: Request) -> HTTPResponse | None:
    """Return the error page with status 403 for a write from another site, else None."""
    if is_cross_origin(request):
        return render_problem(request, 403, "foreign")
    return None


async def add_headers(request: Request, response: HTTPResponse) -> None:
    """Set the security headers that a response does not have yet, and compress a page."""
    for name, value in _PAGE_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("content-security-policy", PAGE_POLICY)
    static_files.compress_response(request, response)


def render_problem(request: Request, status: int, kind: str, **words: Any) -> HTTPResponse:
    """Return an error page; `kind` selects its text in `problem.html`, `words` are further values of the template.

    For a partial request, a write gets a dialog instead, so that the page keeps what the user typed; so does a read
    that can be repeated at once.
    """
    again = safe_path(_request_path(request)) if status == 503 and request.method in SAFE_METHODS else ""
    context = {"kind": kind, "visit": getattr(request.ctx, "visit", None), "again": again, "intended": None, **words}
    keeps_page = request.method not in SAFE_METHODS or kind in ("stopping", "too_many")
    if context["visit"] and view.is_partial(request) and keeps_page:
        return view.render_dialog(request, "trouble.html", status, **context)
    response = view.render_whole(request, "problem.html", status, **context)
    if view.is_partial(request):
        # The requested part may be missing from the page, so the main content is replaced.
        response.headers.update({"hx-retarget": "#main", "hx-reselect": "#main", "hx-reswap": "outerHTML"})
    return response


async def handle_exception(request: Request, error: Exception) -> HTTPResponse:
    """Return an error page for an exception that no handler caught, such as an unknown path, a large body, or a bug."""
    status = 503 if isinstance(error, errors.Unavailable) else int(getattr(error, "status_code", None) or 500)
    names = {404: "not_found", 405: "not_found", 413: "too_large", 503: "unavailable"}
    kind = names.get(status, "broken" if status >= 500 else "unclear")
    return await _render_outside_page(request, status, kind, most=request.app.config.REQUEST_MAX_SIZE)


async def render_stopping(request: Request) -> HTTPResponse:
    """Return the error page for requests during shutdown, with `Retry-After`."""
    response = await _render_outside_page(request, 503, "stopping")
    response.headers["retry-after"] = "5"
    return response


async def _render_outside_page(request: Request, status: int, kind: str, **words: Any) -> HTTPResponse:
    """Return an error page for a request that no page handler served, with the navigation if the user is signed in."""
    with i18n.use_language(session.browser_language(request)):
        try:
            request.ctx.visit = await session.load_visit(request)
        except errors.Unavailable:
            request.ctx.visit = None
        response = render_problem(request, status, kind, **words)
    await add_headers(request, response)
    return response


def public_page(function: Handler) -> Handler:
    """Wrap the handler of a page that needs no sign-in, so that errors are rendered as pages."""

    @wraps(function)
    async def wrapped(request: Request, *args: Any, **kwargs: Any) -> HTTPResponse | None:
        request.ctx.visit = None
        with i18n.use_language(session.browser_language(request)):
            return await _handle_errors(request, function(request, *args, **kwargs))

    return wrapped


def signed_in(needs: str | None = None, any_account: bool = False) -> Callable[[Handler], Handler]:
    """Wrap the handler of a page that needs a signed-in user; other visitors are sent to the sign-in page first.

    `needs` is the scope that the role must have (`appliance/accounts/access.py`); None lets every role open the page.
    A write with `any_account` is about no account, so the account that is open does not matter.
    """

    def mark(function: Handler) -> Handler:
        async def serve(request: Request, *args: Any, **kwargs: Any) -> HTTPResponse | None:
            request.ctx.visit = await session.load_visit(request)
            if request.ctx.visit is None:
                return _redirect_to_login(request)
            if request.method not in SAFE_METHODS and not any_account:
                is_wrong, intended = other_accounts.find_wrong_account(
                    request, request.ctx.visit, needs == access.SELF_SCOPE
                )
                if is_wrong:
                    return render_problem(request, 409, "other_account", intended=intended, back=_page_path(request))
            if needs is not None and not request.ctx.visit.can(needs):
                return render_problem(request, 403, "not_allowed", detail="")
            if any(type(value) is int and value >> 63 for value in kwargs.values()):
                # The database has no id of more than 63 bits.
                return render_problem(request, 404, "not_found")
            with masking.masked(request.ctx.visit.rights.is_masked):
                return await function(request, request.ctx.visit, *args, **kwargs)

        @wraps(function)
        async def wrapped(request: Request, *args: Any, **kwargs: Any) -> HTTPResponse | None:
            request.ctx.visit = None
            with i18n.use_language(session.browser_language(request)):
                response = await _handle_errors(request, serve(request, *args, **kwargs))
                return await _offer_other_account(request, response)

        wrapped.needs = needs  # type: ignore[attr-defined]  # read by `Visit.can_open` and by the tests of roles
        return wrapped

    return mark


async def _offer_other_account(request: Request, response: HTTPResponse | None) -> HTTPResponse | None:
    """Return the response, or a page that offers to open another account of the user.

    That page replaces a response with the status 404 if the requested page exists in the other account.
    """
    visit = request.ctx.visit
    if response is None or response.status != 404 or request.method not in SAFE_METHODS or visit is None:
        return response
    if not visit.has_several_accounts:
        return response
    owner = await fetch(other_accounts.find_account_of_page, visit, request.path)
    if owner is None:
        return response
    return render_problem(request, 404, "elsewhere", intended=owner, back=safe_path(_request_path(request)))


def _page_path(request: Request) -> str:
    """Return the path of the page that a form came from."""
    return safe_path(referring_path(request))


def _request_path(request: Request) -> str:
    return request.path + (f"?{request.query_string}" if request.query_string else "")


def _redirect_to_login(request: Request) -> HTTPResponse:
    """Redirect to the sign-in page.

    A partial request gets its dialog instead (401). A posted form gets the page itself (401), which keeps the form and
    offers to send it again.
    """
    if view.is_partial(request):
        return view.render_dialog(request, "login/again.html", 401, form=Form({"email": session.last_email(request)}))
    back = _request_path(request)
    if request.method not in SAFE_METHODS:
        back = referring_path(request)
        if typed := dump_form(request):
            form = Form({"typed": typed, "path": request.path, "email": session.last_email(request)})
            return view.render_whole(
                request, "login/login.html", 401, form=form, next=safe_path(back), is_signed_out=False, chosen=False,
                is_new=False, providers=(), left_provider=None,
            )  # fmt: skip
    where = "/login" if back in ("/", "/login", "/logout") else f"/login?next={quote(back)}"
    return view.redirect(request, where)


async def _handle_errors(request: Request, answer: Awaitable[HTTPResponse | None]) -> HTTPResponse | None:
    try:
        return await answer
    except errors.NotFound:
        return render_problem(request, 404, "not_found")
    except errors.NotAllowed as error:
        return render_problem(request, 403, "not_allowed", detail=error.message)
    except errors.RateLimitExceeded as error:
        if error.extra.get("reason") == limits.ERROR_CODE:
            return render_problem(request, 429, "refused", detail=error.message)
        return render_problem(request, 429, "too_many", seconds=error.retry_after)
    except errors.Invalid as error:
        # Handlers with a form show field errors themselves; only errors without a form arrive here.
        return render_problem(request, 422, "refused", detail=_describe_refusal(error))
    except errors.Conflict as error:
        return render_problem(request, 409, "refused", detail=error.message)
    except errors.Unavailable:
        return render_problem(request, 503, "unavailable")


def _describe_refusal(error: errors.Invalid) -> str:
    """Return why a request without a form is refused; for an object in use, the names of what uses it."""
    names = [str(user["name"]) for user in error.extra.get("used_by", ()) if "name" in user]
    return gettext("In use by: %(names)s.", names=formats.join_names(names)) if names else error.message


# An identical submission within this time after the first one is taken for a double click.
_SAME_SUBMIT_SECONDS = 3.0
_MAX_SUBMISSIONS = 500
FormHandler = Callable[..., Awaitable[HTTPResponse]]


class _Submission:
    """A submitted form: the lock held while its handler runs, the URL it redirected to, and the time it finished.

    The time is from `time.monotonic`.
    """

    def __init__(self) -> None:
        self.lock, self.redirect_url, self.finished_at = asyncio.Lock(), "", 0.0


_submissions: "OrderedDict[tuple[int, str, bytes], _Submission]" = OrderedDict()


def ignore_double_submit(function: FormHandler) -> FormHandler:
    """Run the handler of a form once for identical submissions within `_SAME_SUBMIT_SECONDS`.

    Further submissions wait for the first one and follow its redirect. If it did not redirect, they run the handler.
    """

    @wraps(function)
    async def wrapped(request: Request, visit: Visit, *args: Any, **kwargs: Any) -> HTTPResponse:
        key = (visit.session.id, request.path, hashlib.sha256(request.body).digest())
        submission = _submissions.setdefault(key, _Submission())
        _submissions.move_to_end(key)
        while len(_submissions) > _MAX_SUBMISSIONS:
            _submissions.popitem(last=False)
        async with submission.lock:
            if submission.redirect_url and time.monotonic() - submission.finished_at < _SAME_SUBMIT_SECONDS:
                return view.redirect(request, submission.redirect_url)
            response = await function(request, visit, *args, **kwargs)
            submission.redirect_url = str(response.headers.get("location") or response.headers.get("hx-redirect") or "")
            submission.finished_at = time.monotonic()
            return response

    return wrapped
