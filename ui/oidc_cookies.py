"""The sealed cookies of a sign-in with OpenID Connect: the request that was begun, and the person who came back."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts.oidc import flow
from ui import session

BEGUN, PENDING = "oidc", "oidc-person"


def _cookie_name(request: Request, name: str) -> str:
    return f"{session.cookie_name(request)}-{name}"


def set_cookie(request: Request, response: HTTPResponse, name: str, value: str) -> None:
    """Set a cookie for the time that a sign-in may take; an empty value deletes it.

    It is sent when the browser comes back from the provider, which `SameSite=Strict` would prevent.
    """
    response.add_cookie(
        _cookie_name(request, name), value, path="/", httponly=True, samesite="Lax", secure=session.is_secure(request),
        max_age=int(flow.MAX_SECONDS) if value else 0,
    )  # fmt: skip


def read_cookie(request: Request, name: str) -> str:
    """Return the value of a cookie, or an empty string."""
    return request.cookies.get(_cookie_name(request, name)) or ""
