"""The team: who may change whom, and that an account always has an owner."""

import pytest

from appliance.accounts import sessions, users
from appliance.accounts.acting import By
from appliance.core.errors import Invalid, NotAllowed
from appliance.storage import work
from appliance.storage.models import User
from tests.domain.home import Home


def member(home: Home, role: str, name: str = "") -> User:
    """Add somebody as the service itself would."""
    new = users.NewUser(f"{name or role}@example.org", name or role, "x")
    return work.write(users.add, home.account_id, new, role)


def by(user: User) -> By:
    """Return who acts when somebody does."""
    return By(f"user:{user.id}", "192.0.2.7", user.id)


def test_an_account_keeps_an_owner(home: Home) -> None:
    """The last owner can neither be lowered nor shut out; with a second one both are possible."""
    first = member(home, "owner")
    User.update(disabled_at=1).where(User.id != first.id).execute()
    second = member(home, "admin")
    with pytest.raises(Invalid):
        work.write(users.change, by(first), first.id, "editor")
    with pytest.raises(Invalid):
        work.write(users.close, by(first), first.id)
    work.write(users.change, by(first), second.id, "owner")
    second = users.get(home.account_id, second.id)
    assert work.write(users.change, by(second), first.id, "viewer").role == "viewer"


def test_only_owners_decide_about_owners(home: Home) -> None:
    """An admin makes no owner, and changes none; who writes and looks decides about nobody."""
    owner, admin, editor = (member(home, role) for role in ("owner", "admin", "editor"))
    for attempt in (
        lambda: work.write(users.change, by(admin), editor.id, "owner"),
        lambda: work.write(users.change, by(admin), owner.id, "viewer"),
        lambda: work.write(users.close, by(admin), owner.id),
        lambda: work.write(users.give_password, by(admin), owner.id, "y"),
        lambda: work.write(users.change, by(editor), admin.id, "viewer"),
        lambda: work.write(users.add_member, by(editor), users.NewUser("n@example.org", "n", "x"), "viewer"),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert [one.role for one in (users.get(home.account_id, user.id) for user in (owner, admin, editor))] == [
        "owner", "admin", "editor"
    ]  # fmt: skip


def test_who_is_shut_out_is_signed_out(home: Home) -> None:
    """Closing, and a new password, end every browser and token; one's own new password all but this browser."""
    owner, editor = member(home, "owner"), member(home, "editor")
    token = work.write(sessions.begin, editor.id, None, None)
    work.write(users.close, by(owner), editor.id)
    assert sessions.find(token) is None
    work.write(users.reopen, by(owner), editor.id)
    assert sessions.find(token) is None
    here, there = (work.write(sessions.begin, editor.id, None, None) for _ in range(2))
    found = sessions.find(here)
    assert found is not None
    work.write(users.choose_password, editor.id, "z", found.id)
    assert sessions.find(here) is not None and sessions.find(there) is None
    work.write(users.give_password, by(owner), editor.id, "w")
    assert sessions.find(here) is None
