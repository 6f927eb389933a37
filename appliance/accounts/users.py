"""People who sign in."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import accounts, audit, passwords, sessions
from appliance.accounts.acting import By
from appliance.accounts.roles import ROLES
from appliance.core import addresses, clock, fields, tokens
from appliance.core.errors import Faults, Invalid, NotAllowed, NotFound
from appliance.core.fields import EmailText, Name, PageQuery, given
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Account, ApiKey, User
from appliance.storage.work import writing


class NewUser(msgspec.Struct):
    """A checked person with a hashed password, ready to be written."""

    email: str
    name: str
    password_hash: str


def has_users() -> bool:
    """Return whether anybody was set up yet."""
    return bool(User.select(User.id).limit(1).exists())


def prepare(email: str, password: str, name: str | None = None) -> NewUser:
    """Check and hash before anything is written (hashing is slow); raises Invalid with all faults."""
    faults = Faults()
    try:
        address = addresses.email(email).key
    except ValueError:
        address = ""
        faults.add("email", "can't be blank" if not email.strip() else "is invalid")
    try:
        passwords.check_length(password)
    except Invalid as error:
        faults.merge(error.fields)
    faults.check()
    return NewUser(address, (name or "").strip() or address.partition("@")[0], passwords.make(password))


def set_up(new: NewUser, account_name: str | None = None) -> User:
    """Make the first account and its owner; raises Invalid if that was done before."""
    writing()
    if has_users():
        raise Invalid({"base": ["was set up before"]})
    account = Account.get_or_none(Account.id == 1) or accounts.create(account_name or "My team")
    return add(account.id, new, "owner")


def add(account_id: int, new: NewUser, role: str = "owner") -> User:
    """Add a person to an account; raises Invalid for an unknown role or a taken address."""
    writing()
    if role not in ROLES:
        raise Invalid({"role": ["is not included in the list"]})
    if Account.get_or_none(Account.id == account_id) is None:
        raise Invalid({"account": ["must exist"]})
    check_address(new.email)
    now = clock.now_ms()
    return User.create(
        account=account_id, email=new.email, name=new.name, role=role, password_hash=new.password_hash,
        created_at=now, updated_at=now,
    )  # fmt: skip


def check_address(email: str) -> None:
    """Raise Invalid for an address that somebody signs in with, or that is none."""
    if not email.strip():
        raise Invalid({"email": ["can't be blank"]})
    try:
        key = addresses.email(email).key
    except ValueError:
        raise Invalid({"email": ["is invalid"]}) from None
    if User.get_or_none(User.email == key) is not None:
        raise Invalid({"email": ["has already been taken"]})


def of_address(email: str) -> User | None:
    """Return who signs in with an address, in whatever way it is written; None if nobody does."""
    try:
        key = addresses.email(email).key
    except ValueError:
        return None
    found: User | None = User.get_or_none(User.email == key)
    return found


def prefer(user_id: int, name: str, value: Any) -> None:
    """Remember how somebody likes it, under a name; None forgets."""
    writing()
    user = User.get_by_id(user_id)
    kept = {key: one for key, one in (user.preferences or {}).items() if key != name}
    user.preferences = kept if value is None else {**kept, name: value}
    user.save(only=["preferences"])


# The people of an account as those who look after it change them: roles, access, new passwords, one's own name.

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


def add_member(by: By, new: NewUser, role: str) -> User:
    """Add a person; only an owner makes an owner. Raises Invalid or NotAllowed."""
    writing()
    actor = _actor(by)
    _rules(actor, role)
    made = add(actor.account_id, new, role)
    audit.note(by, actor.account_id, "user_add", f"user:{made.id}", {"role": role})
    return made


def check_new(account_id: int, new: UserWrite, _: int | None = None) -> None:
    """Raise Invalid with all that keeps somebody from being added, as far as it is known who they are."""
    faults = Faults()
    if isinstance(new.password, str):
        faults.of(passwords.check_length, new.password)
    if isinstance(new.email, str):
        faults.of(check_address, new.email)
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
