"""Who is looking: the cookie of a browser, joined to the session it stands for."""

from contextlib import suppress
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance.accounts import roles, sessions
from appliance.accounts.acting import By
from appliance.core.errors import Unavailable
from appliance.sending.messages import status_line
from appliance.settings import config
from appliance.storage.work import call, commit

_YEAR = 365 * 86400
THEMES = ("system", "light", "dark")


class Visit:
    """One request of one person: the session, the user, the account and how the page should look."""

    def __init__(self, request: Request, session: Any) -> None:
        self.request = request
        self.session = session
        self.user = session.user
        self.account = session.user.account
        self.account_id: int = self.account.id
        self.actor = f"user:{self.user.id}"
        role = self.user.role
        self.by = By(
            self.actor, request.ctx.client, self.user.id, roles.approves(role), sends=roles.starts(role)
        )  # fmt: skip
        self.zone = zone(self.account.time_zone)
        self.queue = status_line.Glance("idle")


def zone(name: str | None) -> ZoneInfo:
    """Return the time zone of that name, or UTC if this machine does not know it."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def is_secure(request: Request) -> bool:
    """Return whether people reach us over https."""
    return config.is_https(request.app.ctx.config)


def cookie_name(request: Request) -> str:
    """Return the session cookie's name; over https the browser itself guards the `__Host-` prefix."""
    return "__Host-campanero" if is_secure(request) else "campanero"


async def visit(request: Request) -> Visit | None:
    """Return who is signed in on this request, or None."""
    token = request.cookies.get(cookie_name(request))
    if not token:
        return None
    session, queue = await call(_find, token, request.headers.get("hx-request") != "true")
    if session is None:
        return None
    if sessions.needs_touch(session):
        # Who only looks is served although nothing can be written
        with suppress(Unavailable):
            await commit(sessions.touch, session.id)
    found = Visit(request, session)
    found.queue = queue or found.queue
    return found


def _find(token: str, whole: bool) -> tuple[Any, status_line.Glance | None]:
    """Return a session, and for a whole page how sending stands, which is at its edge."""
    session = sessions.find(token)
    return session, status_line.of(session.user.account_id) if whole and session is not None else None


async def begin(request: Request, response: HTTPResponse, user_id: int) -> None:
    """Sign a person in: a fresh session in every case, and the one this browser had before is ended."""
    old = request.cookies.get(cookie_name(request))
    if old:
        await commit(sessions.end, old)
    token = await commit(sessions.begin, user_id, request.ctx.client, request.headers.get("user-agent"))
    response.add_cookie(
        cookie_name(request), token, path="/", httponly=True, samesite="Lax", secure=is_secure(request), max_age=None
    )


async def end(request: Request, response: HTTPResponse) -> None:
    """Sign this browser out; the token is worthless afterwards."""
    token = request.cookies.get(cookie_name(request))
    if token:
        await commit(sessions.end, token)
    # A __Host- cookie is only accepted, even to expire it, with Secure and path /.
    response.add_cookie(
        cookie_name(request), "", path="/", httponly=True, samesite="Lax", secure=is_secure(request), max_age=0
    )


def theme(request: Request) -> str:
    """Return `light` or `dark` if this browser chose one, else an empty text (as the system says)."""
    chosen = request.cookies.get("theme") or ""
    return chosen if chosen in ("light", "dark") else ""


def keys_on(request: Request) -> bool:
    """Return whether keyboard shortcuts of one key are on in this browser (WCAG 2.1.4)."""
    return request.cookies.get("keys") != "off"


def keep(request: Request, response: HTTPResponse, name: str, chosen: str) -> None:
    """Remember a choice of looks in this browser, so that the server can draw the page by it from the first byte."""
    response.add_cookie(name, chosen, path="/", httponly=True, samesite="Lax", secure=is_secure(request), max_age=_YEAR)


# The blueprint of pages.


class Pages(Blueprint):
    """Routes of one noun.

    What their errors look like is said here once: Sanic would parse the source of every handler to find that out, a
    fifth of a second of each start, and `guard` draws them anyway.
    """

    def route(self, uri: str, *args: Any, error_format: str | None = None, **options: Any) -> Any:
        """Declare a route, as `Blueprint.route` does."""
        return super().route(uri, *args, error_format=error_format or "html", **options)
