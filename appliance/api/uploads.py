"""Pictures for mails, over the API."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from appliance.api import receiving
from appliance.api.declare import Answer, Call, Routes
from appliance.content import media
from appliance.content.pictures.kinds import Picture
from appliance.core import fields
from appliance.core.errors import Faults, Invalid
from appliance.storage.models import Media
from appliance.storage.work import commit

ROUTES = Routes()


class UploadForm(Struct):
    """What may stand beside the file; `full_size` keeps a picture wider than twice the widest mail as wide as it is."""

    full_size: bool = False


class Upload(Struct):
    """A picture as it is served: its size and type are those of the picture that was made of the file."""

    signed_id: str
    url: str
    content_type: str
    bytes: int
    width: int | None
    height: int | None
    filename: str


def shaped(row: Media) -> Upload:
    """Shape a picture."""
    return Upload(
        str(row.signed_id), media.url(row.signed_id), str(row.content_type), int(row.bytes), row.width, row.height,
        str(row.filename),
    )  # fmt: skip


async def _received(request: Call) -> tuple[str, Picture]:
    """Receive a picture with the name of its file; raises Invalid with all that is wrong with the form."""
    room = await asyncio.to_thread(TemporaryDirectory, prefix=media.ROOM)
    faults, picture = Faults(), None
    try:
        target = Path(room.name) / "file"
        form = await receiving.file(request, target, media.MAX_BYTES, "an upload")
        asked = faults.of(fields.read, UploadForm, form.texts, "", True) or UploadForm()
        if form.filename is None:
            faults.add("file", "can't be blank")
        else:
            try:
                picture = await media.decode(request.account_id, media.prepared, target, asked.full_size)
            except Invalid as refused:
                faults.merge(refused.fields)
    finally:
        await asyncio.to_thread(room.cleanup)
    faults.check()
    assert picture is not None  # without faults there is one
    return form.filename or "", picture


async def _inside(request: Call) -> dict[str, list[str]]:
    try:
        await _received(request)
    except Invalid as refused:
        return refused.fields
    return {}


@ROUTES.add("POST", "/uploads", scope="templates:write", form=UploadForm, returns=Upload, status=201, inside=_inside)
async def create(request: Call) -> Answer:
    """Upload a picture (PNG, JPEG, GIF or WebP) for a logo or an email."""
    return Answer(shaped(await commit(media.add, request.account_id, *await _received(request))))
