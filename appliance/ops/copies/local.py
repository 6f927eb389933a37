"""The state of copies on this machine: the last copy, its base, and one-time identities that read them.

The folder `copies` of the data directory contains `state.json`, the page index of the newest full copy, the recovery
key that a passphrase protects, and `spool` with a copy that is not yet uploaded. Everything in it is encrypted or of no
use without the store, except for the identities of the newest copy and its base: who can read these on this machine can
also read its database.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.core import data_dir, untrusted_json
from appliance.core.untrusted_json import InvalidJson
from appliance.ops.copies import keys
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.copies.manifest import CopyId, CopyManifest, ObjectRef, Sha256

FOLDER = "copies"
_STATE_FILE, _LOCK_FILE, _SPOOL, _PLAN_FILE = "state.json", "lock", "spool", "plan.json"
_MAX_STATE_BYTES = 256 << 20
_UPLOADED_FILE = "uploaded"  # in the spool: the keys of the objects that were uploaded, one a line
_DAMAGED_FILE = "damaged"  # the URL of the store whose newest copy, or the base of it, is damaged
_INDEX_PREFIX = "pages-"


class CopyInProgress(Exception):
    """Another process is making, deleting or checking copies of this installation."""


class Blob(msgspec.Struct, frozen=True):
    """The object of a file of the newest copy, and the identity that reads it."""

    ref: ObjectRef
    identity: str


class BaseCopy(msgspec.Struct, frozen=True):
    """The newest full copy: its objects, its recipients, and the SHA-256 of its manifest."""

    id: CopyId
    sha256: Sha256
    segments: list[ObjectRef]
    recipients: list[str]
    taken_at: int
    page_size: int


class State(msgspec.Struct):
    """The stored state of the copies in the store whose URL is `store`."""

    store: str = ""
    sequence: int = 0
    newest: str | None = None
    newest_sha256: str | None = None
    base: BaseCopy | None = None
    identities: dict[str, str] = {}  # of the newest copy and its base, by their ids
    blobs: dict[str, Blob] = {}  # of the newest copy, by key


class Upload(msgspec.Struct, frozen=True):
    """A file of the spool, and the object as which it is uploaded."""

    file: str
    ref: ObjectRef


class Plan(msgspec.Struct, frozen=True):
    """The uploads of a complete copy in their order, the manifest last, and the state after them."""

    copy_id: CopyId
    store: str
    recipients: list[str]
    uploads: list[Upload]
    index_file: str | None  # the page index of a full copy
    state: State


class Spool(NamedTuple):
    """A complete copy that is not yet uploaded."""

    path: Path
    plan: Plan


def folder_of(directory: Path) -> Path:
    """Return the folder of copies of a data directory, which is created if needed."""
    folder = directory / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def lock(directory: Path) -> Iterator[Path]:
    """Yield the folder of copies, locked against other processes. Raises CopyInProgress if one has the lock."""
    folder = folder_of(directory)
    descriptor = os.open(folder / _LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CopyInProgress("another process is working on the copies of this installation") from None
        yield folder
    finally:
        os.close(descriptor)


def read_state(folder: Path, store_url: str) -> State:
    """Return the stored state of the copies in a store; empty if the file is missing, damaged or of another store."""
    try:
        state = untrusted_json.decode_file(folder / _STATE_FILE, State, _MAX_STATE_BYTES)
    except (FileNotFoundError, InvalidJson):
        return State(store_url)
    return state if state.store == store_url else State(store_url)


def proof_keys(directory: Path, manifest: CopyManifest) -> ReadingKeys | None:
    """Return the keys that read a copy, its base and its files, or None if this machine cannot read it.

    It can read only the newest copy, with identities that are stored nowhere else. The installation's key must be
    loaded.
    """
    try:
        state = untrusted_json.decode_file(directory / FOLDER / _STATE_FILE, State, _MAX_STATE_BYTES)
    except (FileNotFoundError, InvalidJson):
        return None
    ids = [manifest.id] + ([manifest.base] if manifest.base else [])
    if state.newest != manifest.id or not all(copy_id in state.identities for copy_id in ids):
        return None
    identities = [state.identities[copy_id] for copy_id in ids]
    by_object = {key: blob.identity for key, blob in state.blobs.items()}
    return ReadingKeys([*identities, keys.catalog_identity()], [keys.own_signer()], by_object)


def mark_newest_damaged(folder: Path, store_url: str) -> None:
    """Record that the newest copy in a store is damaged, so that the next copy does not build on it."""
    data_dir.replace_file(folder / _DAMAGED_FILE, store_url.encode())


def is_newest_damaged(folder: Path, store_url: str) -> bool:
    """Return whether the newest copy in a store is recorded as damaged."""
    try:
        return (folder / _DAMAGED_FILE).read_bytes() == store_url.encode()
    except FileNotFoundError:
        return False


def clear_damage_mark(folder: Path) -> None:
    """Delete the record of a damaged copy, once a copy was made that does not build on it."""
    (folder / _DAMAGED_FILE).unlink(missing_ok=True)


def index_path(folder: Path, copy_id: str) -> Path:
    """Return the path of the page index of a full copy."""
    return folder / f"{_INDEX_PREFIX}{copy_id}"


def begin_spool(folder: Path) -> Path:
    """Return an empty folder for the files of a new copy; the files of an interrupted call are deleted."""
    spool = folder / _SPOOL
    shutil.rmtree(spool, ignore_errors=True)
    spool.mkdir(mode=0o700)
    return spool


def finish_spool(spool: Path, plan: Plan) -> Spool:
    """Write the plan of a spool. With it the copy is complete, and only has to be uploaded."""
    data_dir.sync_to_disk(spool)
    data_dir.replace_file(spool / _PLAN_FILE, msgspec.json.encode(plan))
    return Spool(spool, plan)


def read_spool(folder: Path) -> Spool | None:
    """Return the complete copy that is not yet uploaded, or None."""
    try:
        plan = untrusted_json.decode_file(folder / _SPOOL / _PLAN_FILE, Plan, _MAX_STATE_BYTES)
    except (FileNotFoundError, InvalidJson):
        return None
    return Spool(folder / _SPOOL, plan)


def list_uploaded(spool: Spool) -> set[str]:
    """Return the keys of the objects of a spool that were uploaded."""
    try:
        return set((spool.path / _UPLOADED_FILE).read_text().split("\n"))
    except FileNotFoundError:
        return set()


def note_uploaded(spool: Spool, key: str) -> None:
    """Record that an object of a spool was uploaded. If a crash loses the record, the object is uploaded again."""
    with (spool.path / _UPLOADED_FILE).open("a") as file:
        file.write(f"{key}\n")


def discard_spool(folder: Path) -> None:
    """Delete the copy that is not yet uploaded."""
    # Without a plan, files that remain after a kill are never uploaded.
    (folder / _SPOOL / _PLAN_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / _SPOOL, ignore_errors=True)


def install(folder: Path, spool: Spool) -> None:
    """Store an uploaded copy as the newest one, and delete its spool; if it is interrupted, it can be called again."""
    plan = spool.plan
    if plan.index_file is not None and (spool.path / plan.index_file).exists():
        (spool.path / plan.index_file).replace(index_path(folder, plan.copy_id))
    data_dir.replace_file(folder / _STATE_FILE, msgspec.json.encode(plan.state))
    base_id = plan.state.base.id if plan.state.base else None
    for path in folder.glob(f"{_INDEX_PREFIX}*"):
        if path != index_path(folder, base_id or ""):
            path.unlink(missing_ok=True)
    discard_spool(folder)
