"""The people of an account as those who look after it change them: roles, access, new passwords, one's own name."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import clock, fields, tokens
from appliance.account import audit, passwords, sessions, users
from appliance.account.acting import By
from appliance.db.work import writing
from appliance.errors import Faults, Invalid, NotAllowed, NotFound
from appliance.fields import EmailText, Name, PageQuery, given
from appliance.pages import Page, paginate
from appliance.tables import ApiKey, User

RULERS = ("owner", "admin")
Role = Literal["owner", "admin", "editor", "author", "viewer"]
# Its least length is looked at with the address (`passwords.check_length`), so that all faults are told in one go
Password = Annotated[
    str,
    Meta(
        max_length=passwords.MAX_CHARACTERS,
        extra_json_schema={"minLength": passwords.MIN_CHARACTERS, "format": "password"},
    ),
]


class UserWrite(Struct):
    """Somebody new; without `password` one is made, and answered this once."""

    email: EmailText
    role: Role
    name: Name | UnsetType = UNSET
    password: Password | UnsetType = UNSET


class UserPatch(Struct):
    """What owners and admins change about somebody."""

    name: Name | UnsetType = UNSET
    role: Role | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    password: Password | UnsetType = UNSET
    otp: Annotated[Literal[False], Meta(extra_json_schema={"type": "boolean"})] | UnsetType = UNSET


class UserQuery(PageQuery):
    """How people are asked for: those who sign in, with `disabled` those who do no more."""

    disabled: bool = False
    role: Role | UnsetType = UNSET


def page(account_id: int, query: UserQuery) -> Page:
    """List the people of an account, newest first."""
    found = User.select().where(User.account == account_id, User.disabled_at.is_null(not query.disabled))
    if query.role is not UNSET:
        found = found.where(User.role == query.role)
    return paginate(found.order_by(User.created_at.desc(), User.id.desc()), query.page, query.size())


def members(account_id: int) -> list[User]:
    """Return everybody of an account: who may sign in first, then by name."""
    found = User.select().where(User.account == account_id).order_by(User.name, User.id)
    return sorted(found, key=lambda user: (user.disabled_at is not None, user.name.casefold()))


def keys(account_id: int) -> list[ApiKey]:
    """Return the keys of an account that open something, newest first."""
    found = ApiKey.select().where(ApiKey.account == account_id, ApiKey.revoked_at.is_null())
    return list(found.order_by(ApiKey.id.desc()))


def password() -> str:
    """Make a password that can be read out: four groups of five letters and digits."""
    return "-".join(tokens.random_base62(5) for _ in range(4))


def get(account_id: int, user_id: int) -> User:
    """Return a person of an account; raises NotFound."""
    found = User.get_or_none(User.account == account_id, User.id == user_id)
    if found is None:
        raise NotFound
    return found


def ruled(by: By, user_id: int) -> User:
    """Return somebody for whoever looks after the team to decide about; raises NotFound or NotAllowed."""
    actor = _actor(by)
    found = get(actor.account_id, user_id)
    _rules(actor, found.role, found)
    return found


def add(by: By, new: users.NewUser, role: str) -> User:
    """Add a person; only an owner makes an owner. Raises Invalid or NotAllowed."""
    writing()
    actor = _actor(by)
    _rules(actor, role)
    made = users.add(actor.account_id, new, role)
    audit.note(by, actor.account_id, "user_add", f"user:{made.id}", {"role": role})
    return made


def check_new(account_id: int, new: UserWrite, _: int | None = None) -> None:
    """Raise Invalid with all that keeps somebody from being added, as far as it is known who they are."""
    faults = Faults()
    if isinstance(new.password, str):
        faults.of(passwords.check_length, new.password)
    if isinstance(new.email, str):
        faults.of(users.check_address, new.email)
    faults.check()


def check(by: By, user_id: int, changes: UserPatch, gets_password: bool = False) -> User:
    """Return whom a change is about; raises as `update`, with all faults."""
    actor, wants = _actor(by), given(changes)
    found = get(actor.account_id, user_id)
    role, disabled = wants.get("role", found.role), wants.get("disabled", found.disabled_at is not None)
    _rules(actor, role, found)
    faults = Faults()
    if found.id == actor.id and disabled:
        faults.add("disabled", "is yourself")
    if isinstance(changes.password, str):
        faults.of(passwords.check_length, changes.password)
    if found.id == actor.id and (gets_password or isinstance(changes.password, str)):
        faults.add("password", "is your own: it is changed with the present one")
    if (role != "owner" or disabled) and _is_last(found):
        faults.add("role", "would leave nobody who owns the account")
    faults.check()
    return found


def update(by: By, user_id: int, changes: UserPatch, password_hash: str | None = None) -> User:
    """Change what was sent, all or nothing; whoever is shut out, or gets a new password, is signed out everywhere.

    Raises NotFound, NotAllowed for what only owners may, and Invalid for the last owner and for what nobody does to
    themselves.
    """
    writing()
    found, wants = check(by, user_id, changes, password_hash is not None), given(changes)
    role, disabled = wants.get("role", found.role), wants.get("disabled", found.disabled_at is not None)
    if "name" in wants and wants["name"].strip() != found.name:
        _saved(by, found, "user_name", {}, name=wants["name"].strip())
    if role != found.role:
        _saved(by, found, "user_role", {"role": role, "before": found.role}, role=role)
    if disabled != (found.disabled_at is not None):
        if disabled:
            _sign_out(found)
        act = "user_disable" if disabled else "user_enable"
        _saved(by, found, act, {}, disabled_at=clock.now_ms() if disabled else None)
    if password_hash is not None:
        _sign_out(found)
        _saved(by, found, "user_password", {}, password_hash=password_hash)
    return found


def change(by: By, user_id: int, role: str) -> User:
    """Give a person another role; raises as `update`."""
    writing()
    ruled(by, user_id)  # who is not there is said before what is wrong with their role
    return update(by, user_id, fields.read(UserPatch, {"role": role}))


def close(by: By, user_id: int) -> User:
    """Let a person sign in no more; every browser and token of theirs ends at once. Raises as `update`."""
    return update(by, user_id, UserPatch(disabled=True))


def reopen(by: By, user_id: int) -> User:
    """Let a person sign in again, with the password they had; raises as `update`."""
    return update(by, user_id, UserPatch(disabled=False))


def give_password(by: By, user_id: int, password_hash: str) -> User:
    """Give a person a new password; who is signed in with the old one is signed out. Raises as `update`."""
    return update(by, user_id, UserPatch(), password_hash)


def rename(user_id: int, name: str, ip: str | None = None) -> User:
    """Change one's own name."""
    writing()
    if not name.strip():
        raise Invalid({"name": ["can't be blank"]})
    return _saved(_oneself(user_id, ip), User.get_by_id(user_id), "user_name", {}, name=name.strip()[:255])


def is_theirs(user: User, typed: str) -> bool:
    """Return whether somebody typed their own password; takes its time, so never on the loop or the writer."""
    return passwords.holds(user.password_hash, typed)


def choose_password(user_id: int, password_hash: str, session_id: int, ip: str | None = None) -> User:
    """Change one's own password; every other sign-in of theirs ends, with 0 for `session_id` all of them."""
    writing()
    found = User.get_by_id(user_id)
    _sign_out(found, but=session_id)
    return _saved(_oneself(user_id, ip), found, "user_password", {}, password_hash=password_hash)


def reset_password(user_id: int, password_hash: str, by: By) -> User:
    """Give somebody a new password by other proof than the old one; every sign-in of theirs ends."""
    writing()
    found = User.get_by_id(user_id)
    _sign_out(found)
    return _saved(by, found, "user_password", {}, password_hash=password_hash)


def _oneself(user_id: int, ip: str | None) -> By:
    return By(f"user:{user_id}", ip, user_id)


def _actor(by: By) -> User:
    """Return who looks after the team, as they are now; raises NotAllowed for everybody else."""
    found = User.get_or_none(User.id == by.user_id, User.disabled_at.is_null())
    if found is None or found.role not in RULERS:
        raise NotAllowed("Only owners and admins look after the team.", required_role="admin")
    return found


def _rules(actor: User, role: str, found: User | None = None) -> None:
    """Raise NotAllowed where an admin would decide about an owner."""
    if actor.role != "owner" and (role == "owner" or (found is not None and found.role == "owner")):
        raise NotAllowed("Only an owner decides about owners.", required_role="owner")


def _is_last(found: User) -> bool:
    """Return whether nobody else owns the account."""
    others = User.select().where(
        User.account == found.account_id, User.role == "owner", User.disabled_at.is_null(), User.id != found.id
    )
    return found.role == "owner" and found.disabled_at is None and not others.exists()


def _sign_out(found: User, but: int = 0) -> None:
    sessions.drop_all(found.id, but)


def _saved(by: By, found: User, act: str, data: dict[str, Any], **changes: Any) -> User:
    for name, value in changes.items():
        setattr(found, name, value)
    found.updated_at = clock.now_ms()
    found.save()
    audit.note(by, found.account_id, act, f"user:{found.id}", data)
    return found
