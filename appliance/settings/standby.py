"""Declare the settings of a second machine: Litestream (`[litestream]`), and the lease that permits sending."""

from typing import Annotated

from msgspec import Meta, Struct


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
