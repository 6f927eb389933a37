"""Pitfalls of a self-extracting executable: surviving a kill, leftover files, `noexec` directories, CA certificates."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit.bare_system import FOREIGN_VARIABLES, BareSystem, run_in_mount_namespace, skip_unless_mounts_allowed
from tests.kit.certificates import self_signed
from tests.kit.server import ROOT, Server, relay_settings
from tests.kit.smtp import SmtpServer


def until(condition: Callable[[], bool], message: str) -> None:
    """Wait up to 60 s for a condition; fail with the message."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.02)


def child_of(pid: int) -> int:
    """Return the pid of the only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, also if its parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def unpacked_in(directory: Path) -> list[Path]:
    """Return what executables have unpacked into a directory, in which Python may briefly write a file too."""
    return [*directory.glob("_MEI*")]


@pytest.fixture
def unpack_dir(tmp_path: Path) -> Path:
    """The directory that the executable unpacks into."""
    path = tmp_path / "room"
    path.mkdir()
    return path


@pytest.fixture
def service(executable: Path, unpack_dir: Path) -> Iterator[Server]:
    """A service of the executable, which unpacks into `unpack_dir`; it was set up from the sources, which is faster."""
    with closing(Server()) as prepared:
        prepared.set_up()
        server = Server(executable=executable, data=prepared.data, env={"TMPDIR": str(unpack_dir)})
        server.key = prepared.key
        yield server
        server.close()


def test_killing_the_parent_process_ends_the_service(service: Server, unpack_dir: Path) -> None:
    """`kill -9` of the started process also ends its child; the next start removes the leftover files."""
    service.start()
    (first,) = unpacked_in(unpack_dir)
    child = child_of(service.pid)
    os.kill(service.pid, signal.SIGKILL)
    until(lambda: is_gone(child), "the child outlived its killed parent")
    service.kill()
    assert first.exists(), "a killed process cannot remove its files"

    service.start()
    until(lambda: not first.exists(), "the next start left the old files")
    assert len(unpacked_in(unpack_dir)) == 1
    assert service.client().get("/lists").status == 200
    service.stop()
    until(lambda: not any(unpack_dir.iterdir()), "the files are not removed")


@pytest.mark.full
def test_clean_up_keeps_files_in_use_and_of_other_programs(service: Server, executable: Path, unpack_dir: Path) -> None:
    """A start removes neither the files of another running service nor what other programs unpacked."""
    foreign = unpack_dir / "_MEI00000001abcdef"
    foreign.mkdir()
    (foreign / "library.so").write_text("of another program")
    service.start()
    before = set(unpacked_in(unpack_dir))
    with Server(executable=executable, env={"TMPDIR": str(unpack_dir)}).set_up() as second:
        assert second.client().get("/lists").status == 200
        # Modules that are imported late still load
        assert second.cli("version", "--json").stdout
        assert before < set(unpacked_in(unpack_dir))
        second.stop()
    assert set(unpacked_in(unpack_dir)) == before
    assert service.client().get("/lists").status == 200


@pytest.mark.full
def test_replacing_the_executable_does_not_break_the_service(executable: Path, tmp_path: Path) -> None:
    """A service whose executable was replaced still loads later modules from its original."""
    program, unpack_dir = tmp_path / "campanero", tmp_path / "room"
    shutil.copy2(executable, program)
    unpack_dir.mkdir()
    with Server(executable=program, env={"TMPDIR": str(unpack_dir)}).set_up() as server:
        (tmp_path / "other").write_bytes(b"another program" * 5_000_000)
        (tmp_path / "other").replace(program)
        message = {"to": "anna@example.org", "subject": "Hi", "body": "<p>Hi</p>"}
        assert server.client().send("POST", "/messages", message).status == 201
        server.client().wait("/messages", lambda rows: [row["status"] for row in rows] == ["sent"])
        assert server.client().get("/lists").status == 200
        assert "cannot" not in server.output
        server.stop()


def test_a_noexec_directory_needs_tmpdir(executable: Path, tmp_path: Path) -> None:
    """On a `noexec` directory the start fails with an error that the guide explains; TMPDIR elsewhere helps."""
    skip_unless_mounts_allowed()
    forbidden, other = tmp_path / "forbidden", tmp_path / "other"
    forbidden.mkdir()
    other.mkdir()
    script = 'mount -t tmpfs -o noexec none "$1"; TMPDIR="$1" "$2" version || TMPDIR="$3" "$2" version'
    result = run_in_mount_namespace(script, forbidden, executable, other)
    assert result.returncode == 0, result.stderr
    assert re.match(r"campanero \d", result.stdout)
    message = "failed to map segment from shared object"
    assert message in result.stderr
    assert message in (ROOT / "ui" / "guides" / "install.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_certificates_in_the_red_hat_location(executable: Path, tmp_path: Path) -> None:
    """On a system with only a C library, the executable sends with the CA certificates of `/etc/pki`."""
    skip_unless_mounts_allowed()
    system = BareSystem(tmp_path / "tree", executable)
    certificate = self_signed()
    directory = system.tree / "etc" / "pki" / "tls" / "certs"
    directory.mkdir(parents=True)
    (directory / "ca-bundle.crt").write_bytes(certificate.certificate)
    with SmtpServer(starttls=True, certificate=certificate) as relay:
        env = {**relay_settings(relay.port), "CAMPANERO_EMAIL__RELAY__TLS": "starttls"}
        server = Server(executable=system.create_wrapper(), data=Path("/data"), env=env)
        for name in FOREIGN_VARIABLES:
            server.env.pop(name, None)
        try:
            api = server.set_up().start().set_postal_address().client()
            message = {"to": "anna@example.org", "subject": "Hello", "body": "<p>Hello</p>"}
            api.post("/messages", message).expect(201)
            relay.wait_for(1)
            assert relay.messages[0].tls
            server.stop()
        finally:
            server.close()


def test_bundled_certificates_are_the_fallback(tmp_path: Path) -> None:
    """A system without CA certificates trusts the bundled ones."""
    skip_unless_mounts_allowed()
    script = (
        "import ssl; from appliance.core import loader; before = len(ssl.create_default_context().get_ca_certs());"
        "loader.trust_certificates(); print(before, len(ssl.create_default_context().get_ca_certs()))"
    )
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    result = run_in_mount_namespace('mount -t tmpfs none /etc/ssl; exec "$@"', sys.executable, "-c", script, env=env)
    before, after = map(int, result.stdout.split())
    assert before == 0
    assert after > 100


def test_the_unpacked_executable_needs_no_temporary_directory(executable: Path, unpack_dir: Path) -> None:
    """The executable that was unpacked at build time writes nothing to TMPDIR."""
    program = executable.parent / "unpacked" / "campanero"
    result = subprocess.run([program, "version"], env={"TMPDIR": str(unpack_dir)}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert list(unpack_dir.iterdir()) == []
