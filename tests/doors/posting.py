"""Post to doors as raw HTTP, and wait for the emails that they send."""

import base64
import time
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from tests.kit.client import Client, Response
from tests.kit.server import Server
from tests.kit.smtp import Message, SmtpServer

Fields = Sequence[tuple[str, str]]
Files = Sequence[tuple[str, str, str, bytes]]  # field, file name, type, content


def authorize(key: str, user: str = "api") -> dict[str, str]:
    """Return the header of HTTP Basic authentication."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{key}".encode()).decode()}


def post_form(
    server: Server, path: str, fields: Fields, files: Files = (), *, key: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:  # fmt: skip
    """Post a form: in multipart with files, else urlencoded."""
    sent = authorize(key or str(server.key)) | (headers or {})
    if not files:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
        return Client(server.url).request("POST", path, urlencode(fields).encode(), sent)
    boundary = uuid.uuid4().hex
    body = bytearray()
    for name, value in fields:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    for name, filename, kind, content in files:
        head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}'
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    sent["Content-Type"] = f"multipart/form-data; boundary={boundary}"
    return Client(server.url).request("POST", path, bytes(body), sent)


def wait_for_mail(relay: SmtpServer, addresses: Sequence[str], subject: str | None = None) -> dict[str, Message]:
    """Wait until the relay has an email for each address, and return the last one of each by address."""
    end = time.monotonic() + 60
    while True:
        mails = {mail.to: mail for mail in relay.messages if subject is None or mail.header("Subject") == subject}
        if set(addresses) <= set(mails):
            return {address: mails[address] for address in addresses}
        if time.monotonic() > end:
            raise AssertionError(f"no email for {set(addresses) - set(mails)}")
        time.sleep(0.05)


def find_messages(server: Server, **query: Any) -> list[dict[str, Any]]:
    """Return the rows of the ledger, newest first."""
    rows: list[dict[str, Any]] = server.client().get("/messages", limit=100, **query).expect(200)
    return rows
