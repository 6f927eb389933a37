"""The examples of the Python client, run against the service."""

import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campanero_client import Campanero
from tests.kit import typescript
from tests.kit.server import ROOT, Server, free_port

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


def read_example(readme: Path, language: str, server: Server) -> str:
    """Return the first example of a README in a language, for a server."""
    (example,) = re.findall(rf"```{language}\n(.*?)```", readme.read_text(), re.DOTALL)
    return example.replace("https://mail.example.com", server.url).replace("camp_live_...", server.new_key())


def test_readme(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the README selects contacts by a custom field, and sends them a campaign."""
    exec(read_example(ROOT / "clients/python/README.md", "python", server), {})  # what a reader copies
    assert capsys.readouterr().out == "1\n1 sent, 0 clicked\n"


@pytest.mark.full
def test_readme_of_typescript(server: Server, tmp_path: Path) -> None:
    """The client is installed as its README says, after the packages of its tests, and the example does the same."""
    node = typescript.find_node(typescript.PACKAGES)
    package, program = tmp_path / "client", tmp_path / "program"
    shutil.copytree(ROOT / "clients/typescript", package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (package / "node_modules").symlink_to((typescript.PACKAGES / "node_modules").resolve())
    program.mkdir()
    (program / "package.json").write_text('{"name": "program", "private": true, "type": "module"}')
    install = ["npm", "install", "--offline", "--no-audit", "--no-fund", "../client"]
    subprocess.run(install, cwd=program, check=True, capture_output=True, timeout=300)
    (program / "offer.ts").write_text(read_example(ROOT / "clients/typescript/README.md", "ts", server))
    typescript.run_tool("tsc", "--target", "es2022", "--module", "nodenext", "--strict", "offer.ts", cwd=program)
    done = subprocess.run([node, "offer.js"], cwd=program, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "1"
    events = server.client().get("/events", event="offer_made").json
    assert [event["data"] for event in events] == [{"city": "Lyon"}]


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
