"""Declare the settings that involve other machines: copies (`[copies]`), Litestream, and the lease for sending.

`appliance/ops/copies` reads them. The store is chosen by the scheme of its URL.
"""

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

_SECRET = {"secret": True}
_DURATION = r"^[0-9]+(s|m|h|d)$"
# A public key of age: Bech32 with the prefix `age` (C2SP, age, "The X25519 recipient type").
_RECIPIENT = re.compile(r"age1[02-9ac-hj-np-z]{58}")


class S3(Struct, frozen=True):
    """The credentials of an S3-compatible store, if `copies.store` is s3://BUCKET/PREFIX."""

    endpoint: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+/?)?\Z",
            description='URL of the service, such as https://s3.eu-central-003.backblazeb2.com; "" = Amazon S3',
        ),
    ] = ""
    region: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9-]{1,64}\Z", description="region of the bucket; auto where there are none"),
    ] = "us-east-1"
    access_key_id: Annotated[str, Meta(description="access key ID, which may read, write and delete in the bucket")] = (
        ""
    )
    secret_access_key: Annotated[str, Meta(description="secret access key", extra=_SECRET)] = ""


class Sftp(Struct, frozen=True):
    """The login of an SFTP server, if `copies.store` is sftp://USER@HOST/PATH."""

    key_file: Annotated[str, Meta(description="file with a private key in OpenSSH format, without a passphrase")] = ""
    private_key: Annotated[str, Meta(description="or the private key itself", extra=_SECRET)] = ""
    password: Annotated[str, Meta(description="or a password", extra=_SECRET)] = ""
    host_key: Annotated[
        str, Meta(description="public key of the server, as in a line of ssh-keyscan: ssh-ed25519 AAAA…")
    ] = ""


class Copies(Struct, frozen=True):
    """Encrypted copies in another place."""

    store: Annotated[
        str,
        Meta(
            pattern=r"^(s3://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._/-]*)?|sftp://[^\s/@]+@[^\s/@]+(/\S*)?|file:///\S.*)?\Z",
            description='s3://BUCKET/PREFIX, sftp://USER@HOST/PATH or file:///PATH of another disk; "" = no copies',
        ),
    ] = ""
    recipients: Annotated[
        list[str],
        Meta(description="age public keys (age1…) that copies are encrypted to; their private keys restore them"),
    ] = field(default_factory=list)
    every: Annotated[str, Meta(pattern=_DURATION, description="interval; 0s = only on request")] = "24h"
    full_every: Annotated[
        str,
        Meta(
            pattern=_DURATION,
            description="a copy after this time is a full one; others have what changed since",
        ),
    ] = "30d"
    keep_days: Annotated[int, Meta(ge=1, le=3660, description="days whose last copy is kept")] = 7
    keep_weeks: Annotated[int, Meta(ge=0, le=520, description="weeks whose last copy is kept")] = 4
    keep_months: Annotated[int, Meta(ge=0, le=240, description="months whose last copy is kept")] = 12
    megabits_per_second: Annotated[
        float, Meta(ge=0, le=100_000, description="limit of uploads and downloads; 0 = unlimited")
    ] = 0
    prove_every: Annotated[
        str, Meta(pattern=_DURATION, description="interval of the test restore of the newest copy; 0s = never")
    ] = "7d"
    s3: S3 = S3()
    sftp: Sftp = Sftp()


def find_faults(copies: Copies) -> list[str]:
    """Return `NAME: reason` for each setting of copies that does not fit the others."""
    faults = [
        f"copies.recipients: {key[:80]!r} is not an age public key"
        for key in copies.recipients
        if not _RECIPIENT.fullmatch(key)
    ]
    scheme = urlsplit(copies.store).scheme
    if scheme == "s3":
        faults += [
            f"copies.s3.{name}: needed for S3 storage"
            for name in ("access_key_id", "secret_access_key")
            if not getattr(copies.s3, name)
        ]
    elif scheme == "sftp":
        if not (copies.sftp.key_file or copies.sftp.private_key or copies.sftp.password):
            faults.append("copies.sftp.private_key: needed for SFTP storage, or a key_file or a password")
        if not copies.sftp.host_key:
            faults.append("copies.sftp.host_key: needed for SFTP storage")
    return faults


class Litestream(Struct, frozen=True):
    """Litestream, if it copies the database continuously to another place."""

    socket: Annotated[
        str,
        Meta(
            pattern=r"^(/[^\0]{1,100})?\Z",
            description='path of its control socket; Litestream then shortens the write-ahead log; "" = not used',
        ),
    ] = ""


class Lease(Struct, frozen=True):
    """The lease in a store that lets only one machine send."""

    store: Annotated[
        str,
        Meta(
            pattern=r"^(s3://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._/-]*)?|file:///\S.*)?\Z",
            description='s3://BUCKET/PREFIX, with the credentials of [copies.s3], or file:///PATH; "" = no lease',
        ),
    ] = ""
    seconds: Annotated[
        int, Meta(ge=6, le=300, description="sending stops when the lease was not renewed for this time")
    ] = 20
