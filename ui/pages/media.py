"""The drawer of pictures beside an editor: the library, an upload, and the one that is chosen."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import media
from appliance.core import errors
from appliance.storage.models import Media
from appliance.storage.work import call, commit
from ui import talk, view, words
from ui.forms import number
from ui.guard import signed_in
from ui.pages import pictures
from ui.session import Pages, Visit

pages = Pages("ui_media", url_prefix="/templates/media")
_SHOWN = 12
_MAX_PLACES = 3


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The pictures of the account as small ones to choose from."""
    if not view.is_part(request):
        return view.go(request, "/templates/pictures")
    search = (request.args.get("search") or "").strip()[:255]
    found = await call(media.page, visit.account_id, number(request.args.get("page")), _SHOWN, search)
    return _answer(request, found=found, search=search)


@pages.get("/<picture_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    """One picture, with its size and what shows it already."""
    if not view.is_part(request):
        await call(media.get, visit.account_id, picture_id)
        return view.go(request, f"/templates/pictures/{picture_id}")
    return await _one(request, visit, picture_id)


@pages.post("/", name="create", strict_slashes=False, stream=True)
@signed_in
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Keep a picture and answer it as the chosen one; what is wrong with the file is said in its place."""
    try:
        filename, picture = await talk.picture(request, visit.account_id)
        made = await commit(media.add, visit.account_id, filename, picture)
    except errors.Invalid as refused:
        return _answer(request, 422, error=words.sentence(refused.fields["file"][0]))
    return await _one(request, visit, made.id)


async def _one(request: Request, visit: Visit, picture_id: int) -> HTTPResponse:
    def read() -> tuple[Media, list[str]]:
        row = media.get(visit.account_id, picture_id)
        places = [pictures.place(one)[1] for one in media.used_in(visit.account_id, picture_id)]
        return row, places if len(places) <= _MAX_PLACES else [
            *places[:_MAX_PLACES],
            f"{len(places) - _MAX_PLACES} more",
        ]

    row, places = await call(read)
    return _answer(request, row=row, places=places, url=media.url(row.signed_id))


def _answer(request: Request, status: int = 200, **context: Any) -> HTTPResponse:
    empty: dict[str, Any] = {"found": None, "search": "", "row": None, "error": "", "places": [], "url": ""}
    return view.page(request, "media/drawer.html", status, **{**empty, **context})
