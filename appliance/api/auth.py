"""Who asks: the credential of a request, and whether it reaches what is asked for (docs/decisions.md#2)."""

from contextlib import suppress

from sanic import Request

from appliance.accounts import jwt, keys, roles, sessions
from appliance.accounts.keys import Credential
from appliance.api.declare import Route
from appliance.api.reply import Fault
from appliance.core.errors import Unavailable
from appliance.storage.work import commit, glance

# No credential of ours is longer
_MAX_CHARACTERS = 4096


# What no key may do: the least role that may, and who that is
_PEOPLE = {
    roles.RULE: ("admin", "Only the sign-in of an owner or admin may do this."),
    roles.SELF: ("viewer", "Only the sign-in of a person may do this; an API key may not."),
}


async def credential(request: Request) -> Credential:
    """Return who asks: by a key, or by a JWT. Every kind of failure is the same 401."""
    header = request.headers.getall("authorization", [])
    scheme, _, token = header[0].partition(" ") if len(header) == 1 else ("", "", "")
    found, is_stale = None, False
    if scheme.lower() == "bearer" and token and len(token) <= _MAX_CHARACTERS:
        found, is_stale = glance(_find, token.strip())
    if found is None:
        if scheme.lower() == "bearer" and token.strip().startswith(keys.PUBLIC):
            raise Fault(403, "forbidden", "a public key opens only its form")
        raise Fault(401, "unauthorized", headers={"WWW-Authenticate": "Bearer"})
    if is_stale and found.session_id is not None:
        # Who only reads is served although nothing can be written
        with suppress(Unavailable):
            await commit(sessions.touch, found.session_id)
    return found


def _find(token: str) -> tuple[Credential | None, bool]:
    """Return who a credential belongs to, and whether its time of last use wants to be written."""
    key = keys.find(token)
    if key is not None or token.count(".") != 2:
        return key, False
    found = jwt.find(token)
    return (found.credential, found.is_stale) if found is not None else (None, False)


def allow(who: Credential, route: Route) -> None:
    """Raise 403 unless the credential reaches the route's scope."""
    if not who.reaches(route.scope):
        if route.scope in _PEOPLE:
            role, words = _PEOPLE[route.scope]
            raise Fault(403, "forbidden", words, required_role=role)
        raise lacking(who, route.scope)
    if route.starts and who.role is not None and not roles.starts(who.role):
        raise lacking(who, "campaigns:send")


def require(who: Credential, scope: str) -> None:
    """Raise 403 unless a credential reaches a scope that a part of what it asks for needs."""
    if not who.reaches(scope):
        raise lacking(who, scope)


def lacking(who: Credential, scope: str) -> Fault:
    """Return the refusal of a credential that lacks a scope."""
    whose = "This API key" if who.role is None else f"The role {who.role}"
    return Fault(403, "forbidden", f"{whose} does not have the {scope} scope.", required_scope=scope)
