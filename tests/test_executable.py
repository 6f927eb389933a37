"""The executable, built from the current sources: version, set-up, languages, child processes, a campaign."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import i18n
from tests.kit.pictures import encode_image, photo
from tests.kit.server import Server
from tests.kit.uploads import import_results, upload, upload_image, wait_for_import
from tests.ui.test_roles import session_cookie


@pytest.fixture(scope="module")
def frozen(executable: Path) -> Iterator[Server]:
    """A running server of the built executable, which has set it up."""
    with Server(executable=executable).set_up() as server:
        yield server
        server.stop()


def test_version_needs_no_environment(executable: Path, tmp_path: Path) -> None:
    """`campanero version` works in another directory, with only PATH set."""
    alone = {"PATH": os.defpath}
    result = subprocess.run([executable, "version"], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_pages_of_the_executable_are_translated(frozen: Server) -> None:
    """Sign-in and Home are in the language of the browser. Home still shows the first steps: no campaign was sent."""
    cookie = session_cookie(frozen, "owner@example.com")
    for language in i18n.LANGUAGES:
        tag, texts = language.replace("_", "-"), i18n.load_catalogue(language)
        headers = {"Accept-Language": tag, "Accept": "text/html"}
        page = frozen.client().request("GET", "/login", headers=headers)
        assert page.status == 200 and f'<html lang="{tag}"' in page.text, language
        assert f"<h1>{texts.gettext('Sign in')}</h1>" in page.text and "<form" in page.text, language
        home = frozen.client().request("GET", "/", headers=headers | {"Cookie": cookie})
        assert home.status == 200 and f">{texts.gettext('Getting started')}</h2>" in home.text, language


def test_from_set_up_to_a_delivered_campaign(frozen: Server, executable: Path) -> None:
    """The executable serves pages, sends a campaign to the inbox, and has commands for scripts."""
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


def test_the_executable_runs_its_limited_children(frozen: Server) -> None:
    """A picture is decoded, and the styles of pasted HTML are inlined, in child processes of the executable."""
    api = frozen.client()
    upload_image(api, encode_image(photo(), "PNG"), "logo.png").expect(201)
    body = "<style>p{color:red}</style><p>x</p>"
    preview = api.post("/templates/preview", {"document": {}, "body": body}).expect(200)
    assert '<p style="color:red">x</p>' in preview["html"]


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
