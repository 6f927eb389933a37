"""Memberships of users in accounts, each with a role.

A person has one row of `user`, with the address, the password and the second factor, and one row of `team_member` for
each account. The functions return users who are loaded together with one of their accounts, as `user.member`; such a
user has the attributes `account_id`, `account`, `role` and `disabled_at`.
"""

from collections.abc import Iterable
from typing import Any

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Invalid, NotAllowed
from appliance.core.i18n import gettext
from appliance.storage.models import Account, TeamMember, User
from appliance.storage.transactions import require_write_transaction


def select(account_id: int) -> Any:
    """Return a query of the users of an account, enabled and disabled, each loaded with the account.

    Filter it by columns of `TeamMember` and `User`.
    """
    return (
        User.select(User, TeamMember, Account)
        .join(TeamMember, attr="member")
        .join(Account)
        .where(TeamMember.account == account_id)
    )


def find(account_id: int, user_id: int | None) -> User | None:
    """Return a user of an account, enabled or disabled, or None."""
    user: User | None = select(account_id).where(User.id == user_id).first()
    return user


def find_active(account_id: int, user_id: int | None) -> User | None:
    """Return an enabled user of an account that is not closed, or None."""
    user = find(account_id, user_id)
    return user if user is not None and user.disabled_at is None and user.account.closed_at is None else None


def list_active(account_id: int, roles: Iterable[str] = ()) -> list[User]:
    """Return the enabled users of an account, with `roles` only those with one of these roles, by id."""
    query = select(account_id).where(TeamMember.disabled_at.is_null())
    if roles:
        query = query.where(TeamMember.role.in_(tuple(roles)))
    return list(query.order_by(User.id))


def list_of(user_id: int) -> list[TeamMember]:
    """Return the memberships with which a person may sign in, with their accounts, sorted by the account's id.

    These are the enabled ones, in accounts that are not closed.
    """
    rows = TeamMember.select(TeamMember, Account).join(Account).where(TeamMember.user == user_id)
    return list(rows.where(TeamMember.disabled_at.is_null(), Account.closed_at.is_null()).order_by(Account.id))


def bind_entry(user: User) -> User:
    """Load the account that a sign-in of a person opens, as `user.member`, and return the person.

    This is the account that the person opened last, else the first one. `user.member` is None for a person who may sign
    in to no account.
    """
    rows = list_of(user.id)
    user.member = next((row for row in rows if row.account_id == user.last_account_id), rows[0] if rows else None)
    return user


def bind(user: User, account_id: int) -> User:
    """Load an account as `user.member`, None if the person may not sign in to it, and return the person."""
    user.member = next((row for row in list_of(user.id) if row.account_id == account_id), None)
    return user


def add(user_id: int, account_id: int, role: str) -> User:
    """Add a person to an account and return the user with it; raises Invalid if the person is a member already."""
    require_write_transaction()
    if find(account_id, user_id) is not None:
        raise Invalid({"email": [gettext("has already been taken")]})
    now = clock.now_ms()
    TeamMember.create(user=user_id, account=account_id, role=role, created_at=now, updated_at=now)
    user = find(account_id, user_id)
    assert user is not None  # The row was just inserted.
    return user


def replace_role(account_id: int, role: str, replacement: str) -> None:
    """Give all users of an account with a role, enabled or disabled, another role."""
    require_write_transaction()
    change = TeamMember.update(role=replacement, updated_at=clock.now_ms())
    change.where(TeamMember.account == account_id, TeamMember.role == role).execute()


def is_sole_account(user: User) -> bool:
    """Return whether the account that a user was loaded with is the only one of the person."""
    others = TeamMember.select().where(TeamMember.user == user.id, TeamMember.account != user.account_id)
    return not others.exists()


def list_shared(account_id: int) -> set[int]:
    """Return the ids of the users of an account who are in another account, too."""
    others = TeamMember.alias()
    shared = (
        TeamMember.select(TeamMember.user)
        .join(others, on=(others.user == TeamMember.user) & (others.account != TeamMember.account))
        .where(TeamMember.account == account_id)
    )
    return {row.user_id for row in shared}


def require_sole_account(user: User) -> None:
    """Raise NotAllowed if the person is in another account, too.

    Password, second factor and name are the person's: an admin of one account who set them could enter the others.
    """
    if not is_sole_account(user):
        raise NotAllowed(
            gettext("%(name)s is in other accounts, too, and manages this alone.", name=user.name or user.email)
        )


def record_for_person(
    by: Actor, user_id: int, action: str, data: dict[str, Any] | None = None, subject: str | None = None
) -> None:
    """Record an action that concerns a person as such, like a new password, in each account of the person.

    These are the accounts that the person may sign in to, and the account of the actor. `subject` is the person, unless
    it is given.
    """
    require_write_transaction()
    account_ids = {row.account_id for row in list_of(user_id)}
    if not account_ids:  # a person who is disabled everywhere
        account_ids = {row.account_id for row in TeamMember.select().where(TeamMember.user == user_id)}
    if by.account_id is not None:
        account_ids.add(by.account_id)
    for account_id in sorted(account_ids):
        audit.record(by, account_id, action, subject or f"user:{user_id}", data)
