"""Signing in on the pages: second factor, sessions, and repairs by the command line."""

import html
import re
import statistics
import time

import pytest

from appliance.accounts import login as second_factor
from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, PASSWORD, Server

SERVER_ENV = {"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100"}
PAGE = "/settings/you"


def hidden_value(page: Response, name: str) -> str:
    """Return the value of a hidden field of a page."""
    match = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert match, page.text
    return html.unescape(match[1])


def otp_code(key: str, ahead: int = 0) -> str:
    """Return the current code of a second factor, or a later one."""
    return second_factor.otp_code(key, int(time.time()) // 30 + ahead)


def enable_second_factor(visitor: Visitor) -> tuple[str, list[str]]:
    """Set up the second factor; return its key and the recovery codes."""
    key = hidden_value(visitor.send("GET", f"{PAGE}/otp"), "secret")
    assert (
        visitor.send("POST", f"{PAGE}/otp", {"secret": key, "otp": otp_code(key), "password": PASSWORD}).status == 303
    )
    match = re.search(r'aria-label="Recovery codes">([^<]*)<', visitor.send("GET", PAGE).text)
    assert match
    return key, match[1].split()


def add_user(server: Server, name: str, role: str = "viewer") -> str:
    """Add a user by the command line and return its email address."""
    server.cli("user", "add", "--email", f"{name}@example.org", "--role", role, stdin=PASSWORD + "\n")
    return f"{name}@example.org"


def login(server: Server, email: str, **more: str) -> Response:
    """Sign in over the API."""
    return Client(server.url).post("/v1/login", {"email": email, "password": PASSWORD, **more})


def test_signing_in_with_a_second_factor(server: Server) -> None:
    """Once set up, a password alone is not enough, each code works once, and other sessions end."""
    email = add_user(server, "ann")
    ann, elsewhere = Visitor(server, email), Visitor(server, email)
    key = hidden_value(ann.send("GET", f"{PAGE}/otp"), "secret")
    rejected_page = ann.send("POST", f"{PAGE}/otp", {"secret": key, "otp": "000000", "password": PASSWORD})
    assert (
        rejected_page.status == 422
        and hidden_value(rejected_page, "secret") == key
        and '<path d="M' in rejected_page.text
    )
    assert ann.send("POST", f"{PAGE}/otp", {"secret": key, "otp": otp_code(key), "password": "wrong"}).status == 422
    key, codes = enable_second_factor(ann)
    assert len(codes) == 10 and codes[0] not in ann.send("GET", PAGE).text
    assert elsewhere.send("GET", PAGE).status == 303 and ann.send("GET", f"{PAGE}/otp").status == 303

    assert login(server, email).expect(401)["code"] == "otp_required"
    assert login(server, email, otp="12345").expect(401)["code"] == "invalid_credentials"
    otp = otp_code(key, 1)
    assert login(server, email, otp=otp).status == 200
    assert login(server, email, otp=otp).expect(401)["code"] == "invalid_credentials"

    code_page = elsewhere.send("POST", "/login", {"email": email, "password": PASSWORD, "next": "/lists"})
    assert code_page.status == 200 and "set-cookie" not in code_page.headers and PASSWORD not in code_page.text
    form_values = {"pass": hidden_value(code_page, "pass"), "next": hidden_value(code_page, "next")}
    wrong = elsewhere.send("POST", "/login", {**form_values, "otp": codes[0][:-1]})
    assert wrong.status == 422 and hidden_value(wrong, "pass") == form_values["pass"]
    forged = {"pass": form_values["pass"][:-3] + "AAA", "otp": codes[0]}
    assert "took too long" in elsewhere.send("POST", "/login", forged).text
    right = elsewhere.send("POST", "/login", {**form_values, "otp": codes[0]})
    assert (right.status, right.headers["location"]) == (303, "/lists") and right.headers["set-cookie"]
    assert elsewhere.send("POST", "/login", {**form_values, "otp": codes[0]}).status == 422

    form = {"password": PASSWORD, "otp": codes[0]}
    assert ann.send("POST", f"{PAGE}/otp/off", form).status == 422
    assert ann.send("POST", f"{PAGE}/otp/off", {**form, "otp": codes[1], "password": "wrong"}).status == 422
    assert ann.send("POST", f"{PAGE}/otp/off", {**form, "otp": codes[1]}).status == 303
    assert login(server, email).status == 200


def test_removing_a_lost_second_factor(server: Server) -> None:
    """An owner or the command line removes a user's second factor; an editor may not."""
    email = add_user(server, "ben", "editor")
    owner, ben = Visitor(server, EMAIL), Visitor(server, email)
    enable_second_factor(ben)
    path_match = re.search(r"/settings/team/(\d+)/otp-off", owner.send("GET", "/settings/team").text)
    assert path_match
    assert Visitor(server, add_user(server, "cy", "editor")).send("POST", path_match[0]).status == 403
    assert owner.send("POST", path_match[0]).status == 303
    assert ben.send("GET", PAGE).status == 303 and login(server, email).status == 200
    ben = Visitor(server, email)
    enable_second_factor(ben)
    server.cli("user", "otp-off", "--email", email.upper())
    assert login(server, email).status == 200
    assert (
        "there is no user with the email address no@example.org"
        in server.cli("user", "otp-off", "--email", "no@example.org", expect=1).stderr
    )


def test_ending_sessions(server: Server) -> None:
    """Users see their own sessions and can end one or all others."""
    email = add_user(server, "dee")
    current, second, third = (Visitor(server, email) for _ in range(3))
    api = Client(server.url, login(server, email).expect(200)["token"])
    page = current.send("GET", PAGE).text
    session_ids = re.findall(rf"{PAGE}/sessions/(\d+)/end", page)
    assert len(session_ids) == 3 and page.count("(this browser)") == 1 and "App (API token)" in page
    other_user = Visitor(server, EMAIL)
    assert other_user.send("POST", f"{PAGE}/sessions/{session_ids[0]}/end").status == 404
    assert current.send("POST", f"{PAGE}/sessions/{min(map(int, session_ids))}/end").status == 303
    assert second.send("GET", PAGE).status == 303 and third.send("GET", PAGE).status == 200
    assert current.send("POST", f"{PAGE}/sessions/end").status == 303
    assert third.send("GET", PAGE).status == 303 and api.get("/account").status == 401
    assert current.send("GET", PAGE).status == 200


@pytest.mark.parametrize("word", ["a new password of mine", "kurz"])
def test_the_user_password_command(server: Server, word: str) -> None:
    """A new password ends all sessions; a short one is rejected and changes nothing."""
    is_valid = len(word) >= 10
    email = add_user(server, "eve" if is_valid else "fay")
    visitor = Visitor(server, email)
    result = server.cli("user", "password", "--email", email, stdin=word + "\n", expect=0 if is_valid else 1)
    assert is_valid or "too short" in result.stderr
    assert login(server, email).status == (401 if is_valid else 200)
    assert visitor.send("GET", PAGE).status == (303 if is_valid else 200)
    assert Client(server.url).post("/v1/login", {"email": email, "password": word}).status == (200 if is_valid else 401)


def test_sign_in_timing_reveals_no_address(fresh_server: FreshServer) -> None:
    """Failed sign-ins of known and unknown addresses get the same response in about the same time."""
    # It hashes passwords as slowly as in use
    server = fresh_server(cold=True, env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100"})
    email = add_user(server, "gil")
    times_by_email: dict[str, list[float]] = {email: [], "nobody@example.org": []}
    for number in range(10):
        for address, times in times_by_email.items():
            started = time.perf_counter()
            response = Client(server.url, validate=False).post(
                "/v1/login", {"email": address, "password": f"wrong {number}"}
            )
            times.append(time.perf_counter() - started)
            assert response.status == 401
    # Without a password hash for unknown addresses, one would be ten times as fast
    known, unknown = (statistics.median(times) for times in times_by_email.values())
    assert 0.6 < known / unknown < 1.6


def test_session_fixation(server: Server) -> None:
    """Signing in creates a new session and ends the previous one; a cookie that the client chose is ignored."""
    email = add_user(server, "hal")
    visitor = Visitor(server, email)
    first = visitor.cookie
    visitor.cookie = "campanero=chosen-by-somebody-else"
    assert visitor.send("GET", PAGE).status == 303
    response = visitor.send("POST", "/login", {"email": email, "password": PASSWORD})
    cookie = str(response.headers["set-cookie"])
    assert "chosen-by" not in cookie and {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert visitor.send("GET", PAGE).status == 303
    visitor.cookie = first
    second_response = visitor.send("POST", "/login", {"email": email, "password": PASSWORD})
    assert visitor.send("GET", PAGE).status == 303  # the former session has ended
    visitor.cookie = str(second_response.headers["set-cookie"]).partition(";")[0]
    assert visitor.send("GET", PAGE).status == 200
    visitor.send("POST", "/logout")
    assert visitor.send("GET", PAGE).status == 303
