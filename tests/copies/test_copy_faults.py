"""Faults of a store and kills: a copy is whole or not there, and the next one always succeeds."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyrage
import pytest

from appliance.core import clock, data_dir
from appliance.ops.copies import catalog, create, fetch, keys, local, prune
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.manifest import CopyManifest
from appliance.ops.stores import base, s3
from appliance.ops.stores.directory import DirectoryStore
from appliance.settings.copies import Copies
from appliance.storage.database import close_database, open_database
from tests.copies.copy_rows import CopyHome, list_names
from tests.kit.s3_server import Fault, S3Server
from tests.kit.step_kills import run_until_killed


def _kill_at(step: int, action: Callable[[], object]) -> bool:
    """Run an action in a forked process that is killed before or after its step `step`; return whether it ended."""
    close_database()
    return run_until_killed(lambda: _count_steps(step), action)


def _count_steps(step: int) -> None:
    """Kill this process at its step `step`: each change of the store or of the local state is two of them."""
    steps = iter(range(1 << 30))

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments)
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    for owner, name in (
        (DirectoryStore, "put"), (DirectoryStore, "delete"), (data_dir, "replace_file"), (local, "discard_spool"),
        (local, "begin_spool"),
    ):  # fmt: skip
        setattr(owner, name, wrap(getattr(owner, name)))


def _check_whole(home: CopyHome, scratch: Path) -> list[CopyManifest]:
    """Return the copies of the store, of which each must come back whole."""
    copies = home.copies()
    for copy in copies:
        shutil.rmtree(scratch, ignore_errors=True)
        list_names(home.fetch(copy, scratch) / "campanero.db")
    with closing(home.open_store()) as store:
        entries = catalog.list_copies(store, home.reader)
        assert catalog.find_lost_objects(store, entries) == []
        assert catalog.find_faults(entries) == []
    return copies


@pytest.mark.parametrize("has_base", [False, True], ids=["full", "differential"])
def test_a_kill_at_each_step_of_a_copy(home: CopyHome, tmp_path: Path, has_base: bool, full: bool) -> None:
    """A killed copy is whole or not there; the next call uploads what is left of it, and makes another."""
    home.add_lists(50, "first")
    if has_base:
        home.create_copy()
        home.add_lists(5, "second")
    close_database()
    before, root = tmp_path / "before", tmp_path / "store"
    shutil.copytree(home.directory, before / "data")
    shutil.copytree(root, before / "store")
    count, outcomes, has_ended = int(has_base), set[int](), False
    # A kill before every second change, with `--full` before and after each
    for step in range(0, 100, 1 if full else 4):
        for name in ("data", "store"):
            shutil.rmtree(tmp_path / name)
            shutil.copytree(before / name, tmp_path / name)
        if has_ended := _kill_at(step, home.create_copy):
            break
        copies = _check_whole(home, tmp_path / "scratch")
        outcomes.add(len(copies) - count)
        if step % 3 == 0:
            newest = home.create_copy()
            copies = _check_whole(home, tmp_path / "scratch")
            assert copies[0] == newest and count + 1 <= len(copies) <= count + 2
            assert [copy.sequence for copy in copies] == list(range(len(copies), 0, -1))
            prune.prune_copies(home.directory, home.settings)
    assert has_ended and outcomes == {0, 1} and step > 12


def test_a_kill_at_each_step_of_pruning(home: CopyHome, tmp_path: Path, full: bool) -> None:
    """A killed deletion leaves whole copies, and objects that the next one deletes."""
    for number in range(3):
        home.add_lists(20, f"{number}")
        (home.directory / "attachments" / f"{number}.txt").write_text(f"{number}")
        full_every = "0s" if number == 2 else "30d"
        home.settings = msgspec.structs.replace(home.settings, full_every=full_every, keep_days=1, keep_weeks=0)
        home.settings = msgspec.structs.replace(home.settings, keep_months=0)
        newest = home.create_copy()
    (home.directory / "attachments" / "0.txt").unlink()
    root = tmp_path / "store"
    _age_objects(root)
    shutil.copytree(root, tmp_path / "before")
    for step in range(0, 100, 1 if full else 2):
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
        has_ended = _kill_at(step, lambda: prune.prune_copies(home.directory, home.settings))
        assert newest in _check_whole(home, tmp_path / "scratch")
        prune.prune_copies(home.directory, home.settings)
        assert _check_whole(home, tmp_path / "scratch") == [newest]
        names = sorted(path.name for path in root.rglob("*") if path.is_file())
        assert len(names) == len(newest.segments) + 1 + len(newest.files), names
        if has_ended:
            break
    assert has_ended and step >= 8


def _age_objects(root: Path) -> None:
    """Make the objects of a store an hour older, except for the newest manifest."""
    newest = max(root.rglob("manifest"), key=lambda path: path.parent.name)
    for path in root.rglob("*"):
        if path.is_file() and path != newest:
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 3600))


@pytest.mark.parametrize("code", ["XMinioStorageFull", "AccessDenied", "SlowDown"])
def test_a_store_that_is_full_read_only_or_overloaded(
    home: CopyHome, bucket: S3Server, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The failed copy waits in the spool and is uploaded by the next call, without what the store has already."""
    monkeypatch.setattr(s3, "_FIRST_PAUSE_SECONDS", 0.01)
    home.settings = bucket.settings(recipients=home.settings.recipients)
    bucket.faults.append(Fault(503 if code == "SlowDown" else 403, code, "PUT", "copies/"))
    with pytest.raises(create.CopyFailed) as raised:
        home.create_copy()
    assert raised.value.__cause__ is not None and home.copies() == []
    uploaded = set(bucket.objects())
    bucket.faults.clear()
    bucket.requests.clear()
    second = home.create_copy()
    first = home.copies()[-1]
    assert home.copies() == [second, first] and (first.kind, second.kind) == ("full", "differential")
    put_again = {key for method, key, _ in bucket.requests if method == "PUT"} & uploaded
    assert uploaded and not put_again


def test_a_spool_for_other_keys_or_another_store_is_discarded(home: CopyHome, tmp_path: Path) -> None:
    """A copy that waits is not uploaded to where, or for whom, it was not made."""
    root = tmp_path / "store"
    root.rename(tmp_path / "gone")
    with pytest.raises(create.CopyFailed, match="mount its disk"):
        home.create_copy()
    (tmp_path / "gone").rename(root)
    with closing(home.open_store()) as store:
        _spool_a_copy(home, store)
    _, recipient = keys.create_identity()
    home.settings = msgspec.structs.replace(home.settings, recipients=[recipient])
    manifest = home.create_copy()
    assert [path.name for path in (root / "copies").iterdir()] == [manifest.id]


def test_another_encryption_of_a_file_is_replaced(home: CopyHome, tmp_path: Path) -> None:
    """A file in the store that this machine did not upload is not taken for its own because of an equal size.

    A promoted machine encrypts all files again, to keys of its own: a few in a thousand come out equally large.
    """
    with closing(home.open_store()) as store:
        _spool_a_copy(home, store)
    spool = local.read_spool(home.directory / local.FOLDER)
    assert spool is not None
    for item in spool.plan.uploads:
        if item.ref.key.startswith("blobs/"):
            path = tmp_path / "store" / item.ref.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * item.ref.size)
    home.create_copy()
    for number, manifest in enumerate(home.copies()):
        assert (
            home.fetch(manifest, tmp_path / f"into-{number}") / "attachments" / "offer.pdf"
        ).stat().st_size == 45_000


def test_older_copies_are_whole_after_files_were_encrypted_again(home: CopyHome) -> None:
    """The objects of files are then as the newest copy describes them, which is no fault of the older ones."""
    home.create_copy()
    (home.directory / local.FOLDER / "state.json").unlink()
    home.create_copy()
    copies = home.copies()
    with closing(home.open_store()) as store:
        entries = catalog.list_copies(store, home.reader)
        assert [catalog.verify_objects(store, copy, catalog.collect_objects(copies)) for copy in copies] == [[], []]
        assert catalog.find_lost_objects(store, entries) == []


def test_a_file_whose_other_encryption_is_larger(home: CopyHome, tmp_path: Path) -> None:
    """An object is read to its end, also if that lies in a chunk that the object of this copy does not have."""
    for number in range(16):
        # With its header, the object is about as large as a chunk: some are smaller, some larger.
        (home.directory / "attachments" / f"{number}.pdf").write_bytes(os.urandom(base.CHUNK_BYTES - 635))
    manifest = home.create_copy()
    file = next(file for file in manifest.files if base.CHUNK_BYTES - 100 < file.blob.size < base.CHUNK_BYTES)
    content = (home.directory / file.name).read_bytes()
    recipient = pyrage.x25519.Recipient.from_str(home.settings.recipients[0])
    while len(encrypted := pyrage.encrypt(content, [recipient, recipient])) <= base.CHUNK_BYTES:
        pass
    (tmp_path / "store" / file.blob.key).write_bytes(encrypted)
    assert (home.fetch(manifest, tmp_path / "into") / file.name).read_bytes() == content


def _spool_a_copy(home: CopyHome, store: Any) -> None:
    """Make a copy whose upload fails at once."""
    with local.lock(home.directory) as folder:
        builder = create._Builder(
            home.directory, folder, home.settings, home.settings.recipients, lambda words, part: None
        )
        builder.build(store, local.State(store.url), None)


def test_lost_and_damaged_objects(home: CopyHome, tmp_path: Path) -> None:
    """What a store has lost or changed is found, is not restored, and makes the next copy a full one."""
    home.add_lists(500, "first")
    full = home.create_copy()
    differential = home.create_copy()
    segment = tmp_path / "store" / full.segments[0].key
    content = segment.read_bytes()
    segment.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    with closing(home.open_store()) as store:
        assert catalog.verify_objects(store, full, catalog.collect_objects([full])) == [
            f"{full.segments[0].key} has other bytes than it was stored with"
        ]
        for number, copy in enumerate((full, differential)):
            (tmp_path / f"into-{number}").mkdir()
            with pytest.raises(fetch.DamagedCopy, match="was changed in the storage"):
                fetch.fetch_copy(store, copy, tmp_path / f"into-{number}", home.reader)
        segment.unlink()
        entries = catalog.list_copies(store, home.reader)
        assert catalog.find_lost_objects(store, entries) == [full.segments[0].key]
        (tmp_path / "into-2").mkdir()
        with pytest.raises(fetch.DamagedCopy, match="is missing in the storage"):
            fetch.fetch_copy(store, full, tmp_path / "into-2", home.reader)
    assert home.create_copy().kind == "full"


def test_a_lost_attachment(home: CopyHome, tmp_path: Path) -> None:
    """A file that the store has lost stops a restore unless it is asked to go on, and the next copy has it again."""
    manifest = home.create_copy()
    offer = next(file for file in manifest.files if file.name == "attachments/offer.pdf")
    (tmp_path / "store" / offer.blob.key).unlink()
    with closing(home.open_store()) as store:
        (tmp_path / "strict").mkdir()
        with pytest.raises(fetch.DamagedCopy, match="offer"):
            fetch.fetch_copy(store, manifest, tmp_path / "strict", home.reader)
        (tmp_path / "lenient").mkdir()
        lost = fetch.fetch_copy(store, manifest, tmp_path / "lenient", home.reader, skip_lost_files=True)
    assert lost == ["attachments/offer.pdf"] and (tmp_path / "lenient" / "secret.key").exists()
    newer = home.create_copy()
    for number, copy in enumerate((manifest, newer)):
        assert (home.fetch(copy, tmp_path / f"healed-{number}") / "attachments" / "offer.pdf").stat().st_size == 45_000


def test_a_file_is_uploaded_once(home: CopyHome, tmp_path: Path) -> None:
    """Equal content is one object, also under other names and in later copies."""
    shutil.copy(home.directory / "attachments" / "offer.pdf", home.directory / "attachments" / "again.pdf")
    first, second = home.create_copy(), home.create_copy()
    assert len({file.blob.key for file in first.files}) == 2 and len(first.files) == 3
    assert first.files == second.files
    assert len(list((tmp_path / "store" / "blobs").rglob("*/*"))) == 2


def test_new_keys_and_a_lost_state_make_a_full_copy(home: CopyHome) -> None:
    """A copy for another recipient never builds on one that this recipient cannot read."""
    first = home.create_copy()
    home.identity, recipient = keys.create_identity()
    home.settings = msgspec.structs.replace(home.settings, recipients=[recipient])
    second = home.create_copy()
    shutil.rmtree(home.directory / "copies")
    third = home.create_copy()
    assert [copy.kind for copy in (first, second, third)] == ["full"] * 3
    assert (third.sequence, third.previous) == (3, second.id)
    assert home.copies() == [third, second]


def test_one_copy_at_a_time(home: CopyHome) -> None:
    """A second process is told that the first works on the copies."""
    with local.lock(home.directory), pytest.raises(create.CopyFailed, match="another process"):
        home.create_copy()


def _copy_at(manifest: CopyManifest, days: float, number: int, base: str | None = None) -> CopyManifest:
    taken_at = 1_790_000_000_000 + int(days * clock.DAY_MS)
    return msgspec.structs.replace(
        manifest, id=manifests.create_id(taken_at, f"{number:012x}"), taken_at=taken_at, sequence=number + 1, base=base
    )


def test_retention(home: CopyHome) -> None:
    """The last of each kept day, week and month stay, the full ones that they need, and always the newest."""
    manifest = home.create_copy()
    full = _copy_at(manifest, 0, 0)
    copies = [full, *(_copy_at(manifest, number / 2, number, full.id) for number in range(1, 200))]
    settings = Copies(keep_days=3, keep_weeks=2, keep_months=2)
    kept = prune.choose_kept(copies, settings)
    assert full.id in kept and copies[-1].id in kept
    assert len(kept) <= 1 + 3 + 2 + 2
    days = sorted({copy.taken_at // clock.DAY_MS for copy in copies if copy.id in kept}, reverse=True)
    assert days[0] - days[1] == days[1] - days[2] == 1
    assert prune.choose_kept([], settings) == set()
    # A clock that was a year ahead for one copy costs none of the others but one
    ahead = _copy_at(manifest, 465, 200, full.id)
    assert len(kept - prune.choose_kept([*copies, ahead], settings)) <= 3


def test_other_programs_objects_stay(home: CopyHome, tmp_path: Path) -> None:
    """Objects that are not copies of ours are neither listed nor deleted."""
    home.create_copy()
    notes = tmp_path / "store" / "copies" / "notes.txt"
    notes.write_text("of the operator")
    (tmp_path / "store" / "lease.json").write_text("{}")
    home.settings = msgspec.structs.replace(home.settings, keep_days=1, keep_weeks=0, keep_months=0)
    home.create_copy()
    prune.prune_copies(home.directory, home.settings)
    assert notes.exists() and (tmp_path / "store" / "lease.json").exists()


def test_the_service_goes_on_after_the_copies(home: CopyHome) -> None:
    """A copy leaves the database open and writable."""
    home.create_copy()
    open_database(home.directory / "campanero.db")
    home.add_lists(1, "later")
