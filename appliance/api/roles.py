"""Endpoints of roles and invitations, for signed-in owners and admins (docs/decisions.md#34)."""

from collections.abc import Callable
from typing import Annotated, Literal, cast

from msgspec import Meta, Struct

from appliance.accounts import invitations, roles
from appliance.accounts.access import ADMIN_SCOPE
from appliance.accounts.roles import ContactData, RolePatch, RoleRemoval, RoleWrite
from appliance.accounts.users import Role as RoleText
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Moment
from appliance.core.clock import iso
from appliance.core.errors import Conflict
from appliance.core.i18n import gettext
from appliance.core.validation import EmailText, PageQuery
from appliance.forms import store
from appliance.sending.messages import system_emails
from appliance.storage import models
from appliance.storage.transactions import commit, fetch

ROUTES = Routes()


class Role(Struct):
    """A role of the account's own. The built-in roles are owner, admin, editor, author and viewer."""

    id: int
    account_id: int
    name: Annotated[str, Meta(description="name of the role, unique in the account regardless of case")]
    scopes: Annotated[list[str], Meta(description="scopes of the role, sorted")]
    contact_data: ContactData
    user_count: Annotated[int, Meta(description="users, enabled and disabled, with the role")]
    created_at: Moment
    updated_at: Moment


def _serialize_role(account_id: int, row: models.Role) -> Role:
    use = roles.find_use(account_id, str(row.id))
    return Role(
        row.id, row.account_id, row.name, sorted(row.scopes), cast(ContactData, row.contact_data), len(use.users),
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


@ROUTES.add("GET", "/roles", scope=ADMIN_SCOPE, query_type=PageQuery, response_type=Role, returns_list=True)
async def list_roles(request: ApiRequest) -> ApiResponse:
    """List the own roles of the account, newest first."""
    page = await fetch(roles.fetch_page, request.account_id, request.query)
    return ApiResponse(
        await fetch(lambda: [_serialize_role(request.account_id, row) for row in page.rows]), headers=page_headers(page)
    )


@ROUTES.add(
    "POST", "/roles", scope=ADMIN_SCOPE, body_type=RoleWrite, response_type=Role, status=201,
    validate=validator(roles.validate),
)  # fmt: skip
async def create_role(request: ApiRequest) -> ApiResponse:
    """Create a role. It never includes managing users, API keys and roles, which only owners and admins do.

    With masked contact data, or without `contacts:read`, a role can read, and write drafts of campaigns, templates and
    flows, but neither change or export contacts nor send.
    """
    row = await commit(roles.create, request.caller, request.body)
    return ApiResponse(await fetch(_serialize_role, request.account_id, row))


@ROUTES.add("GET", "/roles/{id}", scope=ADMIN_SCOPE, response_type=Role)
async def get_role(request: ApiRequest) -> ApiResponse:
    """Get a role."""
    row = await fetch(roles.get, request.account_id, request.id)
    return ApiResponse(await fetch(_serialize_role, request.account_id, row))


@ROUTES.add(
    "PATCH", "/roles/{id}", scope=ADMIN_SCOPE, body_type=RolePatch, response_type=Role,
    validate=validator(roles.validate),
)  # fmt: skip
async def update_role(request: ApiRequest) -> ApiResponse:
    """Update a role. The change applies at once to signed-in users, and to the apps that they connected."""
    row = await commit(roles.update, request.caller, request.id, request.body)
    return ApiResponse(await fetch(_serialize_role, request.account_id, row))


@ROUTES.add("DELETE", "/roles/{id}", scope=ADMIN_SCOPE, query_type=RoleRemoval, response_type=Role)
async def delete_role(request: ApiRequest) -> ApiResponse:
    """Delete a role. A role in use needs a `replacement`, which its users and invitations get."""
    row = await fetch(roles.get, request.account_id, request.id)
    response = await fetch(_serialize_role, request.account_id, row)
    given = request.query.replacement
    await commit(roles.delete, request.caller, request.id, given if isinstance(given, str) else None)
    return ApiResponse(response)


class InvitationWrite(Struct):
    """The fields of a new invitation."""

    email: Annotated[EmailText, Meta(description="email address to invite")]
    role: Annotated[RoleText, Meta(description="built-in role, or the id or name of an own role")]
    days: Annotated[
        int, Meta(ge=1, le=invitations.MAX_VALID_DAYS), Meta(description="for how many days the link is valid")
    ] = invitations.VALID_DAYS


class Invitation(Struct):
    """An invitation to the account that was not accepted yet. Its link is never in a response."""

    id: int
    account_id: int
    email: Annotated[str, Meta(description="invited email address, in lower case")]
    role: Annotated[RoleText, Meta(description="built-in role, or the id of an own role")]
    state: Annotated[
        Literal["pending", "expired"],
        Meta(description="`expired` if the link is no longer valid, because of its age or because the sender left"),
    ]
    invited_by: Annotated[int, Meta(description="id of the user who sent it last")]
    sent_at: Annotated[Moment, Meta(description="when it was sent last")]
    expires_at: Annotated[Moment, Meta(description="until when its link is valid")]
    created_at: Moment


def _serialize_invitation(row: models.Invitation) -> Invitation:
    state = "pending" if invitations.is_valid(row) else "expired"
    return Invitation(
        row.id, row.account_id, row.email, row.role, cast(Literal["pending", "expired"], state), row.invited_by_id,
        str(iso(row.sent_at)), str(iso(row.expires_at)), str(iso(row.created_at)),
    )  # fmt: skip


@ROUTES.add(
    "GET", "/invitations", scope=ADMIN_SCOPE, query_type=PageQuery, response_type=Invitation, returns_list=True
)  # fmt: skip
async def list_invitations(request: ApiRequest) -> ApiResponse:
    """List open and expired invitations, newest first. An accepted invitation is a user."""
    page = await fetch(invitations.fetch_page, request.account_id, request.query)
    return ApiResponse(
        await fetch(lambda: [_serialize_invitation(row) for row in page.rows]), headers=page_headers(page)
    )


def _check_invitation(account_id: int, body: InvitationWrite, _: int | None = None) -> None:
    """Raise Invalid with the errors of the valid fields of an invitation."""
    email = body.email.strip().lower() if isinstance(body.email, str) else ""
    invitations.validate(account_id, email, body.role if isinstance(body.role, str) else "")


@ROUTES.add(
    "POST", "/invitations", scope=ADMIN_SCOPE, body_type=InvitationWrite, response_type=Invitation, status=201,
    validate=validator(_check_invitation), has_conflicts=True,
)  # fmt: skip
async def create_invitation(request: ApiRequest) -> ApiResponse:
    """Invite an email address. An older invitation of the address is replaced, and its link stops working.

    While the account cannot send email, the response is 409: the link of an invitation is never in a response.
    """
    body: InvitationWrite = request.body
    return await _send(request, lambda: invitations.invite(request.caller, body.email, body.role, body.days))


@ROUTES.add(
    "POST", "/invitations/{id}/resend", scope=ADMIN_SCOPE, response_type=Invitation, has_conflicts=True
)  # fmt: skip
async def resend_invitation(request: ApiRequest) -> ApiResponse:
    """Send an invitation again, with a new link that is valid as long as the last one. The old link stops working."""
    return await _send(request, lambda: invitations.renew(request.caller, request.id))


async def _send(request: ApiRequest, prepare: Callable[[], models.Invitation]) -> ApiResponse:
    """Write an invitation and queue its email; raises Conflict, and writes nothing, if it could not be delivered."""
    store.check_rate(f"invite:{request.account_id}", invitations.MAX_SENT_PER_HOUR, store.HOUR_MS)

    def write() -> models.Invitation:
        row = prepare()
        if not system_emails.send_invitation(row):
            raise Conflict(
                gettext("This account cannot send email yet. Invite on the page Team, which shows the link.")
            )
        return row

    return ApiResponse(await fetch(_serialize_invitation, await commit(write)))


@ROUTES.add("DELETE", "/invitations/{id}", scope=ADMIN_SCOPE, response_type=Invitation)
async def revoke_invitation(request: ApiRequest) -> ApiResponse:
    """Revoke an invitation. Its link stops working."""
    row = await commit(invitations.revoke, request.caller, request.id)
    return ApiResponse(await fetch(_serialize_invitation, row))
