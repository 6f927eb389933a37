"""The people of a team over the API: for its owners and admins, signed in themselves (docs/decisions.md#2)."""

import asyncio

from msgspec import UNSET

from appliance.accounts import keys, passwords, second_factor, users
from appliance.accounts.keys import KeyWrite
from appliance.accounts.roles import RULE
from appliance.accounts.users import UserPatch, UserQuery, UserWrite
from appliance.api import people_shapes as shapes
from appliance.api.declare import Answer, Call, Routes, checked, of_sound
from appliance.api.reply import page_headers
from appliance.core.errors import Invalid
from appliance.core.fields import PageQuery
from appliance.storage.models import User
from appliance.storage.work import call, commit

ROUTES = Routes()
_ONE = "/users/{id}"


@ROUTES.add("GET", "/users", scope=RULE, query=UserQuery, returns=shapes.User, many=True)
async def index(request: Call) -> Answer:
    """List the people who sign in, newest first."""
    page = await call(users.page, request.account_id, request.query)
    return Answer([shapes.user(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("POST", "/users", scope=RULE, reads=UserWrite, returns=shapes.UserWithPassword, status=201,
            inside=checked(users.check_new))  # fmt: skip
async def create(request: Call) -> Answer:
    """Add somebody; without `password` one is made, and this answer alone shows it.

    An address signs in to one account of an installation, so one that anybody has is taken.
    """
    asked: UserWrite = request.body
    await call(users.check_new, request.account_id, asked)
    sent = asked.password if isinstance(asked.password, str) else None
    secret = users.password() if sent is None else sent
    name = asked.name if isinstance(asked.name, str) else None
    new = await asyncio.to_thread(users.prepare, asked.email, secret, name)
    made = await commit(users.add_member, request.by, new, asked.role)
    return Answer(shapes.with_password(made, secret if sent is None else None))


@ROUTES.add("GET", _ONE, scope=RULE, returns=shapes.User)
async def show(request: Call) -> Answer:
    """Get a person."""
    return Answer(shapes.user(await call(users.get, request.account_id, request.id)))


async def _inside(request: Call) -> dict[str, list[str]]:
    try:
        await call(users.check, request.by, request.id, request.body)
    except Invalid as refused:
        assert request.read is not None  # faults are of something that was read
        return of_sound(request.read, refused)
    return {}


@ROUTES.add("PATCH", _ONE, scope=RULE, reads=UserPatch, returns=shapes.User, inside=_inside)
async def update(request: Call) -> Answer:
    """Update a person; with `disabled`, a new password or no second factor any more, every sign-in of theirs ends."""
    asked: UserPatch = request.body
    await call(users.check, request.by, request.id, asked)
    hashed = None
    if isinstance(asked.password, str):
        hashed = await asyncio.to_thread(passwords.make, asked.password)

    def verb() -> User:
        found = users.update(request.by, request.id, asked, hashed)
        return found if asked.otp is UNSET else second_factor.take_away(request.by, request.id)

    return Answer(shapes.user(await commit(verb)))


@ROUTES.add("DELETE", _ONE, scope=RULE, returns=shapes.User)
async def delete(request: Call) -> Answer:
    """Let a person sign in no more; they are kept, for the audit names them, and may be let in again.

    Keys that they made belong to the account and keep working; `created_by` of `/api_keys` says which those are.
    """
    return Answer(shapes.user(await commit(users.close, request.by, request.id)))


# Keys over the API: for owners and admins who signed in; no key makes or ends a key (docs/decisions.md#2).


@ROUTES.add("GET", "/api_keys", scope=RULE, query=PageQuery, returns=shapes.ApiKey, many=True)
async def index_keys(request: Call) -> Answer:
    """List the keys that open something, newest first."""
    page = await call(keys.page, request.account_id, request.query)
    return Answer([shapes.key(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/api_keys", scope=RULE, reads=KeyWrite, returns=shapes.ApiKeyWithSecret, status=201,
    inside=checked(keys.check),
)  # fmt: skip
async def create_key(request: Call) -> Answer:
    """Create a key; the answer alone shows it."""
    made, secret = await commit(keys.make, request.account_id, request.body, request.by)
    return Answer(shapes.with_secret(made, secret))


@ROUTES.add("DELETE", "/api_keys/{id}", scope=RULE, returns=shapes.ApiKey)
async def delete_key(request: Call) -> Answer:
    """Revoke a key; it opens nothing from the next request on."""
    return Answer(shapes.key(await commit(keys.revoke, request.account_id, request.id, request.by)))
