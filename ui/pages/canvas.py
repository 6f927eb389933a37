"""The canvas of the editor: an email in a sandboxed frame with the editor's scripts, updated row by row."""

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
from markupsafe import escape
from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import ContactQuery
from appliance.content.templates import store as templates
from appliance.core import errors
from appliance.sending.messages import canvas, merge_tags, preview
from appliance.settings import config
from appliance.storage.models import Contact
from appliance.storage.transactions import fetch, render, scan
from ui import formats, static_files, view
from ui.forms import parse_id
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_canvas", url_prefix="/templates")

# The response of a save contains the changed rows, so that the canvas need not request them.


def list_rows(draft: canvas.Canvas, present: set[str]) -> dict[str, Any]:
    """Return a rendered email as data for the canvas: a dict with `revision`, `rows` and `frame`.

    The frame and each row are a pair (digest, HTML). The HTML is None if the digest is in `present`, because the
    canvas shows it already. `rows` is None for an email that is not split into rows.
    """
    rows = [_serialize_row(row, present) for row in draft.rows] if draft.rows is not None else None
    return {"revision": draft.revision, "rows": rows, "frame": _serialize_row(draft.frame, present)}


def _serialize_row(row: canvas.CanvasRow, present: set[str]) -> tuple[str, str | None]:
    return row.digest, None if row.digest in present else row.html


async def render_update(request: Request, visit: Visit, template_id: int) -> str:
    """Return a `<data>` element with the changed rows of the canvas.

    The request's header `x-canvas` is the id of the contact shown, `;`, and the digests of the rows that the canvas
    shows, separated by commas. Without digests, or if the email cannot be rendered, the result is an empty string.
    """
    contact_id, _, present = str(request.headers.get("x-canvas") or "").partition(";")
    if not present:
        return ""
    try:
        draft = await render(canvas.render_canvas, visit.account_id, template_id, parse_id(contact_id) or None)
    except (errors.Invalid, errors.NotFound):
        return ""
    text = msgspec.json.encode({**list_rows(draft, set(present.split(","))), "as": contact_id}).decode()
    return f'<data id="drawn" value="{escape(text)}"></data>'


_MAX_PEOPLE = 7
_SCRIPTS = tuple(f"js/{name}.js" for name in ("canvas", "swap", "hand", "drag", "caret"))
_HOST_PATTERN = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}\Z")
_HEAD_END_TAG = re.compile(r"</head\s*>", re.IGNORECASE)


@pages.get("/<template_id:int>/canvas", name="show")
@signed_in()
async def show_canvas(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the email as the document of the editor's frame; `as` is the id of the contact whose values fill it in."""
    try:
        draft = await render(canvas.render_canvas, visit.account_id, template_id, _contact_id(request))
    except errors.Invalid as error:
        return view.render_email_error(_error_sentence(error))
    present = ",".join((draft.digest, *(row.digest for row in draft.rows or ())))
    head = view.template_environment().get_template("canvas/head.html").render(have=present)
    html = draft.html if "<" in draft.html else f"<p>{draft.html}</p>"
    if _HEAD_END_TAG.search(html):
        html = _HEAD_END_TAG.sub(lambda match: head + match[0], html, count=1)
    else:
        html = f"<!doctype html><html><head>{head}</head>{html}</html>"
    headers = {"content-security-policy": _build_policy(request), "referrer-policy": "no-referrer"}
    return HTTPResponse(html, 200, headers, "text/html; charset=utf-8")


@pages.get("/<template_id:int>/rows", name="rows")
@signed_in()
async def list_changed_rows(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Return the rows of the canvas as JSON, without the HTML of rows whose digest is in `have`."""
    present = set((request.args.get("have") or "").split(","))
    try:
        draft = await render(canvas.render_canvas, visit.account_id, template_id, _contact_id(request))
    except errors.Invalid as error:
        return _json_response({"error": _error_sentence(error)}, 422)
    return _json_response(list_rows(draft, present))


@pages.get("/<template_id:int>/size", name="size")
@signed_in()
async def show_size(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the size of the email's HTML beside Gmail's limit."""
    size_bytes = await render(preview.measure_html_bytes, visit.account_id, template_id)
    if not view.is_partial(request):
        return view.redirect(request, f"/templates/{template_id}/edit")
    near = size_bytes is not None and size_bytes > preview.GMAIL_WARN_BYTES
    over = size_bytes is not None and size_bytes > preview.GMAIL_CLIP_BYTES
    return view.render_fragment(request, "editor/size.html", size=size_bytes, is_near_limit=near, is_over_limit=over)


@pages.get("/<template_id:int>/people", name="people")
@signed_in()
async def choose_contact(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show contacts to preview the email with: search results, or the newest contacts and one lacking a first name."""
    search = (request.args.get("search") or "").strip()[:254]
    await fetch(templates.get, visit.account_id, template_id)
    if not view.is_partial(request):
        return view.redirect(request, f"/templates/{template_id}/edit")
    found_contacts, nameless = await scan(_find_contacts, visit.account_id, search)
    return view.render(request, "canvas/people.html", rows=found_contacts, nameless=nameless, search=search)


def _find_contacts(account_id: int, search: str) -> tuple[list[Contact], Contact | None]:
    if search:
        return list(contacts.find_by_words(account_id, search, 1, _MAX_PEOPLE).rows), None
    page = list(contacts.fetch_page(account_id, ContactQuery(limit=_MAX_PEOPLE)).rows)
    return page, merge_tags.find_contact_without_name(account_id)


def _contact_id(request: Request) -> int | None:
    return parse_id(request.args.get("as")) or None


def _error_sentence(error: errors.Invalid) -> str:
    return formats.sentence(next(iter(error.fields.values()))[0])


def _json_response(content: Any, status: int = 200) -> HTTPResponse:
    return HTTPResponse(msgspec.json.encode(content), status, content_type="application/json")


def _build_policy(request: Request) -> str:
    """Return the content security policy of an email frame, extended by the canvas's own scripts and style sheet.

    The scripts and the style sheet are named by URL, because the frame has no origin and so not every browser resolves
    'self'. Both the requested host and the host of the base URL are allowed, because a proxy may use another name than
    the browser did.
    """
    requested_host = request.host if _HOST_PATTERN.match(request.host) else "invalid."
    hosts = dict.fromkeys((requested_host, urlsplit(config.base_url(config.current())).netloc))

    def at(*names: str) -> str:
        places = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return " ".join(f"{place}{static_files.url(name)}" for name in names for place in places)

    policy = view.email_policy().partition(";")[2].replace("style-src ", f"style-src {at('css/canvas.css')} ")
    return f"sandbox allow-scripts;{policy}; script-src {at(*_SCRIPTS)}"
