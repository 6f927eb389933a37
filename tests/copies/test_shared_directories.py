"""A store in a directory to which other users or machines write: nothing in it leads out of it or blocks its users."""

import fcntl
import hashlib
import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.ops import stores
from appliance.ops.stores import base, directory
from appliance.ops.stores.base import Store
from appliance.settings.copies import Copies

_SHA256 = hashlib.sha256(b"x").digest()
OPERATIONS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("copies/a/b", io.BytesIO(b"x"), 1, _SHA256),
    "put_if": lambda store: store.put_if("copies/a/b", b"x", None),
    "open": lambda store: store.open("copies/a/b").__enter__(),
    "fetch": lambda store: store.fetch("copies/a/b"),
    "head": lambda store: store.head("copies/a/b"),
    "delete": lambda store: store.delete("copies/a/b"),
    "list": lambda store: list(store.list("copies/a/")),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store in a directory beside the folder `victim`, which has the file `a/b`."""
    (tmp_path / "store").mkdir()
    (tmp_path / "victim" / "a").mkdir(parents=True)
    (tmp_path / "victim" / "a" / "b").write_text("secret")
    return stores.open_store((tmp_path / "store").as_uri(), Copies())


@pytest.mark.parametrize("link", ["copies", "copies/a"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_links_are_not_followed(operation: Callable[[Store], object], link: str, store: Store, tmp_path: Path) -> None:
    """A link in the place of a folder would have the files behind it read, overwritten and deleted."""
    path = tmp_path / "store" / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path / "victim" / ("a" if link == "copies/a" else ""))
    with pytest.raises(base.Damaged, match="is a link or a file, not a folder"):
        operation(store)
    assert [path.name for path in (tmp_path / "victim" / "a").iterdir()] == ["b"]
    assert (tmp_path / "victim" / "a" / "b").read_text() == "secret"


def test_the_directory_itself_may_be_a_link(store: Store, tmp_path: Path) -> None:
    """The operator has made that link: it is above the directory."""
    store.put_if("copies/a/b", b"x", None)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    linked = stores.open_store((tmp_path / "link").as_uri(), Copies())
    assert [info.key for info in linked.list("")] == [info.key for info in store.list("copies/")] == ["copies/a/b"]
    linked.delete("copies/a/b")
    assert list(store.list("")) == [] and not (tmp_path / "store" / "copies" / "a").exists()


def test_deeply_nested_folders_and_links_are_not_listed(store: Store, tmp_path: Path) -> None:
    """No key is as deep as folders that others have nested, and a walk through these would never end."""
    store.put_if("copies/a/b", b"x", None)
    descriptor = os.open(tmp_path / "store" / "copies", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=descriptor)
        child = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
    os.close(descriptor)
    (tmp_path / "store" / "copies" / "loop").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "copies" / "file").symlink_to(tmp_path / "victim" / "a" / "b")
    os.mkfifo(tmp_path / "store" / "copies" / "pipe")
    try:
        assert [info.key for info in store.list("")] == ["copies/a/b"]
    finally:
        _remove_nested(tmp_path / "store" / "copies" / "d")


def _remove_nested(path: Path) -> None:
    """Remove nested folders, which are too deep for `rmtree`, from the top: each is moved up before."""
    up, number = path.parent, 0
    while True:
        child = path / "d"
        if not child.exists():
            path.rmdir()
            return
        moved = up / f"moved-{number % 2}"
        number += 1
        child.rename(moved)
        path.rmdir()
        path = moved


def test_a_lock_of_another_process(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the lock delays a write for some seconds, and cannot block it for ever."""
    monkeypatch.setattr(directory, "_MAX_LOCK_SECONDS", 0.1)
    etag = store.put_if("lease.json", b"1", None)
    with (tmp_path / "store" / ".campanero-store.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(base.Unreachable, match="stays locked by another process"):
            store.put_if("lease.json", b"2", etag)
        assert time.monotonic() - began < 5
    assert store.put_if("lease.json", b"2", etag) != etag
