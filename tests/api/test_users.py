"""Users over the API: managing the team, own profile, and protection against lock-out."""

import re

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user, login, user_client
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.ui.test_login import enable_second_factor

OTHER = "another good password"
PEOPLE = (("GET", "/users"), ("POST", "/users"), ("GET", "/users/1"), ("PATCH", "/users/1"), ("DELETE", "/users/1"))
RULED = (*PEOPLE, ("GET", "/api_keys"), ("POST", "/api_keys"), ("DELETE", "/api_keys/1"), ("GET", "/audit"))


@pytest.fixture(scope="module")
def team(server: Server, owner: Client) -> dict[str, Client]:
    """Return a client of a user of each role except owner."""
    return {role: add_user(server, role) for role in ("admin", "editor", "author", "viewer")}


def user_id(owner: Client, email: str) -> int:
    """Return the id of the user with an email."""
    return int(next(row["id"] for row in owner.all("/users") if row["email"] == email))


def test_create_change_disable_and_enable_a_user(server: Server, owner: Client) -> None:
    """The generated password is shown once.

    Changes apply at once to existing sessions; disabled users are listed apart.
    """
    user = owner.post("/users", {"email": "Ann@Example.org", "role": "editor", "name": "Ann"}).expect(201)
    assert (user["email"], user["role"], user["otp"], user["disabled_at"]) == ("ann@example.org", "editor", False, None)
    assert re.fullmatch(r"(\w{5}-){3}\w{5}", user["password"])
    ann = user_client(server, "ann@example.org", user["password"])
    assert ann.get("/user").expect(200)["name"] == "Ann"
    path = f"/users/{user['id']}"
    assert "password" not in owner.get(path).expect(200)
    assert owner.patch(path, {"role": "viewer", "name": "Anna"}).expect(200)["name"] == "Anna"
    # The new role also applies to the existing token
    assert ann.post("/lists", {"name": "x"}).expect(403)["required_scope"] == "contacts:write"
    owner.patch(path, {"password": OTHER}).expect(200)
    assert ann.get("/user").status == 401
    ann = user_client(server, "ann@example.org", OTHER)
    assert owner.delete(path).expect(200)["disabled_at"] is not None
    assert ann.get("/user").status == 401 and login(server, "ann@example.org", OTHER).status == 401
    assert user["id"] not in [row["id"] for row in owner.all("/users")]
    assert [row["id"] for row in owner.get("/users", disabled=True).expect(200)] == [user["id"]]
    owner.patch(path, {"disabled": False}).expect(200)
    user_client(server, "ann@example.org", OTHER)


def test_the_second_factor_of_a_colleague_is_reset(server: Server, owner: Client) -> None:
    """Afterwards the password is enough; a colleague without a second factor gets the same answer."""
    body = {"email": "otto@example.org", "role": "editor", "password": PASSWORD}
    path = f"/users/{owner.post('/users', body).expect(201)['id']}"
    assert owner.patch(path, {"otp": False}).expect(200)["otp"] is False
    enable_second_factor(Visitor(server, "otto@example.org"))
    assert owner.get(path).expect(200)["otp"] is True
    assert login(server, "otto@example.org", PASSWORD).expect(401)["code"] == "otp_required"
    changed = owner.patch(path, {"otp": False, "role": "viewer"}).expect(200)
    assert (changed["otp"], changed["role"]) == (False, "viewer")
    assert login(server, "otto@example.org", PASSWORD).status == 200


def test_invalid_users_are_rejected(owner: Client) -> None:
    """All errors are reported at once; an existing email is taken."""
    response = owner.post("/users", {"email": "nobody", "role": "king", "name": " ", "password": 7})
    assert set(response.expect(422)["validation_errors"]) == {"email", "role", "name", "password"}
    short = owner.post("/users", {"email": "new@example.org", "role": "viewer", "password": "short"})
    assert short.expect(422)["validation_errors"] == {"password": ["is too short (minimum is 10 characters)"]}
    taken = owner.post("/users", {"email": EMAIL.upper(), "role": "viewer"})
    assert taken.expect(422)["validation_errors"] == {"email": ["has already been taken"]}
    assert owner.patch("/users/1", {"password": "x" * 1025}).status == 422
    assert set(owner.patch("/users/1", {"otp": True, "role": ""}).expect(422)["validation_errors"]) == {"otp", "role"}
    assert owner.patch("/users/4711", {"password": "short"}).status == 404


def test_users_cannot_lock_themselves_out(owner: Client, team: dict[str, Client]) -> None:
    """The last owner stays an owner, and no user can disable themselves or skip their password."""
    for body in ({"role": "admin"}, {"role": "viewer", "disabled": True}):
        assert "role" in owner.patch("/users/1", body).expect(422)["validation_errors"]
    assert owner.delete("/users/1").expect(422)["validation_errors"]["disabled"] == ["must not be your own user"]
    assert "password" in owner.patch("/users/1", {"password": OTHER}).expect(422)["validation_errors"]
    # A stolen token must not remove the second factor
    both = owner.patch("/users/1", {"otp": False, "role": "viewer"}).expect(422)["validation_errors"]
    assert set(both) == {"otp", "role"}
    assert owner.get("/user").status == 200
    admin = team["admin"]
    assert admin.patch("/users/1", {"name": "Mine"}).expect(403)["required_role"] == "owner"
    assert admin.post("/users", {"email": "boss@example.org", "role": "owner"}).status == 403
    own = user_id(owner, "admin@example.org")
    assert admin.patch(f"/users/{own}", {"role": "owner"}).status == 403
    assert owner.get("/users/1").expect(200)["role"] == "owner"


def test_only_owners_and_admins_manage_users(server: Server, owner: Client, team: dict[str, Client]) -> None:
    """Keys and other roles get a 403 with the required role."""
    for client in (server.client(), team["editor"], team["author"], team["viewer"]):
        for method, path in RULED:
            error = client.send(method, path).expect(403)
            assert (error["required_role"], "required_scope" in error) == ("admin", False), (method, path)
    for client in (owner, team["admin"]):
        assert {client.get(path).status for method, path in RULED if method == "GET"} == {200}
    for method in ("GET", "PATCH"):
        assert server.client().send(method, "/user").expect(403)["required_role"] == "viewer"


def test_users_change_their_own_profile(server: Server, owner: Client) -> None:
    """A new password needs the current one and ends all sessions."""
    viewer = add_user(server, "viewer", name="vera")
    assert viewer.get("/user").expect(200)["role"] == "viewer"
    assert viewer.patch("/user", {"name": "Vera", "role": "owner"}).headers["X-Ignored-Fields"] == "role"
    assert viewer.get("/user").expect(200)["name"] == "Vera"
    for body, fields in (
        ({"password": OTHER}, {"current_password"}),
        ({"password": "short", "current_password": "wrong"}, {"password", "current_password"}),
        ({"password": OTHER, "current_password": "wrong"}, {"current_password"}),
    ):
        assert set(viewer.patch("/user", body).expect(422)["validation_errors"]) == fields
    second = user_client(server, "vera@example.org")
    viewer.patch("/user", {"password": OTHER, "current_password": PASSWORD}).expect(200)
    assert (viewer.get("/user").status, second.get("/user").status) == (401, 401)
    assert login(server, "vera@example.org").status == 401
    again = user_client(server, "vera@example.org", OTHER)
    # A token cannot be used to guess the password
    wrong = {"password": PASSWORD, "current_password": "wrong"}
    assert [again.patch("/user", wrong).status for _ in range(11)] == [422] * 10 + [429]
    acts = owner.get("/audit", subject=f"user:{user_id(owner, 'vera@example.org')}").expect(200)
    assert {"user_add", "user_name", "user_password", "login"} <= {row["action"] for row in acts}


def test_users_of_another_account_are_unknown(server: Server, owner: Client) -> None:
    """Users, keys and the audit log of another account are unknown."""
    number = int(server.cli("account", "add", "Elsewhere").stdout)
    theirs = add_user(server, "owner", number, "eve")
    before = [owner.get(path).expect(200) for path in ("/users", "/api_keys")]
    for method, path in (*PEOPLE[2:], ("DELETE", "/api_keys/1")):
        response = theirs.send(method, path, {"name": "taken"} if method == "PATCH" else None)
        assert response.status == 404, (method, path)
    assert [row["email"] for row in theirs.get("/users").expect(200)] == ["eve@example.org"]
    assert theirs.get("/api_keys").expect(200) == []
    assert {row["account_id"] for row in theirs.get("/audit", limit=100).expect(200)} == {number}
    assert theirs.get("/audit", subject="key:1").expect(200) == []
    taken = theirs.post("/users", {"email": EMAIL, "role": "viewer", "account_id": 1})
    assert taken.status == 422
    assert [owner.get(path).expect(200) for path in ("/users", "/api_keys")] == before


def test_keys_of_a_disabled_user_keep_working(server: Server, owner: Client) -> None:
    """A key belongs to the account, and pages show which keys of a disabled user still work."""
    maker = add_user(server, "admin", name="maya")
    key = maker.post("/api_keys", {"name": "Till"}).expect(201)
    number = user_id(owner, "maya@example.org")
    owner.delete(f"/users/{number}").expect(200)
    assert maker.get("/user").status == 401
    assert server.client(key["key"]).get("/lists").status == 200
    assert number in [row["created_by"] for row in owner.get("/api_keys").expect(200)]
    page = Visitor(server, EMAIL)
    page.send("POST", f"/settings/team/{number}/reopen")
    shown = page.send("GET", "/settings/team").text
    assert f"Till (…{key['hint']})" in shown and f'id="close-{number}"' in shown
    page.send("POST", f"/settings/team/{number}/close")
    assert f"API keys that still work: Till (…{key['hint']})" in page.send("GET", "/settings/you").text
