"""The lease object in a store, which names the one machine that may send, and the identity of this machine.

Each machine measures durations itself, and the epoch shows which machine took the lease last, so wrong clocks do not
matter. Times in the object are only displayed, or compared with other times of the same machine.

The object is signed with the installation's key, which both machines have. Otherwise another writer of the store could
empty `blocks`, the ranges of messages that may have been sent; a promotion would then hold nothing, and messages would
be sent twice. Such a writer can still delete the object or replace it with an earlier one.
"""

import hashlib
import hmac
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, structs

from appliance.core import crypto, untrusted_json
from appliance.core.data_dir import sync_to_disk
from appliance.core.untrusted_json import InvalidJson
from appliance.ops.stores.base import MAX_SMALL_BYTES, Store, StoreError

KEY = "lease.json"
NODE_FILE = "node.json"
FORMAT = 1
_LABEL = "lease"
_MAX_NODE_BYTES = 10_000
_ADVICE = "see “When the lease cannot be read” in the guide “A second machine that is ready”"
# If there are more ranges of blocks, the smallest gaps are closed: then more messages are held, never fewer.
MAX_RANGES = 2_000

_Name = Annotated[str, Meta(min_length=1, max_length=100)]
_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class DamagedLease(StoreError):
    """The lease object, or the file of this machine's identity, is damaged."""


class LeaseRecord(msgspec.Struct, frozen=True):
    """The content of the lease object."""

    format: int
    epoch: Annotated[int, Meta(ge=1, le=2**53)]  # grows with each promotion
    node: _Name  # the machine that may send, or that will when it starts
    host: Annotated[str, Meta(max_length=200)]  # the name of that machine, for users
    holder: Annotated[str, Meta(max_length=100)]  # the process that renews the lease; empty: none has taken it yet
    renewal: _Number  # grows with each renewal, so that each content differs
    seconds: Annotated[int, Meta(ge=1, le=3600)]  # the holder stops this long after its last renewal
    is_released: bool  # the holder has ended, and sends nothing more
    renewed_at: _Number  # ms, by the clock of the holder
    # Ranges [first, last] of blocks of message ids that may have left (`send_lease.BLOCK_IDS`).
    blocks: Annotated[list[tuple[_Number, _Number]], Meta(max_length=MAX_RANGES)]
    kept_seconds: _Number  # a block stays at least this long after a message of it was last read
    signature: Annotated[str, Meta(max_length=64)] = ""  # hexadecimal HMAC-SHA256 of all other fields


class Node(msgspec.Struct):
    """The identity of this machine, and the highest epoch in which it held the lease (0: never).

    `seen_epoch` is the highest epoch in which another machine held it.
    """

    node: _Name
    epoch: _Number = 0
    seen_epoch: _Number = 0


class FetchedLease(NamedTuple):
    """The lease object and its etag."""

    record: LeaseRecord
    etag: str


def fetch_lease(store: Store) -> FetchedLease | None:
    """Return the lease object of a store, or None if there is none. Raises StoreError."""
    fetched = store.fetch(KEY)
    if fetched is None:
        return None
    content, etag = fetched
    try:
        record = untrusted_json.decode(content, LeaseRecord, MAX_SMALL_BYTES)
    except InvalidJson as error:
        raise DamagedLease(f"{store.url}/{KEY} is not a lease: {error}; {_ADVICE}") from None
    if record.format != FORMAT:
        raise DamagedLease(f"{store.url}/{KEY} has format {record.format}: use the same version on both machines")
    if not hmac.compare_digest(_sign(record), record.signature.encode()):
        raise DamagedLease(f"{store.url}/{KEY} was changed in the storage, or belongs to another key; {_ADVICE}")
    return FetchedLease(record, etag)


def _sign(record: LeaseRecord) -> bytes:
    """Return the signature of a record. Raises DamagedLease if the installation's key is not loaded."""
    if not crypto.loaded_key():
        raise DamagedLease(f"{KEY} cannot be checked without {crypto.KEY_FILE}")
    content = msgspec.json.encode(structs.replace(record, signature=""))
    return hmac.new(crypto.derive_key(_LABEL), content, hashlib.sha256).hexdigest().encode()


def put_lease(store: Store, record: LeaseRecord, etag: str | None) -> str:
    """Replace the lease object with this etag, and return the new etag. Raises Conflict and other StoreErrors."""
    signed = structs.replace(record, signature=_sign(record).decode())
    return store.put_if(KEY, msgspec.json.format(msgspec.json.encode(signed), indent=1), etag)


def get_host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()[:200]


def load_node(directory: Path) -> Node:
    """Return the identity of this machine, which is created in its data directory if it has none.

    It belongs to the machine, not to its data, so neither a backup nor a replica contains it. Raises DamagedLease.
    """
    node = find_node(directory)
    if node is None:
        node = Node(crypto.random_base62(16))
        save_node(directory, node)
    return node


def find_node(directory: Path) -> Node | None:
    """Return the identity of this machine, or None if it has none yet. Raises DamagedLease."""
    path = directory / NODE_FILE
    try:
        return untrusted_json.decode_file(path, Node, _MAX_NODE_BYTES)
    except FileNotFoundError:
        return None
    except InvalidJson as error:
        raise DamagedLease(f"{path} is damaged: {error}; {_ADVICE}") from None
    except OSError as error:
        raise DamagedLease(f"{path} cannot be read: {error.strerror}") from None


def save_node(directory: Path, node: Node) -> None:
    """Write the identity of this machine to disk, atomically."""
    part = directory / f"{NODE_FILE}.part"
    descriptor = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(node))
        file.flush()
        os.fsync(file.fileno())
    part.replace(directory / NODE_FILE)
    sync_to_disk(directory)


def to_ranges(blocks: Iterable[int]) -> list[tuple[int, int]]:
    """Return at most `MAX_RANGES` ranges (first, last) of the blocks, in ascending order; smallest gaps are closed."""
    ranges: list[tuple[int, int]] = []
    for block in sorted(set(blocks)):
        if ranges and block == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], block)
        else:
            ranges.append((block, block))
    excess = len(ranges) - MAX_RANGES
    if excess > 0:
        gaps = sorted(range(1, len(ranges)), key=lambda number: ranges[number][0] - ranges[number - 1][1])
        closed, merged = set(gaps[:excess]), ranges[:1]
        for number in range(1, len(ranges)):
            if number in closed:
                merged[-1] = (merged[-1][0], ranges[number][1])
            else:
                merged.append(ranges[number])
        ranges = merged
    return ranges


def to_blocks(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Return all blocks in ranges (first, last)."""
    return {block for first, last in ranges for block in range(first, last + 1)}


def make_first(node: Node, seconds: int) -> LeaseRecord:
    """Return the first lease of a store: it names this machine, but no process has taken it yet."""
    return LeaseRecord(FORMAT, max(1, node.epoch), node.node, get_host(), "", 0, seconds, False, 0, [], 0)


def claim(record: LeaseRecord, node: Node, seconds: int) -> LeaseRecord:
    """Return a lease that names a machine in its epoch, in place of `record`, whose holder may still send.

    The service of the machine takes it once it is released, or was not renewed for its duration: `seconds`, or that of
    `record` if it is longer.
    """
    return renew(
        record, epoch=max(1, node.epoch), node=node.node, host=get_host(), holder="",
        seconds=max(record.seconds, seconds), is_released=False,
    )  # fmt: skip


def renew(record: LeaseRecord, **changes: object) -> LeaseRecord:
    """Return a record with some fields changed and its renewal number increased."""
    return structs.replace(record, renewal=record.renewal + 1, **changes)


def encode_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Return ranges as JSON, for an SQL statement."""
    return msgspec.json.encode([*ranges]).decode()
