"""Oneself over the API: whoever signed in for a JWT (docs/decisions.md#5)."""

import asyncio
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.account import attempts, passwords, team
from appliance.account.roles import SELF
from appliance.account.team import Password
from appliance.api import people_shapes as shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import of_sound
from appliance.db.work import call, commit
from appliance.errors import Faults, Invalid
from appliance.fields import Name
from appliance.tables import User

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
    return Answer(shapes.user(await call(team.get, request.account_id, _own_id(request))))


async def _inside(request: Call) -> dict[str, list[str]]:
    user = await call(team.get, request.account_id, _own_id(request))
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
    user = await call(team.get, request.account_id, _own_id(request))
    hashed = await _hashed(user, asked)

    def verb() -> User:
        found = user
        if isinstance(asked.name, str):
            found = team.rename(user.id, asked.name, request.by.ip)
        if hashed is not None:
            found = team.choose_password(user.id, hashed, 0, request.by.ip)
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
        with attempts.attempt(name) as one:
            if not await passwords.check(user.password_hash, asked.current_password):
                one.wrong()
                faults.add("current_password", "is not the present one")
        if not one.is_wrong:
            attempts.succeeded(name)
    faults.check()
