"""A picture that a form brings, read from the request as it comes and made anew."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sanic import Request

from appliance import errors, media, multipart
from appliance.pictures.kinds import Picture

# Read on past a file that is too large: a browser that is cut off while it sends shows no words of ours
_PAST_READING = 20 * media.MAX_BYTES


async def picture(request: Request, account_id: int) -> tuple[str, Picture]:
    """Return the file's name and the picture made of it; raises Invalid in words about the file, under `file`.

    A form that says `full_size` keeps it as wide as it is. The route has to be declared with `stream=True`.
    """
    room = await asyncio.to_thread(TemporaryDirectory, prefix="campanero-")
    try:
        target = Path(room.name) / "file"
        form = await _form(request, target)
        if not form.size:
            raise errors.Invalid({"file": ["choose a file with a picture in it"]})
        made = await media.decode(account_id, _made, target, bool(form.texts.get("full_size")))
    finally:
        await asyncio.to_thread(room.cleanup)
    return form.filename or "", made


def _made(target: Path, full_size: bool) -> Picture:
    try:
        return media.prepared(target, full_size)
    except errors.Invalid as refused:
        raise errors.Invalid({"file": [f"this file {refused.fields['file'][0]}"]}) from None


async def _form(request: Request, target: Path) -> multipart.Form:
    stream: Any = request.stream
    try:
        return await multipart.receive(request.headers, stream, target, media.MAX_BYTES)
    except multipart.OtherType:
        return multipart.Form({}, None, 0)
    except multipart.Malformed:
        raise errors.Invalid({"file": ["the upload broke off: try again"]}) from None
    except multipart.TooLarge:
        left = _PAST_READING
        while left > 0 and (piece := await stream.read()):
            left -= len(piece)
        most = media.MAX_BYTES // 1_048_576
        raise errors.Invalid({"file": [f"this file is larger than {most} MB: make the picture smaller"]}) from None
