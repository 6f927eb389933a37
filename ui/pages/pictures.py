"""Pictures: upload, library, uses, deletion, and the drawer in the editor."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import media
from appliance.content.pictures import Picture, UnusablePicture, shrink
from appliance.core import errors, uploads
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.storage.models import Media
from appliance.storage.transactions import commit, fetch
from ui import formats, view
from ui.forms import Form, parse_int
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_pictures", url_prefix="/templates")


# A file that is too large is read up to this size, because a browser that is cut off while sending shows no error page.
_MAX_DRAIN_BYTES = 20 * media.MAX_UPLOAD_BYTES


async def receive_picture(request: Request, account_id: int) -> tuple[str, Picture]:
    """Receive an uploaded picture, and return (file name, re-encoded picture). Raises Invalid with an error at `file`.

    The form field `full_size` keeps the picture's width. The route must be declared with `stream=True`.
    """
    room = await asyncio.to_thread(TemporaryDirectory, prefix=media.UPLOAD_DIR_PREFIX)
    try:
        target = Path(room.name) / "file"
        form = await _receive_form(request, target)
        if not form.size:
            raise errors.Invalid({"file": [gettext("Select an image file.")]})
        picture = await media.decode(account_id, _prepare_picture, target, bool(form.texts.get("full_size")))
    finally:
        await asyncio.to_thread(room.cleanup)
    return form.filename or "", picture


def _prepare_picture(target: Path, full_size: bool) -> Picture:
    try:
        return media.prepare_upload(target, full_size)
    except errors.Invalid as error:
        text = gettext("This file cannot be used: it %(error)s.", error=error.fields["file"][0])
        raise errors.Invalid({"file": [text]}) from None


async def _receive_form(request: Request, target: Path) -> uploads.Form:
    stream: Any = request.stream
    try:
        return await uploads.receive(request.headers, stream, target, media.MAX_UPLOAD_BYTES)
    except uploads.NotAForm:
        return uploads.Form({}, None, 0)
    except uploads.MalformedForm:
        raise errors.Invalid({"file": [gettext("The upload was interrupted. Try again.")]}) from None
    except uploads.TooLarge:
        remaining_bytes = _MAX_DRAIN_BYTES
        while remaining_bytes > 0 and (piece := await stream.read()):
            remaining_bytes -= len(piece)
        limit = media.MAX_UPLOAD_BYTES // 1_048_576
        text = gettext("This file is larger than %(limit)s MB. Upload a smaller image.", limit=formats.number(limit))
        raise errors.Invalid({"file": [text]}) from None


# The sizes of thumbnails in pixels: in lists, and on the page of a picture.
_THUMBNAIL_SIDES = (480, 1200)
# The label of each kind of object that uses a picture, the name of one without a name, and the URL of its page; empty
# if there is no link.
_USAGE_LABELS = {
    "template_id": (gettext_noop("Template"), gettext_noop("Untitled template"), "/templates/{}/edit"),
    "campaign_id": (gettext_noop("Campaign"), gettext_noop("Untitled campaign"), "/campaigns/{}"),
    "flow_id": (gettext_noop("Flow"), gettext_noop("Untitled flow"), ""),
    "brand_id": (gettext_noop("Brand"), gettext_noop("Untitled brand"), "/brand"),
}  # fmt: skip


@pages.get("/pictures", strict_slashes=False)
@signed_in("templates:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the uploaded pictures, newest first, and an upload form."""
    return await _render_index(request, visit, Form())


@pages.post("/pictures", strict_slashes=False, stream=True)
@signed_in("templates:write")
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Store an uploaded picture, and redirect to its page."""
    try:
        filename, picture = await receive_picture(request, visit.account_id)
        created = await commit(media.add, visit.account_id, filename, picture)
    except errors.Invalid as error:
        form = Form()
        form.add_error("file", formats.sentence(error.fields["file"][0]))
        return await _render_index(request, visit, form, 422)
    view.flash(request, gettext("Image uploaded."))
    return view.redirect(request, f"/templates/pictures/{created.id}")


@pages.get("/pictures/<picture_id:int>")
@signed_in("templates:read")
async def show(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    """Show a picture, its URL, and where it is used."""
    return await _render_picture(request, visit, picture_id)


@pages.get("/pictures/<picture_id:int>/<side:int>")
@signed_in("templates:read")
async def show_thumbnail(request: Request, visit: Visit, picture_id: int, side: int) -> HTTPResponse:
    """Return a small version of a picture, which browsers may cache for a year, as a picture never changes.

    Its width and height are at most `side` pixels. Raises NotFound for a `side` other than `_THUMBNAIL_SIDES`.
    """
    if side not in _THUMBNAIL_SIDES:
        raise errors.NotFound

    def read() -> bytes:
        row = media.find_served(media.get(visit.account_id, picture_id).signed_id)
        if row is None:
            raise errors.NotFound
        return row.content

    content = await fetch(read)
    try:
        thumbnail = await media.decode(visit.account_id, shrink, content, side)
    except UnusablePicture:
        raise errors.NotFound from None
    return HTTPResponse(thumbnail, 200, {"cache-control": "private, max-age=31536000, immutable"}, "image/webp")


@pages.post("/pictures/<picture_id:int>/delete")
@signed_in("templates:write")
async def delete(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    """Delete a picture that is not used; otherwise show where it is used."""
    try:
        await fetch(media.require_unused, visit.account_id, picture_id)
        deleted = await commit(media.delete, visit.account_id, picture_id)
    except errors.Invalid:
        return await _render_picture(request, visit, picture_id, 422)
    view.flash(request, gettext("“%(name)s” deleted.", name=deleted.filename))
    return view.redirect(request, "/templates/pictures")


async def _render_index(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    search = (request.args.get("search") or "").strip()[:255]
    page = await fetch(media.fetch_page, visit.account_id, parse_int(request.args.get("page")), search=search)
    return view.render(
        request, "pictures/index.html", status, page=page, search=search, form=form,
        max_megabytes=media.MAX_UPLOAD_BYTES // 1_048_576, may_write=visit.can("templates:write"),
    )  # fmt: skip


async def _render_picture(request: Request, visit: Visit, picture_id: int, status: int = 200) -> HTTPResponse:
    def read() -> tuple[Media, list[tuple[str, str, str]]]:
        row = media.get(visit.account_id, picture_id)
        return row, [describe_usage(use) for use in media.find_uses(visit.account_id, picture_id)]

    row, places = await fetch(read)
    return view.render(
        request, "pictures/show.html", status, row=row, places=places, refused=status == 422, served=media.URL_PATH,
        url=media.public_url(row.signed_id), may_write=visit.can("templates:write"),
    )  # fmt: skip


def describe_usage(used: dict[str, Any]) -> tuple[str, str, str]:
    """Return the label, the name and the URL of one item of `media.find_uses`."""
    kind, value = next(iter(used.items()))
    if kind == "messages":
        text = ngettext("%(num)s transactional message", "%(num)s transactional messages", value)
        return gettext("Messages"), text, ""
    noun, unnamed, page = _USAGE_LABELS[kind]
    return gettext(noun), used["name"] or gettext(unnamed), page.format(value)


# The picture drawer of the editor.

_DRAWER_PAGE_SIZE = 12
_MAX_PLACES = 3


@pages.get("/media", strict_slashes=False)
@signed_in("templates:read")
async def show_drawer(request: Request, visit: Visit) -> HTTPResponse:
    """Show the uploaded pictures as thumbnails in the editor's drawer."""
    if not view.is_partial(request):
        return view.redirect(request, "/templates/pictures")
    search = (request.args.get("search") or "").strip()[:255]
    page = await fetch(
        media.fetch_page, visit.account_id, parse_int(request.args.get("page")), _DRAWER_PAGE_SIZE, search
    )
    return _render_drawer(request, page=page, search=search)


@pages.get("/media/<picture_id:int>")
@signed_in("templates:read")
async def show_in_drawer(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    """Show one picture in the editor's drawer, with its size and uses."""
    if not view.is_partial(request):
        await fetch(media.get, visit.account_id, picture_id)
        return view.redirect(request, f"/templates/pictures/{picture_id}")
    return await _render_chosen(request, visit, picture_id)


@pages.post("/media", strict_slashes=False, stream=True)
@signed_in("templates:write")
async def upload_to_drawer(request: Request, visit: Visit) -> HTTPResponse:
    """Store a picture that was uploaded in the editor's drawer.

    The response shows the picture as selected, or the error of the file.
    """
    try:
        filename, picture = await receive_picture(request, visit.account_id)
        created = await commit(media.add, visit.account_id, filename, picture)
    except errors.Invalid as error:
        return _render_drawer(request, 422, error=formats.sentence(error.fields["file"][0]))
    return await _render_chosen(request, visit, created.id)


async def _render_chosen(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    def read() -> tuple[Media, list[str]]:
        row = media.get(visit.account_id, picture_id)
        places = [describe_usage(use)[1] for use in media.find_uses(visit.account_id, picture_id)]
        return row, places if len(places) <= _MAX_PLACES else [
            *places[:_MAX_PLACES],
            ngettext("%(num)s more", "%(num)s more", len(places) - _MAX_PLACES),
        ]

    row, places = await fetch(read)
    return _render_drawer(request, row=row, places=places, url=media.public_url(row.signed_id))


def _render_drawer(request: Request, status: int = 200, **context: Any) -> HTTPResponse:
    empty: dict[str, Any] = {"page": None, "search": "", "row": None, "error": "", "places": [], "url": ""}
    return view.render(request, "media/drawer.html", status, **{**empty, **context})
