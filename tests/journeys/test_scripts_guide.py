"""The recipes of the guide for scripts run as they are written, with the real command against a service."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import guides
from tests.kit.client import Client
from tests.kit.server import ROOT, Server

RECIPES = {
    "import-a-file-every-night", "send-from-a-makefile", "watch-a-send", "keep-a-list-equal-to-a-spreadsheet",
    "record-an-event-from-cron", "back-up-every-night", "get-an-alert-about-bounces",
    "export-contacts-for-a-colleague", "test-in-ci-that-a-template-renders", "send-a-receipt-with-an-attachment",
}  # fmt: skip
FILES = {
    "customers.csv": "email,first_name,tags\nanna@example.org,Anna,bath\nbo@example.org,Bo,\nnot an address,Eve,\n",
    "newsletter.html": "<p>Good morning, <a href='https://bakery.example/rye'>fresh rye</a>.</p>",
    "members.csv": "email,first_name\nZoe@example.org,Zoë\nbo@example.org,Bo\n",
    "receipt.html": "<p>Thank you for order {{ data.order }}.</p>",
    "receipt-4711.pdf": "%PDF-1.4 a receipt",
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Path]:
    """Yield the directory of a reader of the guide with the files that its scripts read, and the command in `bin`."""
    home = tmp_path_factory.mktemp("reader")
    for name, content in FILES.items():
        (home / name).write_text(content)
    (home / "bin").mkdir()
    command = home / "bin" / "campanero"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m appliance "$@"\n')
    command.chmod(0o755)
    yield home


def run_section(server: Server, home: Path, section: str) -> str:
    """Run the shell blocks of a section as scripts, in order, and return their output; a Makefile is written.

    They have a key with only the scopes that the section names, or else that of the user who is signed in.
    """
    env = server.env | {
        "HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "KEY": server.key or "",
        "CAMPANERO_DATA_DIR": str(server.data),
    }  # fmt: skip
    if scopes := re.search(r"Scopes: (.*?)\.", re.sub(r"<[^<>]+>", "", section)):
        key = server.new_key("recipe", "--scope", scopes[1].replace(" ", ""))
        env |= {"CAMPANERO_URL": server.url, "CAMPANERO_KEY": key}
    blocks = guides.blocks(section)
    output = ""
    for block in blocks:
        if block.language == "makefile":
            (home / "Makefile").write_text(block.text)
        if block.language == "bash":
            script = home / "script"
            script.write_text(block.text)
            done = subprocess.run(
                ["bash", "-eu", script], cwd=home, env=env, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, (block.text, done.stdout, done.stderr)
            output += done.stdout
    return output


def test_recipes_run_as_written(server: Server, api: Client, reader: Path) -> None:
    """Each recipe does what its text says, one after the other, as on the machine of one reader."""
    server.set_postal_address()
    page = Client(server.url).request("GET", "/docs/guides/scripts").text
    assert "Scopes: " in page
    sections = dict(re.findall(r'<h2 id="([^"]+)">(.*?)(?=<h2 |\Z)', page, re.DOTALL))
    assert sections.keys() >= RECIPES

    def follow(name: str) -> str:
        return run_section(server, reader, sections[name])

    assert "Signed in to account Bakery" in follow("sign-in-once")
    follow("complete-commands-with-tab")
    assert "complete " in (reader / ".local/share/bash-completion/completions/campanero").read_text()
    assert "status:  queued" in follow("import-a-file-every-night")
    status = api.get("/messages", to="office@example.com").json[0]
    assert status["subject"] == "Rows of customers.csv that were rejected: 1"
    captured = next(row["id"] for row in api.get("/capture").json if row["to"] == "office@example.com")
    assert "email is invalid: not an address" in api.get(f"/capture/{captured}").json["text"]
    assert {row["first_name"] for row in api.get("/contacts").json} == {"Anna", "Bo"}
    assert "completed" in follow("send-from-a-makefile")
    captured = next(row["id"] for row in api.get("/capture").json if row["to"] == "anna@example.org")
    api.post(f"/capture/{captured}/simulate", {"action": "click"}).expect(200)
    assert follow("watch-a-send") == "2 of 2 sent, completed\n1 clicked\n1 https://bakery.example/rye\n"
    assert follow("keep-a-list-equal-to-a-spreadsheet") == ""
    members = api.get("/lists", search="Members").json[0]["id"]
    assert {row["first_name"] for row in api.get("/contacts", list_id=members).json} == {"Bo", "Zoë"}
    api.post(f"/lists/{members}/contacts/bulk", {"add": ["anna@example.org"]}).expect(200)
    assert follow("keep-a-list-equal-to-a-spreadsheet") == "1 left the list\n"
    assert {row["first_name"] for row in api.get("/contacts", list_id=members).json} == {"Bo", "Zoë"}
    for _ in range(2):
        follow("record-an-event-from-cron")
    events = api.get("/events", event="stock_arrived").json
    assert [row["data"] for row in events] == [{"product": "Rye bread", "pieces": 40}]
    assert "verified" in follow("back-up-every-night")
    assert len(list(reader.glob("campanero-*.tar.gz"))) == 1
    assert follow("get-an-alert-about-bounces") == ""
    # Two emails left at once, and the recipient of the next recipe must not be suppressed
    captured = next(row["id"] for row in api.get("/capture").json if row["to"] == "bo@example.org")
    api.post(f"/capture/{captured}/simulate", {"action": "bounce"}).expect(200)
    for _ in range(2):
        follow("get-an-alert-about-bounces")
    (alert,) = api.get("/messages", to="ops@example.com").json
    assert alert["subject"] == "More than 5 % of emails came back"
    follow("export-contacts-for-a-colleague")
    assert "anna@example.org" in (reader / "bath.csv").read_text()
    assert "bo@example.org" not in (reader / "bath.csv").read_text()
    follow("test-in-ci-that-a-template-renders")
    for wrong in ("{{ data.order", "{{ nothing }}"):
        (reader / "receipt.html").write_text(f"<p>{wrong}</p>")
        with pytest.raises(AssertionError):
            follow("test-in-ci-that-a-template-renders")
    for _ in range(2):
        follow("send-a-receipt-with-an-attachment")
    receipts = [row for row in api.get("/messages", to="anna@example.org").json if "4711" in row["subject"]]
    assert len(receipts) == 1
    attachments = api.get(f"/messages/{receipts[0]['id']}").expect(200)["attachments"]
    assert [file["filename"] for file in attachments] == ["receipt-4711.pdf"]
