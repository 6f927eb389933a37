"""Roles on the pages, and the limit of failed sign-ins."""

import http.client
from urllib.parse import urlencode

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.server import EMAIL, PASSWORD, Server

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}


def request_page(server: Server, method: str, path: str, cookie: str = "", **form: str) -> tuple[int, dict[str, str]]:
    """Request a page like a browser; return status and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request(method, path, urlencode(form) if method == "POST" else None, FORM | {"Cookie": cookie})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, dict(response.headers)


def session_cookie(server: Server, email: str) -> str:
    """Sign in and return the session cookie."""
    status, headers = request_page(server, "POST", "/login", email=email, password=PASSWORD)
    assert status == 303
    return headers["Set-Cookie"].partition(";")[0]


def test_permissions_of_roles(fresh_server: FreshServer) -> None:
    """A viewer changes nothing, an author does not send, an editor does not change the brand; an admin may do all.

    A page that refuses an action says why in a sentence.
    """
    server = fresh_server()
    api = server.client()
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    flow = api.post("/flows", {"name": "Letters"}).expect(201)["id"]
    cookies = {}
    for role in ("viewer", "author", "editor", "admin"):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        cookies[role] = session_cookie(server, f"{role}@example.org")
    writes = {
        "/lists": {"name": "x"},
        "/templates/pictures": {},
        "/templates/pictures/1/delete": {},
        f"/campaigns/{campaign}/send": {"number": "0"},
        f"/campaigns/{campaign}/schedule": {"at": "0"},
        f"/campaigns/{campaign}/test": {},
        "/campaigns/acts": {},
        f"/flows/{flow}/steps": {"kind": "wait", "at": "start"},
        f"/flows/{flow}/activate": {},
        "/brand": {"company_name": "x"},
        "/settings/domains": {"name": "x.example"},
    }
    author = {"/lists", "/templates/pictures", "/templates/pictures/1/delete", f"/flows/{flow}/steps",
              "/campaigns/acts", f"/campaigns/{campaign}/test"}  # fmt: skip
    sends = {f"/campaigns/{campaign}/send", f"/campaigns/{campaign}/schedule", f"/flows/{flow}/activate"}
    allowed = {"viewer": set(), "author": author, "editor": author | sends, "admin": set(writes)}
    for role, cookie in cookies.items():
        assert all(
            request_page(server, "GET", path, cookie)[0] == 200 for path in ("/campaigns", "/templates/pictures")
        )
        for path, form in writes.items():
            status = request_page(server, "POST", path, cookie, **form)[0]
            assert (status != 403) == (path in allowed[role]), (role, path, status)

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("POST", "/flows/acts", urlencode({"act": "pause"}), FORM | {"Cookie": cookies["author"]})
    response = connection.getresponse()
    assert response.status == 403
    assert "<p>Your role cannot start, pause or archive flows.</p>" in response.read().decode()
    connection.close()


def test_the_limit_of_failed_sign_ins(fresh_server: FreshServer, clock: TestClock) -> None:
    """After ten failures even the right password gets a 429; a quarter of an hour later it works."""
    server = fresh_server(clock=clock)
    for _ in range(10):
        assert request_page(server, "POST", "/login", email=EMAIL, password="wrong wrong wrong")[0] == 422
    status, _ = request_page(server, "POST", "/login", email=EMAIL, password=PASSWORD)
    clock.advance(minutes=16)

    assert status == 429
    assert session_cookie(server, EMAIL)
