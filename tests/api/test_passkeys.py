"""Passkeys over HTTP, with an authenticator in software: what a hostile browser or site may try is refused (T14)."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import apsw
import pytest

from tests.kit.client import Client, Response
from tests.kit.passkey import (
    BACKED_UP,
    BACKUP_ELIGIBLE,
    USER_PRESENT,
    USER_VERIFIED,
    SoftwarePasskey,
    to_bytes,
    to_text,
)
from tests.kit.sampling import every_nth
from tests.kit.server import EMAIL, PASSWORD, Server

PROFILE = "/settings/you"
BOTH = USER_PRESENT | USER_VERIFIED


class Browser:
    """A browser without scripts, with its cookies."""

    def __init__(self, server: Server) -> None:
        self.api, self.origin = Client(server.url, validate=False), server.url
        self.cookies: dict[str, str] = {}

    def send(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Response:
        """Request a page or post a form, with the cookies so far, and keep the new ones."""
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        sent |= {"Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0", **headers}
        body = None
        if method == "POST":
            sent["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode(form or {}).encode()
        response = self.api.request(method, path, body, sent)
        for line in response.headers.get_all("set-cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response

    def sign_in(self, email: str) -> "Browser":
        """Sign in with the password alone."""
        assert self.send("POST", "/login", {"email": email, "password": PASSWORD}).status == 303
        return self

    def begin(self, token: str = "") -> Any:
        """Return the options for a sign-in with a passkey; `token` is the one of a right password."""
        return self.send("POST", "/login/passkey", {"pass": token}).expect(200)

    def enter(self, credential: str, token: str = "") -> Response:
        """Post the response of a passkey to the sign-in form."""
        return self.send("POST", "/login", {"credential": credential, "pass": token, "next": "/lists"})

    def creation_options(self) -> Any:
        """Return the options for a new passkey, after the password."""
        page = self.send("POST", f"{PROFILE}/passkeys/new", {"password": PASSWORD})
        match = re.search(r'data-passkey-options="([^"]+)"', page.text)
        assert match, page.text
        return json.loads(html.unescape(match[1]))

    def register(self, credential: str, name: str = "Key") -> Response:
        """Post the response to options for a new passkey."""
        return self.send("POST", f"{PROFILE}/passkeys", {"credential": credential, "name": name})

    def is_signed_in(self) -> bool:
        """Return whether the profile opens."""
        return self.send("GET", PROFILE).status == 200


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose base URL is `localhost`, with a high limit of failed sign-ins."""
    running = Server(env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"})
    running.url = running.url.replace("127.0.0.1", "localhost")
    running.env["CAMPANERO_BASE_URL"] = running.url
    with running.set_up():
        yield running
        running.stop()


def add_user(server: Server, name: str) -> str:
    """Add a user by the command line and return its email address."""
    server.cli("user", "add", "--email", f"{name}@example.org", "--role", "editor", stdin=PASSWORD + "\n")
    return f"{name}@example.org"


def add_passkey(server: Server, name: str, **settings: Any) -> tuple[Browser, SoftwarePasskey]:
    """Return the browser of a new user, who is signed in, and a passkey that the user has added."""
    browser, passkey = Browser(server).sign_in(add_user(server, name)), SoftwarePasskey(server.url, **settings)
    response = browser.register(passkey.create(browser.creation_options()))
    assert response.status == 303, response.text
    return browser, passkey


def is_refused(response: Response) -> bool:
    """Return whether a sign-in was refused, without a session."""
    return response.status == 422 and "campanero=" not in str(response.headers.get_all("set-cookie"))


def audit_actions(server: Server, subject: str) -> list[str]:
    """Return the actions about a user, newest first."""
    owner = Client(server.url)
    owner.key = owner.post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    return [entry["action"] for entry in owner.get("/audit", subject=subject).expect(200)]


def user_id(server: Server, email: str) -> int:
    """Return the id of a user."""
    [[number]] = apsw.Connection(str(server.data / "campanero.db")).execute(
        "SELECT id FROM user WHERE email = ?", (email,)
    )
    return int(number)


def test_sign_in_alone_and_after_the_password(server: Server) -> None:
    """With a passkey the password is not enough; the passkey signs in alone, or after it without verifying the user."""
    first, passkey = add_passkey(server, "ann")
    codes = re.search(r'aria-label="Recovery codes">([^<]*)<', first.send("GET", PROFILE).text)
    assert codes and len(codes[1].split()) == 10
    other = Browser(server)
    assert other.enter(passkey.sign(other.begin())).headers["location"] == "/lists" and other.is_signed_in()

    second = Browser(server)
    page = second.send("POST", "/login", {"email": "ann@example.org", "password": PASSWORD})
    match = re.search(r'name="pass" value="([^"]+)"', page.text)
    assert page.status == 200 and match and not second.is_signed_in()
    assert "Only if your passkey is not at hand." in page.text
    options = second.begin(match[1])
    assert [to_bytes(entry["id"]) for entry in options["allowCredentials"]] == [passkey.credential_id]
    passkey.flags = USER_PRESENT
    assert second.enter(passkey.sign(options), match[1]).status == 303 and second.is_signed_in()
    assert Client(server.url).post("/v1/login", {"email": "ann@example.org", "password": PASSWORD}).status == 401
    with_code = {"email": "ann@example.org", "password": PASSWORD, "otp": codes[1].split()[0]}
    assert Client(server.url).post("/v1/login", with_code).status == 200
    methods = [
        entry for entry in audit_actions(server, f"user:{user_id(server, 'ann@example.org')}") if entry == "login"
    ]
    assert len(methods) == 4


def test_options_reveal_nobody(server: Server) -> None:
    """Without the right password the options name no passkey; a forged token of a password names none either."""
    add_passkey(server, "bea")
    assert Browser(server).begin()["allowCredentials"] == []
    assert Browser(server).begin("made-up")["allowCredentials"] == []
    page = Browser(server).send("POST", "/login/passkey", {}, **{"Sec-Fetch-Site": "cross-site"})
    assert page.status == 403


@pytest.mark.parametrize(
    ("client_data", "settings"),
    [
        ({"origin": "https://evil.example"}, {}),
        ({"origin": "http://localhost"}, {}),
        ({"type": "webauthn.create"}, {}),
        ({"crossOrigin": True}, {}),
        ({"topOrigin": "https://evil.example"}, {}),
        ({"challenge": to_text(bytes(54))}, {}),
        ({"challenge": ""}, {}),
        ({"challenge": 7}, {}),
        ({}, {"host": "evil.example"}),
        ({}, {"flags": USER_PRESENT}),
        ({}, {"flags": USER_VERIFIED}),
        ({}, {"flags": BOTH | BACKED_UP}),
        ({}, {"flags": BOTH | BACKUP_ELIGIBLE | BACKED_UP}),
        ({}, {"user_handle": b""}),
        ({}, {"user_handle": bytes(32)}),
        ({}, {"credential_id": bytes(32)}),
    ],
    ids=lambda value: "-".join(value) if value else "none",
)
def test_wrong_assertions(hostile: tuple[Browser, SoftwarePasskey], client_data: Any, settings: Any) -> None:
    """Another origin, host, kind, frame, challenge, user or passkey, or a missing check of the user, is refused."""
    browser, passkey = hostile
    before = {name: getattr(passkey, name) for name in settings}
    for name, value in settings.items():
        setattr(passkey, name, value)
    options = browser.begin()
    assert is_refused(browser.enter(passkey.sign(options, **client_data)))
    for name, value in before.items():
        setattr(passkey, name, value)
    # The challenge is used up, except by a response that named another one
    assert (
        is_refused(browser.enter(passkey.sign(options))) or "challenge" in client_data or "Origin" in str(client_data)
    )
    browser.cookies.pop("campanero", None)


@pytest.fixture(scope="module")
def hostile(server: Server) -> tuple[Browser, SoftwarePasskey]:
    """A browser that is not signed in, and a passkey of a user."""
    _, passkey = add_passkey(server, "cem")
    return Browser(server), passkey


def test_replays_and_other_browsers(server: Server, hostile: tuple[Browser, SoftwarePasskey]) -> None:
    """A response works once, only in the browser that asked for it, and only for what it was asked for."""
    browser, passkey = Browser(server), hostile[1]
    credential = passkey.sign(browser.begin())
    assert is_refused(Browser(server).enter(credential))
    assert browser.enter(credential).status == 303
    assert is_refused(browser.enter(credential))
    thief = Browser(server)
    thief.cookies = {"device": browser.cookies["device"]}
    assert is_refused(thief.enter(credential))
    options = browser.begin("some token")
    assert is_refused(browser.enter(passkey.sign(options)))  # asked for after a password
    registration = browser.creation_options()
    assert is_refused(browser.enter(passkey.sign(registration)))


def test_a_passkey_of_somebody_else_after_the_password(server: Server, hostile: Any) -> None:
    """After the password of one user, the passkey of another user is refused, and so is a token of another sign-in."""
    add_passkey(server, "dov")
    browser, passkey = Browser(server), hostile[1]
    page = browser.send("POST", "/login", {"email": "dov@example.org", "password": PASSWORD})
    match = re.search(r'name="pass" value="([^"]+)"', page.text)
    assert match
    assert is_refused(browser.enter(passkey.sign(browser.begin(match[1])), match[1]))
    assert is_refused(browser.enter(passkey.sign(browser.begin()), match[1]))
    options = browser.begin(match[1])
    assert is_refused(browser.enter(passkey.sign(options), match[1][:-2] + "AA"))


def test_the_counter(server: Server) -> None:
    """A counter that stands still or goes back is refused and recorded; a synced passkey always has 0."""
    _, passkey = add_passkey(server, "eda", sign_count=5)

    def sign_in_with(count: int) -> Response:
        browser, passkey.sign_count = Browser(server), count
        return browser.enter(passkey.sign(browser.begin()))

    assert is_refused(sign_in_with(5)) and is_refused(sign_in_with(0)) and is_refused(sign_in_with(4))
    assert sign_in_with(6).status == 303
    refused = sign_in_with(6)
    assert is_refused(refused) and "a copy of it may exist" in refused.text
    assert audit_actions(server, f"user:{user_id(server, 'eda@example.org')}")[0] == "passkey_counter"
    _, synced = add_passkey(server, "flo", flags=BOTH | BACKUP_ELIGIBLE | BACKED_UP)
    for _ in range(2):
        browser = Browser(server)
        assert browser.enter(synced.sign(browser.begin())).status == 303


def test_wrong_registrations(server: Server) -> None:
    """Another session, origin, host or algorithm, a missing check of the user, or a known passkey is not stored."""
    email = add_user(server, "gus")
    browser = Browser(server).sign_in(email)
    taken = add_passkey(server, "hal")[1]
    assert browser.send("POST", f"{PROFILE}/passkeys/new", {"password": "wrong"}).status == 422

    def try_register(passkey: SoftwarePasskey, **client_data: Any) -> int:
        return browser.register(passkey.create(browser.creation_options(), **client_data)).status

    mine = SoftwarePasskey(server.url)
    assert try_register(mine, origin="https://evil.example") == 422
    assert try_register(mine, type="webauthn.get") == 422
    assert try_register(mine, crossOrigin=True) == 422
    assert try_register(SoftwarePasskey(server.url, host="evil.example")) == 422
    assert try_register(SoftwarePasskey(server.url, flags=USER_PRESENT)) == 422
    assert try_register(SoftwarePasskey(server.url, flags=BOTH | BACKED_UP)) == 422
    assert try_register(taken) == 422
    credential = mine.create(browser.creation_options())
    assert Browser(server).sign_in(email).register(credential).status == 422  # another session of the same user
    assert browser.register(mine.create(browser.begin() | {"user": {"id": ""}})).status == 422
    assert browser.register(credential, "").status == 422  # a name is missing; the challenge is used up
    assert browser.register(credential).status == 422
    assert (
        "Passkeys" in browser.send("GET", PROFILE).text
        and "recovery codes left" not in browser.send("GET", PROFILE).text
    )
    assert browser.register(mine.create(browser.creation_options())).status == 303
    assert Browser(server).send("POST", f"{PROFILE}/passkeys", {"credential": credential}).status == 401


GARBAGE = [
    b"",
    b"\xff" * 40,
    b"\x81" * 3000,
    b"\xbf" * 3000,
    b"\x5b" + b"\xff" * 8,
    b"\xc2\x5b\x00\x00\x00\x40",
    bytes(37),
]


@pytest.mark.parametrize("raw", every_nth(GARBAGE, 2), ids=lambda raw: f"{raw[:2].hex()}-{len(raw)}")
def test_garbage(server: Server, hostile: tuple[Browser, SoftwarePasskey], raw: bytes) -> None:
    """CBOR and authenticator data of any bytes are refused, and no error is logged."""
    browser, passkey = Browser(server), hostile[1]
    signed = json.loads(passkey.sign(browser.begin()))
    signed["response"]["authenticatorData"] = to_text(raw)
    assert is_refused(browser.enter(json.dumps(signed)))
    signed = json.loads(passkey.sign(browser.begin()))
    signed["response"]["signature"] = to_text(raw)
    assert is_refused(browser.enter(json.dumps(signed)))
    signed_in = hostile_session(server)
    created = json.loads(SoftwarePasskey(server.url).create(signed_in.creation_options()))
    created["response"]["attestationObject"] = to_text(raw)
    assert signed_in.register(json.dumps(created)).status == 422
    created = json.loads(SoftwarePasskey(server.url).create(signed_in.creation_options()))
    text = to_bytes(created["response"]["attestationObject"]).replace(b"\xa5\x01\x02\x03\x26", raw[:5])
    created["response"]["attestationObject"] = to_text(text)
    assert signed_in.register(json.dumps(created)).status == 422
    assert "Traceback" not in server.output


_sessions: dict[str, Browser] = {}


def hostile_session(server: Server) -> Browser:
    """Return the browser of a signed-in user without a passkey."""
    if server.url not in _sessions:
        _sessions[server.url] = Browser(server).sign_in(add_user(server, "ida"))
    return _sessions[server.url]


@pytest.mark.parametrize(
    "text",
    ["{", "null", "[]", '"x"', "{}", '{"id": 1}', "[" * 5000, "x" * 10_000_000, '{"id": "\\ud800"}', "\x00"],
    ids=lambda text: f"{text[:9]}-{len(text)}",
)
def test_bodies_that_are_no_responses(server: Server, text: str) -> None:
    """Anything but the JSON of a response is refused, however long it is."""
    response = Browser(server).enter(text)
    assert is_refused(response) or response.status == 413
    assert hostile_session(server).register(text).status in (422, 413)
    assert "Traceback" not in server.output


def test_removing(server: Server) -> None:
    """Removing needs the password and ends other sessions; without a passkey the password signs in alone again."""
    first, passkey = add_passkey(server, "joy")
    other = Browser(server)
    assert other.enter(passkey.sign(other.begin())).status == 303
    match = re.search(rf"{PROFILE}/passkeys/(\d+)", first.send("GET", PROFILE).text)
    assert match
    assert hostile_session(server).send("GET", match[0]).status == 404
    for path in (match[0], f"{match[0]}/remove"):
        assert hostile_session(server).send("POST", path, {"name": "x", "password": PASSWORD}).status == 404
    assert first.send("POST", match[0], {"name": " "}).status == 422
    assert first.send("POST", match[0], {"name": "<b>Blue</b> key"}).status == 303
    assert "&lt;b&gt;Blue&lt;/b&gt; key" in first.send("GET", PROFILE).text
    assert first.send("POST", f"{match[0]}/remove", {"password": "wrong password"}).status == 422
    assert "your password alone signs you in" in first.send("GET", match[0]).text
    assert first.send("POST", f"{match[0]}/remove", {"password": PASSWORD}).status == 303
    assert first.is_signed_in() and not other.is_signed_in()
    refused = other.enter(passkey.sign(other.begin()))
    assert is_refused(refused) and "not known here" in refused.text
    other.sign_in("joy@example.org")
    actions = audit_actions(server, f"user:{user_id(server, 'joy@example.org')}")
    assert {"passkey_add", "passkey_name", "passkey_remove"} <= set(actions)


def test_the_last_way_in(server: Server) -> None:
    """Where passwords are turned off, a user without another way in keeps the last passkey."""
    browser, _ = add_passkey(server, "una")
    match = re.search(rf"{PROFILE}/passkeys/(\d+)", browser.send("GET", PROFILE).text)
    assert match
    database, proof = apsw.Connection(str(server.data / "campanero.db")), {"password": PASSWORD}
    database.set_busy_timeout(5_000)
    database.execute("UPDATE account SET password_sign_in = 0")
    try:
        refused = browser.send("POST", f"{match[0]}/remove", proof)
        assert refused.status == 422 and "your only way to sign in" in refused.text and browser.is_signed_in()
        assert browser.register(SoftwarePasskey(server.url).create(browser.creation_options())).status == 303
        assert browser.send("POST", f"{match[0]}/remove", proof).status == 303
    finally:
        database.execute("UPDATE account SET password_sign_in = 1")
        database.close()


def test_disabled_users_and_ways_back(server: Server) -> None:
    """A disabled user's passkey signs in nowhere; the command line and an owner remove passkeys."""
    owner = Browser(server).sign_in(EMAIL)
    _, passkey = add_passkey(server, "kim")
    number = user_id(server, "kim@example.org")
    browser = Browser(server)
    credential = passkey.sign(browser.begin())
    assert owner.send("POST", f"/settings/team/{number}/close").status == 303
    assert is_refused(browser.enter(credential))
    assert owner.send("POST", f"/settings/team/{number}/reopen").status == 303
    assert browser.enter(passkey.sign(browser.begin())).status == 303
    server.cli("user", "otp-off", "--email", "kim@example.org")
    assert not browser.is_signed_in() and is_refused(browser.enter(passkey.sign(browser.begin())))
    browser.sign_in("kim@example.org")
    assert browser.register(passkey.create(browser.creation_options())).status == 303
    assert owner.send("POST", f"/settings/team/{number}/otp-off").status == 303
    Browser(server).sign_in("kim@example.org")


def test_limits(server: Server) -> None:
    """A user has at most 20 passkeys; new recovery codes replace the old ones after the password."""
    browser, _ = add_passkey(server, "lea")
    first_codes = re.search(r'aria-label="Recovery codes">([^<]*)<', browser.send("GET", PROFILE).text)
    for number in range(19):
        response = browser.register(SoftwarePasskey(server.url).create(browser.creation_options()), f"Key {number}")
        assert response.status == 303
    full = browser.register(SoftwarePasskey(server.url).create(browser.creation_options()))
    assert full.status == 422 and "20 passkeys already" in full.text
    assert browser.send("POST", f"{PROFILE}/codes", {"password": "wrong"}).status == 422
    assert browser.send("POST", f"{PROFILE}/codes", {"password": PASSWORD}).status == 303
    codes = re.search(r'aria-label="Recovery codes">([^<]*)<', browser.send("GET", PROFILE).text)
    assert first_codes and codes and not set(codes[1].split()) & set(first_codes[1].split())


@pytest.mark.parametrize("base_url", ["", "https://203.0.113.5", "http://mail.example.com"])
def test_without_a_host_name_or_https(fresh_server: Any, base_url: str) -> None:
    """Where browsers allow no passkeys, the sign-in page has no button and the profile says why."""
    server = fresh_server(env={"CAMPANERO_BASE_URL": base_url} if base_url else {})
    browser = Browser(server)
    assert "data-passkey" not in browser.send("GET", "/login").text
    assert browser.send("POST", "/login/passkey").status == 404
    assert is_refused(browser.enter("{}"))
    if not base_url.startswith("https"):  # whose cookies need https
        page = browser.sign_in(EMAIL).send("GET", PROFILE).text
        assert "Passkeys need an https address" in page and "Add a passkey" not in page
        assert browser.send("GET", f"{PROFILE}/passkeys/new").status == 303


def test_passkeys_over_the_api(server: Server) -> None:
    """Users list, rename and remove their own passkeys; a removal needs the password, and API keys may do nothing."""
    browser, passkey = add_passkey(server, "max")
    other, _ = add_passkey(server, "nia")
    codes = re.search(r'aria-label="Recovery codes">([^<]*)<', browser.send("GET", PROFILE).text)
    assert codes
    mine = Client(server.url)
    form = {"email": "max@example.org", "password": PASSWORD, "otp": codes[1].split()[0]}
    mine.key = mine.post("/v1/login", form).expect(200)["token"]
    [row] = mine.get("/user/passkeys").expect(200)
    assert (row["name"], row["host"], row["synced"], row["last_used_at"]) == ("Key", "localhost", False, None)
    assert mine.patch(f"/user/passkeys/{row['id']}", {"name": " My  key "}).expect(200)["name"] == "My key"
    assert mine.patch(f"/user/passkeys/{row['id']}", {"name": "x" * 61}).status == 422
    match = re.search(rf"{PROFILE}/passkeys/(\d+)", other.send("GET", PROFILE).text)
    assert match
    body = {"current_password": PASSWORD}
    assert mine.patch(f"/user/passkeys/{match[1]}", {"name": "x"}).status == 404
    assert mine.delete(f"/user/passkeys/{match[1]}", body).status == 404
    wrong = mine.delete(f"/user/passkeys/{row['id']}", {"current_password": "wrong password"}).expect(422)
    assert wrong["validation_errors"] == {"current_password": ["is incorrect"]}
    assert mine.delete(f"/user/passkeys/{row['id']}", {}).status == 422
    for method in ("GET", "PATCH", "DELETE"):
        path = "/user/passkeys" + ("" if method == "GET" else f"/{row['id']}")
        assert server.client().send(method, path, body).expect(403)["required_role"] == "viewer"
    assert mine.delete(f"/user/passkeys/{row['id']}", body).expect(200)["id"] == row["id"]
    assert mine.get("/user/passkeys").expect(200) == [] and not browser.is_signed_in()
    assert is_refused(browser.enter(passkey.sign(browser.begin())))
