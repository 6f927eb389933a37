"""Checks before every page: the session cookie, and the rejection of cross-site writes."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.pictures import encode_image, photo
from tests.kit.server import EMAIL, PASSWORD
from tests.kit.uploads import multipart_form


def _cookie(client: Client) -> str:
    form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}".encode()
    response = _post(client, "/login", form, {"Origin": client.url})
    assert response.status == 303
    return str(response.headers["set-cookie"])


def _post(client: Client, path: str, form: bytes, headers: dict[str, str]) -> Any:
    return client.request("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded"} | headers)


def test_the_session_cookie(api: Client) -> None:
    """The cookie is HttpOnly, SameSite and bound to the host that set it (T16), and worthless after signing out."""
    cookie = _cookie(api)
    assert "domain=" not in cookie.lower()
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/" in cookie
    pair = cookie.partition(";")[0]
    assert api.request("GET", "/contacts", headers={"Cookie": pair}).status == 200
    assert _post(api, "/logout", b"", {"Cookie": pair, "Sec-Fetch-Site": "same-origin"}).status == 303
    response = api.request("GET", "/contacts", headers={"Cookie": pair})
    assert (response.status, response.headers["location"]) == (303, "/login?next=/contacts")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "http://{host}"}, 303),
        # Another name of the service, for which a browser has no cookie of the name that set it
        ({"Origin": "http://other.example", "Host": "other.example"}, 303),
        ({"Origin": "http://other.example", "Host": "third.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://{host}"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({}, 403),
    ],
)
def test_cross_site_writes_are_rejected(api: Client, headers: dict[str, str], status: int) -> None:
    """Only same-origin requests, by Sec-Fetch-Site or Origin, may write."""
    pair = _cookie(api).partition(";")[0]
    request_headers = {name: value.format(host=api.host) for name, value in headers.items()} | {"Cookie": pair}
    before = api.get("/lists").expect(200)
    response = _post(api, "/lists", f"name=From+{len(before)}".encode(), request_headers)
    assert response.status == status
    assert len(api.get("/lists").expect(200)) - len(before) == (1 if status == 303 else 0)


def test_an_invalid_referer(api: Client) -> None:
    """A signed-out request with an invalid Referer is asked to sign in."""
    headers = {"Sec-Fetch-Site": "same-origin", "Referer": "http://[::"}
    assert _post(api, "/lists", b"", headers).headers["location"] == "/login"
    assert _post(api, "/lists", b"name=Kept", headers).status == 401


def test_cross_site_uploads_are_rejected(api: Client) -> None:
    """A picture is accepted from our own page only, though its body is read after that check."""
    cookie = _cookie(api).partition(";")[0]
    body, content_type = multipart_form(encode_image(photo(), "PNG"), "a.png")
    for headers, status in (({"Sec-Fetch-Site": "cross-site"}, 403), ({}, 403), ({"Origin": api.url}, 303)):
        request_headers = {"Content-Type": content_type, "Cookie": cookie} | headers
        assert api.request("POST", "/templates/pictures", body, request_headers).status == status
        gallery = api.request("GET", "/templates/pictures", headers={"Cookie": cookie}).text
        assert gallery.count('class="card tile"') == (1 if status == 303 else 0)
    signed_out = api.request("POST", "/templates/pictures", body, {"Content-Type": content_type, "Origin": api.url})
    assert (signed_out.status, signed_out.headers["location"]) == (303, "/login")


def test_head_uses_up_no_secret(api: Client) -> None:
    """A new key and a notice are shown to the next GET although a HEAD came before it."""
    headers = {"Cookie": _cookie(api).partition(";")[0], "Origin": api.url}
    response = _post(api, "/settings/keys", b"name=Shop&scope=full", headers)
    assert response.status == 303
    head = api.request("HEAD", "/settings/keys", headers=headers)
    first, second = (api.request("GET", "/settings/keys", headers=headers).text for _ in range(2))
    assert (head.status, head.body) == (200, b"")
    assert [len(re.findall(r"camp_live_\w{36}", text)) > 0 for text in (first, second)] == [True, False]
    assert _post(api, "/lists", b"name=Notice", headers).status == 303
    api.request("HEAD", "/lists", headers=headers)
    shown = [api.request("GET", "/lists", headers=headers).text.count("Notice") for _ in range(2)]
    assert shown[0] > shown[1]


def test_a_double_click_submits_once(api: Client) -> None:
    """Two simultaneous submissions of a form create one object and redirect to it."""
    phone = "+14155551998"
    contact_id = api.post("/contacts", {"email": "twice@example.org", "phone": phone, "opt_in": True}).expect(201)["id"]
    request_headers = {"Cookie": _cookie(api).partition(";")[0], "Origin": api.url}
    forms = {
        "/campaigns": b"name=Twice&channel=email", "/lists": b"name=Twice", "/segments": b"name=Twice",
        "/settings/team": b"name=T&email=twice@bakery.example&role=editor",
        f"/contacts/{contact_id}/conversation": b"text=We+are+open",
    }  # fmt: skip
    for path, body in forms.items():
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: _post(api, path, body, request_headers), range(2))  # noqa: B023 - called before the next turn
        assert first.status == second.status == 303, path
        assert first.headers["location"] == second.headers["location"], path
    for noun in ("campaigns", "lists", "segments"):
        assert [row["name"] for row in api.all(f"/{noun}")].count("Twice") == 1
    assert len([row for row in api.all("/messages") if row["to"] == phone]) == 1
    assert (
        _post(api, "/lists", b"name=", request_headers).status
        == _post(api, "/lists", b"name=", request_headers).status
        == 422
    )


def test_too_large_forms_are_rejected(api: Client) -> None:
    """A form of megabytes is rejected with the limit, in a dialog if the page stays open."""
    request_headers = {"Cookie": _cookie(api).partition(";")[0], "Origin": api.url}
    for htmx_headers in ({}, {"HX-Request": "true", "HX-Target": "form#x"}):
        response = _post(api, "/lists", b"name=" + b"x" * 3_000_000, request_headers | htmx_headers)
        assert response.status == 413 and "larger than 2.1 MB" in response.text
        assert ("Your changes are still on this page." in response.text) is bool(htmx_headers)


def test_the_redirect_after_sign_in_stays_on_the_site(api: Client) -> None:
    """A `next` that leads to another site is replaced by the start page."""
    for target in ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"):
        form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}&next={target}".encode()
        assert _post(api, "/login", form, {"Origin": api.url}).headers["location"] == "/"


def test_the_session_cookie_over_https(fresh_server: FreshServer) -> None:
    """With an https base URL the cookie is Secure and has the `__Host-` prefix."""
    server = fresh_server(env={"CAMPANERO_BASE_URL": "https://mail.example.com"})
    client = server.client()
    form = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}".encode()
    cookie = _post(client, "/login", form, {"Origin": "https://mail.example.com"}).headers["set-cookie"]
    assert cookie.startswith("__Host-campanero=") and "Secure" in cookie and "Path=/" in cookie
    assert "Domain" not in cookie
