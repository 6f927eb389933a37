"""Sign-in of users over the API: tokens, roles, sessions and limits of attempts."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kit.client import Client, Response
from tests.kit.clock import TestClock
from tests.kit.server import EMAIL, PASSWORD, Server

ROLES = ("admin", "editor", "author", "viewer")


@pytest.fixture(scope="module")
def own_clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """Return the clock of the module's server."""
    return TestClock(tmp_path_factory.mktemp("clock") / "clock")


@pytest.fixture(scope="module")
def server(own_clock: TestClock) -> Iterator[Server]:
    """Yield a server with a user of every role."""
    with Server(clock=own_clock).set_up() as running:
        for role in ROLES:
            running.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        yield running
        running.stop()


def login(server: Server, email: str = EMAIL, password: str = PASSWORD, **more: Any) -> Response:
    """Request a token."""
    return Client(server.url).post("/v1/login", {"email": email, "password": password, **more})


def sign_in(server: Server, role: str) -> Client:
    """Return a client of a user with a role."""
    email = EMAIL if role == "owner" else f"{role}@example.org"
    return Client(server.url, login(server, email).expect(200)["token"])


def test_login_paths_and_bodies(server: Server) -> None:
    """The token is in body and header and works for the user's account; an unknown key is ignored."""
    for path, body in (
        ("/v1/login", {"email": EMAIL, "password": PASSWORD, "remember": True}),
        ("/v1/my/login", {"user": {"email": EMAIL.upper(), "password": PASSWORD}}),
    ):
        response = Client(server.url).post(path, body)
        result = response.expect(200)
        assert response.headers["Authorization"] == f"Bearer {result['token']}"
        assert response.headers["Cache-Control"] == "no-store" and response.headers["X-Api-Version"] == "1.0"
        assert set(result) == {"token", "expires_at", "user"} and "Set-Cookie" not in response.headers
        assert result["user"] == {"id": 1, "email": EMAIL, "name": "owner", "role": "owner"}
        assert Client(server.url, result["token"]).get("/account").expect(200)["name"] == "Bakery"


def test_logout_ends_the_token(server: Server) -> None:
    """Logging out is a 204, and the next request with the token a 401; a key cannot log out."""
    for path in ("/v1/logout", "/v1/my/logout"):
        api, other = sign_in(server, "owner"), sign_in(server, "owner")
        assert api.delete(path).status == 204
        assert {api.get("/account").status, api.delete(path).status} == {401}
        assert other.get("/account").status == 200
        assert server.client().delete(path).expect(403)["code"] == "forbidden"


def test_roles_have_scopes(server: Server) -> None:
    """Each role may use exactly the operations of its scopes."""
    campaign_id = server.client().post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    flow = server.client().post("/flows", {"name": "Letters"}).expect(201)["id"]
    wants = {
        "POST /lists": ("author", "editor", "admin", "owner"),
        "POST /templates/preview": ("viewer", "author", "editor", "admin", "owner"),
        f"POST /campaigns/{campaign_id}/send": ("editor", "admin", "owner"),
        "POST /messages": ("editor", "admin", "owner"),
        f"POST /flows/{flow}/approve": ("admin", "owner"),
        "PATCH /account": ("admin", "owner"),
        "PUT /brand": ("admin", "owner"),
        "POST /domains": ("admin", "owner"),
        "GET /contacts": ("viewer", "author", "editor", "admin", "owner"),
    }  # fmt: skip
    for role in (*ROLES, "owner"):
        api = sign_in(server, role)
        for ask, roles in wants.items():
            method, _, path = ask.partition(" ")
            response = api.send(method, path, None if method == "GET" else {"name": ""})
            assert (response.status != 403) == (role in roles), (role, ask, response.body)
            assert response.status != 401
            if response.status == 403:
                assert response.json["required_scope"]


def test_failed_logins(server: Server) -> None:
    """Unknown, wrong and disabled get the same 401; an invalid request has errors at its fields."""
    texts = [login(server, email, word) for email, word in (
        ("nobody@example.org", PASSWORD), ("viewer@example.org", "wrong wrong wrong"), ("no address", PASSWORD),
        ("viewer@example.org", PASSWORD + " "))]  # fmt: skip
    for response in texts:
        assert response.expect(401)["code"] == "invalid_credentials"
        assert {**response.json, "request_id": ""} == {**texts[0].json, "request_id": ""}
        assert response.headers["WWW-Authenticate"] == "Bearer"
    bare = Client(server.url)
    assert set(bare.post("/v1/login", {"email": 1}).expect(422)["validation_errors"]) == {"email", "password"}
    nested = bare.post("/v1/login", {"user": {"email": ""}}).expect(422)
    assert set(nested["validation_errors"]) == {"user.email", "user.password"}
    assert bare.post("/v1/login", {"user": "x"}).status == 422
    assert bare.request("POST", "/v1/login", b"{", {"Content-Type": "application/json"}).status == 400
    assert bare.request("POST", "/v1/login", b"email=x", {"Content-Type": "text/plain"}).status == 415
    assert bare.get("/v1/login").status == 405
    long = bare.post("/v1/login", {"email": EMAIL, "password": "x" * 1025, "otp": "1" * 65}).expect(422)
    assert set(long["validation_errors"]) == {"password", "otp"}


def test_parallel_guesses_are_limited(server: Server, own_clock: TestClock) -> None:
    """Of forty parallel attempts at most ten are checked; afterwards even the right password must wait."""
    own_clock.advance(minutes=16)
    with ThreadPoolExecutor(40) as pool:
        responses = list(pool.map(lambda n: login(server, "author@example.org", f"wrong wrong {n}"), range(40)))
    assert sorted({response.status for response in responses}) == [401, 429]
    assert sum(response.status == 401 for response in responses) <= 10
    for _ in range(10):
        login(server, "AUTHOR@example.org", "wrong wrong wrong")
    for headers in ({}, {"X-Forwarded-For": "203.0.113.9"}, {"Forwarded": "for=203.0.113.9"}):
        sent = {"email": "author@example.org", "password": PASSWORD}
        error = Client(server.url).post("/v1/my/login", sent, headers)
        assert error.expect(429)["code"] == "rate_limited" and int(error.headers["Retry-After"]) > 600
    own_clock.advance(minutes=16)
    assert login(server, "author@example.org").status == 200


def test_list_and_end_sessions(server: Server) -> None:
    """A user sees and ends only their own sessions; a key has none."""
    mine, other, boss = sign_in(server, "editor"), sign_in(server, "editor"), sign_in(server, "owner")
    rows = mine.get("/user/sessions").expect(200)
    assert [(row["kind"], row["current"], row["ip"]) for row in rows[:2]] == [
        ("token", False, "127.0.0.1"), ("token", True, "127.0.0.1")
    ]  # fmt: skip
    assert boss.delete(f"/user/sessions/{rows[0]['id']}").status == 404
    assert mine.delete(f"/user/sessions/{rows[0]['id']}").expect(200)["id"] == rows[0]["id"]
    assert other.get("/account").status == 401 and len(mine.get("/user/sessions").json) == len(rows) - 1
    assert mine.delete(f"/user/sessions/{rows[1]['id']}").status == 200 and mine.get("/account").status == 401
    for method, path in (("GET", ""), ("DELETE", "/1")):
        assert server.client().send(method, f"/user/sessions{path}").expect(403)["required_role"] == "viewer"


def test_a_sign_in_cannot_outlive_a_change_of_the_user(server: Server, own_clock: TestClock) -> None:
    """Sign-ins that are verified while the user is disabled, or gets another password, give no session that works."""
    email = "editor@example.org"
    admin = sign_in(server, "owner")
    path = f"/users/{login(server, email).expect(200)['user']['id']}"

    def sign_in_during(change: dict[str, Any], undo: dict[str, Any]) -> list[int]:
        """Return the statuses of a request with each token that was issued around the change."""
        is_over = threading.Event()

        def sign_in_again() -> list[str]:
            tokens = []
            while not is_over.is_set():
                response = login(server, email)
                if response.status == 200:
                    tokens.append(response.json["token"])
            return tokens

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(sign_in_again) for _ in range(4)]
            time.sleep(0.2)
            admin.patch(path, change).expect(200)
            # As many failures as the limit allows in all, so that the sign-ins that were on their way can end.
            time.sleep(0.2)
            is_over.set()
            tokens = [token for each in running for token in each.result()]
        admin.patch(path, undo).expect(200)
        own_clock.advance(minutes=16)
        assert tokens
        return [Client(server.url, token).get("/user").status for token in tokens]

    assert set(sign_in_during({"disabled": True}, {"disabled": False})) == {401}
    assert set(sign_in_during({"password": "another horse battery"}, {"password": PASSWORD})) == {401}
