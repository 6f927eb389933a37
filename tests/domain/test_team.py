"""The team: who may change whom, and that an account always has an owner."""

import pytest

from appliance.accounts import sessions, users
from appliance.accounts.audit import Actor
from appliance.core.errors import Invalid, NotAllowed
from appliance.storage import transactions
from appliance.storage.models import User
from tests.domain.home import Home


def member(home: Home, role: str, name: str = "") -> User:
    """Add somebody as the service itself would."""
    new = users.NewUser(f"{name or role}@example.org", name or role, "x")
    return transactions.write(users.create, home.account_id, new, role)


def by(user: User) -> Actor:
    """Return who acts when somebody does."""
    return Actor(f"user:{user.id}", "192.0.2.7", user.id)


def test_an_account_keeps_an_owner(home: Home) -> None:
    """The last owner can neither be lowered nor shut out; with a second one both are possible."""
    first = member(home, "owner")
    User.update(disabled_at=1).where(User.id != first.id).execute()
    second = member(home, "admin")
    with pytest.raises(Invalid):
        transactions.write(users.change_role, by(first), first.id, "editor")
    with pytest.raises(Invalid):
        transactions.write(users.disable, by(first), first.id)
    transactions.write(users.change_role, by(first), second.id, "owner")
    second = users.get(home.account_id, second.id)
    assert transactions.write(users.change_role, by(second), first.id, "viewer").role == "viewer"


def test_only_owners_decide_about_owners(home: Home) -> None:
    """An admin makes no owner, and changes none; who writes and looks decides about nobody."""
    owner, admin, editor = (member(home, role) for role in ("owner", "admin", "editor"))
    for attempt in (
        lambda: transactions.write(users.change_role, by(admin), editor.id, "owner"),
        lambda: transactions.write(users.change_role, by(admin), owner.id, "viewer"),
        lambda: transactions.write(users.disable, by(admin), owner.id),
        lambda: transactions.write(users.set_password, by(admin), owner.id, "y"),
        lambda: transactions.write(users.change_role, by(editor), admin.id, "viewer"),
        lambda: transactions.write(users.add_member, by(editor), users.NewUser("n@example.org", "n", "x"), "viewer"),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert [one.role for one in (users.get(home.account_id, user.id) for user in (owner, admin, editor))] == [
        "owner", "admin", "editor"
    ]  # fmt: skip


def test_who_is_shut_out_is_signed_out(home: Home) -> None:
    """Closing, and a new password, end every browser and token; one's own new password all but this browser."""
    owner, editor = member(home, "owner"), member(home, "editor")
    token = transactions.write(sessions.create_browser_session, editor.id, None, None)
    transactions.write(users.disable, by(owner), editor.id)
    assert sessions.find_by_cookie(token) is None
    transactions.write(users.enable, by(owner), editor.id)
    assert sessions.find_by_cookie(token) is None
    here, there = (transactions.write(sessions.create_browser_session, editor.id, None, None) for _ in range(2))
    found = sessions.find_by_cookie(here)
    assert found is not None
    transactions.write(users.change_password, editor.id, "z", found.id)
    assert sessions.find_by_cookie(here) is not None and sessions.find_by_cookie(there) is None
    transactions.write(users.set_password, by(owner), editor.id, "w")
    assert sessions.find_by_cookie(here) is None
