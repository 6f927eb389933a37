"""The people of an account as those who look after it change them: roles, access, new passwords, one's own name."""

from typing import Any

from appliance import clock, tokens
from appliance.account import audit, passwords, users
from appliance.account.users import ROLES
from appliance.db.work import writing
from appliance.errors import Invalid, NotAllowed, NotFound
from appliance.tables import ApiKey, Session, User

_RULERS = ("owner", "admin")


def members(account_id: int) -> list[User]:
    """Answer everybody of an account: who may sign in first, then by name."""
    found = User.select().where(User.account == account_id).order_by(User.name, User.id)
    return sorted(found, key=lambda user: (user.disabled_at is not None, user.name.casefold()))


def keys(account_id: int) -> list[ApiKey]:
    """Answer the keys of an account that open something, newest first."""
    found = ApiKey.select().where(ApiKey.account == account_id, ApiKey.revoked_at.is_null())
    return list(found.order_by(ApiKey.id.desc()))


def password() -> str:
    """Make a password that can be read out: four groups of five letters and digits."""
    return "-".join(tokens.random_base62(5) for _ in range(4))


def get(account_id: int, user_id: int) -> User:
    """Answer a person of an account; raises NotFound."""
    found = User.get_or_none(User.account == account_id, User.id == user_id)
    if found is None:
        raise NotFound
    return found


def add(actor: User, new: users.NewUser, role: str) -> User:
    """Add a person; only an owner makes an owner."""
    writing()
    _rules(actor, role)
    made = users.add(actor.account_id, new, role)
    audit.record(actor.account_id, f"user:{actor.id}", "user_add", f"user:{made.id}", {"role": role})
    return made


def change(actor: User, user_id: int, role: str) -> User:
    """Give a person another role; raises Invalid for the last owner, NotAllowed for what only owners may."""
    writing()
    found = get(actor.account_id, user_id)
    if role not in ROLES:
        raise Invalid({"role": ["is not included in the list"]})
    _rules(actor, role, found)
    if role != "owner":
        _not_the_last(found)
    return _saved(actor, found, "user_role", {"role": role, "before": found.role}, role=role)


def close(actor: User, user_id: int) -> User:
    """Let a person sign in no more; every browser and token of theirs ends at once."""
    writing()
    found = get(actor.account_id, user_id)
    if found.id == actor.id:
        raise Invalid({"base": ["is yourself"]})
    _rules(actor, found.role, found)
    _not_the_last(found)
    _sign_out(found)
    return _saved(actor, found, "user_disable", {}, disabled_at=clock.now_ms())


def reopen(actor: User, user_id: int) -> User:
    """Let a person sign in again, with the password they had."""
    writing()
    found = get(actor.account_id, user_id)
    _rules(actor, found.role, found)
    return _saved(actor, found, "user_enable", {}, disabled_at=None)


def give_password(actor: User, user_id: int, password_hash: str) -> User:
    """Give a person a new password; who is signed in with the old one is signed out."""
    writing()
    found = get(actor.account_id, user_id)
    _rules(actor, found.role, found)
    _sign_out(found)
    return _saved(actor, found, "user_password", {}, password_hash=password_hash)


def rename(user_id: int, name: str) -> User:
    """Change one's own name."""
    writing()
    if not name.strip():
        raise Invalid({"name": ["can't be blank"]})
    found = User.get_by_id(user_id)
    return _saved(found, found, "user_name", {}, name=name.strip()[:255])


def is_theirs(user: User, typed: str) -> bool:
    """Say whether somebody typed their own password; takes its time, so never on the loop or the writer."""
    return passwords.holds(user.password_hash, typed)


def choose_password(user_id: int, password_hash: str, session_id: int) -> User:
    """Change one's own password; every other browser of theirs is signed out."""
    writing()
    found = User.get_by_id(user_id)
    _sign_out(found, but=session_id)
    return _saved(found, found, "user_password", {}, password_hash=password_hash)


def _rules(actor: User, role: str, found: User | None = None) -> None:
    """Raise NotAllowed unless somebody may look after the team, and owners only if they are one."""
    if actor.role not in _RULERS:
        raise NotAllowed("Only owners and admins look after the team.")
    if actor.role != "owner" and (role == "owner" or (found is not None and found.role == "owner")):
        raise NotAllowed("Only an owner decides about owners.")


def _not_the_last(found: User) -> None:
    others = User.select().where(
        User.account == found.account_id, User.role == "owner", User.disabled_at.is_null(), User.id != found.id
    )
    if found.role == "owner" and not others.exists():
        raise Invalid({"role": ["would leave nobody who owns the account"]})


def _sign_out(found: User, but: int = 0) -> None:
    Session.delete().where(Session.user == found.id, Session.id != but).execute()
    found.token_version += 1


def _saved(actor: User, found: User, act: str, data: dict[str, Any], **changes: Any) -> User:
    for name, value in changes.items():
        setattr(found, name, value)
    found.updated_at = clock.now_ms()
    found.save()
    audit.record(found.account_id, f"user:{actor.id}", act, f"user:{found.id}", data)
    return found
