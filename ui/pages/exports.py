"""Exports: what a list shows, as a file that is made while it is sent."""

import secrets
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.core import errors
from appliance.exports import going
from appliance.storage.work import call
from ui import exports, view
from ui.exports import FORMATS, KINDS, TYPES, Kind
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_exports", url_prefix="/exports")
# Asked so often before the file has begun, the page stops asking
_TRIES = 20


@pages.get("/<of:str>", name="show")
@signed_in
async def show(request: Request, visit: Visit, of: str) -> HTTPResponse:
    """What would be in the file, and in which form."""
    kind = _kind(of)
    asked = exports.filters(kind, request.args)

    def read() -> tuple[int, list[tuple[str, str]]]:
        found = kind.page(visit.account_id, *exports.read(kind, asked))
        return found.total, exports.chips(visit.account_id, kind, asked)

    total, chips = await call(read)
    return view.page(
        request, "exports/show.html", of=of, kind=kind, asked=asked, total=total, chips=chips, formats=FORMATS,
        ticket=secrets.token_hex(8), going=None, tries=0,
    )  # fmt: skip


@pages.get("/<of:str>/file", name="file")
@signed_in
async def file(request: Request, visit: Visit, of: str) -> HTTPResponse | None:
    """The file itself."""
    kind = _kind(of)
    form = FORMATS.get(request.args.get("format") or "csv")
    if form is None:
        raise errors.NotFound
    asked = exports.filters(kind, request.args)
    _, _, ending, marked = form
    ticket = (request.args.get("ticket") or "")[:32]
    read = exports.read(kind, asked)
    total = (await call(kind.page, visit.account_id, *read)).total
    lines: Any = (kind.csv if ending == "csv" else kind.jsonl)(visit.account_id, *read)
    mark, head = b"\xef\xbb\xbf" if marked else b"", 1 if ending == "csv" else 0
    await audit.exported(visit.by, visit.account_id, f"{of}.{ending}", asked, total)
    pieces = exports.counted(visit.account_id, ticket, total, lines, mark, head)
    seen = going.watched(visit.account_id, f"{of}.{ending}", total, pieces, lines=not head)
    return await exports.send_file(request, f"{of}.{ending}", TYPES[ending], seen)


@pages.get("/<of:str>/progress", name="progress")
@signed_in
async def progress(request: Request, visit: Visit, of: str) -> HTTPResponse:
    """How far the file is that was asked for with a ticket."""
    kind = _kind(of)
    ticket = (request.args.get("ticket") or "")[:32]
    found = exports.going(visit.account_id, ticket)
    tried = request.args.get("tries") or "0"
    tries = min(int(tried) + 1, _TRIES) if tried.isdecimal() and len(tried) < 4 else _TRIES
    return view.page(
        request, "exports/progress.html", of=of, kind=kind, ticket=ticket, going=found, tries=tries, most=_TRIES
    )


def _kind(of: str) -> Kind:
    if of not in KINDS:
        raise errors.NotFound
    return KINDS[of]
