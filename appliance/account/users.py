"""People who sign in."""

from typing import Any

import msgspec

from appliance import addresses, clock
from appliance.account import accounts, passwords
from appliance.account.roles import ROLES
from appliance.db.work import writing
from appliance.errors import Faults, Invalid
from appliance.tables import Account, User


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
