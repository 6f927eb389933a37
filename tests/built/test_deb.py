"""The Debian package: checks of its unit and scripts, and installation, upgrade, removal and purge on a real Debian."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.bare_system import FOREIGN_VARIABLES, skip_unless_mounts_allowed
from tests.kit.debian import DebianOverlay
from tests.kit.server import ROOT, Server

PARTS = ROOT / "packaging" / "debian"
UNIT = (PARTS / "campanero.service").read_text()
DATA, CONFIG = "/var/lib/campanero", "/etc/campanero/campanero.toml"


@pytest.mark.parametrize("name", ["debian/campanero", "litestream/campanero-follow", "litestream/campanero-litestream"])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    """`systemd-analyze` reports no errors in a unit and a low exposure."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    unit = ROOT / "packaging" / f"{name}.service"
    path = tmp_path / unit.name
    path.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    result = subprocess.run([analyze, "verify", path], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    security = subprocess.run([analyze, "security", "--offline=true", "--threshold=20", path], capture_output=True)
    assert security.returncode == 0, security.stdout[-2000:]


def test_the_unit_waits_for_open_connections() -> None:
    """Stopping signals only the main process, and waits longer than open SMTP connections may take."""
    assert "KillMode=mixed" in UNIT
    assert int(re.findall(r"TimeoutStopSec=(\d+)", UNIT)[0]) > 30


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_maintainer_scripts(script: str) -> None:
    """Each script is valid POSIX shell; only `postrm` deletes data, on purge."""
    text = (PARTS / script).read_text()
    subprocess.run(["sh", "-n", PARTS / script], check=True)
    assert text.startswith("#!/bin/sh\n")
    removed = re.findall(r"rm -rf .*", text)
    assert removed == (["rm -rf /var/lib/campanero /etc/campanero"] if script == "postrm" else [])


@pytest.fixture(scope="module")
def packages(request: pytest.FixtureRequest, full: bool) -> tuple[Path, Path]:
    """The paths of the package and of a newer version of it."""
    if not full:
        pytest.skip("packages are installed with --full")
    executable: Path = request.getfixturevalue("executable")  # built only here, because a skipped test needs none
    paths = []
    for version in ("0.1.0", "0.1.1"):
        subprocess.run([ROOT / "packaging" / "deb", executable.parent, version], check=True, capture_output=True)
        (path,) = executable.parent.glob(f"campanero_{version}_*.deb")
        paths.append(path)
    return paths[0], paths[1]


def test_lintian_accepts_the_package(packages: tuple[Path, Path]) -> None:
    """Lintian reports no errors and no warnings."""
    lintian = shutil.which("lintian")
    if lintian is None:
        pytest.skip("no lintian here")
    result = subprocess.run([lintian, "--allow-root", packages[0]], capture_output=True, text=True)
    assert [line for line in result.stdout.splitlines() if line.startswith(("E:", "W:"))] == []


def test_install_upgrade_remove_and_purge(packages: tuple[Path, Path], tmp_path: Path) -> None:
    """The installed service runs; an upgrade and a removal keep data and settings, a purge does not."""
    skip_unless_mounts_allowed()
    (tmp_path / "system").mkdir()
    with DebianOverlay(tmp_path / "system") as debian:
        for package in packages:
            debian.run("sh", "-c", f"test -e {package}")  # the package is visible inside the system
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
        listing = debian.run("ls", "-d", DATA, "/etc/campanero", "/usr/lib/campanero", expect=None)
        assert listing.count("No such file") == 3
        assert debian.run("getent", "passwd", "campanero", expect=None) == ""


def _run(debian: DebianOverlay, name: str) -> list[str]:
    """Run the installed service as its unit does, add a list, and return the names of all lists."""
    (command,) = re.findall(r"^ExecStart=(\S+) serve", UNIT, re.MULTILINE)
    as_user = ("setpriv", "--reuid=campanero", "--regid=campanero", "--init-groups", "--no-new-privs")
    program = debian.create_wrapper(*as_user, "--bounding-set=-all", "--inh-caps=-all", command)
    server = Server(executable=program, data=Path(DATA), env={"CAMPANERO_CONFIG": CONFIG, "HOME": DATA})
    for variable in FOREIGN_VARIABLES:
        server.env.pop(variable, None)
    try:
        if name == "before":
            server.set_up()
        else:
            server.key = server.new_key()
        api = server.start().client()
        api.post("/lists", {"name": name}).expect(201)
        rows = sorted((row["id"], row["name"]) for row in api.get("/lists").json)
        owners = debian.run("sh", "-c", f"stat -c '%U %a' {DATA}/campanero.db {DATA}/secret.key")
        assert owners.split() == ["campanero", "600"] * 2
        server.stop()
        return [row[1] for row in rows]
    finally:
        server.close()
