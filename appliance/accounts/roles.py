"""The own roles of an account: named sets of scopes, which owners and admins give to users (docs/decisions.md#34).

The scopes are those of `access.py`, and what a role allows is read with each request: a change reaches signed-in users
and the apps that they connected at once. The built-in roles cannot be changed.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import access, audit, members, users
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Faults, Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import PageQuery
from appliance.storage.database import Page, normalize_name, paginate, rows, run
from appliance.storage.models import Role, User
from appliance.storage.transactions import require_write_transaction

MAX_ROLES = 50
MAX_NAME_CHARACTERS = 60

RoleName = Annotated[
    str, Meta(max_length=MAX_NAME_CHARACTERS, extra={"line": True, "filled": True}),
    Meta(description="name of the role, unique in the account regardless of case"),
]  # fmt: skip
RoleScopes = Annotated[
    list[Annotated[str, Meta(max_length=40)]],
    Meta(max_length=100),
    Meta(
        description="scopes of the role, as those of API keys, and `contacts:export`; a scope includes reading its area"
    ),
]
ContactData = Annotated[
    Literal["full", "masked"],
    Meta(description="whether users see the names and addresses of contacts, or pseudonyms instead (`masked`)"),
]


class RoleWrite(Struct):
    """The fields of a new role."""

    name: RoleName
    scopes: RoleScopes
    contact_data: ContactData = "full"


class RolePatch(Struct):
    """The fields of a role that can be changed; fields that are not given stay unchanged."""

    name: RoleName | UnsetType = UNSET
    scopes: RoleScopes | UnsetType = UNSET
    contact_data: ContactData | UnsetType = UNSET


class RoleRemoval(Struct):
    """A request to delete a role: the role that its users and invitations get instead."""

    replacement: (
        Annotated[
            str,
            Meta(max_length=255),
            Meta(
                description="role that the users and invitations get: a built-in name, or an id or name of an own role"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET


class RoleUse(NamedTuple):
    """The users (enabled and disabled) who have a role, and the number of invitations with it."""

    users: list[User]
    invitation_count: int


def get(account_id: int, role_id: int) -> Role:
    """Return an own role of an account; raises NotFound."""
    role = Role.get_or_none(Role.account == account_id, Role.id == role_id)
    if role is None:
        raise NotFound
    return role


def list_all(account_id: int) -> list[Role]:
    """Return the own roles of an account, sorted by name."""
    return list(Role.select().where(Role.account == account_id).order_by(Role.name_key))


def fetch_page(account_id: int, query: PageQuery) -> Page:
    """Return a page of the own roles of an account, newest first."""
    query_rows = Role.select().where(Role.account == account_id).order_by(Role.id.desc())
    return paginate(query_rows, query.page, query.size())


def find_use(account_id: int, role: str) -> RoleUse:
    """Return who has a role: a built-in name, or the id of an own role."""
    member_rows = [user for user in users.list_members(account_id) if user.role == role]
    invitations = rows("SELECT count(*) FROM invitation WHERE account_id = ? AND role = ?", (account_id, role))
    return RoleUse(member_rows, int(invitations[0][0]))


def validate(account_id: int, request: RoleWrite | RolePatch, role_id: int | None = None) -> None:
    """Raise Invalid with all errors of a role: its name, its scopes, and too many roles; `role_id` is that of a change.

    Masked contact data does not go with scopes that change contacts or decide what they are sent (`FULL_DATA_SCOPES`).
    """
    faults = Faults()
    stored = get(account_id, role_id) if role_id is not None else None
    if stored is None and Role.select().where(Role.account == account_id).count() >= MAX_ROLES:
        faults.add("base", gettext("There are too many roles (maximum is %(limit)s).", limit=MAX_ROLES))
    if isinstance(request.name, str):
        faults.collect(_check_name, account_id, request.name, role_id)
    scopes = frozenset(request.scopes) if isinstance(request.scopes, list) else None
    if scopes is not None and not scopes:
        faults.add("scopes", gettext("can't be blank"))
    unknown = (scopes or frozenset()) - access.OWN_ROLE_SCOPES
    if unknown:
        faults.add("scopes", gettext("is not included in the list"))
    elif scopes is not None or stored is not None:
        complete = access.complete_scopes(
            frozenset(stored.scopes) if scopes is None and stored else scopes or frozenset()
        )
        contact_data = request.contact_data if isinstance(request.contact_data, str) else None
        is_full = (contact_data or (stored.contact_data if stored is not None else "full")) == "full"
        _check_full_data(complete, is_full, faults)
    faults.check()


def _check_name(account_id: int, name: str, role_id: int | None) -> None:
    key = normalize_name(name)
    if key in access.ROLES or access.is_own_role(key):
        raise Invalid({"name": [gettext("is reserved")]})
    if rows("SELECT 1 FROM role WHERE account_id = ? AND name_key = ? AND id <> ?", (account_id, key, role_id or 0)):
        raise Invalid({"name": [gettext("has already been taken")]})


def _check_full_data(scopes: frozenset[str], is_full: bool, faults: Faults) -> None:
    """Add an error if `scopes` include some of `FULL_DATA_SCOPES`, but not unmasked contacts (`contacts:read`)."""
    needed = scopes & access.FULL_DATA_SCOPES
    if not needed or (is_full and "contacts:read" in scopes):
        return
    names = ", ".join(sorted(needed))
    if is_full:
        faults.add("scopes", gettext("must include contacts:read, which these scopes need: %(names)s", names=names))
    else:
        faults.add("contact_data", gettext("must be full for these scopes: %(names)s", names=names))


def create(by: Actor, request: RoleWrite) -> Role:
    """Create a role in the actor's account; raises NotAllowed, or Invalid with all errors."""
    require_write_transaction()
    actor = users.get_admin(by)
    validate(actor.account_id, request)
    scopes = _normalize(request.scopes)
    require_rights(actor.role, access.build_rights(scopes, request.contact_data))
    now = clock.now_ms()
    role = Role.create(
        account=actor.account_id, name=request.name.strip(), name_key=normalize_name(request.name), scopes=scopes,
        contact_data=request.contact_data, created_at=now, updated_at=now,
    )  # fmt: skip
    audit.record(by, actor.account_id, "role_create", f"role:{role.id}", _describe(role))
    return role


def update(by: Actor, role_id: int, request: RolePatch) -> Role:
    """Change a role, at once for everybody who has it; raises NotFound, NotAllowed, or Invalid with all errors."""
    require_write_transaction()
    actor = users.get_admin(by)
    role = get(actor.account_id, role_id)
    validate(actor.account_id, request, role_id)
    before = access.build_rights(role.scopes, role.contact_data)
    if isinstance(request.name, str):
        role.name, role.name_key = request.name.strip(), normalize_name(request.name)
    if isinstance(request.scopes, list):
        role.scopes = _normalize(request.scopes)
    if isinstance(request.contact_data, str):
        role.contact_data = request.contact_data
    for rights in (before, access.build_rights(role.scopes, role.contact_data)):
        require_rights(actor.role, rights)
    role.updated_at = clock.now_ms()
    role.save()
    audit.record(by, actor.account_id, "role_update", f"role:{role.id}", _describe(role))
    return role


def delete(by: Actor, role_id: int, replacement: str | None = None) -> Role:
    """Delete a role; its users and invitations get the role `replacement` (a name or id) if one is given.

    Raises NotFound, NotAllowed, and Invalid at `replacement` if the role is in use without a replacement, or the
    replacement does not exist or is the role itself.
    """
    require_write_transaction()
    actor = users.get_admin(by)
    role = get(actor.account_id, role_id)
    text, use = str(role.id), find_use(actor.account_id, str(role.id))
    target = access.find_role(actor.account_id, replacement) if replacement else None
    if replacement and (target is None or target == text):
        raise Invalid({"replacement": [gettext("is not included in the list")]})
    if target is None and (use.users or use.invitation_count):
        raise Invalid({"replacement": [gettext("is required, because the role is in use")]})
    if target is not None:
        users.require_owner_for(actor, target)
        members.replace_role(actor.account_id, text, target)
        run("UPDATE invitation SET role = ? WHERE account_id = ? AND role = ?", (target, actor.account_id, text))
        for user in use.users:
            audit.record(by, actor.account_id, "user_role", f"user:{user.id}", {"role": target, "before": role.name})
    role.delete_instance()
    audit.record(by, actor.account_id, "role_delete", f"role:{role.id}", {"name": role.name})
    return role


def require_rights(actor_role: str, rights: access.Rights) -> None:
    """Raise NotAllowed if a role would get rights that the role of the actor does not have."""
    own = access.get_rights(actor_role)
    if not rights.scopes <= own.scopes or (own.is_masked and not rights.is_masked):
        raise NotAllowed(gettext("You cannot give rights that you do not have."), required_role="admin")


def describe_role(role: str) -> str:
    """Return the name of a role as users wrote it; a built-in role and an unknown one are returned as they are."""
    found_rows = rows("SELECT name FROM role WHERE id = ?", (int(role),)) if access.is_own_role(role) else []
    return str(found_rows[0][0]) if found_rows else role


def _normalize(scopes: Iterable[str]) -> list[str]:
    return sorted(access.complete_scopes(frozenset(scopes)))


def _describe(role: Role) -> dict[str, str]:
    return {"name": role.name, "scope": ",".join(role.scopes), "contact_data": role.contact_data}
