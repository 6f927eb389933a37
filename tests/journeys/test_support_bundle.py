"""`campanero support-bundle`: what it contains, what it must not contain, and a damaged installation."""

import json
import tarfile
from pathlib import Path

from tests.conftest import FreshServer
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

# Texts of people and secrets, each of which is found nowhere else
_PRIVATE = ("wilhelmina", "Quackenbush", "+4915112345678", "Dear customer of ours", "hunter2-relay", "Birthday of Zora")


def _read_bundle(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        names = {entry.name.removeprefix("campanero-support/"): entry for entry in archive.getmembers()}
        return {name: (archive.extractfile(entry) or archive).read().decode() for name, entry in names.items()}  # type: ignore[union-attr]  # only files are inside


def _write_bundle(server: Server, path: Path) -> dict[str, str]:
    result = server.cli("support-bundle", str(path))
    assert result.returncode == 0, result.stderr
    return _read_bundle(path)


def test_bundle_without_people_and_secrets(fresh_server: FreshServer, smtp_server: SmtpServer, tmp_path: Path) -> None:
    """Contacts, messages, names of campaigns, keys and passwords are in the installation, and not in its bundle."""
    server = fresh_server(
        relay=smtp_server.port,
        env={
            "CAMPANERO_LOG__FILE": "campanero.log", "CAMPANERO_LOG__LEVEL": "debug",
            "CAMPANERO_EMAIL__HOOKS__POSTMARK": "hunter2-relay",
            "CAMPANERO_UPDATES__URL": "https://127.0.0.1:1/gitea-5eb1/latest?token=gitea-5eb1",
        },
    )  # fmt: skip
    api = server.client()
    contact = {"email": "wilhelmina@shop.example", "phone": "+4915112345678", "last_name": "Quackenbush"}
    api.post("/contacts", contact).expect(201)
    api.post("/campaigns", {"name": "Birthday of Zora", "channel": "email"}).expect(201)
    message = {"to": "wilhelmina@shop.example", "subject": "Dear customer of ours", "body": "<p>Quackenbush</p>"}
    message_id = api.post("/messages", message).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] not in ("queued", "sending"))
    with (server.data / "campanero.log").open("a") as log:
        log.write("2026-11-28 09:00:00 info campanero.old: not redacted wilhelmina@shop.example\n")
    path = tmp_path / "support.tar.gz"
    parts = _write_bundle(server, path)
    assert path.stat().st_mode & 0o777 == 0o600
    whole = "".join(parts.values())
    assert "https://127.0.0.1:1/…" in parts["settings.txt"]
    assert [text for text in (*_PRIVATE, "gitea-5eb1", api.key) if text in whole] == []
    assert json.loads(parts["database.json"])["rows"]["contact"] == 1
    assert json.loads(parts["about.json"])["files"]["campanero.db"] > 100_000
    assert any(finding["check"] == "database" for finding in json.loads(parts["doctor.json"]))
    assert "campanero_database_bytes" in parts["metrics.txt"] and "email.hooks.postmark = ***" in parts["settings.txt"]
    assert "not redacted …@shop.example" in parts["logs/campanero.log"]
    again = server.cli("support-bundle", str(path), expect=1)
    assert f"{path} already exists: choose the name of a new file" in again.stderr and _read_bundle(path) == parts
    elsewhere = server.cli("support-bundle", str(tmp_path / "missing" / "support.tar.gz"), expect=1)
    assert f"{tmp_path / 'missing'} is not a directory: create it first" in elsewhere.stderr


def test_bundle_of_a_damaged_installation(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Without a readable database, the bundle says so and has the other parts."""
    server = fresh_server()
    server.stop()
    database = server.data / "campanero.db"
    database.write_bytes(b"not a database" * 1000)
    parts = _write_bundle(server, tmp_path / "damaged.tar.gz")
    assert parts["database.json"].startswith("not available: ")
    assert any(finding["level"] == "fail" for finding in json.loads(parts["doctor.json"]))
    assert "listen = " in parts["settings.txt"]
