"""Copies on another machine as people meet them: set up on the page, made by schedule, tested, and reported."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pyrage
import pytest

from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage
from tests.kit.recipients import create_list, send_campaign
from tests.kit.s3_server import REGION, Fault, S3Server
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.timeouts import extend_timeout

IDENTITY = pyrage.x25519.Identity.generate()


def directory_env(folder: Path) -> dict[str, str]:
    """Return the environment of a service whose copies go to a directory."""
    folder.mkdir(exist_ok=True)
    return {"CAMPANERO_COPIES__STORE": folder.as_uri(), "CAMPANERO_COPIES__RECIPIENTS": str(IDENTITY.to_public())}


def copies_of(api: Client) -> dict[str, Any]:
    """Return the state of copies."""
    state: dict[str, Any] = api.get("/backups").expect(200)["copies"]
    return state


def wait_for_runs(api: Client, *states: tuple[str, str], seconds: float = 30) -> list[dict[str, Any]]:
    """Wait until the newest runs are these, as (kind, state) from the oldest on, and none is open; return them."""
    end = time.monotonic() + extend_timeout(seconds)
    while True:
        runs = list(reversed(copies_of(api)["runs"]))[-len(states) :]
        if [(run["kind"], run["state"]) for run in runs] == list(states):
            return runs
        assert time.monotonic() < end, copies_of(api)["runs"]
        time.sleep(0.1)


def metrics_of(server: Server) -> dict[str, float]:
    """Return the metrics of copies by name."""
    api = server.client(validate=False)
    lines = api.request("GET", "/metrics", None, {"Authorization": f"Bearer {server.key}"}).text.splitlines()
    pairs = [line.rpartition(" ") for line in lines if line.startswith("campanero_cop")]
    return {name: float(value) for name, _, value in pairs}


def mails_of(api: Client, word: str) -> list[dict[str, Any]]:
    """Return the captured emails whose subject contains a word."""
    captured: list[dict[str, Any]] = api.get("/capture", limit=100).expect(200)
    return [mail for mail in captured if word in (mail["subject"] or "")]


def test_a_damaged_copy_is_found(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The test restore of a good copy succeeds; that of a damaged one fails everywhere, and is reported once."""
    store = tmp_path / "store"
    server = fresh_server()
    api = server.client()
    send_campaign(api, create_list(api, 25))
    server.stop()
    server.env |= directory_env(store)
    server.start()
    [_, proof] = wait_for_runs(api, ("copy", "succeeded"), ("proof", "succeeded"))
    assert proof["copy"] == copies_of(api)["stored"][0]["name"]
    page = HtmlPage(ScriptlessBrowser(api), "/settings/backups")
    assert "Contacts: 25" in page.text and page.has("#copies .pill", "Available") and page.has("tbody tr", "Tested")
    assert metrics_of(server)["campanero_copy_proof_ok"] == 1 and metrics_of(server)["campanero_copy_late"] == 0
    assert "ok    test restore" in server.cli("doctor", expect=None).stdout
    assert not (server.data / ".proving").exists()

    segments = [path for path in store.rglob("*") if path.is_file() and path.stat().st_size > 500]
    originals = {path: path.read_bytes() for path in segments}
    for path, content in originals.items():
        if "manifest" not in path.name:
            path.write_bytes(content[:-9] + b"\0" * 9)
    for _ in range(2):
        api.post("/backups/proofs").expect(202)
        [run] = wait_for_runs(api, ("proof", "failed"))
        assert run["error_code"] == "damaged"
    page = HtmlPage(ScriptlessBrowser(api), "/settings/backups")
    assert page.has("#copies .pill", "Test failed") and page.has("#copies [role=alert]", "The copy is damaged")
    assert metrics_of(server)["campanero_copy_proof_ok"] == 0
    assert "fail  test restore" in server.cli("doctor", expect=1).stdout
    assert "the test restore failed" in server.cli("status").stdout
    assert not (server.data / ".proving").exists()

    for path, content in originals.items():
        path.write_bytes(content)
    api.post("/backups/proofs").expect(202)
    wait_for_runs(api, ("proof", "succeeded"))
    api.wait("/backups", lambda _: len(mails_of(api, "can be restored again")) == 1)
    assert len(mails_of(api, "could not be restored")) == 1
    assert [entry["action"] for entry in user_audit(server) if entry["action"].startswith("copy_proof_")].count(
        "copy_proof_failed"
    ) == 1


def user_audit(server: Server) -> list[dict[str, Any]]:
    """Return the audit log as an owner reads it."""
    entries: list[dict[str, Any]] = user_client(server).get("/audit", limit=100).expect(200)
    return entries


def test_a_store_that_is_gone_for_a_day(fresh_server: FreshServer, clock: TestClock, tmp_path: Path) -> None:
    """Attempts become rarer, owners get one email when the copy is too old, and one when there is a new one."""
    store, gone = tmp_path / "store", tmp_path / "gone"
    server = fresh_server(env=directory_env(store) | {"CAMPANERO_COPIES__PROVE_EVERY": "0s"}, clock=clock)
    api = server.client()
    wait_for_runs(api, ("copy", "succeeded"))
    store.rename(gone)
    store.write_text("in the way")
    clock.advance(hours=24, minutes=1)
    wait_for_runs(api, ("copy", "succeeded"), ("copy", "failed"))
    waits = []
    for count in range(2, 10):
        before = copies_of(api)
        waits.append(_to_hours(before["next_at"]) - _to_hours(before["runs"][0]["ended_at"]))
        clock.advance(waits[-1] * 3600 + 5)
        wait_for_runs(api, *[("copy", "failed")] * count)
    assert [round(wait * 60) for wait in waits] == [5, 10, 20, 40, 80, 160, 320, 360]
    assert not copies_of(api)["late"] and not mails_of(api, "have stopped")
    clock.advance(hours=9)
    api.wait("/backups", lambda state: state["copies"]["late"] and len(mails_of(api, "have stopped")) == 1)
    page = HtmlPage(ScriptlessBrowser(api), "/settings/backups")
    assert page.has("#copies .pill", "Too old") and page.has("#copies [role=alert]", "The last copy failed")
    assert "fail  copies" in server.cli("doctor", expect=1).stdout
    assert metrics_of(server)["campanero_copy_late"] == 1
    server.restart()
    store.unlink()
    gone.rename(store)
    api.post("/backups/copies").expect(202)
    wait_for_runs(api, ("copy", "succeeded"))
    api.wait("/backups", lambda state: len(mails_of(api, "work again")) == 1)
    assert len(mails_of(api, "have stopped")) == 1 and not copies_of(api)["late"]


def _to_hours(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() / 3600


def test_kills_during_a_copy_and_a_proof(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A killed copy is repeated at the next start, and a killed test restore leaves nothing behind."""
    limit = {"CAMPANERO_COPIES__MEGABITS_PER_SECOND": "0.05"}
    server = fresh_server(env=directory_env(tmp_path / "store") | limit)
    _wait_for_running(server.client(), "copy")
    assert re.search(r"^Copies\n +copy ", server.cli("status").stdout, re.MULTILINE)
    server.kill()
    server.env["CAMPANERO_COPIES__MEGABITS_PER_SECOND"] = "0"
    server.start()
    api = server.client()
    wait_for_runs(api, ("copy", "interrupted"), ("copy", "succeeded"), ("proof", "succeeded"))
    server.stop()
    server.env |= limit
    server.start()
    api.post("/backups/proofs").expect(202)
    _wait_for_running(api, "proof")
    end = time.monotonic() + extend_timeout(20)
    while not (server.data / ".proving").exists():
        assert time.monotonic() < end, copies_of(api)
        time.sleep(0.05)
    server.kill()
    assert (server.data / ".proving").exists()
    server.env["CAMPANERO_COPIES__MEGABITS_PER_SECOND"] = "0"
    server.start()
    assert not (server.data / ".proving").exists()
    assert copies_of(api)["runs"][0]["state"] == "interrupted" and copies_of(api)["proven"]
    # The disk has no room for a test restore: a plain result, and nothing is written.
    server.stop()
    server.env |= {"CAMPANERO_STORAGE__LEAST_FREE_PERCENT": "100", "CAMPANERO_STORAGE__LEAST_FREE_MB": "900000000"}
    server.start()
    api.post("/backups/proofs").expect(202)
    [run] = wait_for_runs(api, ("proof", "failed"))
    assert run["error_code"] == "no_space" and "MB on the disk" in run["error"]
    assert not (server.data / ".proving").exists()


def _wait_for_running(api: Client, kind: str) -> None:
    end = time.monotonic() + extend_timeout(20)
    while (kind, "running") not in [(run["kind"], run["state"]) for run in copies_of(api)["runs"][:1]]:
        assert time.monotonic() < end, copies_of(api)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def bucket() -> Any:
    """Yield an S3 server."""
    with S3Server() as s3:
        yield s3


def test_set_up_on_the_page(fresh_server: FreshServer, bucket: S3Server) -> None:
    """An owner sets up a bucket and the passphrase without a shell; secrets are on no page, in no answer and no log."""
    server = fresh_server()
    api = server.client()
    user = ScriptlessBrowser(api)
    fields = {
        "Service URL": bucket.url, "Bucket": bucket.bucket, "Folder": "campanero", "Region": REGION,
        "Access key ID": bucket.access_key_id, "Secret access key": "wrong-secret-of-ours",
    }  # fmt: skip
    page = HtmlPage(user, "/settings/backups").follow("Set up copies")
    page = fill(page, fields).press("Test connection")
    assert page.has("[role=status]", "The backup storage rejected the login")
    page = fill(page, {"Secret access key": bucket.secret_access_key}).press("Test connection")
    assert page.has("[role=status]", "The connection works"), page.text
    assert not [key for key in bucket.objects() if key.startswith("test/")]
    page = fill(page, {"Secret access key": bucket.secret_access_key}).press("Save")
    assert "One step is left" in page.text and copies_of(api)["runs"] == []
    api.post("/backups/copies").expect(409)

    page = page.press("Make a recovery passphrase")
    passphrase = page.value("Recovery passphrase")
    assert re.fullmatch(r"([0-9a-z]{5}-){4}[0-9a-z]{5}", passphrase)
    page = fill(page, {"Last five": "wrong"}).press("Use this passphrase")
    assert "Confirm that the passphrase is kept" in page.text and "Enter the last five characters" in page.text
    assert page.value("Recovery passphrase") == passphrase and copies_of(api)["runs"] == []
    recovery = page.press("Download as a file").html
    assert passphrase in recovery and f'endpoint = "{bucket.url}"\nregion = "{REGION}"' in recovery
    assert bucket.secret_access_key not in recovery
    page.check("I keep the passphrase")
    page = fill(page, {"Last five": passphrase[-5:]}).press("Use this passphrase")
    assert "The passphrase is set" in page.text
    wait_for_runs(api, ("copy", "succeeded"), ("proof", "succeeded"))
    page = HtmlPage(user, "/settings/backups")
    assert page.has("#copies .pill", "Available") and f"{bucket.bucket}/campanero" in page.text

    shown = "".join((
        page.html, HtmlPage(user, "/settings/backups/store").html, HtmlPage(user, "/settings/audit").html,
        json.dumps(api.get("/backups").expect(200)), json.dumps(user_audit(server)), server.cli("check").stdout,
        server.cli("doctor", expect=None).stdout, server.cli("status", "--json").stdout,
    ))  # fmt: skip
    server.stop()
    for secret in (bucket.secret_access_key, passphrase):
        assert secret not in shown and secret not in server.output
        assert not [path for path in server.data.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert bucket.secret_access_key.encode() not in b"".join(bucket.objects().values())
    # A stored secret is not sent to another server.
    server.start()
    page = fill(HtmlPage(user, "/settings/backups/store"), {"Service URL": "http://[::1]:9"}).press("Test connection")
    assert "Enter the secret access key" in page.text
    bucket.faults.append(Fault(403, "AccessDenied"))
    api.post("/backups/copies").expect(202)
    [run] = wait_for_runs(api, ("copy", "failed"))
    assert run["error_code"] == "refused"
    bucket.faults.clear()
    page = HtmlPage(user, "/settings/backups/store").press("Turn off copies")
    assert "Copies are turned off" in page.text and not copies_of(api)["configured"]
    assert bucket.objects()


def fill(page: HtmlPage, fields: dict[str, str]) -> HtmlPage:
    """Fill in fields by their labels, and return the page."""
    for label, value in fields.items():
        page.fill(label, value)
    return page


def test_only_managers_of_the_installation(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Viewers, and owners of another account, can neither see nor do anything about backups."""
    server = fresh_server(env=directory_env(tmp_path / "store"))
    server.cli("user", "add", "--email", "v@example.com", "--role", "viewer", stdin=f"{PASSWORD}\n")
    created = server.cli("account", "add", "Other").stdout
    other_id = re.search(r"\d+", created)
    assert other_id is not None, created
    server.cli("user", "add", "--email", "b@example.com", "--account", other_id[0], stdin=f"{PASSWORD}\n")
    other = server.client(server.new_key("other", "--account", other_id[0]))
    other.get("/backups").expect(403)
    for path in ("", "/copies", "/proofs"):
        other.post(f"/backups{path}").expect(403)
    for email in ("v@example.com", "b@example.com"):
        visitor = Visitor(server, email)
        for path in ("", "/store"):
            assert visitor.send("GET", f"/settings/backups{path}").status == 403
        for path in ("create", "copy", "proof", "store", "store/test", "store/remove", "recovery", "recovery/file",
                     "recovery/confirm"):  # fmt: skip
            assert visitor.send("POST", f"/settings/backups/{path}").status == 403, path
        assert "/settings/backups" not in visitor.send("GET", "/settings").text
        assert str(tmp_path) not in visitor.send("GET", "/settings/data").text
    # A passphrase in a hidden field is only for the user who was shown it.
    owner = Visitor(server, EMAIL)
    sealed = re.search(r'name="sealed" value="(\w+)"', owner.send("POST", "/settings/backups/recovery").text)
    assert sealed is not None
    server.cli("user", "add", "--email", "a@example.com", "--role", "admin", stdin=f"{PASSWORD}\n")
    admin = Visitor(server, "a@example.com")
    assert admin.send("POST", "/settings/backups/recovery/file", {"sealed": sealed[1]}).status == 404
    assert owner.send("POST", "/settings/backups/recovery/file", {"sealed": sealed[1]}).status == 200
