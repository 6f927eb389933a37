"""Requirements of mailbox providers, checked in the bytes that the relay gets, with hostile names and texts."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message

SINGLE_HEADERS = ("From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type")
MARKETING_HEADERS = ("List-Unsubscribe", "List-Unsubscribe-Post", "List-Id", "Feedback-ID", "Precedence")
NAMES = ("Ольга", "=?utf-8?b?aGk=?=", 'O"Brien, \\ Ltd.', "From me", ".dot", "😀" * 30, "名前" * 40)
WORDS = ".\n..\nFrom here\n. " + "漢字😀é=3D " * 40 + "x" * 3000
LONG = "<p>" + "word <b>and</b> 漢字 " * 10_000 + "</p>"


def send_to_difficult_names(api: Client, smtp_server: SmtpServer, **overrides: Any) -> list[Message]:
    """Send a campaign to contacts with difficult names and return the messages, in the order of the names."""
    list_id = api.post("/lists", {"name": 'Näme, "quoted" <x>'}).expect(201)["id"]
    for number, name in enumerate(NAMES):
        body = {
            "email": f"p{number}@people.example",
            "first_name": name,
            "list_ids": [list_id],
            "data": {"words": WORDS},
        }
        api.post("/contacts", body).expect(201)
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)
    content = {
        "subject": "For {{ first_name }}",
        "body": "<p>{{ first_name }}: {{ contact.data.words }}</p>",
        "from_email": "ana@bäckerei.example",
        "from_name": "{{ first_name }} bei Bäcker, Ana",
    }
    request = {"trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content | overrides}
    completed(api, api.post(f"/campaigns/{campaign['id']}/send", request).expect(200))
    return sorted(smtp_server.messages, key=lambda message: message.to)


def test_headers_are_unique_and_correctly_encoded(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Each header appears once, encoded words are only where allowed, and names and subjects are unchanged (D01)."""
    messages = send_to_difficult_names(fresh_server(relay=smtp_server.port).client(), smtp_server)
    assert len(messages) == len(NAMES)
    for name, message in zip(NAMES, messages, strict=True):
        header_text = message.raw.partition(b"\r\n\r\n")[0].decode("ascii")
        assert [
            message.parsed.keys().count(name_or_address) for name_or_address in (*SINGLE_HEADERS, *MARKETING_HEADERS)
        ] == [1] * 12
        assert not {"Bcc", "Cc", "Sender", "X-Evil"} & set(message.parsed.keys())
        assert message.subject.split() == f"For {name}".split()
        assert [name_or_address.addr_spec for name_or_address in message.parsed["From"].addresses] == [
            "ana@xn--bckerei-5wa.example"
        ]
        # The standard library leaves a space between the encoded words of a phrase
        shown = message.parsed["From"].addresses[0].display_name
        assert "".join(shown.split()) == "".join(f"{name} bei Bäcker, Ana".split())
        for name_or_address in ("List-Unsubscribe", "Message-ID", "Feedback-ID", "To"):
            (written_as,) = re.findall(rf"(?m)^{name_or_address}: (.*)$", header_text)
            assert "=?" not in written_as
        assert re.fullmatch(r"c\d+:a\d+:campaign:[a-z]{5,15}", message.header("Feedback-ID") or "")
        sent = parsedate_to_datetime(message.header("Date") or "")
        assert timedelta(0) <= datetime.now(UTC) - sent < timedelta(minutes=2)
        assert (message.header("Message-ID") or "").endswith("@xn--bckerei-5wa.example>") and len(header_text) < 16_384
    assert len({message.header("Message-ID") for message in messages}) == len(NAMES)


def test_body_encoding(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Text comes first, both parts are complete and 7-bit, and lines have at most 78 bytes."""
    for message in send_to_difficult_names(fresh_server(relay=smtp_server.port).client(), smtp_server):
        assert [part.get_content_type() for part in message.parsed.iter_parts()] == ["text/plain", "text/html"]
        assert message.raw.isascii()
        body = message.raw.partition(b"\r\n\r\n")[2]
        assert not any(line.startswith((b".", b"From ")) or len(line) > 78 for line in body.split(b"\r\n"))
        text = message.text() or ""
        assert "/u/" in text and WORDS.split() == text.split(": ", 1)[1].split("\n-- \n")[0].split()
        assert "x" * 3000 in (message.html() or "") and "漢字😀é=3D" in (message.html() or "")


def test_a_large_body_on_one_line(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A body of 400 KB on one line is sent in short lines and arrives unchanged."""
    (message, *_) = send_to_difficult_names(fresh_server(relay=smtp_server.port).client(), smtp_server, body=LONG)
    assert "word <b>and</b> 漢字 word" in (message.html() or "") and (message.html() or "").count("漢字") == 10_000
    assert max(map(len, message.raw.split(b"\r\n"))) <= 998


@pytest.mark.parametrize("smtputf8", [True, False])
def test_addresses_outside_ascii(smtputf8: bool, fresh_server: FreshServer) -> None:
    """A domain is sent as its A-label; a local part outside ASCII is sent only where SMTPUTF8 is offered."""
    with SmtpServer(smtputf8=smtputf8) as smtp:
        api = fresh_server(relay=smtp.port).client()
        for address in ("ann@münchen.example", "ольга@people.example"):
            api.post("/messages", {"to": address, "subject": "s", "body": "b"}).expect(201)
        messages = api.wait("/messages", lambda rows: all(row["status"] in ("sent", "skipped") for row in rows), 20)
        assert smtp.messages[0].to == "ann@xn--mnchen-3ya.example" if not smtputf8 else len(smtp.messages) == 2
        assert {row["skip_reason"] for row in messages} == ({None} if smtputf8 else {None, "smtputf8_unsupported"})


def test_a_single_message_has_no_list_headers(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A transactional message has no unsubscribe header, no List-Id and no Precedence (D01)."""
    api = fresh_server(relay=smtp_server.port).client()
    message_id = api.post("/messages", {"to": "ann@people.example", "subject": "s", "body": "<p>b</p>"}).expect(201)[
        "id"
    ]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent", 20)
    (message,) = smtp_server.messages
    assert not set(message.parsed.keys()) & {*MARKETING_HEADERS, "Auto-Submitted", "X-Auto-Response-Suppress"}
