"""Endpoints of the signed-in user's passkeys: list, rename, remove.

A passkey can be added only on the profile page: the browser creates it, and signs the address of the page that it shows
(docs/decisions.md#36).
"""

from typing import Annotated, cast

from msgspec import Meta, Struct

from appliance.accounts import login, passkey_login, passkeys, passwords, users
from appliance.accounts.access import SELF_SCOPE
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes
from appliance.api.http import page_headers
from appliance.api.schemas import Moment
from appliance.api.team import get_own_id, is_own_password
from appliance.core.clock import iso
from appliance.core.errors import Invalid
from appliance.core.validation import PageQuery
from appliance.storage import models
from appliance.storage.transactions import commit, fetch

ROUTES = Routes()
_PATH = "/user/passkeys/{id}"


class Passkey(Struct):
    """A passkey of the signed-in user."""

    id: int
    name: Annotated[str, Meta(description="name that the user gave the passkey")]
    host: Annotated[str, Meta(description="host name that the passkey was created for; it works nowhere else")]
    synced: Annotated[bool, Meta(description="whether its provider may copy it to other devices of the user")]
    last_used_at: Annotated[Moment, Meta(description="when the user last signed in with it; null for never")] | None
    created_at: Annotated[Moment, Meta(description="when it was added")]


class PasskeyPatch(Struct):
    """The name of a passkey."""

    name: Annotated[
        str,
        Meta(max_length=passkeys.MAX_NAME_CHARACTERS, extra={"line": True, "filled": True}),
        Meta(description="name of the passkey"),
    ]


class PasskeyRemoval(Struct):
    """The password of the signed-in user, which a removal needs."""

    current_password: Annotated[
        str, Meta(max_length=passwords.MAX_CHARACTERS), Meta(description="current password of the signed-in user")
    ]


@ROUTES.add("GET", "/user/passkeys", scope=SELF_SCOPE, query_type=PageQuery, response_type=Passkey, returns_list=True)
async def list_own_passkeys(request: ApiRequest) -> ApiResponse:
    """List passkeys of the signed-in user, newest first. They are added on the profile page."""
    page = await fetch(passkeys.fetch_page, get_own_id(request), request.query)
    return ApiResponse([_serialize(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("PATCH", _PATH, scope=SELF_SCOPE, body_type=PasskeyPatch, response_type=Passkey)
async def rename_own_passkey(request: ApiRequest) -> ApiResponse:
    """Rename a passkey of the signed-in user."""
    name = cast(PasskeyPatch, request.body).name
    return ApiResponse(_serialize(await commit(passkeys.rename, get_own_id(request), request.id, name, request.caller)))


@ROUTES.add("DELETE", _PATH, scope=SELF_SCOPE, body_type=PasskeyRemoval, response_type=Passkey)
async def remove_own_passkey(request: ApiRequest) -> ApiResponse:
    """Remove a passkey of the signed-in user. All other sessions end, because it may have begun some of them."""
    passkey = await fetch(passkeys.get, get_own_id(request), request.id)
    user = await _verify_password(request)

    def write() -> None:
        login.require_unchanged(user)
        passkey_login.remove(user.id, passkey.id, request.credential.session_id, request.caller)

    try:
        await commit(write)
    except login.InvalidCredentials:
        # The password was changed by another request after it was verified.
        raise Invalid({"current_password": ["is incorrect"]}) from None
    return ApiResponse(_serialize(passkey))


async def _verify_password(request: ApiRequest) -> models.User:
    """Return the signed-in user, who sent the right password; raises Invalid or RateLimitExceeded."""
    user = await fetch(users.get, request.account_id, get_own_id(request))
    if not await is_own_password(user, cast(PasskeyRemoval, request.body).current_password):
        raise Invalid({"current_password": ["is incorrect"]})
    return user


def _serialize(row: models.Passkey) -> Passkey:
    return Passkey(row.id, row.name, row.host, row.is_synced, iso(row.last_used_at), str(iso(row.created_at)))
