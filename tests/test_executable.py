"""The executable: built from the sources as they are, started, and used from set-up to a message that went out."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import Server
from tests.kit.uploads import done, results, upload


@pytest.fixture(scope="module")
def frozen(executable: Path) -> Iterator[Server]:
    """A server run from the built file."""
    server = Server(executable=executable)
    yield server.set_up()
    server.close()


def test_says_its_version(executable: Path, tmp_path: Path) -> None:
    """`campanero version` works alone: elsewhere, without Python, packages or a home."""
    alone = {"PATH": os.defpath}
    done = subprocess.run([executable, "version"], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_from_set_up_to_a_delivered_campaign(frozen: Server) -> None:
    """The file alone sets up, serves its pages, sends a campaign into the capture inbox, and ends with exit 0."""
    with frozen.start():
        api = frozen.client()
        people = api.post("/lists", {"name": "Friends"}).expect(201)
        person = {"email": "anna@example.org", "first_name": "Anna", "list_ids": [people["id"]]}
        api.post("/contacts", person).expect(201)
        campaign = api.post("/campaigns", {"name": "Opening"}).expect(201)
        content = {"subject": "Hello {{ contact.first_name }}", "body": "<p>We open at eight.</p>"}
        order = {"trigger_attributes": {"contact_list_id": people["id"]}, "template_attributes": content}
        assert api.post(f"/campaigns/{campaign['id']}/send", order).expect(200)["status"] == "active"
        rows = api.wait("/messages", lambda rows: [r["status"] for r in rows] == ["sent"], campaign_id=campaign["id"])
        assert rows[0]["to"] == "anna@example.org"
        api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed" and row["sent_count"] == 1)
        page = api.request("GET", "/login", headers={"Accept": "text/html"})
        assert page.status == 200
        assert "<form" in page.text
        frozen.stop()


def test_a_large_import_is_read_by_a_second_process_of_the_file(executable: Path) -> None:
    """A file over 128 KiB is read by a child of the executable itself, and everybody in it comes in."""
    lines = "".join(f"person{number}@example.com,Person {number},{'x' * 20}\n" for number in range(4000))
    file = f"email,first_name,note\n{lines}"
    assert len(file) > 131_072
    with Server(executable=executable).set_up() as frozen:
        api = frozen.client()
        job = done(api, upload(api, file))
        assert (job["status"], job["created"], job["failed"], job["error"]) == ("complete", 4000, 0, None)
        assert int(api.get("/contacts", limit=1).headers["X-Total-Count"]) == 4000
        assert [row["result"] for row in results(api, job["id"])] == ["created"] * 4000
        frozen.stop()
