"""Devices of sessions: their names, who may change them, and the email about a sign-in on a new one."""

import re
from collections.abc import Iterator

import pytest

from tests.api.test_passkeys import Browser, add_passkey, add_user
from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer

PROFILE = "/settings/you"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 \
Mobile/15E148 Safari/604.1"
LAPTOP = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture(scope="module")
def server(smtp_sink: SmtpServer) -> Iterator[Server]:
    """A server at `localhost` that sends through the sink, with two viewers beside the owner."""
    running = Server(relay=smtp_sink.port)
    running.url = running.url.replace("127.0.0.1", "localhost")
    running.env["CAMPANERO_BASE_URL"] = running.url
    with running.set_up():
        running.set_postal_address()
        running.client().patch("/account", {"email_from_email": "team@example.com"}).expect(200)
        for name in ("eye", "ear"):
            add_user(running, name)
        yield running
        running.stop()


@pytest.fixture(scope="module")
def smtp_sink() -> Iterator[SmtpServer]:
    """The mail server of the module."""
    with SmtpServer() as sink:
        yield sink


class Device(Browser):
    """A browser with a User-Agent of its own."""

    agent = LAPTOP

    def send(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Response:
        """Send a request with the User-Agent of the device."""
        return super().send(method, path, form, **{"User-Agent": self.agent, **headers})


def test_names_of_devices(server: Server, smtp_sink: SmtpServer) -> None:
    """A device keeps its name over sessions; only its user names it, and a token has a device by its program."""
    laptop, phone = Device(server), Device(server)
    phone.agent = PHONE
    laptop.sign_in("eye@example.org")
    phone.sign_in("eye@example.org")
    page = laptop.send("GET", PROFILE).text
    assert "Firefox on Linux" in page and "Safari on iOS" in page and page.count("(this browser)") == 1
    match = re.search(rf'href="({PROFILE}/sessions/\d+)">Safari', page)
    assert match
    other = Device(server).sign_in("ear@example.org")
    assert other.send("GET", match[1]).status == 404 and other.send("POST", match[1], {"name": "Mine"}).status == 404
    assert laptop.send("POST", match[1], {"name": "x" * 61}).status == 422
    assert laptop.send("POST", match[1], {"name": "<i>Eye's phone</i>"}).status == 303
    assert "&lt;i&gt;Eye&#39;s phone&lt;/i&gt;" in laptop.send("GET", PROFILE).text
    detail = laptop.send("GET", match[1]).text
    assert "Safari on iOS" in detail and "127.0.0.1" in detail and "Password" in detail
    phone.send("POST", "/logout")
    phone.sign_in("eye@example.org")
    assert "phone&lt;/i&gt;" in laptop.send("GET", PROFILE).text

    program = Client(server.url)
    program.key = program.post("/v1/login", {"email": "eye@example.org", "password": PASSWORD}).expect(200)["token"]
    rows = {row["kind"]: row for row in program.get("/user/sessions").expect(200)}
    assert rows["token"]["current"] and rows["token"]["name"] is None and rows["token"]["method"] == "password"
    path = f"/user/sessions/{rows['token']['id']}"
    assert program.patch(path, {"name": "Import script"}).expect(200)["name"] == "Import script"
    assert "Import script" in laptop.send("GET", PROFILE).text
    assert program.patch(path, {}).expect(200)["name"] == "Import script"
    assert program.patch(path, {"name": None}).expect(200)["name"] is None
    assert server.client().patch(path, {"name": "x"}).status == 403
    number = re.search(rf"{PROFILE}/sessions/(\d+)", other.send("GET", PROFILE).text)
    assert number and program.patch(f"/user/sessions/{number[1]}", {"name": "x"}).status == 404
    subjects = [mail.subject for mail in smtp_sink.wait_for(2).messages]
    assert subjects == ["New sign-in: Safari on iOS", "New sign-in: an app that uses the API"]


def test_email_about_a_new_device(server: Server, smtp_sink: SmtpServer) -> None:
    """A sign-in on a new device sends an email, the next one from it none; users turn it off for themselves."""
    before = len(smtp_sink.messages)
    laptop = Device(server).sign_in(EMAIL)
    laptop.send("POST", "/logout")
    laptop.sign_in(EMAIL)
    phone = Device(server)
    phone.agent = PHONE
    phone.sign_in(EMAIL)
    [mail] = [mail for mail in smtp_sink.wait_for(before + 1).messages[before:] if mail.rcpt_to == [EMAIL]]
    assert mail.subject == "New sign-in: Safari on iOS" and "127.0.0.1" in (mail.text() or "")
    assert f"{server.url}{PROFILE}" in (mail.text() or "")
    phone.send("POST", "/logout")
    phone.sign_in(EMAIL)
    assert laptop.send("POST", f"{PROFILE}/notices", {"new_device": "off"}).status == 303
    Device(server).sign_in(EMAIL)
    assert laptop.send("POST", f"{PROFILE}/notices", {"new_device": "on"}).status == 303
    forged = Device(server)
    forged.cookies = {"device": "made-up"}
    forged.agent = "Mozilla/5.0 (X11; Linux) <b>Evil</b> {{ data.link }} Firefox/140.0"
    forged.sign_in(EMAIL)
    mails = smtp_sink.wait_for(before + 2).messages[before:]
    assert len(mails) == 2 and "<b>" not in mails[1].subject and "{" not in mails[1].subject
    # A device that was signed out by hand is new again
    match = re.search(rf'href="{PROFILE}/sessions/(\d+)">Safari', laptop.send("GET", PROFILE).text)
    assert match and laptop.send("POST", f"{PROFILE}/sessions/{match[1]}/end").status == 303
    phone.sign_in(EMAIL)
    assert smtp_sink.wait_for(before + 3).messages[-1].subject == "New sign-in: Safari on iOS"


def test_email_about_passkeys(server: Server, smtp_sink: SmtpServer) -> None:
    """A user gets an email about each passkey that is added or removed, also by the command line."""
    before = len(smtp_sink.messages)
    browser, _ = add_passkey(server, "pim")
    match = re.search(rf"{PROFILE}/passkeys/(\d+)", browser.send("GET", PROFILE).text)
    assert match and browser.send("POST", f"{match[0]}/remove", {"password": PASSWORD}).status == 303
    smtp_sink.wait_for(before + 2)
    add_passkey(server, "pia")
    server.cli("user", "otp-off", "--email", "pia@example.org")
    mails = smtp_sink.wait_for(before + 4).messages[before:]
    assert [(mail.rcpt_to, mail.subject) for mail in mails] == [
        (["pim@example.org"], "A passkey was added"),
        (["pim@example.org"], "A passkey was removed"),
        (["pia@example.org"], "A passkey was added"),
        (["pia@example.org"], "A passkey was removed"),
    ]
    assert "“Key”" in (mails[0].text() or "") and server.url in (mails[0].text() or "")
