"""The users of an account: set-up, roles, access, passwords and preferences."""

import hmac
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import accounts, app_grants, audit, members, passwords, sessions
from appliance.accounts.access import ADMIN_SCOPE, find_role, role_scopes
from appliance.accounts.audit import Actor
from appliance.core import addresses, clock, crypto, i18n, validation
from appliance.core.errors import Faults, Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import EmailText, Name, PageQuery, sent_fields
from appliance.storage.database import Page, paginate
from appliance.storage.models import Account, ApiKey, Identity, TeamMember, User
from appliance.storage.transactions import require_write_transaction


class NewUser(msgspec.Struct):
    """A validated new user, with a normalized email address and a hashed password."""

    email: str
    name: str
    password_hash: str


def has_users() -> bool:
    """Return whether the installation has any user."""
    return bool(User.select(User.id).limit(1).exists())


def prepare_user(email: str, password: str, name: str | None = None) -> NewUser:
    """Validate a new user and hash the password; raises Invalid with all errors.

    Call it outside of a write transaction, because hashing is slow. Without a name, the part before the `@` is used.
    """
    faults = Faults()
    try:
        address = addresses.parse_email(email).key
    except ValueError:
        address = ""
        faults.add("email", gettext("can't be blank") if not email.strip() else gettext("is invalid"))
    try:
        passwords.check_length(password)
    except Invalid as error:
        faults.merge(error.fields)
    faults.check()
    return NewUser(address, (name or "").strip() or address.partition("@")[0], passwords.hash_password(password))


def create_first_owner(new: NewUser, account_name: str) -> User:
    """Create the owner of the first account, and the account if there is none; raises Invalid if any user exists."""
    require_write_transaction()
    if has_users():
        raise Invalid({"base": [gettext("is set up already")]})
    account = Account.get_or_none(Account.id == 1) or accounts.create(account_name)
    return create(account.id, new, "owner")


def create(account_id: int, new: NewUser, role: str = "owner") -> User:
    """Create a user; raises Invalid for an unknown role or account, or an invalid or taken address."""
    require_write_transaction()
    if Account.get_or_none(Account.id == account_id) is None:
        raise Invalid({"account": [gettext("must exist")]})
    known_role = read_role(account_id, role)
    validate_email(new.email)
    now = clock.now_ms()
    user = User.create(
        last_account=account_id, email=new.email, name=new.name, password_hash=new.password_hash,
        created_at=now, updated_at=now,
    )  # fmt: skip
    return members.add(user.id, account_id, known_role)


def read_role(account_id: int, text: str) -> str:
    """Return the role that a text names (`access.find_role`); raises Invalid if the account has no such role."""
    role = find_role(account_id, text)
    if role is None:
        raise Invalid({"role": [gettext("is not included in the list")]})
    return role


def join(account_id: int, user_id: int, role: str) -> User:
    """Add a person who has a user already to another account; raises Invalid for an unknown role or account.

    Raises Invalid for a member of the account, too, even a disabled one.
    """
    require_write_transaction()
    if Account.get_or_none(Account.id == account_id) is None:
        raise Invalid({"account": [gettext("must exist")]})
    return members.add(user_id, account_id, read_role(account_id, role))


def validate_email(email: str) -> None:
    """Raise Invalid for an address that is blank, malformed, or used by a user of any account."""
    if not email.strip():
        raise Invalid({"email": [gettext("can't be blank")]})
    try:
        key = addresses.parse_email(email).key
    except ValueError:
        raise Invalid({"email": [gettext("is invalid")]}) from None
    if User.get_or_none(User.email == key) is not None:
        raise Invalid({"email": [gettext("has already been taken")]})


def find_by_email(email: str) -> User | None:
    """Return the user with this email address, regardless of case, with the account that a sign-in opens, or None.

    `user.member` is None for a person who may enter no account.
    """
    try:
        key = addresses.parse_email(email).key
    except ValueError:
        return None
    user: User | None = User.get_or_none(User.email == key)
    return members.bind_entry(user) if user is not None else None


# The preference of a user that holds the language of the interface; without it the browser decides.
LANGUAGE_PREFERENCE = "language"
# The preference of a user who wants no email about sign-ins on new devices; its value is `off`.
NEW_DEVICE_EMAIL_PREFERENCE = "new_device_email"


def choose_language(user: User | None, account: Account) -> str:
    """Return the language of an email to a user; `user` is None for an invited person.

    The user's profile decides, then the account's language, then the request's.
    """
    chosen = (user.preferences or {}).get(LANGUAGE_PREFERENCE) if user is not None else None
    own_language = i18n.match_language(chosen) if chosen else None
    return own_language or i18n.match_language(account.locale) or i18n.get_language()


def set_preference(user_id: int, name: str, value: Any) -> None:
    """Store a preference of a user under `name`; a value of None deletes it."""
    require_write_transaction()
    user = User.get_by_id(user_id)
    preferences = {key: preference for key, preference in (user.preferences or {}).items() if key != name}
    user.preferences = preferences if value is None else {**preferences, name: value}
    user.save(only=["preferences"])


Role = Annotated[str, Meta(max_length=255)]
_ROLE_DESCRIPTION = (
    "role of the user: viewers read, authors also write, editors also send, admins and owners may do everything, but "
    "only owners manage owners; or the id or name of an own role (`/roles`)"
)
# The minimum length is checked together with the address (`validate_new`), so that both errors are reported at once.
Password = Annotated[
    str,
    Meta(
        max_length=passwords.MAX_CHARACTERS,
        extra_json_schema={"minLength": passwords.MIN_CHARACTERS, "format": "password"},
    ),
]


class UserWrite(Struct):
    """The fields of a new user; without `password`, a password is generated and returned in the response only."""

    email: Annotated[
        EmailText,
        Meta(description="email address that the user signs in with, in lower case; unique in the installation"),
    ]
    role: Annotated[
        Role,
        Meta(description=_ROLE_DESCRIPTION),
    ]
    name: (
        Annotated[
            Name, Meta(description="name shown to other users; default: the part of the email address before the `@`")
        ]
        | UnsetType
    ) = UNSET
    password: (
        Annotated[
            Password,
            Meta(
                description="password of at least 10 characters; if absent, one is generated and returned in this "
                "response only"
            ),
        ]
        | UnsetType
    ) = UNSET


class UserPatch(Struct):
    """The fields of a user that owners and admins may change; fields that are not given stay unchanged."""

    name: Annotated[Name, Meta(description="name shown to other users")] | UnsetType = UNSET
    role: (
        Annotated[
            Role,
            Meta(description=_ROLE_DESCRIPTION),
        ]
        | UnsetType
    ) = UNSET
    disabled: (
        Annotated[bool, Meta(description="true to disable the user, who can then no longer sign in")] | UnsetType
    ) = UNSET
    password: (
        Annotated[Password, Meta(description="new password of at least 10 characters; ends all sessions of the user")]
        | UnsetType
    ) = UNSET
    otp: (
        Annotated[
            Literal[False],
            Meta(extra_json_schema={"type": "boolean"}),
            Meta(description="false removes the second factor of a user who lost it; the user sets up a new one"),
        ]
        | UnsetType
    ) = UNSET


class UserQuery(PageQuery):
    """Filters and pagination of a list of users: the enabled users, or with `disabled` only the disabled ones."""

    disabled: Annotated[bool, Meta(description="true: only disabled users; false: only enabled users")] = False
    role: Annotated[Role, Meta(description="only users with this role")] | UnsetType = UNSET


def fetch_page(account_id: int, query: UserQuery) -> Page:
    """Return a page of the account's users that match the query, newest first."""
    query_rows = members.select(account_id).where(TeamMember.disabled_at.is_null(not query.disabled))
    if query.role is not UNSET:
        query_rows = query_rows.where(TeamMember.role == read_role(account_id, query.role))
    order = TeamMember.created_at.desc(), User.id.desc()
    return paginate(query_rows.order_by(*order), query.page, query.size())


def list_members(account_id: int) -> list[User]:
    """Return all users of an account: first the enabled users, then the disabled users, each sorted by name."""
    users = members.select(account_id).order_by(User.name, User.id)
    return sorted(users, key=lambda user: (user.disabled_at is not None, i18n.fold(user.name)))


def list_keys(account_id: int) -> list[ApiKey]:
    """Return all active API keys of an account, newest first."""
    keys = ApiKey.select().where(ApiKey.account == account_id, ApiKey.revoked_at.is_null())
    return list(keys.order_by(ApiKey.id.desc()))


def generate_password() -> str:
    """Return a random password of four groups of five letters and digits, so that it is easy to read out."""
    return "-".join(crypto.random_base62(5) for _ in range(4))


def get(account_id: int, user_id: int) -> User:
    """Return the user; raises NotFound if the account has no such user."""
    user = members.find(account_id, user_id)
    if user is None:
        raise NotFound
    return user


def get_managed(by: Actor, user_id: int) -> User:
    """Return a user of the actor's account whom the actor may manage; raises NotFound or NotAllowed.

    Owners and admins may manage users, and only owners may manage owners.
    """
    actor = get_admin(by)
    user = get(actor.account_id, user_id)
    require_owner_for(actor, user.role, user)
    return user


def add_member(by: Actor, new: NewUser, role: str) -> User:
    """Add a user to the actor's account; only owners and admins may add users, and only owners may add owners.

    Raises NotAllowed, or the errors of `create`.
    """
    require_write_transaction()
    actor = get_admin(by)
    role = read_role(actor.account_id, role)
    require_owner_for(actor, role)
    user = create(actor.account_id, new, role)
    audit.record(by, actor.account_id, "user_add", f"user:{user.id}", {"role": role})
    return user


def validate_new(account_id: int, new: UserWrite, _: int | None = None) -> None:
    """Raise Invalid with all errors of a new user's password, email address and role.

    The last parameter is passed by `api.endpoints.validator` and not used.
    """
    faults = Faults()
    if isinstance(new.password, str):
        faults.collect(passwords.check_length, new.password)
    if isinstance(new.email, str):
        faults.collect(validate_email, new.email)
    if isinstance(new.role, str):
        faults.collect(read_role, account_id, new.role)
    faults.check()


def validate_update(by: Actor, user_id: int, changes: UserPatch, gets_password: bool = False) -> User:
    """Validate a change of a user without making it, and return the user; raises as `update`.

    `gets_password` means that the password will be set although `changes` does not contain it.
    """
    actor, values = get_admin(by), sent_fields(changes)
    user = get(actor.account_id, user_id)
    faults, role = Faults(), user.role
    disabled = values.get("disabled", user.disabled_at is not None)
    if "role" in values:
        known_role = find_role(actor.account_id, values["role"])
        if known_role is None:
            faults.add("role", gettext("is not included in the list"))
        role = known_role or user.role
    require_owner_for(actor, role, user)
    if user.id != actor.id and (gets_password or values.keys() & {"name", "password", "otp"}):
        members.require_sole_account(user)
    if user.id == actor.id and disabled:
        faults.add("disabled", gettext("must not be your own user"))
    if isinstance(changes.password, str):
        faults.collect(passwords.check_length, changes.password)
    if user.id == actor.id and (gets_password or isinstance(changes.password, str)):
        faults.add("password", gettext("is your own; change it with your current password"))
    if user.id == actor.id and "otp" in values:
        faults.add("otp", gettext("is your own; disable it with password and code"))
    if (role != "owner" or disabled) and _is_last_owner(user):
        faults.add("role", gettext("would leave the account without an owner"))
    faults.check()
    return user


def update(by: Actor, user_id: int, changes: UserPatch, password_hash: str | None = None) -> User:
    """Change a user of the actor's account; a new password ends all of the user's sessions and connected apps.

    A new password also unlinks the user's identities at providers, as `reset_password` does. Disabling a user ends the
    sessions and connected apps in this account only. A new password is given as `password_hash`; `changes.password` is
    only validated, and `changes.otp` ignored. Raises NotFound. Raises NotAllowed if the actor may not manage the user,
    or would change the name, password or second factor of a person who is in another account, too. Raises Invalid with
    all errors: a password of the wrong length, an account that would be left without an owner, or actors who would
    disable themselves or set their own password.
    """
    require_write_transaction()
    user, values = validate_update(by, user_id, changes, password_hash is not None), sent_fields(changes)
    role = read_role(user.account_id, values["role"]) if "role" in values else user.role
    disabled = values.get("disabled", user.disabled_at is not None)
    if "name" in values and values["name"].strip() != user.name:
        _save_person(by, user, "user_name", name=values["name"].strip())
    if role != user.role:
        _save_member(by, user, "user_role", {"role": role, "before": user.role}, role=role)
    if disabled != (user.disabled_at is not None):
        if disabled:
            sessions.delete_in_account(user.id, user.account_id)
            app_grants.end_all(user.id, by, "disabled", user.account_id)
        act = "user_disable" if disabled else "user_enable"
        _save_member(by, user, act, {}, disabled_at=clock.now_ms() if disabled else None)
    if password_hash is not None:
        _sign_out(user, by)
        _unlink_identities(user, by)
        _save_person(by, user, "user_password", password_hash=password_hash)
    return user


def change_role(by: Actor, user_id: int, role: str) -> User:
    """Change the role of a user. Raises Invalid for an unknown role, and what `update` raises."""
    require_write_transaction()
    get_managed(by, user_id)  # a missing user is reported before an invalid role
    return update(by, user_id, validation.read(UserPatch, {"role": role}))


def disable(by: Actor, user_id: int) -> User:
    """Disable a user and end all of the user's sessions; raises as `update`."""
    return update(by, user_id, UserPatch(disabled=True))


def enable(by: Actor, user_id: int) -> User:
    """Enable a disabled user, whose password stays valid; raises as `update`."""
    return update(by, user_id, UserPatch(disabled=False))


def set_password(by: Actor, user_id: int, password_hash: str) -> User:
    """Set the password of a user and end all of the user's sessions; raises as `update`."""
    return update(by, user_id, UserPatch(), password_hash)


def rename(user_id: int, name: str, ip: str | None = None) -> User:
    """Change a user's name at the user's own request; raises Invalid if the name is blank.

    The name is cut to 255 characters.
    """
    require_write_transaction()
    if not name.strip():
        raise Invalid({"name": [gettext("can't be blank")]})
    return _save_person(_self_actor(user_id, ip), User.get_by_id(user_id), "user_name", name=name.strip()[:255])


def change_password(user_id: int, password_hash: str, session_id: int, ip: str | None = None) -> User:
    """Change a user's password at the user's own request, and end the user's apps and all sessions but `session_id`.

    The caller must have verified the current password. A `session_id` of 0 ends all sessions.
    """
    require_write_transaction()
    user, by = User.get_by_id(user_id), _self_actor(user_id, ip)
    _sign_out(user, by, but=session_id)
    return _save_person(by, user, "user_password", password_hash=password_hash)


def reset_password(user_id: int, password_hash: str, by: Actor) -> User:
    """Set a user's password without the old one, end all of the user's sessions, and unlink identities at providers.

    A person who knew the old password, such as an admin who added the user, may have linked an identity of their own.
    The user links theirs again with the new password. The caller must have verified the user's identity in another way.
    """
    require_write_transaction()
    user = User.get_by_id(user_id)
    _sign_out(user, by)
    _unlink_identities(user, by)
    return _save_person(by, user, "user_password", password_hash=password_hash)


def _self_actor(user_id: int, ip: str | None) -> Actor:
    return Actor(f"user:{user_id}", ip, user_id)


def get_admin(by: Actor) -> User:
    """Return the user behind an actor; raises NotAllowed unless the user is an enabled owner or admin."""
    user = members.find_active(by.account_id, by.user_id) if by.account_id is not None else None
    if user is None or ADMIN_SCOPE not in role_scopes(user.role):
        raise NotAllowed(gettext("Only owners and admins manage the team."), required_role="admin")
    return user


def require_owner_for(actor: User, role: str, user: User | None = None) -> None:
    """Raise NotAllowed if an actor who is not an owner would change an owner or give a user the role of owner."""
    if actor.role != "owner" and (role == "owner" or (user is not None and user.role == "owner")):
        raise NotAllowed(gettext("Only owners manage owners."), required_role="owner")


def _is_last_owner(user: User) -> bool:
    """Return whether a user is the only enabled owner of the account."""
    others = [owner for owner in members.list_active(user.account_id, ("owner",)) if owner.id != user.id]
    return user.role == "owner" and user.disabled_at is None and not others


def _sign_out(user: User, by: Actor, but: int = 0) -> None:
    """End all sessions of a person except `but` and all connected apps, before a new password is stored."""
    sessions.delete_all(user.id, but)
    app_grants.end_all(user.id, by, "password")


def _unlink_identities(user: User, by: Actor) -> None:
    """Remove the identities of a person at OpenID Connect providers, after the sessions that began with them."""
    for identity in list(Identity.select().where(Identity.user == user.id)):
        name = identity.provider.name
        identity.delete_instance()
        members.record_for_person(by, user.id, "identity_unlink", {"provider": name})


def _save_person(by: Actor, user: User, action: str, **changes: Any) -> User:
    """Change columns of `user`, which all accounts of a person share, and record it in each of these accounts."""
    for name, value in changes.items():
        setattr(user, name, value)
    user.updated_at = clock.now_ms()
    user.save(only=[*changes, "updated_at"])
    members.record_for_person(by, user.id, action)
    return user


def _save_member(by: Actor, user: User, action: str, data: dict[str, Any], **changes: Any) -> User:
    """Change columns of a user's membership in the account that the user was loaded with, and record it there."""
    member: TeamMember = user.member
    for name, value in changes.items():
        setattr(member, name, value)
    member.updated_at = clock.now_ms()
    member.save()
    audit.record(by, user.account_id, action, f"user:{user.id}", data)
    return user


def setup_token() -> str | None:
    """Return the secret of the set-up link, or None if the installation has a user.

    The secret is derived from the installation's key: nothing is stored, and each start prints the same link in the
    terminal.
    """
    if has_users():
        return None
    return crypto.derive_key("set-up").hex()[:32]


def is_setup_token(token: str) -> bool:
    """Return whether a text is the secret of the set-up link; False if the installation has a user."""
    expected = setup_token()
    return expected is not None and hmac.compare_digest(expected, token)
