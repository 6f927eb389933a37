"""Signing in on the pages: the second factor, where one is signed in, and what the machine itself can mend."""

import html
import re
import statistics
import time
from collections.abc import Iterator

import pytest

from appliance.accounts import login as second_factor
from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, PASSWORD, Server

PAGE = "/settings/you"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that lets a test be wrong more often than anybody should be."""
    with Server(env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100"}).set_up() as running:
        yield running
        running.stop()


def hidden(page: Response, name: str) -> str:
    """Return a hidden value of a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert found, page.text
    return html.unescape(found[1])


def code(key: str, ahead: int = 0) -> str:
    """Return the code of now, or of a half minute that comes."""
    return second_factor.otp_code(key, int(time.time()) // 30 + ahead)


def switch_on(person: Visitor) -> tuple[str, list[str]]:
    """Set the second factor up, and answer its key and the recovery codes."""
    key = hidden(person.send("GET", f"{PAGE}/otp"), "secret")
    assert person.send("POST", f"{PAGE}/otp", {"secret": key, "otp": code(key), "password": PASSWORD}).status == 303
    shown = re.search(r'aria-label="The recovery codes">([^<]*)<', person.send("GET", PAGE).text)
    assert shown
    return key, shown[1].split()


def member(server: Server, name: str, role: str = "viewer") -> str:
    """Add somebody by the command line, and answer their address."""
    server.cli("user", "add", "--email", f"{name}@example.org", "--role", role, stdin=PASSWORD + "\n")
    return f"{name}@example.org"


def login(server: Server, email: str, **more: str) -> Response:
    """Sign in over the API."""
    return Client(server.url).post("/v1/login", {"email": email, "password": PASSWORD, **more})


def test_a_second_factor_is_asked_for(server: Server) -> None:
    """Set up with its first code; then the password alone opens nothing, a code opens once, and others are out."""
    email = member(server, "ann")
    ann, elsewhere = Visitor(server, email), Visitor(server, email)
    key = hidden(ann.send("GET", f"{PAGE}/otp"), "secret")
    drawn = ann.send("POST", f"{PAGE}/otp", {"secret": key, "otp": "000000", "password": PASSWORD})
    assert drawn.status == 422 and hidden(drawn, "secret") == key and '<path d="M' in drawn.text
    assert ann.send("POST", f"{PAGE}/otp", {"secret": key, "otp": code(key), "password": "wrong"}).status == 422
    key, codes = switch_on(ann)
    assert len(codes) == 10 and codes[0] not in ann.send("GET", PAGE).text
    assert elsewhere.send("GET", PAGE).status == 303 and ann.send("GET", f"{PAGE}/otp").status == 303

    assert login(server, email).expect(401)["code"] == "otp_required"
    assert login(server, email, otp="12345").expect(401)["code"] == "invalid_credentials"
    good = code(key, 1)
    assert login(server, email, otp=good).status == 200
    assert login(server, email, otp=good).expect(401)["code"] == "invalid_credentials"

    asked = elsewhere.send("POST", "/login", {"email": email, "password": PASSWORD, "next": "/lists"})
    assert asked.status == 200 and "set-cookie" not in asked.headers and PASSWORD not in asked.text
    passed = {"pass": hidden(asked, "pass"), "next": hidden(asked, "next")}
    wrong = elsewhere.send("POST", "/login", {**passed, "otp": codes[0][:-1]})
    assert wrong.status == 422 and hidden(wrong, "pass") == passed["pass"]
    forged = {"pass": passed["pass"][:-3] + "AAA", "otp": codes[0]}
    assert "took too long" in elsewhere.send("POST", "/login", forged).text
    right = elsewhere.send("POST", "/login", {**passed, "otp": codes[0]})
    assert (right.status, right.headers["location"]) == (303, "/lists") and right.headers["set-cookie"]
    assert elsewhere.send("POST", "/login", {**passed, "otp": codes[0]}).status == 422

    off = {"password": PASSWORD, "otp": codes[0]}
    assert ann.send("POST", f"{PAGE}/otp/off", off).status == 422
    assert ann.send("POST", f"{PAGE}/otp/off", {**off, "otp": codes[1], "password": "wrong"}).status == 422
    assert ann.send("POST", f"{PAGE}/otp/off", {**off, "otp": codes[1]}).status == 303
    assert login(server, email).status == 200


def test_who_lost_their_phone_is_helped(server: Server) -> None:
    """An owner takes the second factor away, as the command line does; nobody else may."""
    email = member(server, "ben", "editor")
    owner, ben = Visitor(server, EMAIL), Visitor(server, email)
    switch_on(ben)
    number = re.search(r"/settings/team/(\d+)/otp-off", owner.send("GET", "/settings/team").text)
    assert number
    assert Visitor(server, member(server, "cy", "editor")).send("POST", number[0]).status == 403
    assert owner.send("POST", number[0]).status == 303
    assert ben.send("GET", PAGE).status == 303 and login(server, email).status == 200
    ben = Visitor(server, email)
    switch_on(ben)
    server.cli("user", "otp-off", "--email", email.upper())
    assert login(server, email).status == 200
    assert (
        "there is no user with the email address no@example.org"
        in server.cli("user", "otp-off", "--email", "no@example.org", expect=1).stderr
    )


def test_sign_ins_are_listed_and_ended(server: Server) -> None:
    """Everybody sees their own, ends one or all the others, and keeps the one they sit at."""
    email = member(server, "dee")
    here, there, third = (Visitor(server, email) for _ in range(3))
    api = Client(server.url, login(server, email).expect(200)["token"])
    page = here.send("GET", PAGE).text
    ends = re.findall(rf"{PAGE}/sessions/(\d+)/end", page)
    assert len(ends) == 3 and page.count("(here)") == 1 and "A program" in page
    stranger = Visitor(server, EMAIL)
    assert stranger.send("POST", f"{PAGE}/sessions/{ends[0]}/end").status == 404
    assert here.send("POST", f"{PAGE}/sessions/{min(map(int, ends))}/end").status == 303
    assert there.send("GET", PAGE).status == 303 and third.send("GET", PAGE).status == 200
    assert here.send("POST", f"{PAGE}/sessions/end").status == 303
    assert third.send("GET", PAGE).status == 303 and api.get("/account").status == 401
    assert here.send("GET", PAGE).status == 200


@pytest.mark.parametrize("word", ["a new password of mine", "kurz"])
def test_a_password_by_the_command_line(server: Server, word: str) -> None:
    """Beside the running service: the new one opens, all that was signed in is out; a short one changes nothing."""
    good = len(word) >= 10
    email = member(server, "eve" if good else "fay")
    person = Visitor(server, email)
    said = server.cli("user", "password", "--email", email, stdin=word + "\n", expect=0 if good else 1)
    assert good or "too short" in said.stderr
    assert login(server, email).status == (401 if good else 200)
    assert person.send("GET", PAGE).status == (303 if good else 200)
    assert Client(server.url).post("/v1/login", {"email": email, "password": word}).status == (200 if good else 401)


def test_the_time_tells_nothing(server: Server) -> None:
    """Somebody's address with a wrong password, and nobody's, are answered alike and take alike long."""
    email = member(server, "gil")
    took: dict[str, list[float]] = {email: [], "nobody@example.org": []}
    for number in range(24):
        for who, times in took.items():
            began = time.perf_counter()
            answer = Client(server.url, validate=False).post("/v1/login", {"email": who, "password": f"wrong {number}"})
            times.append(time.perf_counter() - began)
            assert answer.status == 401
    # Without the hash one of them would be ten times as fast
    known, unknown = (statistics.median(times) for times in took.values())
    assert 0.6 < known / unknown < 1.6


def test_a_sign_in_is_a_new_one(server: Server) -> None:
    """What a browser brought along is worth nothing before and after, and nothing is left of it; the cookie is ours."""
    email = member(server, "hal")
    person = Visitor(server, email)
    first = person.cookie
    person.cookie = "campanero=chosen-by-somebody-else"
    assert person.send("GET", PAGE).status == 303
    answer = person.send("POST", "/login", {"email": email, "password": PASSWORD})
    cookie = str(answer.headers["set-cookie"])
    assert "chosen-by" not in cookie and {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert person.send("GET", PAGE).status == 303
    person.cookie = first
    again = person.send("POST", "/login", {"email": email, "password": PASSWORD})
    assert person.send("GET", PAGE).status == 303  # the one it had before is over
    person.cookie = str(again.headers["set-cookie"]).partition(";")[0]
    assert person.send("GET", PAGE).status == 200
    person.send("POST", "/logout")
    assert person.send("GET", PAGE).status == 303
