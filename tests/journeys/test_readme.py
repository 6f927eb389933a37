"""What the README and the pages behind it tell people to type works as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import FreshServer
from tests.kit.server import ROOT


def _told(*names: str) -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def test_the_api_walk_of_the_readme(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Copied and pasted into a shell, only the port exchanged, it sends three messages and takes an import back."""
    readme = _told("README.md", "docs/tour.md")
    titles = (
        "The same over the API",
        "Import contacts",
        "Design emails",
        "Track events",
        "Automate with flows",
        "Send SMS",
    )
    walk = ".*?".join(rf"## {title}.*?```sh\n(.*?)```" for title in titles)
    blocks = re.search(walk, readme, re.DOTALL)
    assert blocks is not None
    server = fresh_server(set_up=False, data=tmp_path / "campanero-data")
    # The walk is made from a clone that has been set up: its interpreter stands there
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    # Where much else runs too, everything takes longer
    patience = max(1, min(round(os.getloadavg()[0] / (os.cpu_count() or 1)), 6))
    script = f'sleep() {{ command sleep "$(($1 * {patience}))"; }}\n' + "".join(blocks.groups())
    script = script.replace("http://127.0.0.1:8080", server.url)
    env = server.env | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["sh", "-e"], input=script, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    answers = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(("{", "["))]

    assert ran.returncode == 0, ran.stderr
    assert [answer["id"] for answer in answers[:5]] == [1, 1, 2, 3, 1]
    assert answers[5]["status"] == "active"
    assert (answers[6]["status"], answers[6]["stats"]["sent"]) == ("completed", 3)
    assert sorted(row["subject"] for row in answers[7]) == ["Hello Anna", "Hello Bo", "Hello Zoë"]
    checked, report, _, applied, segment, counted, explained, undone = answers[8:16]
    assert (checked["id"], checked["dry_run"], segment["id"], undone["id"]) == (1, True, 1, 2)
    assert all((job["status"], job["created"], job["failed"]) == ("complete", 2, 1) for job in (report, applied))
    assert "4,failed,email is invalid" in ran.stdout and applied["undo_until"] > applied["completed_at"]
    assert (counted["count"], explained["matches"]) == (4, False)
    brand, seen, template, tried, campaign, preflight = answers[16:22]
    order, again, many, listed = answers[22:26]
    flow, rehearsed, live, gil, report, inside = answers[26:32]
    account, ida, table, rye, checked, sent, phone = answers[32:]
    assert (brand["company_name"], template["name"], campaign["id"]) == ("The Bakery", "Bread", 2)
    assert "Bread for Anna" in seen["html"] and "who=anna%40example.org" in seen["html"] and not seen["warnings"]
    assert (tried["sent"], tried["results"][0]["success"]) == (1, True)
    assert preflight["ok"] and preflight["facts"]["rehearsal"]["status"] == "complete"
    assert order == again and many == {"created": 1, "repeated": 1, "errors": []} and listed == [order]
    assert (flow["id"], live["status"], rehearsed["end"]["status"]) == (3, "active", "completed")
    assert "Welcome, Anna" in rehearsed["text"] and "Branch: Yes" in rehearsed["text"]
    assert [(one["contact_id"], one["step_id"]) for one in inside] == [(gil["id"], 2)]
    assert [(step["type"], step["entered"]["count"]) for step in report["steps"]][:2] == [("email", 1), ("wait", 1)]
    assert (account["sms_from"], table["segments"], table["contact_id"]) == ("+447700900999", 1, ida["id"])
    assert (rye["id"], checked["ok"], sent["status"]) == (3, True, "active")
    assert len(phone) == 2 and {one["channel"] for one in phone} == {"sms"}
    exported = (tmp_path / "bath.csv").read_text(encoding="utf-8")
    assert exported.count("example.org") >= 2 and '"dan@example.org"' in exported
    server.client(server.new_key()).wait("/imports/2", lambda job: job["phase"] == "undone")


def test_every_command_of_the_readme_exists(fresh_server: FreshServer) -> None:
    """Each command of the table prints its help."""
    server = fresh_server(start=False, set_up=False)
    readme = _told("docs/running.md")
    commands = re.findall(r"`campanero ((?:user |key |account )?[a-z]+)[^`]*`", readme)

    assert {"serve", "setup", "user add", "key create", "account add", "check", "openapi", "version"} <= set(commands)
    for command in sorted(set(commands)):
        assert "usage: campanero" in server.cli(*command.split(), "--help").stdout
