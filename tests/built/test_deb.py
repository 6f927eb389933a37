"""The Debian package: what systemd makes of its unit, and its whole life on a real Debian."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.bare import FOREIGN, needs_mounts
from tests.kit.debian import Debian
from tests.kit.server import ROOT, Server

PARTS = ROOT / "packaging" / "debian"
UNIT = (PARTS / "campanero.service").read_text()
DATA, CONFIG = "/var/lib/campanero", "/etc/campanero/campanero.toml"


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """systemd finds no fault with the unit and calls what it leaves open little."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    there = tmp_path / "campanero.service"
    there.write_text(UNIT.replace("/usr/lib/campanero/campanero", "/bin/true"))
    done = subprocess.run([analyze, "verify", there], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    said = subprocess.run([analyze, "security", "--offline=true", "--threshold=20", there], capture_output=True)
    assert said.returncode == 0, said.stdout[-2000:]


def test_the_unit_waits_for_what_is_in_hand() -> None:
    """It stops the service alone, and longer than open conversations may take."""
    assert "KillMode=mixed" in UNIT
    assert int(re.findall(r"TimeoutStopSec=(\d+)", UNIT)[0]) > 30


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_the_scripts_are_sound(script: str) -> None:
    """Each is a program of the plain shell; only purging deletes what people entered."""
    text = (PARTS / script).read_text()
    subprocess.run(["sh", "-n", PARTS / script], check=True)
    assert text.startswith("#!/bin/sh\n")
    removed = re.findall(r"rm -rf .*", text)
    assert removed == (["rm -rf /var/lib/campanero /etc/campanero"] if script == "postrm" else [])


@pytest.fixture(scope="module")
def packages(executable: Path, full: bool) -> tuple[Path, Path]:
    """The package, and a newer one."""
    if not full:
        pytest.skip("packages are installed with --full")
    made = []
    for version in ("0.1.0", "0.1.1"):
        subprocess.run([ROOT / "packaging" / "deb", executable.parent, version], check=True, capture_output=True)
        (one,) = executable.parent.glob(f"campanero_{version}_*.deb")
        made.append(one)
    return made[0], made[1]


def test_lintian_has_nothing_against_it(packages: tuple[Path, Path]) -> None:
    """What Debian asks of a package it has."""
    lintian = shutil.which("lintian")
    if lintian is None:
        pytest.skip("no lintian here")
    done = subprocess.run([lintian, "--allow-root", packages[0]], capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if line.startswith(("E:", "W:"))] == []


def test_its_whole_life(packages: tuple[Path, Path], tmp_path: Path) -> None:
    """Installed, run as the unit runs it, upgraded with what was entered kept, removed with it kept, and purged."""
    needs_mounts()
    (tmp_path / "system").mkdir()
    with Debian(tmp_path / "system") as debian:
        for package in packages:
            debian.run("sh", "-c", f"test -e {package}")  # it sees what is out here
        debian.run("dpkg", "--install", str(packages[0]))
        assert debian.run("stat", "-c", "%U %a", DATA).split() == ["campanero", "700"]
        assert debian.run("stat", "-c", "%U %G %a", CONFIG).split() == ["root", "campanero", "640"]
        assert "campanero" in debian.run("ls", "/etc/systemd/system/multi-user.target.wants")

        _run(debian, "before")
        debian.run("sh", "-c", f"echo '# ours' >> {CONFIG}")
        debian.run("dpkg", "--force-confold", "--install", str(packages[1]))
        assert "0.1.1" in debian.run("dpkg-query", "-W", "campanero")
        assert "# ours" in debian.run("cat", CONFIG)
        assert _run(debian, "after") == ["before", "after"]

        debian.run("dpkg", "--remove", "campanero")
        assert "No such file" in debian.run("ls", "/usr/lib/campanero", expect=None)
        assert "campanero.db" in debian.run("ls", DATA)
        assert "# ours" in debian.run("cat", CONFIG)
        debian.run("dpkg", "--purge", "campanero")
        left = debian.run("ls", "-d", DATA, "/etc/campanero", "/usr/lib/campanero", expect=None)
        assert left.count("No such file") == 3
        assert debian.run("getent", "passwd", "campanero", expect=None) == ""


def _run(debian: Debian, name: str) -> list[str]:
    """Run the installed service as its unit says, add a list, and answer the names of all lists."""
    (command,) = re.findall(r"^ExecStart=(\S+) serve", UNIT, re.MULTILINE)
    as_user = ("setpriv", "--reuid=campanero", "--regid=campanero", "--init-groups", "--no-new-privs")
    program = debian.program(*as_user, "--bounding-set=-all", "--inh-caps=-all", command)
    server = Server(executable=program, data=Path(DATA), env={"CAMPANERO_CONFIG": CONFIG, "HOME": DATA})
    for one in FOREIGN:
        server.env.pop(one, None)
    try:
        if name == "before":
            server.set_up()
        else:
            server.key = server.new_key()
        api = server.start().client()
        api.post("/lists", {"name": name}).expect(201)
        found = sorted((row["id"], row["name"]) for row in api.get("/lists").json)
        owners = debian.run("sh", "-c", f"stat -c '%U %a' {DATA}/campanero.db {DATA}/secret.key")
        assert owners.split() == ["campanero", "600"] * 2
        server.stop()
        return [row[1] for row in found]
    finally:
        server.close()
