"""What was said with a person by SMS, as the pages show it."""

import asyncio
import secrets
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sanic import Request

from appliance.content import media
from appliance.content.pictures.kinds import Picture
from appliance.core import errors, multipart
from appliance.inbound.conversations import reading, writing
from appliance.inbound.conversations.reading import Line
from appliance.sending.messages.texts import Shown
from appliance.storage.models import Channel, Contact
from ui.forms import Form

SHOWN = 30


class Talk(NamedTuple):
    """A conversation, the oldest line first; `older` is the page of what was said before, None if that is all.

    `takes` is what the words in the form take as an SMS.
    """

    contact: Contact
    number: Channel | None
    lines: list[Line]
    total: int
    older: int | None
    form: Form
    takes: Shown


def of(account_id: int, contact: Contact, page: int = 1, form: Form | None = None) -> Talk | None:
    """Return the conversation with a person, or None if there is neither a number nor anything that was said."""
    found = reading.conversation(account_id, contact.id, page, SHOWN)
    number = writing.number_of(contact)
    if number is None and not found.total:
        return None
    # A form is sent once, however often its button is pressed
    form = form or Form({"once": secrets.token_hex(8)})
    older = page + 1 if page < found.pages else None
    takes = writing.weigh(account_id, form["text"])
    return Talk(contact, number, list(reversed(found.rows)), found.total, older, form, takes)


def is_ours(line: Line) -> bool:
    """Return whether a line is a message of ours."""
    return line.message is not None


def words(line: Line) -> str:
    """Return what a line says."""
    return line.body or "These words are not kept any more."


def unread(line: Line) -> Any:
    """Return what came in if it may be a refusal that nobody has looked at yet, else None."""
    heard = line.incoming
    return heard if heard is not None and heard.kind == "refusal" and heard.seen_at is None else None


# A picture that a form brings, read from the request as it comes and made anew.

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
