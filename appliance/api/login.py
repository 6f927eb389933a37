"""Where people get a JWT for a program of theirs, and end it (docs/decisions.md#2)."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from sanic import HTTPResponse, Request

from appliance.accounts import jwt, roles, sessions, signing_in
from appliance.api import auth, read, reply, shapes
from appliance.api.reply import Fault
from appliance.core import fields
from appliance.core.clock import iso
from appliance.core.errors import NotFound
from appliance.storage.work import commit

Role = Annotated[str, Meta(extra_json_schema={"enum": list(roles.ROLES)})]


# An address, a password and a code; whoever sends more has not signed in yet
_MAX_BYTES = 65_536


class Login(Struct):
    """Who signs in: all three stand at the top, or within `user`."""

    email: Annotated[str, Meta(max_length=254, extra={"filled": True})]
    password: Annotated[str, Meta(max_length=1024, extra={"filled": True})]
    otp: Annotated[str, Meta(max_length=64)] | None = None


class LoginOfUser(Struct):
    """The same, within `user`."""

    user: Login


class SignedInUser(Struct):
    """Whoever a token was made for."""

    id: int
    email: str
    name: str
    role: Role


class SignedIn(Struct):
    """A JWT, shown once; it also stands in the header `Authorization`."""

    token: str
    expires_at: shapes.Moment
    user: SignedInUser


async def enter(request: Request) -> HTTPResponse:
    """Return a JWT for who signs in."""
    if len(request.body) > _MAX_BYTES:
        raise Fault(413, "payload_too_large")
    asked = _asked(read.json_object(request, request.body))
    try:
        user = await signing_in.enter(asked.email, asked.password, asked.otp, request.ctx.client)
    except (signing_in.WrongSignIn, signing_in.CodeNeeded) as refused:
        raise Fault(401, refused.code, refused.message, {"WWW-Authenticate": "Bearer"}) from None
    agent = request.headers.get("user-agent")
    issued = await commit(jwt.issue, user, request.ctx.client, agent)
    who = SignedInUser(user.id, user.email, user.name, user.role)
    answer = SignedIn(issued.token, iso(issued.expires_at) or "", who)
    return reply.json(answer, 200, {"Authorization": f"Bearer {issued.token}", "Cache-Control": "no-store"})


def _asked(raw: dict[str, Any]) -> Login:
    """Read who signs in; raises Invalid with all faults."""
    if "user" in raw:
        return fields.read(LoginOfUser, raw).user
    return fields.read(Login, raw)


async def leave(request: Request) -> HTTPResponse:
    """End the sign-in whose JWT is shown."""
    who = await auth.credential(request)
    if who.session_id is None or who.user_id is None:
        raise Fault(403, "forbidden", "API keys have no session; revoke the key instead.", required_role="viewer")
    try:
        await commit(_end, who.user_id, who.session_id)
    except NotFound:
        # Somebody ended it a moment ago
        raise Fault(401, "unauthorized", headers={"WWW-Authenticate": "Bearer"}) from None
    return HTTPResponse(b"", 204)


def _end(user_id: int, session_id: int) -> None:
    sessions.leave(sessions.get(user_id, session_id))
