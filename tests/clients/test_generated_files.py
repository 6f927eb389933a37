"""The generated files of the clients are those that the generator writes from the current document."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from appliance import VERSION
from clients.generator import model
from clients.generator.__main__ import find_differences, generate
from tests.kit.server import ROOT
from tests.rules.published import document, operations

PYTHON, TYPESCRIPT = ROOT / "clients/python", ROOT / "clients/typescript"
# Requests of providers, which are signed, and second addresses of login and logout
LEFT_OUT = {"reportEmailStatus", "reportSms", "loginMy", "logoutMy"}


def test_generated_files_are_current() -> None:
    """Nothing differs; after a change of the API run `.venv/bin/python -m clients.generator`."""
    assert find_differences(generate(document())) == []


def test_every_operation_has_a_method() -> None:
    """The clients have a method for each operation of the document."""
    api = model.read(document())
    declared = {operation["operationId"] for _, _, operation in operations()} - LEFT_OUT
    assert {operation.operation_id for operation in api.operations} == declared


def test_versions_are_those_of_the_service() -> None:
    """The npm package has the version of the service, and the Python package reads it from its generated file."""
    assert json.loads((TYPESCRIPT / "package.json").read_text())["version"] == VERSION
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "campanero_client._version.VERSION"
    assert project["project"]["dependencies"] == ["httpx>=0.27,<1"]


def test_python_client_and_examples_pass_strict_mypy(tmp_path: Path) -> None:
    """The generated and the written files, and the example of the README, have complete types."""
    readme = re.search(r"```python\n(.*?)```", (PYTHON / "README.md").read_text(), re.DOTALL)
    assert readme is not None
    (tmp_path / "readme.py").write_text(readme[1])
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache/clients"]
    environment = {**os.environ, "MYPYPATH": str(PYTHON)}
    done = subprocess.run(
        [*command, str(PYTHON / "campanero_client"), *map(str, sorted((PYTHON / "examples").glob("*.py"))),
         str(tmp_path / "readme.py")],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
