"""Invalid tokens are rejected, a new password ends all sessions, and hashing blocks no request (T13, T17, T22)."""

import time
from concurrent.futures import ThreadPoolExecutor

import jwt as pyjwt
import pytest

from tests.api.test_login import login
from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.timeouts import extend_timeout

_NEW = "another long password"


def test_foreign_tokens_are_rejected(server: Server, fresh_server: FreshServer) -> None:
    """A token of another installation, a forged one and a long one get the same 401 as a wrong key."""
    theirs = login(fresh_server()).expect(200)["token"]
    mine = login(server).expect(200)["token"]
    claims = pyjwt.decode(mine, options={"verify_signature": False})
    bare = Client(server.url, validate=False)

    def answer(token: str) -> tuple[int, object, object]:
        result = bare.request("GET", "/v1/my/account", headers={"Authorization": f"Bearer {token}"})
        return result.status, result.headers["WWW-Authenticate"], {**result.json, "request_id": ""}

    wrong = answer("camp_live_" + "0" * 36)
    assert wrong[0] == 401 and answer(mine)[0] == 200
    tries = [theirs, pyjwt.encode(claims, "guess" * 8, "HS256"), pyjwt.encode(claims, None, "none"),
             f"{mine}{'A' * 6000}", mine + "=", "a.b.c"]  # fmt: skip
    assert [answer(token) for token in tries] == [wrong] * len(tries)


def test_a_new_password_ends_all_other_sessions(fresh_server: FreshServer) -> None:
    """Another browser and a token are signed out at their next request."""
    server = fresh_server()
    first, there = Visitor(server, EMAIL), Visitor(server, EMAIL)
    api = Client(server.url, login(server).expect(200)["token"])
    assert api.get("/account").status == there.send("GET", "/lists").status == 200
    changed = first.send("POST", "/settings/you/password", {"old_password": PASSWORD, "new_password": _NEW})
    assert changed.status == 303
    assert api.get("/account").status == 401
    assert there.send("GET", "/lists").status == 303 and first.send("GET", "/lists").status == 200
    assert login(server).status == 401 and login(server, password=_NEW).status == 200
    # The setup page stays unavailable
    assert first.send("GET", "/setup/" + "0" * 32).status == 404


@pytest.mark.parametrize("how", ["key", "token"])
def test_credentials_outside_of_the_header_are_ignored(server: Server, how: str) -> None:
    """A credential in a cookie, the query or another scheme is a 401."""
    secret = server.key if how == "key" else login(server).expect(200)["token"]
    bare = Client(server.url, validate=False)
    for path, headers in (
        ("/v1/my/account", {"Cookie": f"campanero={secret}"}), (f"/v1/my/account?access_token={secret}", {}),
        ("/v1/my/account", {"Authorization": f"Basic {secret}"}), ("/v1/my/account", {"X-Api-Key": secret}),
    ):  # fmt: skip
        assert bare.request("GET", path, headers=headers).status == 401


def test_logins_do_not_block_other_requests(fresh_server: FreshServer) -> None:
    """During twenty parallel logins other requests get a response quickly."""
    server = fresh_server(cold=True)  # it hashes passwords as slowly as in use
    bare = Client(server.url, validate=False, keep_alive=True)  # validating responses against the document is slow
    people = [{"email": f"n{n}@example.org", "password": PASSWORD} for n in range(20)]
    waits: list[float] = []
    with ThreadPoolExecutor(len(people)) as pool:
        busy = [pool.submit(Client(server.url, validate=False).post, "/v1/login", person) for person in people]
        while not all(future.done() for future in busy):
            began = time.monotonic()
            assert bare.request("GET", "/healthz").status == 200
            waits.append(time.monotonic() - began)
    # If passwords were hashed on the event loop, only one request would fit between two of them
    assert len(waits) > len(people) and max(waits) < extend_timeout(0.25)
