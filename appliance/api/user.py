"""Oneself over the API: whoever signed in for a JWT (docs/decisions.md#5)."""

import asyncio
from typing import Annotated, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import passwords, rate_limits, sessions, users
from appliance.accounts.roles import SELF
from appliance.accounts.users import Password
from appliance.api import people_shapes as shapes
from appliance.api import reply
from appliance.api.declare import Answer, Call, Routes, of_sound
from appliance.api.shapes import Moment
from appliance.core.clock import iso
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import Name, PageQuery
from appliance.storage import models
from appliance.storage.models import User
from appliance.storage.work import call, commit

ROUTES = Routes()


class OwnPatch(Struct):
    """What people change about themselves; a new `password` needs the present one with it."""

    name: Name | UnsetType = UNSET
    password: Password | UnsetType = UNSET
    current_password: Annotated[str, Meta(max_length=passwords.MAX_CHARACTERS)] | UnsetType = UNSET


def _own_id(request: Call) -> int:
    """Return who asks; only a person comes here."""
    assert request.credential.user_id is not None
    return request.credential.user_id


@ROUTES.add("GET", "/user", scope=SELF, returns=shapes.User)
async def show(request: Call) -> Answer:
    """Get whoever is signed in."""
    return Answer(shapes.user(await call(users.get, request.account_id, _own_id(request))))


async def _inside(request: Call) -> dict[str, list[str]]:
    user = await call(users.get, request.account_id, _own_id(request))
    try:
        await _check_password(user, request.body)
    except Invalid as refused:
        assert request.read is not None  # faults are of something that was read
        return of_sound(request.read, refused)
    return {}


@ROUTES.add("PATCH", "/user", scope=SELF, reads=OwnPatch, returns=shapes.User, inside=_inside)
async def update(request: Call) -> Answer:
    """Update oneself; a new password ends every sign-in of one's own, this one too."""
    asked: OwnPatch = request.body
    user = await call(users.get, request.account_id, _own_id(request))
    hashed = await _hashed(user, asked)

    def verb() -> User:
        found = user
        if isinstance(asked.name, str):
            found = users.rename(user.id, asked.name, request.by.ip)
        if hashed is not None:
            found = users.choose_password(user.id, hashed, 0, request.by.ip)
        return found

    return Answer(shapes.user(await commit(verb)))


async def _hashed(user: User, asked: OwnPatch) -> str | None:
    """Return the new password as it is stored, None if there is none; raises as `_check_password`."""
    await _check_password(user, asked)
    return await asyncio.to_thread(passwords.make, asked.password) if isinstance(asked.password, str) else None


async def _check_password(user: User, asked: OwnPatch) -> None:
    """Raise Invalid with all that is wrong with a new password and its proof, and TooMany for who guesses."""
    if not isinstance(asked.password, str):
        return
    faults = Faults()
    try:
        passwords.check_length(asked.password)
    except Invalid as refused:
        faults.merge(refused.fields)
    if not isinstance(asked.current_password, str):
        faults.add("current_password", "can't be blank")
    else:
        name = f"own:{user.id}"
        with rate_limits.attempt(name) as one:
            if not await passwords.check(user.password_hash, asked.current_password):
                one.wrong()
                faults.add("current_password", "is not the present one")
        if not one.is_wrong:
            rate_limits.succeeded(name)
    faults.check()


# Where somebody is signed in, over the API: their browsers, and the programs that hold a JWT of theirs.


class SignIn(Struct):
    """A sign-in that holds."""

    id: int
    kind: Literal["browser", "token"]
    current: bool
    ip: str | None
    user_agent: str | None
    last_seen_at: Moment
    expires_at: Moment
    created_at: Moment


@ROUTES.add("GET", "/user/sessions", scope=SELF, returns=SignIn, many=True, query=PageQuery)
async def index_sessions(request: Call) -> Answer:
    """List where one is signed in, the newest first."""
    page = await call(sessions.page, _session_id(request), request.query)
    rows = [_shape(row, request) for row in page.rows]
    return Answer(rows, headers=reply.page_headers(page))


@ROUTES.add("DELETE", "/user/sessions/{id}", scope=SELF, returns=SignIn)
async def close_session(request: Call) -> Answer:
    """End one of one's own sign-ins; its cookie or token opens nothing any more."""
    return Answer(_shape(await commit(sessions.close, _session_id(request), request.id, request.by), request))


def _session_id(request: Call) -> int:
    """Return who asks; only a person comes here."""
    assert request.credential.user_id is not None
    return request.credential.user_id


def _shape(row: models.Session, request: Call) -> SignIn:
    kind = cast(Literal["browser", "token"], row.kind)
    return SignIn(
        row.id, kind, row.id == request.credential.session_id, row.ip, row.user_agent,
        iso(row.last_seen_at) or "", iso(row.expires_at) or "", iso(row.created_at) or "",
    )  # fmt: skip
