"""What a save changed in the canvas, sent along with its answer, so that the canvas need not ask for it."""

from typing import Any

import msgspec
from markupsafe import escape
from sanic import Request

from appliance.core import errors
from appliance.sending.messages import canvas
from appliance.storage.work import call
from ui.forms import number
from ui.session import Visit


def told(drawn: canvas.Drawn, have: set[str]) -> dict[str, Any]:
    """Return every row by its digest, with its HTML where the canvas does not `have` it."""
    rows = [_part(one, have) for one in drawn.rows] if drawn.rows is not None else None
    return {"revision": drawn.revision, "rows": rows, "frame": _part(drawn.frame, have)}


def _part(row: canvas.Row, have: set[str]) -> tuple[str, str | None]:
    return row.digest, None if row.digest in have else row.html


async def along(request: Request, visit: Visit, template_id: int) -> str:
    """Return a piece with what a canvas shows now, if the request says what it has; an email that cannot be is left
    for the canvas to ask for."""
    whose, _, have = str(request.headers.get("x-canvas") or "").partition(";")
    if not have:
        return ""
    try:
        drawn = await call(canvas.draw, visit.account_id, template_id, number(whose, 0, 10**9) or None)
    except (errors.Invalid, errors.NotFound):
        return ""
    said = msgspec.json.encode({**told(drawn, set(have.split(","))), "as": whose}).decode()
    return f'<data id="drawn" value="{escape(said)}"></data>'
