"""Copies after damage: what a test restore or `copies verify` found damaged is not built on, and is uploaded again."""

from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.copies.test_copy_jobs import copies_of, directory_env, wait_for_runs
from tests.kit.client import Client
from tests.kit.server import Server

COPIED = [("copy", "succeeded"), ("proof", "succeeded")]


@pytest.fixture
def machine(fresh_server: FreshServer, tmp_path: Path) -> Server:
    """Return a service with a copy that was tested."""
    server = fresh_server(env=directory_env(tmp_path / "store"))
    wait_for_runs(server.client(), *COPIED)
    return server


def damage(store: Path, prefix: str) -> None:
    """Change a byte of each object whose key has this prefix, but for manifests."""
    paths = [path for path in (store / prefix).rglob("*") if path.is_file() and path.name != "manifest"]
    assert paths
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def copy_and_prove(api: Client) -> list[bool]:
    """Make a copy and test it; return whether each stored copy is full, the newest first."""
    api.post("/backups/copies").expect(202)
    wait_for_runs(api, ("copy", "succeeded"))
    api.post("/backups/proofs").expect(202)
    wait_for_runs(api, COPIED[0], COPIED[1])
    return [copy["full"] for copy in copies_of(api)["stored"]]


@pytest.mark.parametrize("prefix", ["copies", "blobs"])
def test_a_copy_after_a_failed_test_is_full(machine: Server, tmp_path: Path, prefix: str) -> None:
    """A new copy mends what the test restore found damaged: the full copy that others build on, or a file."""
    api = machine.client()
    damage(tmp_path / "store", prefix)
    api.post("/backups/proofs").expect(202)
    wait_for_runs(api, ("proof", "failed"))
    assert copy_and_prove(api)[0]
    assert not copy_and_prove(api)[0]


def test_a_copy_after_a_failed_verification_is_full(machine: Server, tmp_path: Path) -> None:
    """`copies verify` finds the damage as well."""
    api = machine.client()
    damage(tmp_path / "store", "copies")
    verified = machine.cli("copies", "verify", expect=1)
    assert "the next copy is a full one" in verified.stdout
    assert copy_and_prove(api)[0]
    assert machine.cli("copies", "verify").stdout.count("complete") == 1


def test_the_copy_of_a_machine_without_its_state(machine: Server) -> None:
    """A promoted machine knows no keys of the files in the storage, which has them already: its copies are whole."""
    machine.stop()
    (machine.data / "copies" / "state.json").unlink()
    machine.start()
    assert copy_and_prove(machine.client())[0]
