"""Who sees a section of an email: rules in rows, as everywhere."""

import json
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.designs import document
from appliance.content.templates import editing, homes, store
from appliance.content.templates.editing import Change
from appliance.core import errors
from appliance.core.errors import NotFound
from appliance.storage.models import Template
from appliance.storage.work import call, commit, render_for
from ui import filter_look, view
from ui.filters import Rows
from ui.forms import Form
from ui.guard import signed_in
from ui.pages.editor import page_of
from ui.session import Pages, Visit

pages = Pages("ui_editor_audience", url_prefix="/templates")
PATH = "props.show_if"


@pages.get("/<template_id:int>/sections/<key:str>/audience", name="show")
@signed_in
async def show(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """The rules of a section, with how many people match them."""
    row, entry = await call(_section, visit, template_id, key)
    have = entry.section.props.get("show_if")
    rows = Rows.of(have) if isinstance(have, list) and have else Rows.blank()
    return await _page(request, visit, row, entry, rows)


@pages.post("/<template_id:int>/sections/<key:str>/audience", name="keep")
@signed_in
async def keep(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Keep the rules; without any everybody sees the section."""
    form = Form.of(request)
    row, entry = await call(_section, visit, template_id, key)
    rows = Rows.posted(form.lists)
    if rows.act(form.lists):
        return await _page(request, visit, row, entry, rows)
    try:
        asked = [Change(PATH, json.dumps(rows.filters()))]
        edit = await call(editing.changed, row, key, asked)
        await render_for(visit.account_id, editing.warm, row, edit)
        await commit(editing.change, visit.account_id, template_id, key, asked, visit.user.id)
    except errors.Invalid as refused:
        rows.take(refused, PATH)
        return await _page(request, visit, row, entry, rows, 422)
    view.say(request, f"{entry.label}: who sees it is kept.")
    return view.go(request, f"{page_of(await call(homes.of, row))}?s={key}")


def _section(visit: Visit, template_id: int, key: str) -> tuple[Template, document.Entry]:
    row = store.get(visit.account_id, template_id)
    entry = document.find_section(document.entries(row.design), key)
    if entry is None or entry.section.kind is None:
        raise NotFound
    return row, entry


async def _page(
    request: Request, visit: Visit, row: Template, entry: document.Entry, rows: Rows, status: int = 200
) -> HTTPResponse:
    home = await call(homes.of, row)
    values: dict[str, Any] = {
        "row": row, "entry": entry, "home": home, "page": page_of(home),
        "locked": home.is_locked or visit.user.role == "viewer",
        "shown": await filter_look.shown(visit.account_id, rows),
    }  # fmt: skip
    return view.page(request, "editor/audience.html", status, **values)
