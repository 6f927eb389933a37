"""Run the official JavaScript clients of other services against a server (`tests/doors/clients.mjs`)."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

DIRECTORY = Path(__file__).resolve().parents[1] / "doors"


def find_node() -> str:
    """Return the program `node`; skips the test if it or its packages are missing (`packaging/test` installs them)."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (DIRECTORY / "node_modules" / ".package-lock.json").exists():
        pytest.skip("its packages are not installed: npm ci --prefix tests/doors")
    return node


def run_clients(url: str, key: str, calls: list[dict[str, Any]]) -> list[Any]:
    """Run calls such as {"client": "ghost", "call": "send", …} in one process, and return the value of each.

    Of a failed call, the value is {"error": …}.
    """
    job = json.dumps({"url": url, "key": key, "calls": calls})
    command = [find_node(), str(DIRECTORY / "clients.mjs")]
    process = subprocess.run(command, input=job, capture_output=True, text=True, timeout=120, check=False)
    if process.returncode:
        raise AssertionError(f"the clients failed: {process.stderr[-2000:]}")
    return [result.get("value", {"error": result.get("error")}) for result in json.loads(process.stdout)]
