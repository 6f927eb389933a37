"""Restoring a copy by the command: with a passphrase or a recovery key, onto a new machine or over existing data."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.ops.copies import keys
from tests.copies.copy_rows import CopyHome, list_names
from tests.kit.fork_server import fork_server
from tests.kit.s3_server import S3Server

PASSPHRASE = "correct horse battery"


def command(*words: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of Campanero."""
    return fork_server().run(words, env or {}, Path("/"), stdin, 60)


@pytest.fixture
def recovery_file(home: CopyHome, tmp_path: Path) -> Path:
    """Return the file with the operator's recovery key."""
    path = tmp_path / "recovery.txt"
    path.write_text(keys.format_recovery_key(home.identity))
    return path


def test_a_new_machine_with_the_passphrase_alone(home: CopyHome, bucket: S3Server, tmp_path: Path, full: bool) -> None:
    """The credentials of the store and the passphrase bring everything back, with sending stopped."""
    data = ["--data", str(home.directory)]
    failed = command("backup", "--to", bucket.store_url, *data, env=bucket.env)
    assert failed.returncode == 1 and "nobody could read the copies: set a passphrase" in failed.stderr
    short = command("copies", "passphrase", *data, stdin="short\n")
    assert short.returncode == 1 and "at least 12 characters" in short.stderr
    home.add_lists(200, "first")
    assert command("copies", "passphrase", *data, stdin=f"{PASSPHRASE}\n").returncode == 0
    done = command("backup", "--to", *data, env=bucket.env)
    assert done.returncode == 0 and ": full, " in done.stdout, done.stderr
    listed = command("copies", "list", *data, env=bucket.env)
    assert listed.returncode == 0 and "full, " in listed.stdout, listed.stderr
    elsewhere = bucket.env | {"CAMPANERO_COPIES__STORE": ""}
    verified = command("copies", "verify", bucket.store_url, *data, env=elsewhere)
    assert verified.returncode == 0 and ": complete" in verified.stdout, verified.stderr
    new = ["--data", str(tmp_path / "new")]
    silent = command("restore", bucket.store_url, *new, env=bucket.env)
    assert silent.returncode == 1 and "no passphrase: type it" in silent.stderr
    assert all(name.startswith(("blobs/", "copies/", "recovery/")) for name in bucket.objects())
    if full:  # A try takes seconds of a processor
        wrong = command("restore", bucket.store_url, *new, stdin="wrong passphrase\n", env=bucket.env)
        assert wrong.returncode == 1 and "opens none of the recovery keys" in wrong.stderr
    assert not (tmp_path / "new").exists()
    restored = command("restore", bucket.store_url, "--at", "latest", *new, stdin=f"{PASSPHRASE}\n", env=bucket.env)
    assert restored.returncode == 0, restored.stderr
    assert "Acme: sending is stopped." in restored.stdout
    names = list_names(tmp_path / "new" / "campanero.db")
    assert names == list_names(home.directory / "campanero.db") and len(names) >= 200
    for name in ("secret.key", "attachments/offer.pdf"):
        assert (tmp_path / "new" / name).read_bytes() == (home.directory / name).read_bytes()


def test_an_earlier_copy_over_existing_data(home: CopyHome, recovery_file: Path) -> None:
    """A copy is chosen by time or id; the data that is there is backed up before."""
    home.add_lists(10, "first")
    names = list_names(home.directory / "campanero.db")
    first = home.create_copy()
    home.add_lists(10, "second")
    home.create_copy()
    words = ["restore", home.settings.store, "--identity", str(recovery_file), "--data", str(home.directory)]
    listed = command(*words)
    assert listed.returncode == 0 and "Nothing was restored" in listed.stdout and first.id in listed.stdout
    kept = command(*words, "--at", "latest")
    assert kept.returncode == 1 and "--force" in kept.stderr
    too_old = command(*words, "--at", "2020-01-01", "--force")
    assert too_old.returncode == 1 and "none that old" in too_old.stderr
    no_time = command(*words, "--at", "noon", "--force")
    assert no_time.returncode == 1 and "is not a time" in no_time.stderr
    restored = command(*words, "--at", first.id, "--force")
    assert restored.returncode == 0, restored.stderr
    assert list_names(home.directory / "campanero.db") == names
    assert re.search(r"previous data is kept in .*before-restore", restored.stdout)


def test_a_key_without_a_signer(home: CopyHome, tmp_path: Path) -> None:
    """An identity file of age restores only copies of a signer that the operator names."""
    home.create_copy()
    identity, new = tmp_path / "age.txt", ["--data", str(tmp_path / "new")]
    identity.write_text(f"# created: 2026-11-28\n{home.identity}\n")
    words = ["restore", home.settings.store, "--at", "latest", "--identity", str(identity), *new]
    asked = command(*words)
    signer = keys.format_signer(keys.own_signer())
    assert asked.returncode == 1 and signer in asked.stderr and "--signer" in asked.stderr
    other = command(*words, "--signer", keys.format_signer(bytes(32)))
    assert other.returncode == 1 and "no copy that can be read" in other.stderr
    assert command(*words, "--signer", signer).returncode == 0
    # Beside its key, the installation is known
    shutil.rmtree(tmp_path / "new")
    (tmp_path / "new").mkdir(mode=0o700)
    shutil.copy(home.directory / "secret.key", tmp_path / "new")
    assert command(*words).returncode == 0


def test_a_directory_with_another_key(home: CopyHome, recovery_file: Path, tmp_path: Path) -> None:
    """The empty installation of a service that was started too early is named, with the way out."""
    home.create_copy()
    new = tmp_path / "new"
    new.mkdir(mode=0o700)
    (new / "secret.key").write_text("ab" * 32 + "\n")
    words = ["restore", home.settings.store, "--at", "latest", "--identity", str(recovery_file), "--data", str(new)]
    failed = command(*words)
    assert failed.returncode == 1 and "is the key of another installation" in failed.stderr
    assert "or restore into an empty directory: the backup contains its secret.key" in failed.stderr
    (new / "secret.key").unlink()
    assert command(*words).returncode == 0


def test_usage_errors(home: CopyHome, tmp_path: Path) -> None:
    """Options that do not fit together are rejected."""
    data = ["--data", str(home.directory)]
    for words, message in (
        (["backup", *data], "either a new FILE, or --to"),
        (["backup", "x.tar.gz", "--to", "file:///x", *data], "either a new FILE, or --to"),
        (["backup", "--to", "--with-key", *data], "leave out --with-key"),
        (["backup", "--to", *data], "set copies.store"),
        (["copies", "list", *data], "set copies.store"),
        (["copies", "list", "file:///x", "--data", str(tmp_path / "none")], "campanero restore URL lists the copies"),
        (["restore", "x.tar.gz", "--at", "latest", *data], "--at is for copies in storage"),
        (["restore", home.settings.store, *data], "has no copies: check the address"),
        (["backup", "--to", "ftp://x", *data], "must begin with one of"),
    ):
        done = command(*words)
        assert done.returncode == 1 and message in done.stderr, (words, done.stderr)
    unset = command("copies", "prune", "", *data)
    assert unset.returncode == 2 and "must begin with s3://, sftp:// or file:///" in unset.stderr
    home.create_copy()
    keyless = command("restore", home.settings.store, *data)
    assert keyless.returncode == 1 and "no recovery key that a passphrase opens" in keyless.stderr


def test_a_printed_recovery_key(home: CopyHome, tmp_path: Path) -> None:
    """A recovery key that was printed restores copies that were encrypted to its public key."""
    printed = command("copies", "key", "--data", str(home.directory)).stdout
    recipient = printed.rpartition("recipients: ")[2].strip()
    (tmp_path / "key.txt").write_text(printed)
    home.settings = type(home.settings)(store=home.settings.store, recipients=[recipient])
    home.create_copy()
    new = ["--identity", str(tmp_path / "key.txt"), "--data", str(tmp_path / "new")]
    restored = command("restore", home.settings.store, "--at", "latest", *new)
    assert restored.returncode == 0, restored.stderr
