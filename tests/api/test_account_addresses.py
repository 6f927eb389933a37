"""An account with an address of its own: what its recipients get, what is served there, and who may set it."""

import json
import quopri
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.kit.client import Client, Response
from tests.kit.html_page import HtmlPage
from tests.kit.pictures import encode_image, photo
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from tests.kit.uploads import upload_image

HOST, FORMER, UNKNOWN, OTHER = "mail.south.example", "old.south.example", "unknown.example", "mail.north.example"
OWNER = "owner@south.example"
BODY = (
    '<p><a href="https://shop.example/spring">Shop</a> <img src="{picture}"> <img src="{{{{ brand.logo_url }}}}"></p>'
    '<a href="{{{{ unsubscribe_url }}}}">u</a><a href="{{{{ preferences_url }}}}">p</a>'
    '<a href="{{{{ view_url }}}}">v</a>'
)
URL = re.compile(r"https?://[^/\s\"'<>]+")


class World(NamedTuple):
    """South, an account with an address and a former one, and the first account; emails and more of both by name."""

    server: Server
    number: str
    api: dict[str, Client]
    mail: dict[str, str]
    forms: dict[str, dict[str, Any]]
    pictures: dict[str, str]

    def request(self, path: str, host: str = UNKNOWN, method: str = "GET", body: bytes | None = None) -> Response:
        """Send a request without a key that names a host."""
        headers = {"Host": host}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        return self.api["first"].request(method, path, body, headers, validate=False)

    def find_path(self, name: str, kind: str) -> str:
        """Return the path of a link in the email of an account, such as `u` for the unsubscribe page."""
        match = re.search(rf"https?://[^/\s]+(/{kind}/[\w.-]+)", self.mail[name])
        assert match is not None, kind
        return match[1]


def send_mail(api: Client, picture: str) -> str:
    """Send a marketing email with every kind of link, and return its source as it left, without its encoding."""
    api.put("/brand", {"logo": picture, "company_name": f"Shop {api.key}", "physical_address": "1 Road"}).expect(200)
    api.post("/contacts", {"email": "ann@example.org", "opt_in": True}).expect(201)
    message = {"to": "ann@example.org", "subject": "s", "body": BODY.format(picture=picture), "transactional": False}
    number = api.post("/messages", message).expect(201)["id"]
    api.wait(f"/messages/{number}", lambda row: row["status"] == "sent")
    [captured] = api.get("/capture", message_id=number).expect(200)
    source = api.get(f"/capture/{captured['id']}/raw").text.replace("\r\n ", " ")
    return quopri.decodestring(source.encode()).decode()


def set_address(server: Server, number: str, url: str) -> None:
    """Set the address of an account on its page."""
    page = HtmlPage(ScriptlessBrowser(server.client()), f"/settings/accounts/{number}")
    page.fill("Address", url)
    assert "Address saved." in page.press("Save address").text


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Yield a server with both accounts."""
    with Server().set_up() as server:
        number = server.cli("account", "add", "South").stdout.strip()
        server.cli("user", "add", "--email", OWNER, "--account", number, stdin=f"{PASSWORD}\n")
        api = {"south": server.client(server.new_key("South", "--account", number), validate=False)}
        api["first"] = server.client()
        for host in (FORMER, HOST):
            set_address(server, number, f"http://{host}/")
        for name, client in api.items():
            client.patch("/account", {"email_from_email": f"us@{name}.example"}).expect(200)
        pictures = {
            name: upload_image(client, encode_image(photo(), "PNG")).expect(201)["url"] for name, client in api.items()
        }
        mail = {name: send_mail(client, pictures[name]) for name, client in api.items()}
        forms = {name: client.post("/forms", {"name": "Join"}).expect(201) for name, client in api.items()}
        yield World(server, number, api, mail, forms, pictures)
        server.stop()


def test_everything_recipients_get_has_the_address(world: World) -> None:
    """Links, pixel, pictures, headers and forms of South begin with its address, those of the first with `base_url`."""
    for name, base in (("south", f"http://{HOST}"), ("first", world.server.url)):
        assert {*URL.findall(world.mail[name])} <= {base, "http://www.w3.org"}, name
        for kind in ("c", "o", "u", "p", "v", "m"):
            assert f"{base}/{kind}/" in world.mail[name], kind
        assert re.search(rf"\nList-Unsubscribe: +<{base}/u/[\w-]{{30}}>", world.mail[name])
        assert world.forms[name]["url"].startswith(f"{base}/f/")
        account = world.api[name].get("/account").expect(200)
        assert (account["base_url"], account["public_url"]) == (world.server.url, base)
    assert world.pictures["south"].startswith(world.server.url), "programs and the editor use the installation's"
    page = ScriptlessBrowser(world.server.client(), OWNER).get(f"/forms/{world.forms['south']['id']}")
    assert f"http://{HOST}/f/" in page and world.server.url not in page
    text = {"channel": "sms", "to": "+442079460044", "body": "https://shop.example/{{ preferences_url }}"}
    number = world.api["south"].post("/messages", text).expect(201)["id"]
    world.api["south"].wait(f"/messages/{number}", lambda row: row["status"] == "sent")
    assert f"http://{HOST}/p/" in world.api["south"].get("/capture", message_id=number).text
    signed_up = world.request(urlsplit(world.forms["south"]["url"]).path, HOST, "POST", b"email=new%40example.org")
    assert signed_up.status == 200
    [confirmation] = world.api["south"].wait("/messages", lambda rows: len(rows) == 1, to="new@example.org")
    [captured] = world.api["south"].wait("/capture", lambda rows: len(rows) == 1, message_id=confirmation["id"])
    html = world.api["south"].get(f"/capture/{captured['id']}").expect(200)["html"]
    [confirm] = set(re.findall(rf"http://{HOST}(/d/[\w-]+)", html))
    assert world.request(confirm, HOST).status == 200 and world.request(confirm, "127.0.0.1").status == 200


def test_an_address_shows_only_what_is_the_accounts(world: World) -> None:
    """Its links work at the address, a former one and the installation's; all else is not found, without cookies."""
    paths = {
        name: [*(world.find_path(name, kind) for kind in "upvm"), urlsplit(world.forms[name]["url"]).path]
        for name in world.api
    }
    for host in (HOST, FORMER, f"{HOST}:80", f"{HOST.upper()}.", "127.0.0.1", UNKNOWN):
        is_open = host in ("127.0.0.1", UNKNOWN)
        for name, expected in (("south", 200), ("first", 200 if is_open else 404)):
            for path in paths[name]:
                assert world.request(path, host).status == expected, (host, path)
    key = world.forms["first"]["public_key"]
    not_found = world.request("/u/x", HOST)
    for path in (
        "/", "/login", "/setup/x", "/forgot", "/healthz", "/readyz", "/metrics", "/openapi.yaml", "/docs", "/mcp",
        "/v1/my/account", "/v1/auth", "/hooks/ses", "/static/app.css", "/oauth/authorize", f"/v1/public/forms/{key}",
        "/.well-known/oauth-authorization-server", "/.well-known/acme-challenge/x", "/m", "/nothing",
    ):  # fmt: skip
        for method in ("GET", "POST", "PUT"):
            response = world.request(path, HOST, method, b"" if method != "GET" else None)
            assert (response.status, response.headers["Set-Cookie"]) == (404, None), (path, method)
            assert response.body.count(b"<main>") == 1 and b"Campanero" not in response.body, (path, method)
    assert not_found.status == 404
    own = world.request(world.find_path("south", "p"), HOST)
    assert f"Shop {world.api['south'].key}" in own.text and own.headers["Set-Cookie"] is None
    assert world.request("/public.css", HOST).status == world.request("/robots.txt", HOST).status == 200
    assert world.request("/m/icons/website.png", HOST).status == world.request("/m/icons/website.png").status


def test_tracked_links_lead_on_only_at_addresses_of_their_account(world: World) -> None:
    """A link of another account, which could lead anywhere, is not found at the address, and no click is counted."""
    for kind, expected in (("c", 302), ("o", 200)):
        for name, host, is_found in (
            ("south", HOST, True), ("south", FORMER, True), ("south", "127.0.0.1", True), ("first", UNKNOWN, True),
            ("first", HOST, False),
        ):  # fmt: skip
            path = world.find_path(name, kind)
            for method in ("GET", "HEAD"):  # by the protocol itself, and by Sanic
                response = world.request(path, host, method)
                status = expected if is_found or kind == "o" else 404
                assert response.status == status, (name, host, kind, method)
                assert response.headers["Location"] == ("https://shop.example/spring" if status == 302 else None)
    api = world.api["first"]
    number = api.get("/messages", to="ann@example.org").expect(200)[0]["id"]
    rows = api.wait("/events", lambda rows: len(rows) >= 1, resource_uid=f"message:{number}", event="email_clicked")
    assert {row["user_agent"] for row in rows} == {None}


def test_a_request_cannot_choose_a_host(world: World) -> None:
    """No page or redirect repeats the host of a request, also in other headers or an absolute URL."""
    path = world.find_path("south", "p")
    for headers in (
        {"Host": "evil.example"}, {"Host": HOST, "X-Forwarded-Host": "evil.example"},
        {"Host": "127.0.0.1", "Forwarded": f"host={HOST}", "X-Forwarded-Host": HOST},
    ):  # fmt: skip
        response = world.api["first"].request("GET", path, headers=headers, validate=False)
        assert response.status == 200 and b"evil.example" not in response.body
    at_other = world.api["first"].request("GET", world.find_path("first", "p"), headers={
        "Host": "127.0.0.1", "X-Forwarded-Host": HOST
    })  # fmt: skip
    assert at_other.status == 200, "only the Host header counts"


def test_only_operators_set_addresses_that_are_free(world: World) -> None:
    """Owners, keys and other accounts cannot take a host; each problem is named, and the audit log has each change."""
    south, server = world.api["south"], world.server
    owner, operator = ScriptlessBrowser(server.client(), OWNER), ScriptlessBrowser(server.client())
    for path in ("address", "address/remove"):
        assert owner.status("POST", f"/settings/accounts/{world.number}/{path}", public_url="", host=FORMER) == 403
    south.patch("/account", {"public_url": f"http://{OTHER}"})
    assert south.get("/account").json["public_url"] == f"http://{HOST}"
    north = server.cli("account", "add", "North").stdout.strip()
    for url, problem in (
        (f"http://{HOST}", f"{HOST} belongs to another account."), (f"http://{FORMER}:81", "belongs to another"),
        ("http://127.0.0.1", "Enter an address"), ("http://localhost", "Enter an address"),
        (f"http://{OTHER}/path", "Enter an address"), (f"http://a@{OTHER}", "Enter an address"),
        (f"ftp://{OTHER}", "Enter an address"), (f"http://{OTHER}?q", "Enter an address"),
        ("http://a..example", "Enter an address"), (f"http://{OTHER}:99999", "Enter an address"),
        ("http://evil.example\r\nX: y", "Enter an address"), ("http://[::1]", "Enter an address"), ("x", "Enter an"),
    ):  # fmt: skip
        refused = operator.submit(f"/settings/accounts/{north}/address", public_url=url)
        assert refused.status == 422 and problem in refused.text, url
    for number, host, problem in ((world.number, HOST, "present address"), (north, FORMER, "no former address")):
        refused = operator.submit(f"/settings/accounts/{number}/address/remove", host=host)
        assert refused.status == 422 and problem in refused.text, host
    printed = server.cli("account", "address", north, "--url", "http://MAIL.Nörth.example:80").stdout
    assert printed == "http://mail.xn--nrth-5qa.example\n"
    printed = server.cli("account", "address", north, "--url", "none").stdout
    assert printed.splitlines()[1:] == ["mail.xn--nrth-5qa.example (former)"]
    server.cli("account", "address", world.number, "--remove", FORMER)
    server.cli("account", "address", north, "--url", f"http://{FORMER}")
    path, deadline = world.find_path("south", "p"), time.monotonic() + 15
    while world.request(path, FORMER).status != 404:  # a command in another process has an effect within seconds
        assert time.monotonic() < deadline
        time.sleep(0.3)
    page = HtmlPage(operator, f"/settings/accounts/{north}")
    assert "mail.xn--nrth-5qa.example" in page.text
    assert "is removed" in page.press("Remove address").text
    log = owner.get("/settings/audit")
    assert all(text in log for text in ("Changed the public address", "Removed a former public address", HOST, FORMER))


def test_the_health_check_requests_the_address(world: World) -> None:
    """It warns if nothing answers there; the service proves itself only at addresses of accounts."""
    for options in (("--account", "1"), ("--account", world.number, "--tenant")):
        report = json.loads(world.server.cli("doctor", "--json", *options, expect=None).stdout)
        addresses = [item for item in report["findings"] if item["check"] == "account address"]
        assert f"http://{HOST} cannot be reached" in " ".join(item["words"] for item in addresses)
        assert {item["level"] for item in addresses} == {"warn"} and (len(addresses) == 1 or options[1] == "1")
    path = "/.well-known/campanero-address/123"
    proof, other = (world.request(path, HOST).text, world.request(path + "4", HOST).text)
    assert len(proof) == 30 and proof != other
    assert world.request(path, "127.0.0.1").status == 404
