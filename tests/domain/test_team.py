"""Team members: who may change whom, and that an account keeps an owner."""

import pytest

from appliance.accounts import sessions, users
from appliance.accounts.audit import Actor
from appliance.core.errors import Invalid, NotAllowed
from appliance.storage import transactions
from appliance.storage.models import TeamMember, User
from tests.domain.home import Home


def add_member(home: Home, role: str, name: str = "") -> User:
    """Add a user with a role."""
    new = users.NewUser(f"{name or role}@example.org", name or role, "x")
    return transactions.write(users.create, home.account_id, new, role)


def actor_of(user: User) -> Actor:
    """Return a user as the actor."""
    return Actor(f"user:{user.id}", "192.0.2.7", user.id, account_id=user.account_id)


def test_an_account_keeps_an_owner(home: Home) -> None:
    """The last owner can neither get another role nor be disabled; with a second owner it is possible."""
    first_owner = add_member(home, "owner")
    TeamMember.update(disabled_at=1).where(TeamMember.user != first_owner.id).execute()
    second_user = add_member(home, "admin")
    with pytest.raises(Invalid):
        transactions.write(users.change_role, actor_of(first_owner), first_owner.id, "editor")
    with pytest.raises(Invalid):
        transactions.write(users.disable, actor_of(first_owner), first_owner.id)
    transactions.write(users.change_role, actor_of(first_owner), second_user.id, "owner")
    second_user = users.get(home.account_id, second_user.id)
    assert transactions.write(users.change_role, actor_of(second_user), first_owner.id, "viewer").role == "viewer"


def test_only_owners_change_owners(home: Home) -> None:
    """An admin cannot make or change an owner, and an editor cannot change or add anyone."""
    owner, admin, editor = (add_member(home, role) for role in ("owner", "admin", "editor"))
    for attempt in (
        lambda: transactions.write(users.change_role, actor_of(admin), editor.id, "owner"),
        lambda: transactions.write(users.change_role, actor_of(admin), owner.id, "viewer"),
        lambda: transactions.write(users.disable, actor_of(admin), owner.id),
        lambda: transactions.write(users.set_password, actor_of(admin), owner.id, "y"),
        lambda: transactions.write(users.change_role, actor_of(editor), admin.id, "viewer"),
        lambda: transactions.write(
            users.add_member, actor_of(editor), users.NewUser("n@example.org", "n", "x"), "viewer"
        ),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert [row.role for row in (users.get(home.account_id, user.id) for user in (owner, admin, editor))] == [
        "owner", "admin", "editor"
    ]  # fmt: skip


def test_disabled_users_are_signed_out(home: Home) -> None:
    """Disabling a user or setting a password ends all sessions; changing one's own password all but the current one."""
    owner, editor = add_member(home, "owner"), add_member(home, "editor")
    token = transactions.write(sessions.create_browser_session, editor.id, None, None)
    transactions.write(users.disable, actor_of(owner), editor.id)
    assert sessions.find_by_cookie(token) is None
    transactions.write(users.enable, actor_of(owner), editor.id)
    assert sessions.find_by_cookie(token) is None
    this_browser, other_browser = (
        transactions.write(sessions.create_browser_session, editor.id, None, None) for _ in range(2)
    )
    session = sessions.find_by_cookie(this_browser)
    assert session is not None
    transactions.write(users.change_password, editor.id, "z", session.id)
    assert sessions.find_by_cookie(this_browser) is not None and sessions.find_by_cookie(other_browser) is None
    transactions.write(users.set_password, actor_of(owner), editor.id, "w")
    assert sessions.find_by_cookie(this_browser) is None
