"""Run the official JavaScript clients of other services against a server (`tests/doors/clients.mjs`)."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.server import ROOT

DIRECTORY = Path(__file__).resolve().parents[1] / "doors"


def find_node(directory: Path = DIRECTORY) -> str:
    """Return the program `node`; skips the test if it or the packages of a directory are missing.

    `packaging/test` installs the packages.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (directory / "node_modules" / ".package-lock.json").exists():
        pytest.skip(f"its packages are not installed: npm ci --prefix {directory.relative_to(ROOT)}")
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
