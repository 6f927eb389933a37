"""The executable, built from the current sources: version, set-up, a campaign to its delivery, and a large import."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import Server
from tests.kit.uploads import import_results, upload, wait_for_import


@pytest.fixture(scope="module")
def frozen(executable: Path) -> Iterator[Server]:
    """A server run from the built executable."""
    server = Server(executable=executable)
    yield server.set_up()
    server.close()


def test_version_needs_no_environment(executable: Path, tmp_path: Path) -> None:
    """`campanero version` works in another directory, with only PATH set."""
    alone = {"PATH": os.defpath}
    result = subprocess.run([executable, "version"], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_from_set_up_to_a_delivered_campaign(frozen: Server, executable: Path) -> None:
    """The executable sets up, serves pages, sends a campaign to the inbox, has commands for scripts, and stops."""
    with frozen.start():
        api = frozen.client()
        contact_list = api.post("/lists", {"name": "Friends"}).expect(201)
        contact = {"email": "anna@example.org", "first_name": "Anna", "list_ids": [contact_list["id"]]}
        api.post("/contacts", contact).expect(201)
        campaign = api.post("/campaigns", {"name": "Opening"}).expect(201)
        content = {"subject": "Hello {{ contact.first_name }}", "body": "<p>We open at eight.</p>"}
        order = {"trigger_attributes": {"contact_list_id": contact_list["id"]}, "template_attributes": content}
        assert api.post(f"/campaigns/{campaign['id']}/send", order).expect(200)["status"] == "active"
        rows = api.wait("/messages", lambda rows: [r["status"] for r in rows] == ["sent"], campaign_id=campaign["id"])
        assert rows[0]["to"] == "anna@example.org"
        api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed" and row["sent_count"] == 1)
        env = {"PATH": os.defpath, "HOME": str(frozen.home)}
        done = subprocess.run(
            [executable, "login", frozen.url], input=f"{frozen.key}\n", env=env, capture_output=True, text=True
        )
        assert "Signed in to account Bakery" in done.stdout, done.stderr
        command = [executable, "campaigns", "show", str(campaign["id"]), "--jq", ".phase"]
        assert subprocess.run(command, env=env, capture_output=True, text=True).stdout == "completed\n"
        page = api.request("GET", "/login", headers={"Accept": "text/html"})
        assert page.status == 200
        assert "<form" in page.text
        frozen.stop()


@pytest.mark.full
def test_a_large_import_of_the_executable_is_complete(executable: Path) -> None:
    """A CSV file over 128 KiB, which a child process of the executable reads, creates all its contacts."""
    lines = "".join(f"person{number}@example.com,Person {number},{'x' * 20}\n" for number in range(4000))
    file = f"email,first_name,note\n{lines}"
    assert len(file) > 131_072
    with Server(executable=executable).set_up() as frozen:
        api = frozen.client()
        job = wait_for_import(api, upload(api, file))
        assert (job["status"], job["created"], job["failed"], job["error"]) == ("complete", 4000, 0, None)
        assert int(api.get("/contacts", limit=1).headers["X-Total-Count"]) == 4000
        assert [row["result"] for row in import_results(api, job["id"])] == ["created"] * 4000
        frozen.stop()
