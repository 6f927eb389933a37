"""The doors of Postmark, Resend and SendGrid as raw HTTP: access, faults, limits, and fields that are left out."""

import base64
import json
from typing import Any

import pytest

from tests.doors.posting import find_messages
from tests.kit.client import Client, Response
from tests.kit.server import Server

POSTMARK, RESEND, SENDGRID = "/compat/postmark/email", "/compat/resend/emails", "/compat/sendgrid/v3/mail/send"
PATHS = (POSTMARK, f"{POSTMARK}/batch", RESEND, f"{RESEND}/batch", SENDGRID)
MAILS: dict[str, dict[str, Any]] = {
    POSTMARK: {"From": "ana@bakery.example", "To": "ann@example.org", "Subject": "S", "TextBody": "t"},
    RESEND: {"from": "ana@bakery.example", "to": "ann@example.org", "subject": "S", "text": "t"},
    SENDGRID: {
        "from": {"email": "ana@bakery.example"}, "personalizations": [{"to": [{"email": "ann@example.org"}]}],
        "subject": "S", "content": [{"type": "text/plain", "value": "t"}],
    },
}  # fmt: skip


def post(server: Server, path: str, body: Any, key: str | None = None, **headers: str) -> Response:
    """Post JSON with the key where the service has it."""
    token = str(server.key) if key is None else key
    name = "X-Postmark-Server-Token" if path.startswith(POSTMARK) else "Authorization"
    sent = {"Content-Type": "application/json", name: token if name.startswith("X") else f"Bearer {token}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent |= {header.replace("_", "-"): value for header, value in headers.items()}
    return Client(server.url).request("POST", path, content, sent)


def read_text(path: str, response: Response) -> str:
    """Return the text of an error in the form of the service."""
    body = response.json
    if path.startswith(POSTMARK):
        assert isinstance(body["ErrorCode"], int)
        return str(body["Message"])
    if path.startswith(RESEND):
        assert body["statusCode"] == response.status and body["name"]
        return str(body["message"])
    return "; ".join(error["message"] for error in body["errors"])


@pytest.mark.parametrize("path", PATHS)
def test_errors_have_the_form_of_the_service(server: Server, path: str) -> None:
    """401, 403, 400, 415, 405 and 413, before anything of the body counts."""
    reader = server.new_key("reader", "--scope", "messages:read")
    large = b'{"a": "' + b"x" * 3_000_000 + b'"}'
    huge = b" " * 41_000_000
    for status, response in (
        (401, post(server, path, {}, "camp_live_wrong")),
        (401, post(server, path, {}, "")),
        (403, post(server, path, {}, reader)),
        (400, post(server, path, b"{")),
        (400, post(server, path, [] if not path.endswith("batch") else {})),
        (415, post(server, path, {}, Content_Type="text/plain")),
        (405, Client(server.url).request("PUT", path, b"{}", {})),
        (404, Client(server.url).request("GET", f"{path}/x/y", None, {})),
        (413, post(server, path, large if not path.endswith("batch") else [json.loads(large)])),
        (413, post(server, path, huge)),
        (401, post(server, path, huge, "camp_live_wrong")),
    ):
        assert response.status == status, response.body[:300]
        assert read_text(path, response)


@pytest.mark.parametrize(("path", "change", "texts"), [
    (POSTMARK, {"To": "", "Subject": "", "TextBody": ""}, ["To can't", "Subject can't", "HtmlBody can't"]),
    (POSTMARK, {"Unknown": 1, "MessageStream": "broadcast"}, ["Unknown is not a known", "MessageStream must be"]),
    (POSTMARK, {"Headers": [{"Name": "X-A"}], "Metadata": {"a": [1]}}, ["Headers[0] must", "Metadata must"]),
    (POSTMARK, {"Headers": [{"Name": "X-A", "Value": "a\r\nBcc: e@example.org"}]}, ["Headers.X-A is invalid"]),
    (POSTMARK, {"Attachments": [{"Name": "a.exe", "Content": "?"}]},
     ["Attachments[0].filename", "Attachments[0].content"]),
    (POSTMARK, {"Cc": ",".join(f"c{n}@example.org" for n in range(50))}, ["is too long"]),
    (RESEND, {"to": [], "from": "x", "subject": None}, ["to can't", "from is invalid", "subject can't"]),
    (RESEND, {"to": ["nobody", "ann@example.org"], "cc": 5}, ["to is invalid", "cc is invalid"]),
    (RESEND, {"tags": [{"name": 1}], "topic_id": "t", "template": {"id": "t"}},
     ["tags[0]", "topic_id is", "template is"]),
    (RESEND, {"scheduled_at": "in 1 hour", "reply_to": ["a@example.org", "b@example.org"]},
     ["scheduled_at", "reply_to must"]),
    (RESEND, {"attachments": [{"filename": "a.pdf", "path": "https://x.example/a.pdf"}]}, ["attachments[0].path"]),
    (SENDGRID, {"personalizations": [], "asm": {"group_id": 1}}, ["personalizations can't", "asm is not"]),
    (SENDGRID, {"personalizations": [{"to": [{"name": "x"}], "dynamic_template_data": {"a": 1}}]},
     ["personalizations[0].to[0] must", "personalizations[0].dynamic_template_data is not"]),
    (SENDGRID, {"content": [{"type": "text/amp", "value": "x"}], "send_at": "now"},
     ["content[0] must", "send_at must"]),
    (SENDGRID, {"mail_settings": {"footer": {"enable": True}}, "tracking_settings": {"ganalytics": {"enable": True}}},
     ["mail_settings.footer is not", "tracking_settings.ganalytics is not"]),
    (SENDGRID, {"personalizations": [{"to": [{"email": f"p{n}@example.org"}]} for n in range(501)]}, ["is too long"]),
])  # fmt: skip
def test_faults_are_answered_at_once(server: Server, path: str, change: dict[str, Any], texts: list[str]) -> None:
    """All faults stand in one response by the names of the service, and nothing is queued."""
    before = len(find_messages(server))
    response = post(server, path, MAILS[path] | change)

    assert response.status == (400 if path == SENDGRID else 422), response.body
    assert [text for text in texts if text not in read_text(path, response)] == [], response.body
    assert len(find_messages(server)) == before


def test_left_out_fields_are_named(server: Server) -> None:
    """What changes nothing for the recipient is in the header X-Ignored-Fields."""
    settings = {"tracking_settings": {"click_tracking": {"enable": True}, "open_tracking": {"enable": True}}}
    postmark = post(server, POSTMARK, MAILS[POSTMARK] | {"TrackLinks": "HtmlOnly", "TrackOpens": True})
    sendgrid = post(server, SENDGRID, MAILS[SENDGRID] | {"ip_pool_name": "a"} | settings)

    assert (postmark.status, postmark.headers["X-Ignored-Fields"]) == (200, "TrackLinks")
    assert sendgrid.status == 202
    assert sendgrid.headers["X-Ignored-Fields"] == "ip_pool_name, tracking_settings.click_tracking"


def test_sandbox_mode_of_sendgrid_sends_nothing(server: Server) -> None:
    """The message is only checked, and its faults are reported."""
    sandbox = {"mail_settings": {"sandbox_mode": {"enable": True}}}
    before = len(find_messages(server))

    assert post(server, SENDGRID, MAILS[SENDGRID] | sandbox).status == 200
    assert post(server, SENDGRID, MAILS[SENDGRID] | sandbox | {"subject": ""}).status == 400
    assert len(find_messages(server)) == before


def test_email_of_another_account_does_not_exist(server: Server) -> None:
    """An id of another account, and one that is none, are 404; a key without the scope gets 403."""
    sent = post(server, RESEND, MAILS[RESEND]).expect(200)["id"]
    other = server.new_key("other", "--account", server.cli("account", "add", "Elsewhere").stdout.strip())
    sender = server.new_key("sender", "--scope", "messages:send")

    def get(number: str, key: str) -> Response:
        return Client(server.url).request("GET", f"{RESEND}/{number}", None, {"Authorization": f"Bearer {key}"})

    assert get(sent, str(server.key)).expect(200)["id"] == sent
    assert (get(sent, other).status, get("nothing", other).status, get(sent, sender).status) == (404, 404, 403)


def test_files_of_node_are_read(server: Server) -> None:
    """A Buffer of Node arrives as an object with a list of bytes; a picture with an id is shown in the text."""
    content = {"type": "Buffer", "data": list(b"PNG")}
    mail = MAILS[RESEND] | {
        "to": "files@example.org", "html": '<img src="cid:logo">',
        "attachments": [{"filename": "l.png", "content": content, "contentId": "logo"}],
    }  # fmt: skip
    post(server, RESEND, mail).expect(200)
    broken = post(server, RESEND, mail | {"attachments": [{"filename": "l.png", "content": [1, 999]}]})
    [row] = find_messages(server, to="files@example.org")
    [file] = server.client().get(f"/messages/{row['id']}").expect(200)["attachments"]

    assert (file["filename"], file["content_id"], file["size"]) == ("l.png", "logo", 3)
    assert broken.status == 422 and "attachments[0].content is invalid" in broken.json["message"]


@pytest.mark.full
def test_files_have_25_megabytes_together(server: Server) -> None:
    """A file of 24 MB is sent, and 26 MB are refused with the reason."""

    def build(size: int) -> dict[str, Any]:
        content = base64.b64encode(b"x" * size).decode()
        return MAILS[POSTMARK] | {"Attachments": [{"Name": "a.bin", "Content": content}]}

    refused = post(server, POSTMARK, build(26 * 1_048_576))
    assert post(server, POSTMARK, build(24 * 1_048_576)).status == 200
    assert refused.status == 422 and refused.json["Message"] == "Attachments is too large (maximum is 25 MB)"


def test_each_recipient_counts_in_the_rate_limit() -> None:
    """A message to many takes as many tokens as messages to each of them, so that the next request waits."""
    with Server(env={"CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "60"}).set_up() as limited:
        many = [f"r{number}@example.org" for number in range(50)]
        personal = {"to": [{"email": many[0]}], "cc": [{"email": address} for address in many[1:]]}
        changes = {POSTMARK: {"To": ", ".join(many)}, RESEND: {"to": many}, SENDGRID: {"personalizations": [personal]}}
        for path, change in changes.items():
            limited.key = limited.new_key("limited")
            post(limited, path, MAILS[path] | change)
            assert post(limited, path, MAILS[path]).status == 429, path


@pytest.mark.parametrize("path", [f"{RESEND}/batch", SENDGRID])
def test_a_batch_with_the_key_of_another_batch_queues_nothing(server: Server, path: str) -> None:
    """Not even where the first batch stored no key of its own: for a suppressed recipient, or one message more."""
    key, name = f"key-{path}", path.rpartition("/")[2]
    suppressed, *others = (f"{word}-{name}@example.org" for word in ("out", "first", "second", "third"))
    server.client().post("/suppressions", {"address": suppressed, "reason": "manual"}).expect(201)

    def post_batch(*recipients: str) -> Response:
        mails = [{**MAILS[RESEND], "to": recipient} for recipient in recipients]
        personal = [{"to": [{"email": recipient}]} for recipient in recipients]
        body = {**MAILS[SENDGRID], "personalizations": personal} if path == SENDGRID else mails
        return post(server, path, body, Idempotency_Key=key)

    status = 202 if path == SENDGRID else 200
    assert post_batch(suppressed, others[0]).status == status
    for recipients in ((others[1], others[0]), (suppressed, others[0], others[2])):
        assert post_batch(*recipients).status == 409
    assert post_batch(suppressed, others[0]).status == status
    addresses = [row["to"] for row in find_messages(server)]
    assert [addresses.count(recipient) for recipient in others] == [1, 0, 0]
