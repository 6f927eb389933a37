"""What one file that unpacks itself could do wrong: outlive a kill, leave its files about, trust nobody, stay mute."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.bare import FOREIGN, BareSystem, needs_mounts, within
from tests.kit.certificates import self_signed
from tests.kit.server import ROOT, Server, relay_settings
from tests.kit.smtp import SmtpServer


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def child_of(pid: int) -> int:
    """Return the one child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def is_gone(pid: int) -> bool:
    """Return whether a process runs no more, also where nobody has asked what became of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A directory that the executable unpacks into."""
    place = tmp_path / "room"
    place.mkdir()
    return place


@pytest.fixture
def service(executable: Path, room: Path) -> Iterator[Server]:
    """A service of the executable, which unpacks into `room`."""
    server = Server(executable=executable, env={"TMPDIR": str(room)}).set_up()
    yield server
    server.close()


def test_who_kills_what_was_started_has_killed_the_service(service: Server, room: Path) -> None:
    """`kill -9` of the one process somebody started ends the one that works; the next start tidies up and goes on."""
    service.start()
    (first,) = room.iterdir()
    child = child_of(service.pid)
    os.kill(service.pid, signal.SIGKILL)
    until(lambda: is_gone(child), "the process that works outlived the one that was started")
    service.kill()
    assert first.exists(), "nobody could remove it"

    service.start()
    until(lambda: not first.exists(), "what was left behind is still there")
    assert len(list(room.iterdir())) == 1
    assert service.client().get("/lists").status == 200
    service.stop()
    assert list(room.iterdir()) == []


def test_tidying_up_spares_what_is_in_use_or_of_others(service: Server, executable: Path, room: Path) -> None:
    """A start removes neither what another service runs from nor what other programs unpacked."""
    alien = room / "_MEI00000001abcdef"
    alien.mkdir()
    (alien / "library.so").write_text("of another program")
    service.start()
    kept = set(room.iterdir())
    with Server(executable=executable, env={"TMPDIR": str(room)}).set_up() as second:
        assert second.client().get("/lists").status == 200
        # What it imports only now it still finds
        assert second.cli("version", "--json").stdout
        assert kept < set(room.iterdir())
        second.stop()
    assert set(room.iterdir()) == kept
    assert service.client().get("/lists").status == 200


def test_who_puts_another_file_in_its_place_takes_nothing_from_who_runs(executable: Path, tmp_path: Path) -> None:
    """A service whose file is replaced the moment it answers loads all it needs later from the one it was."""
    program, room = tmp_path / "campanero", tmp_path / "room"
    shutil.copy2(executable, program)
    room.mkdir()
    with Server(executable=program, env={"TMPDIR": str(room)}).set_up() as server:
        (tmp_path / "other").write_bytes(b"another program" * 5_000_000)
        (tmp_path / "other").replace(program)
        message = {"to": "anna@example.org", "subject": "Hi", "body": "<p>Hi</p>"}
        assert server.client().send("POST", "/messages", message).status == 201
        server.client().wait("/messages", lambda rows: [row["status"] for row in rows] == ["sent"])
        assert server.client().get("/lists").status == 200
        assert "cannot" not in server.output
        server.stop()


def test_a_room_that_forbids_programs_is_told_and_left_by_tmpdir(executable: Path, tmp_path: Path) -> None:
    """On `noexec` the system's words come, which the guide explains; with TMPDIR elsewhere all is well."""
    needs_mounts()
    place, other = tmp_path / "forbidden", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    script = 'mount -t tmpfs -o noexec none "$1"; TMPDIR="$1" "$2" version || TMPDIR="$3" "$2" version'
    done = within(script, place, executable, other)
    assert done.returncode == 0, done.stderr
    assert re.match(r"campanero \d", done.stdout)
    said = "failed to map segment from shared object"
    assert said in done.stderr
    assert said in (ROOT / "ui" / "guides" / "install.md").read_text(encoding="utf-8")


def test_a_system_that_keeps_its_certificates_elsewhere(executable: Path, tmp_path: Path) -> None:
    """On a tree with nothing but a C library and the file it sends, trusting whom a Red Hat would trust."""
    needs_mounts()
    system = BareSystem(tmp_path / "tree", executable)
    certificate = self_signed()
    place = system.tree / "etc" / "pki" / "tls" / "certs"
    place.mkdir(parents=True)
    (place / "ca-bundle.crt").write_bytes(certificate.certificate)
    with SmtpServer(starttls=True, certificate=certificate) as relay:
        env = {**relay_settings(relay.port), "CAMPANERO_EMAIL__RELAY__TLS": "starttls"}
        server = Server(executable=system.program(), data=Path("/data"), env=env)
        for name in FOREIGN:
            server.env.pop(name, None)
        try:
            api = server.set_up().start().give_address().client()
            person = {"to": "anna@example.org", "subject": "Hello", "body": "<p>Hello</p>"}
            api.post("/messages", person).expect(201)
            relay.wait_for(1)
            assert relay.messages[0].tls
            server.stop()
        finally:
            server.close()


def test_a_system_without_certificates_gets_those_inside(tmp_path: Path) -> None:
    """Where nothing is trusted the list that is carried along is."""
    needs_mounts()
    look = (
        "import ssl; from appliance.core import executable; before = len(ssl.create_default_context().get_ca_certs());"
        "executable.trust_certificates(); print(before, len(ssl.create_default_context().get_ca_certs()))"
    )
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    done = within('mount -t tmpfs none /etc/ssl; exec "$@"', sys.executable, "-c", look, env=env)
    before, after = map(int, done.stdout.split())
    assert before == 0
    assert after > 100


def test_it_runs_out_of_a_directory_of_its_own(executable: Path, room: Path) -> None:
    """Unpacked beforehand it needs no temporary directory at all."""
    program = executable.parent / "unpacked" / "campanero"
    done = subprocess.run([program, "version"], env={"TMPDIR": str(room)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(room.iterdir()) == []
