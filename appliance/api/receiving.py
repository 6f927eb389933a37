"""Receives a file that came as multipart/form-data, to the disk and never into memory."""

from pathlib import Path
from typing import Any

from appliance.api.declare import Call
from appliance.api.reply import Fault
from appliance.core import multipart


async def file(request: Call, target: Path, most: int, what: str) -> multipart.Form:
    """Write the part `file` to `target` and answer the form; a Fault for another type or more than `most` bytes."""
    stream: Any = request.request.stream
    try:
        form = await multipart.receive(request.request.headers, stream, target, most)
    except multipart.TooLarge:
        raise Fault(413, "payload_too_large", f"{what} may have {most} bytes") from None
    except multipart.OtherType:
        words = "send the file as multipart/form-data without a Content-Encoding"
        raise Fault(415, "unsupported_media_type", words) from None
    except multipart.Malformed as fault:
        raise Fault(400, "invalid_json", f"the form cannot be read: {fault}") from None
    return form
