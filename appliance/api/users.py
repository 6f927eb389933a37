"""The people of a team over the API: for its owners and admins, signed in themselves (docs/decisions.md#2)."""

import asyncio

from msgspec import UNSET

from appliance.account import passwords, second_factor, team, users
from appliance.account.roles import RULE
from appliance.account.team import UserPatch, UserQuery, UserWrite
from appliance.api import people_shapes as shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked, of_sound
from appliance.api.reply import page_headers
from appliance.db.work import call, commit
from appliance.errors import Invalid
from appliance.tables import User

ROUTES = Routes()
_ONE = "/users/{id}"


@ROUTES.add("GET", "/users", scope=RULE, query=UserQuery, returns=shapes.User, many=True)
async def index(request: Call) -> Answer:
    """List the people who sign in, newest first."""
    page = await call(team.page, request.account_id, request.query)
    return Answer([shapes.user(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("POST", "/users", scope=RULE, reads=UserWrite, returns=shapes.UserWithPassword, status=201,
            inside=checked(team.check_new))  # fmt: skip
async def create(request: Call) -> Answer:
    """Add somebody; without `password` one is made, and this answer alone shows it.

    An address signs in to one account of an installation, so one that anybody has is taken.
    """
    asked: UserWrite = request.body
    await call(team.check_new, request.account_id, asked)
    sent = asked.password if isinstance(asked.password, str) else None
    secret = team.password() if sent is None else sent
    name = asked.name if isinstance(asked.name, str) else None
    new = await asyncio.to_thread(users.prepare, asked.email, secret, name)
    made = await commit(team.add, request.by, new, asked.role)
    return Answer(shapes.with_password(made, secret if sent is None else None))


@ROUTES.add("GET", _ONE, scope=RULE, returns=shapes.User)
async def show(request: Call) -> Answer:
    """Get a person."""
    return Answer(shapes.user(await call(team.get, request.account_id, request.id)))


async def _inside(request: Call) -> dict[str, list[str]]:
    try:
        await call(team.check, request.by, request.id, request.body)
    except Invalid as refused:
        assert request.read is not None  # faults are of something that was read
        return of_sound(request.read, refused)
    return {}


@ROUTES.add("PATCH", _ONE, scope=RULE, reads=UserPatch, returns=shapes.User, inside=_inside)
async def update(request: Call) -> Answer:
    """Update a person; with `disabled`, a new password or no second factor any more, every sign-in of theirs ends."""
    asked: UserPatch = request.body
    await call(team.check, request.by, request.id, asked)
    hashed = None
    if isinstance(asked.password, str):
        hashed = await asyncio.to_thread(passwords.make, asked.password)

    def verb() -> User:
        found = team.update(request.by, request.id, asked, hashed)
        return found if asked.otp is UNSET else second_factor.take_away(request.by, request.id)

    return Answer(shapes.user(await commit(verb)))


@ROUTES.add("DELETE", _ONE, scope=RULE, returns=shapes.User)
async def delete(request: Call) -> Answer:
    """Let a person sign in no more; they are kept, for the audit names them, and may be let in again.

    Keys that they made belong to the account and keep working; `created_by` of `/api_keys` says which those are.
    """
    return Answer(shapes.user(await commit(team.close, request.by, request.id)))
