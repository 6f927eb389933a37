"""The copies of files beside the database in the store of the lease, to which others may write."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import crypto
from appliance.ops import stores
from appliance.ops.fencing.mirror import JOURNAL, Mirror, MirrorReader
from appliance.ops.standby import follow, place
from appliance.ops.standby.place import Source
from appliance.ops.stores.base import Store, StoreError
from appliance.settings.copies import Copies
from tests.domain.home import Home

PIECE_BYTES = 4 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Yield a store in a directory, with a key of the installation for this test."""
    key = crypto.loaded_key()
    crypto.use_key(b"k" * 32)
    (tmp_path / "store").mkdir()
    (tmp_path / "one").mkdir()
    yield stores.open_store((tmp_path / "store").as_uri(), Copies())
    crypto.use_key(key)


def test_a_compacted_journal_arrives_whole(store: Store, tmp_path: Path) -> None:
    """Its full pieces are stored anew, and what was behind its end is cut off."""
    path, copied = tmp_path / "one" / JOURNAL, tmp_path / "two" / JOURNAL
    mirror, reader = Mirror(store, tmp_path / "one"), MirrorReader(store, tmp_path / "two")
    for journal_id, letter, size in (("a", b"x", 2), ("b", b"y", 1), ("c", b"z", 0)):
        path.write_bytes(b'{"journal":"%s"}\n' % journal_id.encode() + letter * (size * PIECE_BYTES + 1_000))
        mirror.copy()
        assert reader.fetch() == size + 1
        assert copied.read_bytes() == path.read_bytes()


def test_a_compacted_journal_arrives_whole_beside_a_foreign_object(store: Store, tmp_path: Path) -> None:
    """What was behind the end of the journal is cut off, although each fetch ends with an error."""
    path, copied = tmp_path / "one" / JOURNAL, tmp_path / "two" / JOURNAL
    mirror, reader = Mirror(store, tmp_path / "one"), MirrorReader(store, tmp_path / "two")
    mirror.copy()
    (tmp_path / "store" / "files").mkdir()
    (tmp_path / "store" / "files" / ("0" * 40)).write_bytes(b"foreign")
    for journal_id, size in (("a", 1_000), ("b", 10)):
        path.write_bytes(b'{"journal":"%s"}\n' % journal_id.encode() + b"x" * size)
        mirror.copy()
        with pytest.raises(StoreError, match="was changed in the storage"):
            reader.fetch()
        assert copied.read_bytes() == path.read_bytes()


def test_a_foreign_object_does_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    """It is reported, is not read beyond the size of a piece, and the files of this installation are fetched."""
    path = tmp_path / "one" / JOURNAL
    path.write_text('{"journal":"a"}\n')
    Mirror(store, tmp_path / "one").copy()
    for name in ("0" * 40, "f" * 40):
        foreign = tmp_path / "store" / "files" / name
        foreign.touch()
        os.truncate(foreign, 3 * PIECE_BYTES)
        os.utime(foreign, (1, 1))
    reader = MirrorReader(store, tmp_path / "two")
    for _ in range(2):
        with pytest.raises(StoreError, match="larger than a piece"):
            reader.fetch()
        assert (tmp_path / "two" / JOURNAL).read_bytes() == path.read_bytes()


def test_a_link_in_the_store_leads_to_no_other_files(store: Store, tmp_path: Path) -> None:
    """Who may write to the store cannot have the files of another folder deleted, written or read by a link."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret.key").write_text("k")
    (tmp_path / "one" / JOURNAL).write_text('{"journal":"a"}\n')
    (tmp_path / "store" / "files").symlink_to(victim)
    with pytest.raises(StoreError, match="files is a link or a file, not a folder"):
        Mirror(store, tmp_path / "one").copy()
    with pytest.raises(StoreError, match="files is a link or a file, not a folder"):
        MirrorReader(store, tmp_path / "two").fetch()
    assert [path.name for path in victim.iterdir()] == ["secret.key"]


def test_a_piece_that_the_store_has_lost_is_stored_again(store: Store, tmp_path: Path) -> None:
    """A rule of a bucket that expires old objects would otherwise take the attachments from the second machine."""
    path = tmp_path / "one" / "attachments" / "1" / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_text("a")
    mirror, reader = Mirror(store, tmp_path / "one"), MirrorReader(store, tmp_path / "two")
    mirror.copy()
    assert reader.fetch() == 1
    [stored] = (tmp_path / "store" / "files").iterdir()
    stored.unlink()
    mirror.copy()
    assert reader.fetch() == 0
    mirror._list_at = 0
    mirror.copy()
    assert reader.fetch() == 1
    assert (tmp_path / "two" / "attachments" / "1" / "a.txt").read_text() == "a"


def test_the_last_files_are_fetched_when_following_ends(home: Home, store: Store, tmp_path: Path) -> None:
    """A promotion ends it, and does not wait if the other machine has given the lease back."""
    home.configure(lease__store=store.url)
    directory = tmp_path / "following"
    directory.mkdir()
    place.save_source(directory, Source("file:///replica"))
    follower = follow.Follower(directory, "file:///replica", "/bin/false")
    thread = threading.Thread(target=follower.run)
    thread.start()
    (tmp_path / "one" / JOURNAL).write_text('{"journal":"a"}\n')
    Mirror(store, tmp_path / "one").copy()
    follower.stop()
    thread.join()
    assert (directory / "standby" / "files" / JOURNAL).exists()
