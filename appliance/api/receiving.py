"""Receives a file that came as multipart/form-data, to the disk and never into memory."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from appliance import multipart
from appliance.api.declare import Call
from appliance.api.reply import Fault
from appliance.errors import Invalid

# What a form may hold beside its file
_BESIDE = 262_144


async def file(request: Call, target: Path, most: int, what: str) -> multipart.Form:
    """Write the part `file` to `target` and answer the form; a Fault for another type or more than `most` bytes."""
    headers = request.request.headers
    mark = multipart.boundary(headers.get("content-type") or "")
    length = headers.get("content-length") or "0"
    too_large = Fault(413, "payload_too_large", f"{what} may have {most} bytes")
    if length.isdecimal() and int(length) > most + _BESIDE:
        raise too_large
    if mark is None or headers.get("content-encoding", "identity").lower() != "identity":
        raise Fault(415, "unsupported_media_type", "send the file as multipart/form-data without a Content-Encoding")
    try:
        form = await multipart.receive(_body(request), mark, target, most + _BESIDE, _write)
    except multipart.TooLarge:
        raise too_large from None
    except multipart.Malformed as fault:
        raise Fault(400, "invalid_json", f"the form cannot be read: {fault}") from None
    if form.filename is None:
        raise Invalid({"file": ["can't be blank"]})
    if form.size > most:
        raise too_large
    return form


async def _body(request: Call) -> AsyncIterator[bytes]:
    stream: Any = request.request.stream
    while piece := await stream.read():
        yield piece


async def _write(file: IO[bytes], block: bytes) -> None:
    await asyncio.get_running_loop().run_in_executor(None, partial(file.write, block))
