"""The examples of both clients, run against the service, and the webhooks that it signs."""

import base64
import hashlib
import hmac
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from campanero_client import Campanero, errors, webhooks
from tests.kit import typescript
from tests.kit.server import ROOT, Server, free_port
from tests.kit.webhook_receiver import Receiver

EXAMPLES = ROOT / "clients/python/examples"
PEOPLE = "email,first_name\ncy@example.org,Cy\ndee@example.org,Dee\nno address,Ed\n"


def run_example(name: str, *arguments: object) -> None:
    """Run a Python example in this process, as its command line would."""
    previous, sys.argv = sys.argv, [name, *map(str, arguments)]
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        sys.argv = previous


def wait_for_port(port: int) -> None:
    """Wait until something listens on a port of this machine."""
    end = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        assert time.monotonic() < end, f"nothing listens on port {port}"
        time.sleep(0.02)


def test_send_campaign(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """The list, the contacts, the segment and the campaign are created, and one contact is in both."""
    run_example("send_campaign.py", server.url, server.new_key())
    assert capsys.readouterr().out == "anna@example.org sent\n"


def test_import_and_export(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The async example imports two of three rows, and its export holds them."""
    (tmp_path / "in.csv").write_text(PEOPLE)
    run_example("import_and_export.py", server.url, server.new_key(), tmp_path / "in.csv", tmp_path / "out.csv")
    assert capsys.readouterr().out.startswith("2 created, 0 updated, 1 failed\n")
    assert "dee@example.org" in (tmp_path / "out.csv").read_text()


def test_receive_webhooks(server: Server, tmp_path: Path) -> None:
    """The example verifies and prints an event of the service."""
    port = free_port()
    client = Campanero(server.url, server.new_key())
    webhook = client.webhooks.create(url=f"http://127.0.0.1:{port}/hook", events=["order_paid"])
    environment = {**os.environ, "WEBHOOK_SECRET": webhook["secret"], "PYTHONPATH": str(ROOT / "clients/python")}
    command = [sys.executable, str(EXAMPLES / "receive_webhooks.py"), str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for_port(port)
            client.events.create(event="order_paid", contact_email="anna@example.org", create_contact=True)
            assert process.stdout is not None and process.stdout.readline() == "order_paid\n"
        finally:
            process.kill()


def test_webhooks_are_verified_in_both_languages(server: Server, tmp_path: Path, compiled_client: Path) -> None:
    """A request of the service is valid; a changed, old or unsigned one, or one for another secret, is not."""
    client = Campanero(server.url, server.new_key())
    with Receiver(tmp_path) as receiver:
        secret = client.webhooks.create(url=receiver.url, events=["order_paid"])["secret"]
        client.events.create(event="order_paid", contact_email="anna@example.org", create_contact=True)
        request = receiver.wait(lambda requests: bool(requests))[0]
    signed = {name: value for name, value in request.headers.items() if name.startswith("webhook-")}
    other_secret = "whsec_" + base64.b64encode(b"x" * 32).decode()
    old = str(int(signed["webhook-timestamp"]) - 600)
    mac = hmac.new(base64.b64decode(secret[6:]), f"{request.name}.{old}.".encode() + request.body, hashlib.sha256)
    old_signature = "v1," + base64.b64encode(mac.digest()).decode()
    cases: list[tuple[bytes, dict[str, str], str]] = [
        (request.body, signed, secret),
        (request.body, {name.title(): value for name, value in signed.items()}, secret),
        (request.body, {**signed, "webhook-signature": f"v1,AAAA {signed['webhook-signature']}"}, secret),
        (request.body.replace(b"order_paid", b"order_past"), signed, secret),
        (request.body, signed, other_secret),
        (request.body, {**signed, "webhook-id": "other"}, secret),
        (request.body, {**signed, "webhook-timestamp": old, "webhook-signature": old_signature}, secret),
        (request.body, {**signed, "webhook-timestamp": "soon"}, secret),
        (request.body, {**signed, "webhook-signature": "v1,\xe9 v2,"}, secret),
        (request.body, {}, secret),
    ]
    names = [verify_in_python(*case) for case in cases]
    assert names == ["order_paid"] * 3 + ["InvalidSignature"] * 7

    script = tmp_path / "verify.mjs"
    script.write_text(f"""
        import {{ webhooks }} from {json.dumps(str(compiled_client / "src/index.js"))};
        for (const [body, headers, secret] of {json.dumps([(body.decode(), *rest) for body, *rest in cases])}) {{
          const event = await webhooks.verify(body, headers, secret).catch((error) => ({{ event: error.name }}));
          console.log(event.event);
        }}
    """)
    assert typescript.run_node(script).split() == names


def verify_in_python(body: bytes, headers: dict[str, str], secret: str) -> Any:
    """Return the name of the event of a request, or that of the error."""
    try:
        return webhooks.verify(body, headers, secret)["event"]
    except errors.InvalidSignature as error:
        return type(error).__name__


def test_typescript_examples(server: Server, tmp_path: Path, compiled_client: Path) -> None:
    """The TypeScript examples do what those in Python do."""
    (tmp_path / "in.csv").write_text(PEOPLE.replace("cy@", "cyn@").replace("dee@", "deb@"))
    examples, key = compiled_client / "examples", server.new_key()
    printed = typescript.run_node(examples / "sendCampaign.js", server.url, key)
    assert printed == "anna@example.org sent\n"
    printed = typescript.run_node(examples / "importAndExport.js", server.url, key, tmp_path / "in.csv")
    assert printed.startswith("2 created, 0 updated, 1 failed\n") and printed.endswith(" contacts\n")
