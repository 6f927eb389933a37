"""The manifest of a copy: the description of its contents, signed and encrypted (docs/decisions.md#31).

A copy exists if its manifest exists, which is stored last and deleted first. The manifest names each object of the copy
with its checksum, so its signature covers the whole copy.
"""

import calendar
import hashlib
import re
import time
import zlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from appliance.core import clock, untrusted_json
from appliance.core.untrusted_json import InvalidJson
from appliance.ops.copies import keys
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.stores import base
from appliance.ops.stores.base import Store
from appliance.storage.journal import JournalPosition

FORMAT = 1
COPIES, BLOBS, RECOVERY = "copies/", "blobs/", "recovery/"
_ID = re.compile("[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}")
_MANIFEST_KEY = re.compile(rf"{COPIES}({_ID.pattern})/manifest")
_HEADER = b"campanero copy 1\n"
_SIGNED_PREFIX = b"campanero copy manifest 1\n"
_MAX_MANIFEST_BYTES = 256 << 20
_MAX_TIME_MS = 253_402_300_799_999  # the end of 9999, the last year that Python's datetime supports

Size = Annotated[int, Meta(ge=0, le=1 << 50)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
CopyId = Annotated[str, Meta(pattern=rf"^{_ID.pattern}\Z")]
Time = Annotated[int, Meta(ge=0, le=_MAX_TIME_MS)]


class UnusableManifest(Exception):
    """A manifest is damaged, forged, or encrypted to other readers; the message is the reason."""


class UnknownSigner(UnusableManifest):
    """A manifest is signed by another installation, or by an attacker. `signer` is the public key of the signature."""

    def __init__(self, words: str, signer: bytes) -> None:
        super().__init__(words)
        self.signer = signer


class ObjectRef(msgspec.Struct, frozen=True):
    """An encrypted object: its key in the store, its size, and the SHA-256 of its bytes as they are stored."""

    key: Annotated[str, Meta(max_length=400)]
    size: Size
    sha256: Sha256


class FileRef(msgspec.Struct, frozen=True):
    """A file beside the database: its path in the data directory, its size and SHA-256, and its object."""

    name: Annotated[str, Meta(max_length=2000)]
    size: Size
    sha256: Sha256
    blob: ObjectRef


class CopyManifest(msgspec.Struct, frozen=True):
    """The description of a copy. A differential copy contains only the pages that differ from the full copy `base`."""

    format: int
    id: CopyId
    kind: Literal["full", "differential"]
    base: CopyId | None
    base_sha256: Sha256 | None  # of the manifest of the base, as it is stored
    sequence: Annotated[int, Meta(ge=1, le=1 << 50)]  # one more than that of the copy before
    previous: CopyId | None  # the copy before
    every_seconds: Annotated[float, Meta(ge=0, le=1e10)]  # the interval of copies, 0 if they are made by hand
    version: Annotated[str, Meta(max_length=100)]
    schema: Annotated[int, Meta(ge=1, le=1_000_000)]
    taken_at: Time
    key: Annotated[str, Meta(max_length=100)]  # the fingerprint of the installation's key
    journal: JournalPosition | None
    page_size: Annotated[int, Meta(ge=512, le=65_536)]
    page_count: Annotated[int, Meta(ge=1, le=1 << 32)]
    database_sha256: Sha256
    segments: list[ObjectRef]
    files: list[FileRef]
    counts: dict[str, int]  # the number of rows by table

    @property
    def size(self) -> int:
        """Return the size in bytes of the copy's segments, without those of its files and its base."""
        return sum(segment.size for segment in self.segments)


def create_id(taken_at: int, random_hex: str) -> str:
    """Return the id of a copy: its time in UTC, and twelve random hex digits."""
    return f"{str(clock.iso(taken_at))[:19].replace('-', '').replace(':', '')}Z-{random_hex}"


def manifest_key(copy_id: str) -> str:
    """Return the key of the object with the manifest of a copy."""
    return f"{COPIES}{copy_id}/manifest"


def parse_manifest_key(key: str) -> str | None:
    """Return the id of the copy whose manifest has this key, or None for any other key.

    An id must begin with a valid time, so one of 30 February is not an id.
    """
    match = _MANIFEST_KEY.fullmatch(key)
    return match[1] if match and time_of(match[1]) is not None else None


def time_of(copy_id: str) -> int | None:
    """Return the time in the id of a copy, in milliseconds, or None if the text is not an id."""
    try:
        return calendar.timegm(time.strptime(copy_id[:16], "%Y%m%dT%H%M%SZ")) * 1000
    except ValueError:
        return None


def copy_id_of(key: str) -> str | None:
    """Return the id of the copy to which an object belongs by its key, or None if it belongs to no single copy."""
    name = key.removeprefix(COPIES).partition("/")[0]
    return name if key.startswith(COPIES) and _ID.fullmatch(name) else None


def seal_manifest(manifest: CopyManifest, recipients: list[str]) -> bytes:
    """Return the manifest, signed with the key of this installation and encrypted to recipients."""
    import pyrage

    content = zlib.compress(msgspec.json.encode(manifest))
    encrypted: bytes = pyrage.encrypt(content, keys.parse_recipients(recipients))
    return _HEADER + keys.own_signer() + keys.sign(_signed_text(manifest.id, encrypted)) + encrypted


def _signed_text(copy_id: str, encrypted: bytes) -> bytes:
    return _SIGNED_PREFIX + copy_id.encode() + b"\n" + hashlib.sha256(encrypted).digest()


def open_manifest(content: bytes, copy_id: str, reader: ReadingKeys) -> CopyManifest:
    """Return the manifest of the copy `copy_id` from the bytes that `seal_manifest` returned.

    The signature is verified before the content is used. Raises UnknownSigner, or UnusableManifest.
    """
    import pyrage

    start = len(_HEADER) + keys.SIGNER_BYTES
    signer, signature = content[len(_HEADER) : start], content[start : start + keys.SIGNATURE_BYTES]
    encrypted = content[start + keys.SIGNATURE_BYTES :]
    if not content.startswith(_HEADER) or not encrypted:
        raise UnusableManifest(f"the manifest of {copy_id} is damaged, or of a newer version")
    if signer not in reader.signers:
        raise UnknownSigner(f"{copy_id} was signed by {keys.format_signer(signer)}, which is not trusted", signer)
    if not keys.has_valid_signature(signer, _signed_text(copy_id, encrypted), signature):
        raise UnusableManifest(f"{copy_id} was changed after it was made: its signature is wrong")
    try:
        plain = pyrage.decrypt(encrypted, keys.parse_identities(reader.identities))
    except pyrage.DecryptError:
        raise UnusableManifest(f"{copy_id} is encrypted to other keys than this one") from None
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(plain, _MAX_MANIFEST_BYTES)
        manifest = untrusted_json.decode(text, CopyManifest, _MAX_MANIFEST_BYTES)
    except (zlib.error, InvalidJson) as error:
        raise UnusableManifest(f"the manifest of {copy_id} cannot be read: {error}") from None
    if manifest.format > FORMAT:
        raise UnusableManifest(
            f"{copy_id} was made by version {manifest.version[:40]}: use that version or a newer one"
        )
    if manifest.id != copy_id or (manifest.base is None) != (manifest.kind == "full"):
        raise UnusableManifest(f"the manifest of {copy_id} is that of another copy")
    return manifest


def read_object(store: Store, key: str, max_bytes: int = _MAX_MANIFEST_BYTES) -> bytes:
    """Return the content of an object. Raises Missing, or Damaged if it is larger than `max_bytes`."""
    chunks, size = [], 0
    with store.open(key) as stream:
        while chunk := stream.read(base.CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise base.Damaged(f"{key} is larger than {max_bytes:,} bytes")
            chunks.append(chunk)
    return b"".join(chunks)
