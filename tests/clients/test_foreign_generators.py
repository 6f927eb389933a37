"""Generators and linters that others use read the OpenAPI document without a warning, and their clients work.

Each client is generated, type-checked and run: it lists, writes a contact with data, a segment and a campaign, sends
it and reads its messages. The packages are those of `tests/clients/generators`, which `packaging/test --full` installs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import typescript
from tests.kit.server import ROOT, Server
from tests.rules.published import publish

DIRECTORY = ROOT / "tests/clients/generators"
PYTHON = DIRECTORY / "venv/bin"
COMPILER_OPTIONS = {
    "target": "ES2022", "module": "nodenext", "strict": True, "outDir": "compiled",
    "lib": ["ES2022", "DOM", "DOM.Iterable", "DOM.AsyncIterable"], "types": [],
}  # fmt: skip

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the published document."""
    path = tmp_path_factory.mktemp("document") / "openapi.yaml"
    path.write_bytes(publish())
    return path


def run_package(*arguments: object, cwd: Path = ROOT) -> str:
    """Return what a program of the packages prints; skips the test if they are not installed."""
    return typescript.run_tool(*arguments, cwd=cwd, packages=DIRECTORY)


def compile_journey(directory: Path, name: str) -> Path:
    """Type-check and compile a journey beside the `generated` client, and return the program."""
    shutil.copy(DIRECTORY / f"{name}.ts", directory)
    (directory / "package.json").write_text('{"type": "module"}')
    project = {"compilerOptions": COMPILER_OPTIONS, "files": [f"{name}.ts"]}
    (directory / "tsconfig.json").write_text(json.dumps(project))
    run_package("tsc", "-p", directory)
    (directory / "compiled/package.json").write_text('{"type": "module"}')
    return directory / "compiled" / f"{name}.js"


def test_redocly_has_nothing_to_say(document: Path) -> None:
    """Its recommended rules find no error and no warning."""
    printed = run_package("redocly", "lint", document, "--max-problems", 20)
    assert "is valid" in printed and not re.search(r"You have \d+ (warning|error)", printed), printed


def test_spectral_has_nothing_to_say(document: Path) -> None:
    """Its rules for OpenAPI find nothing, not even a hint."""
    options = ("-r", DIRECTORY / "spectral.yaml", "--fail-severity", "hint")
    assert "No results" in run_package("spectral", "lint", *options, document)


def test_openapi_typescript(document: Path, server: Server, tmp_path: Path) -> None:
    """Its types describe the requests and responses of the journey."""
    printed = run_package("openapi-typescript", document, "-o", tmp_path / "generated/paths.d.ts")
    assert "warn" not in printed.lower(), printed
    program = compile_journey(tmp_path, "openapiTypescript")
    assert typescript.run_node(program, server.url, server.new_key()) == "1 ben@example.org sent\n"


def test_hey_api(document: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client makes the journey."""
    monkeypatch.setenv("OPENAPI_DOCUMENT", str(document))
    monkeypatch.setenv("GENERATED", str(tmp_path / "generated/hey"))
    printed = run_package("openapi-ts", "-f", DIRECTORY / "heyApi.config.mjs", cwd=tmp_path)
    assert "warn" not in printed.lower() and "Done" in printed, printed
    program = compile_journey(tmp_path, "heyApi")
    assert typescript.run_node(program, server.url, server.new_key()) == "1 ann@example.org sent\n"


def test_openapi_python_client(document: Path, server: Server, tmp_path: Path) -> None:
    """Its client passes mypy with the journey, and makes it; a warning would be an error."""
    if not (PYTHON / "openapi-python-client").exists():
        pytest.skip("tests/clients/generators/venv is missing: packaging/test --full makes it")
    config = DIRECTORY / "openapi-python-client.yaml"
    command = [str(PYTHON / "openapi-python-client"), "generate", "--path", str(document), "--config", str(config),
               "--meta", "none", "--output-path", str(tmp_path / "generated_client"), "--fail-on-warning"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "warning" not in done.stdout.lower(), done.stdout + done.stderr

    journey = shutil.copy(DIRECTORY / "python_journey.py", tmp_path)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent",
         "--cache-dir", str(tmp_path / "cache"), str(journey)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    printed = subprocess.run(
        [str(PYTHON / "python"), str(journey), server.url, server.new_key()],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert printed.stdout == "1 cat@example.org sent\n", printed.stderr
