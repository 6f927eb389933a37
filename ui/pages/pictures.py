"""Pictures: what emails and the brand show, uploaded here, told where it is used, deleted when nothing shows it."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import media
from appliance.content.pictures import process
from appliance.content.pictures.kinds import Unusable
from appliance.core import errors
from appliance.storage.models import Media
from appliance.storage.work import call, commit
from ui import rights, talk, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_pictures", url_prefix="/templates/pictures")
# How wide and high pages show them: many beside each other, and one alone
_SIDES = (480, 1200)
# What shows a picture: its noun, and where its page is if it has one
_PLACES = {
    "template_id": ("Template", "/templates/{}/edit"), "campaign_id": ("Campaign", "/campaigns/{}"),
    "flow_id": ("Flow", ""), "brand_id": ("Brand", "/brand"),
}  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The pictures of the account, newest first, and a form for another one."""
    return await _index(request, visit, Form())


@pages.post("/", name="create", strict_slashes=False, stream=True)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Keep a picture, and show it with its address."""
    try:
        filename, picture = await talk.picture(request, visit.account_id)
        made = await commit(media.add, visit.account_id, filename, picture)
    except errors.Invalid as refused:
        form = Form()
        form.wrong("file", words.sentence(refused.fields["file"][0]))
        return await _index(request, visit, form, 422)
    view.say(request, "Uploaded. Copy its address to where it is shown.")
    return view.go(request, f"/templates/pictures/{made.id}")


@pages.get("/<picture_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    """A picture, its address, and what shows it."""
    return await _show(request, visit, picture_id)


@pages.get("/<picture_id:int>/<side:int>", name="small")
@signed_in
async def small(request: Request, visit: Visit, picture_id: int, side: int) -> HTTPResponse:
    """A picture as a page of ours shows it, in few bytes; its address holds its name, so that browsers may keep it."""
    if side not in _SIDES:
        raise errors.NotFound

    def read() -> bytes:
        found = media.served(media.get(visit.account_id, picture_id).signed_id)
        if found is None:
            raise errors.NotFound
        return found.content

    content = await call(read)
    try:
        made = await media.decode(visit.account_id, process.shrink, content, side)
    except Unusable:
        raise errors.NotFound from None
    return HTTPResponse(made, 200, {"cache-control": "private, max-age=31536000, immutable"}, "image/webp")


@pages.post("/<picture_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    """Delete a picture that nothing shows; while something does, say what."""
    try:
        await call(media.must_be_unused, visit.account_id, picture_id)
        gone = await commit(media.delete, visit.account_id, picture_id)
    except errors.Invalid:
        return await _show(request, visit, picture_id, 422)
    view.say(request, f"{gone.filename} is deleted.")
    return view.go(request, "/templates/pictures")


async def _index(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    search = (request.args.get("search") or "").strip()[:255]
    found = await call(media.page, visit.account_id, number(request.args.get("page")), search=search)
    return view.page(
        request, "pictures/index.html", status, found=found, search=search, form=form,
        most=media.MAX_BYTES // 1_048_576, may_write=rights.may(visit.user.role, "POST", request.path),
    )  # fmt: skip


async def _show(request: Request, visit: Visit, picture_id: int, status: int = 200) -> HTTPResponse:
    def read() -> tuple[Media, list[tuple[str, str, str]]]:
        row = media.get(visit.account_id, picture_id)
        return row, [place(one) for one in media.used_in(visit.account_id, picture_id)]

    row, places = await call(read)
    return view.page(
        request, "pictures/show.html", status, row=row, places=places, refused=status == 422, served=media.PATH,
        url=media.url(row.signed_id), may_write=rights.may(visit.user.role, "POST", request.path),
    )  # fmt: skip


def place(used: dict[str, Any]) -> tuple[str, str, str]:
    """Return the noun, the name and the page of something that shows a picture."""
    kind, value = next(iter(used.items()))
    if kind == "messages":
        return "Messages", words.count(value, "single message", "single messages"), ""
    noun, page = _PLACES[kind]
    return noun, used["name"] or f"Untitled {noun.lower()}", page.format(value)
