"""What stands before every page: the session's cookie, and the refusal of writes that began elsewhere."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.pictures import photo, saved
from tests.kit.server import EMAIL, PASSWORD
from tests.kit.uploads import form


def _cookie(client: Client) -> str:
    form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}".encode()
    answer = _post(client, "/login", form, {"Origin": client.url})
    assert answer.status == 303
    return str(answer.headers["set-cookie"])


def _post(client: Client, path: str, form: bytes, headers: dict[str, str]) -> Any:
    return client.request("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded"} | headers)


def test_the_session_cookie(api: Client) -> None:
    """It is for this site alone, out of reach of scripts, and worthless after signing out."""
    cookie = _cookie(api)
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/" in cookie
    pair = cookie.partition(";")[0]
    assert api.request("GET", "/contacts", headers={"Cookie": pair}).status == 200
    assert _post(api, "/logout", b"", {"Cookie": pair, "Sec-Fetch-Site": "same-origin"}).status == 303
    gone = api.request("GET", "/contacts", headers={"Cookie": pair})
    assert (gone.status, gone.headers["location"]) == (303, "/login?next=/contacts")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "http://{host}"}, 303),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://{host}"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({}, 403),
    ],
)
def test_writes_from_elsewhere_are_refused(api: Client, headers: dict[str, str], status: int) -> None:
    """Only a page of ours may write: said by the browser in Sec-Fetch-Site, or by a matching Origin."""
    pair = _cookie(api).partition(";")[0]
    sent = {name: value.format(host=api.host) for name, value in headers.items()} | {"Cookie": pair}
    before = api.get("/lists").expect(200)
    answer = _post(api, "/lists", f"name=From+{len(before)}".encode(), sent)
    assert answer.status == status
    assert len(api.get("/lists").expect(200)) - len(before) == (1 if status == 303 else 0)


def test_an_address_that_is_none_leads_nowhere(api: Client) -> None:
    """Who is signed out and says that they come from no address at all is asked to sign in like anybody."""
    headers = {"Sec-Fetch-Site": "same-origin", "Referer": "http://[::"}
    assert _post(api, "/lists", b"", headers).headers["location"] == "/login"
    assert _post(api, "/lists", b"name=Kept", headers).status == 401


def test_a_file_from_elsewhere_is_refused(api: Client) -> None:
    """A picture is taken from a page of ours alone, though its body is read only after that is known."""
    cookie = _cookie(api).partition(";")[0]
    body, kind = form(saved(photo(), "PNG"), "a.png")
    for headers, status in (({"Sec-Fetch-Site": "cross-site"}, 403), ({}, 403), ({"Origin": api.url}, 303)):
        sent = {"Content-Type": kind, "Cookie": cookie} | headers
        assert api.request("POST", "/templates/pictures", body, sent).status == status
        shown = api.request("GET", "/templates/pictures", headers={"Cookie": cookie}).text
        assert shown.count('class="card tile"') == (1 if status == 303 else 0)
    out = api.request("POST", "/templates/pictures", body, {"Content-Type": kind, "Origin": api.url})
    assert (out.status, out.headers["location"]) == (303, "/login")


def test_two_presses_are_one(api: Client) -> None:
    """A form whose button is pressed twice makes or sends one thing, and leads twice to it; later it may again."""
    phone = "+14155551998"
    person = api.post("/contacts", {"email": "twice@example.org", "phone": phone, "opt_in": True}).expect(201)["id"]
    sent = {"Cookie": _cookie(api).partition(";")[0], "Origin": api.url}
    forms = {
        "/campaigns": b"name=Twice&channel=email", "/lists": b"name=Twice", "/segments": b"name=Twice",
        "/settings/team": b"name=T&email=twice@bakery.example&role=editor",
        f"/contacts/{person}/conversation": b"text=We+are+open",
    }  # fmt: skip
    for path, words in forms.items():
        with ThreadPoolExecutor(2) as hands:
            first, second = hands.map(lambda _: _post(api, path, words, sent), range(2))  # noqa: B023
        assert first.status == second.status == 303, path
        assert first.headers["location"] == second.headers["location"], path
    for noun in ("campaigns", "lists", "segments"):
        assert [one["name"] for one in api.all(f"/{noun}")].count("Twice") == 1
    assert len([one for one in api.all("/messages") if one["to"] == phone]) == 1
    assert _post(api, "/lists", b"name=", sent).status == _post(api, "/lists", b"name=", sent).status == 422


def test_what_is_too_large_is_told_with_the_limit(api: Client) -> None:
    """Megabytes in a field are refused in words that name the limit, over the page that keeps them."""
    sent = {"Cookie": _cookie(api).partition(";")[0], "Origin": api.url}
    for part in ({}, {"HX-Request": "true", "HX-Target": "form#x"}):
        answer = _post(api, "/lists", b"name=" + b"x" * 3_000_000, sent | part)
        assert answer.status == 413 and "over 2.1 MB" in answer.text
        assert ("What you typed is still here." in answer.text) is bool(part)


def test_going_on_leads_nowhere_else(api: Client) -> None:
    """After signing in one is sent on only within this site."""
    for where in ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"):
        form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}&next={where}".encode()
        assert _post(api, "/login", form, {"Origin": api.url}).headers["location"] == "/"


def test_over_https_the_browser_guards_the_cookie(fresh_server: FreshServer) -> None:
    """With a public https address the cookie is Secure and bears the prefix that only this host may set."""
    server = fresh_server(env={"CAMPANERO_BASE_URL": "https://mail.example.com"})
    client = server.client()
    form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}".encode()
    cookie = _post(client, "/login", form, {"Origin": "https://mail.example.com"}).headers["set-cookie"]
    assert cookie.startswith("__Host-campanero=") and "Secure" in cookie and "Path=/" in cookie
    assert "Domain" not in cookie
