"""Generated requests of a second account to every route: no 5xx, and nothing of the first account (T09, T42).

The shapes of paths, headers, queries and bodies are those of tests/ui/test_no_route_fails.py, which the account itself
sends there. Here they carry the ids of the objects of another account.
"""

from urllib.parse import quote_plus

from tests.kit.raw_http import RawResponse
from tests.kit.routes import list_routes
from tests.kit.server import PASSWORD, Server
from tests.kit.tenants import Tenant
from tests.ui.test_no_route_fails import (
    BROKEN_BODIES,
    FORM,
    HEADERS,
    IDS,
    METHODS,
    QUERIES,
    Walker,
    bodies,
    check_failures,
    fill_existing,
    fill_parameters,
    shapes,
)

SERVER_ENV = {"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100000", "CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}
# The names of all objects of the first account contain this word, which the second account never sends.
CANARY = "zqcanary"
STRANGER = "stranger@example.com"
SAME_ORIGIN = "Sec-Fetch-Site: same-origin"
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Stranger(Walker):
    """The owner of the second account, who requests the objects of the first; a response with the word is a failure."""

    def __init__(self, server: Server, key: str, full: bool) -> None:
        super().__init__(server, full)
        self._key = key
        body = f"email={quote_plus(STRANGER)}&password={quote_plus(PASSWORD)}".encode()
        self._sign_in_body = body
        self.sign_in()

    def sign_in(self) -> None:
        """Sign in as the owner of the second account."""
        response = self.send("POST", "/login", f"Content-Type: {FORM}\r\n{SAME_ORIGIN}", self._sign_in_body)
        assert response is not None and response.status == 303, response
        cookies = response.headers.get_all("set-cookie") or []
        self.cookie = "Cookie: " + "; ".join(cookie.partition(";")[0] for cookie in cookies)

    def credentials(self, path: str) -> str:
        """Return the header that authorises requests to a path."""
        return f"Authorization: Bearer {self._key}" if path.startswith(("/v1", "/metrics")) else self.cookie

    def send(self, method: str, target: str, headers: str = "", body: bytes = b"") -> RawResponse | None:
        """Send a request, and record a response with data of the first account as a failure."""
        response = super().send(method, target, headers, body)
        if response is not None and CANARY.encode() in response.body + str(response.headers).encode():
            self.failures.append(f"{method} {target[:200]} [{headers[:300]}]: the response contains {CANARY}")
        return response


def test_no_route_shows_what_another_account_has(server: Server, full: bool) -> None:
    """Whatever a second account sends to a route, it gets nothing of the first account, and changes nothing of it.

    A third of the routes, all with `--full`; tests/api/test_threats_pages.py and test_threats_accounts.py request each.
    """
    victim = Tenant(server.client()).create_objects(CANARY)
    account_id = server.cli("account", "add", "Elsewhere").stdout.strip()
    server.cli("user", "add", "--email", STRANGER, "--account", account_id, stdin=f"{PASSWORD}\n")
    stranger = Stranger(server, server.new_key("theirs", "--account", account_id), full)
    before = victim.read_all()
    routes = list_routes()[:: 1 if full else 3]
    for route, methods in routes:
        path = fill_existing(route, victim.object_ids)
        attack_route(stranger, route, path, [method for method in methods if method in WRITES])
    stranger.wire.close()
    check_failures(stranger)
    assert stranger.request_count > 2 * len([route for route, _ in routes if "<" in route]) and len(before) > 50
    assert any(CANARY.encode() in body for body in before.values())
    after = victim.read_all()
    assert {path for path in before if before[path] != after.get(path)} == set()


def attack_route(stranger: Stranger, route: str, path: str, writes: list[str]) -> None:
    """Send odd methods, slashes, headers, queries, ids and bodies to a route."""
    credentials = stranger.credentials(path)
    odd = [("GET", target, credentials) for target in shapes(path)]
    odd += [
        ("GET", path, headers if "Authorization" in headers else f"{credentials}\r\n{headers}") for headers in HEADERS
    ]
    odd += [("GET", f"{path}{query}", credentials) for query in QUERIES]
    odd += [(method, path, f"{credentials}\r\n{SAME_ORIGIN}") for method in (*METHODS, *WRITES)]
    odd += [("GET", fill_parameters(route, value), credentials) for value in IDS if "<" in route]
    stranger.send("GET", path, credentials)
    # Without an id, a route has nothing of another account to show, and tests/ui/test_no_route_fails.py requests it.
    sample = stranger.random.sample(odd, 1) if "<" in route else []
    for method, target, headers in odd if stranger.full else sample:
        stranger.send(method, target, headers)
    for method in writes if "<" in route else ():
        kinds = [*bodies(stranger), *BROKEN_BODIES] if stranger.full else [stranger.random.choice(BROKEN_BODIES)]
        for content_type, body in kinds:
            response = stranger.send(
                method, path, f"{credentials}\r\n{SAME_ORIGIN}\r\nContent-Type: {content_type}", body
            )
            if response is not None and (response.status == 401 or "/login" in (response.headers["Location"] or "")):
                stranger.sign_in()
                credentials = stranger.credentials(path)
