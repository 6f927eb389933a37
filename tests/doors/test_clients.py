"""The official clients of Postmark, Resend and SendGrid, for JavaScript and Python, send through their doors."""

import base64
from typing import Any

import pytest
import resend
from postmark.sync import ServerClient
from python_http_client.exceptions import BadRequestsError
from resend.exceptions import ResendError
from sendgrid import SendGridAPIClient
from sendgrid.helpers.mail import Attachment, Bcc, Cc, Header, Mail, ReplyTo, To

from tests.doors.posting import find_messages, wait_for_mail
from tests.kit.node_clients import run_clients
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

FILE = base64.b64encode(b"%PDF").decode()
FROM = "Ana <ana@bakery.example>"


def check_mail(relay: SmtpServer, to: str, cc: str, bcc: str) -> None:
    """Check the mail that each client sends: literal texts, headers, a file, a copy, and one that nobody sees."""
    mails = wait_for_mail(relay, [to, cc, bcc])
    for mail in mails.values():
        assert (mail.header("To"), mail.header("Cc"), mail.header("From")) == (to, cc, FROM)
        assert (mail.header("Subject"), mail.header("Reply-To")) == ("Order {{ 7 }}", "shop@bakery.example")
        assert mail.header("X-Order") == "7"
        assert "<p>Hello {{ 7 }}</p>" in str(mail.html()) and str(mail.text()).strip() == "Hello {{ 7 }}"
        assert [part.get_filename() for part in mail.parsed.walk() if part.get_filename()] == ["bill.pdf"]
        assert bcc not in mail.raw.decode()


def test_postmark_for_javascript(server: Server, relay: SmtpServer) -> None:
    """One email, a batch with an invalid one, and errors with all faults."""
    email = {
        "From": FROM, "To": "Ann <pn-to@example.org>", "Cc": "pn-cc@example.org", "Bcc": "pn-bcc@example.org",
        "ReplyTo": "shop@bakery.example", "Subject": "Order {{ 7 }}", "HtmlBody": "<p>Hello {{ 7 }}</p>",
        "TextBody": "Hello {{ 7 }}", "Tag": "order", "Metadata": {"order": "7"}, "MessageStream": "outbound",
        "Headers": [{"Name": "X-Order", "Value": "7"}], "TrackLinks": "None",
        "Attachments": [{"Name": "bill.pdf", "Content": FILE, "ContentType": "application/pdf", "ContentID": None}],
    }  # fmt: skip
    plain = {"From": FROM, "To": "pn-b@example.org", "Subject": "B", "TextBody": "b"}
    sent, batch, failed = run_clients(server.url, str(server.key), [
        {"client": "postmark", "call": "send", "email": email},
        {"client": "postmark", "call": "batch", "emails": [plain, {"From": FROM, "TextBody": "b"}]},
        {"client": "postmark", "call": "send", "email": {"From": "x", "TemplateId": 7, "To": "pn-x@example.org"}},
    ])  # fmt: skip

    check_mail(relay, "pn-to@example.org", "pn-cc@example.org", "pn-bcc@example.org")
    assert (sent["ErrorCode"], sent["Message"], sent["To"]) == (0, "OK", email["To"])
    assert [result["ErrorCode"] for result in batch] == [0, 300]
    assert batch[1]["Message"] == "To can't be blank; Subject can't be blank"
    assert failed["error"]["name"] == "InvalidEmailRequestError" and failed["error"]["code"] == 300
    assert all(text in failed["error"]["message"] for text in ("From is invalid", "Subject can't", "TemplateId is not"))
    [row] = find_messages(server, to="pn-to@example.org")
    assert row["tags"] == {"tags": ["order"], "variables": {"order": "7"}}


def test_postmark_for_python(server: Server, relay: SmtpServer) -> None:
    """The official client, with an inactive recipient."""
    server.client().post("/suppressions", {"address": "pp-off@example.org", "reason": "hard_bounce"}).expect(201)
    email = {
        "sender": FROM, "to": "pp-to@example.org", "cc": "pp-cc@example.org", "bcc": "pp-bcc@example.org",
        "reply_to": "shop@bakery.example", "subject": "Order {{ 7 }}", "html_body": "<p>Hello {{ 7 }}</p>",
        "text_body": "Hello {{ 7 }}", "headers": [{"name": "X-Order", "value": "7"}],
        "attachments": [{"name": "bill.pdf", "content": FILE, "content_type": "application/pdf"}],
    }  # fmt: skip
    with ServerClient(str(server.key), base_url=f"{server.url}/compat/postmark", retries=0) as client:
        sent = client.outbound.send(email)
        with pytest.raises(Exception, match="inactive") as failed:
            client.outbound.send({**email, "to": "pp-off@example.org", "cc": None, "bcc": None})

    check_mail(relay, "pp-to@example.org", "pp-cc@example.org", "pp-bcc@example.org")
    assert sent.message == "OK"
    assert "406" in str(failed.value) or getattr(failed.value, "error_code", 0) == 406


def build_resend(prefix: str) -> dict[str, Any]:
    """Return an email for Resend, with the recipients of one client."""
    return {
        "from": FROM, "to": [f"{prefix}-to@example.org"], "cc": f"{prefix}-cc@example.org",
        "bcc": [f"{prefix}-bcc@example.org"], "subject": "Order {{ 7 }}", "html": "<p>Hello {{ 7 }}</p>",
        "text": "Hello {{ 7 }}", "headers": {"X-Order": "7"}, "tags": [{"name": "order", "value": "7"}],
        "attachments": [{"filename": "bill.pdf", "content": FILE}],
    }  # fmt: skip


def test_resend_for_javascript(server: Server, relay: SmtpServer) -> None:
    """One email and a repetition, a batch that is refused as a whole and one in parts, and an email read again."""
    email = build_resend("rn") | {"replyTo": "shop@bakery.example"}
    plain = {"from": FROM, "to": "rn-b@example.org", "subject": "B", "text": "b"}
    bad = plain | {"to": "nobody", "subject": ""}
    options = {"idempotencyKey": "rn-1"}
    sent, again, strict, permissive, batch = run_clients(server.url, str(server.key), [
        {"client": "resend", "call": "send", "email": email, "options": options},
        {"client": "resend", "call": "send", "email": email, "options": options},
        {"client": "resend", "call": "batch", "emails": [plain, bad]},
        {"client": "resend", "call": "batch", "emails": [plain, bad], "options": {"batchValidation": "permissive"}},
        {"client": "resend", "call": "batch", "emails": [plain, plain]},
    ])  # fmt: skip
    check_mail(relay, "rn-to@example.org", "rn-cc@example.org", "rn-bcc@example.org")
    [read] = run_clients(server.url, str(server.key), [{"client": "resend", "call": "get", "id": sent["data"]["id"]}])

    assert sent["error"] is None and sent["data"] == again["data"]
    assert strict["error"]["name"] == "validation_error" and strict["error"]["statusCode"] == 422
    assert strict["error"]["message"] == "emails[1].to is invalid; emails[1].subject can't be blank"
    assert len(permissive["data"]["data"]) == 1
    assert [entry["index"] for entry in permissive["data"]["errors"]] == [1]
    assert len(batch["data"]["data"]) == 2
    assert len(find_messages(server, to="rn-b@example.org")) == 3
    data = read["data"]
    assert (data["object"], data["to"], data["last_event"]) == ("email", ["rn-to@example.org"], "sent")
    assert (data["cc"], data["bcc"]) == (["rn-cc@example.org"], ["rn-bcc@example.org"])
    assert data["subject"] == "Order {{ 7 }}" and "Hello {{ 7 }}" in data["html"]


def test_resend_for_python(server: Server, relay: SmtpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes its base URL from a variable; the file is given as a list of bytes."""
    monkeypatch.setattr(resend, "api_key", server.key)
    monkeypatch.setattr(resend, "api_url", f"{server.url}/compat/resend")
    email: Any = build_resend("rp") | {
        "reply_to": "shop@bakery.example", "attachments": [{"filename": "bill.pdf", "content": list(b"%PDF")}],
    }  # fmt: skip
    sent = resend.Emails.send(email)
    check_mail(relay, "rp-to@example.org", "rp-cc@example.org", "rp-bcc@example.org")
    with pytest.raises(ResendError, match="subject can't be blank"):
        resend.Emails.send({"from": FROM, "to": "rp-to@example.org", "text": "x"})

    assert resend.Emails.get(sent["id"])["to"] == ["rp-to@example.org"]


def test_sendgrid_for_javascript(server: Server, relay: SmtpServer) -> None:
    """Several personalizations are messages of their own, with substitutions; nothing is sent if one is invalid."""
    email = {
        "from": {"email": "ana@bakery.example", "name": "Ana"}, "replyTo": "shop@bakery.example",
        "subject": "Order {{ 7 }}", "text": "Hello {{ 7 }}", "html": "<p>Hello {{ 7 }}</p>",
        "headers": {"X-Order": "7"}, "categories": ["order"], "customArgs": {"order": "7"},
        "attachments": [{"filename": "bill.pdf", "content": FILE, "type": "application/pdf"}],
        "to": "sn-to@example.org", "cc": "sn-cc@example.org", "bcc": "sn-bcc@example.org",
    }  # fmt: skip
    personal = [
        {"to": [{"email": f"sn-{name}@example.org"}], "substitutions": {"name": f"<b>{name}</b>{{{{ x }}}}"}}
        for name in ("p1", "p2")
    ]
    common = {"from": "ana@bakery.example", "subject": "For {{name}}", "html": "<p>{{name}}</p>"}
    broken = [*personal, {"to": [{"email": "nobody"}]}]
    sent, both, failed = run_clients(server.url, str(server.key), [
        {"client": "sendgrid", "call": "send", "email": email},
        {"client": "sendgrid", "call": "send", "email": common | {"personalizations": personal}},
        {"client": "sendgrid", "call": "send", "email": common | {"personalizations": broken, "templateId": "d-1"}},
    ])  # fmt: skip
    check_mail(relay, "sn-to@example.org", "sn-cc@example.org", "sn-bcc@example.org")
    mails = wait_for_mail(relay, ["sn-p1@example.org", "sn-p2@example.org"])

    assert sent["status"] == both["status"] == 202 and len(sent["id"]) == 36
    assert mails["sn-p1@example.org"].header("Subject") == "For <b>p1</b>{{ x }}"
    assert "<p>&lt;b&gt;p2&lt;/b&gt;{{ x }}</p>" in str(mails["sn-p2@example.org"].html())
    errors = {error["field"]: error["message"] for error in failed["error"]["body"]["errors"]}
    assert failed["error"]["code"] == 400
    assert errors == {
        "template_id": "template_id is not supported: templates are those of this service, by POST /v1/my/messages",
        "personalizations[2].to": "personalizations[2].to is invalid",
    }  # fmt: skip
    assert len(find_messages(server, to="sn-p1@example.org")) == 1


def test_sendgrid_for_python(server: Server, relay: SmtpServer) -> None:
    """The client of Python, with a base URL, and its error."""
    client = SendGridAPIClient(server.key, host=f"{server.url}/compat/sendgrid")
    mail = Mail(("ana@bakery.example", "Ana"), To("sp-to@example.org", "Ann"), "Order {{ 7 }}", "Hello {{ 7 }}",
                "<p>Hello {{ 7 }}</p>")  # fmt: skip
    mail.add_cc(Cc("sp-cc@example.org"))
    mail.add_bcc(Bcc("sp-bcc@example.org"))
    mail.reply_to = ReplyTo("shop@bakery.example")
    mail.add_header(Header("X-Order", "7"))
    mail.add_attachment(Attachment(FILE, "bill.pdf", "application/pdf", "attachment"))
    response = client.send(mail)
    check_mail(relay, "sp-to@example.org", "sp-cc@example.org", "sp-bcc@example.org")
    with pytest.raises(BadRequestsError) as failed:
        client.send(Mail("ana@bakery.example", "sp-to@example.org", "", "x"))

    assert response.status_code == 202 and response.headers["X-Message-Id"]
    assert b"subject can't be blank" in failed.value.body
