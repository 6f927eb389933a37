"""The commands of the README and of the pages it links to work as they are written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import FreshServer
from tests.kit.server import ROOT


def _read(*names: str) -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def test_the_api_tour(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The shell commands, with only the port changed, send three messages and undo an import."""
    readme = _read("README.md", "docs/tour.md")
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
    # The tour runs in a set-up clone, which has this interpreter
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    # On a busy machine everything takes longer
    wait_factor = max(1, min(round(os.getloadavg()[0] / (os.cpu_count() or 1)), 6))
    script = f'sleep() {{ command sleep "$(($1 * {wait_factor}))"; }}\n' + "".join(blocks.groups())
    script = script.replace("http://127.0.0.1:8080", server.url)
    env = server.env | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        ["sh", "-e"], input=script, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    responses = [json.loads(line) for line in result.stdout.splitlines() if line.startswith(("{", "["))]

    assert result.returncode == 0, result.stderr
    assert [response["id"] for response in responses[:5]] == [1, 1, 2, 3, 1]
    assert responses[5]["status"] == "active"
    assert (responses[6]["status"], responses[6]["stats"]["sent"]) == ("completed", 3)
    assert sorted(row["subject"] for row in responses[7]) == ["Hello Anna", "Hello Bo", "Hello Zoë"]
    checked, report, _, applied, segment, counted, explained, undone = responses[8:16]
    assert (checked["id"], checked["dry_run"], segment["id"], undone["id"]) == (1, True, 1, 2)
    assert all((job["status"], job["created"], job["failed"]) == ("complete", 2, 1) for job in (report, applied))
    assert "4,failed,email is invalid" in result.stdout and applied["undo_until"] > applied["completed_at"]
    assert (counted["count"], explained["matches"]) == (4, False)
    brand, seen, template, tried, campaign, preflight = responses[16:22]
    order, again, many, listed = responses[22:26]
    flow, rehearsed, live, gil, report, inside = responses[26:32]
    account, ida, table, rye, checked, sent, phone = responses[32:]
    assert (brand["company_name"], template["name"], campaign["id"]) == ("The Bakery", "Bread", 2)
    assert "Bread for Anna" in seen["html"] and "who=anna%40example.org" in seen["html"] and not seen["warnings"]
    assert (tried["sent"], tried["results"][0]["success"]) == (1, True)
    assert preflight["ok"] and preflight["facts"]["rehearsal"]["status"] == "complete"
    assert order == again and many == {"created": 1, "repeated": 1, "errors": []} and listed == [order]
    assert (flow["id"], live["status"], rehearsed["end"]["status"]) == (3, "active", "completed")
    assert "Welcome, Anna" in rehearsed["text"] and "Branch: Yes" in rehearsed["text"]
    assert [(row["contact_id"], row["step_id"]) for row in inside] == [(gil["id"], 2)]
    assert [(step["type"], step["entered"]["count"]) for step in report["steps"]][:2] == [("email", 1), ("wait", 1)]
    assert (account["sms_from"], table["segments"], table["contact_id"]) == ("+447700900999", 1, ida["id"])
    assert (rye["id"], checked["ok"], sent["status"]) == (3, True, "active")
    assert len(phone) == 2 and {row["channel"] for row in phone} == {"sms"}
    exported = (tmp_path / "bath.csv").read_text(encoding="utf-8")
    assert exported.count("example.org") >= 2 and '"dan@example.org"' in exported
    server.client(server.new_key()).wait("/imports/2", lambda job: job["phase"] == "undone")


def test_every_documented_command_exists(fresh_server: FreshServer) -> None:
    """Each command of docs/running.md prints its help."""
    server = fresh_server(start=False, set_up=False)
    readme = _read("docs/running.md")
    commands = re.findall(r"`campanero ((?:user |key |account )?[a-z]+)[^`]*`", readme)

    assert {"serve", "setup", "user add", "key create", "account add", "check", "openapi", "version"} <= set(commands)
    for command in sorted(set(commands)):
        assert "usage: campanero" in server.cli(*command.split(), "--help").stdout
