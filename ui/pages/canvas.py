"""The canvas of the editor: an email in a sandboxed frame with the editor's scripts, updated row by row.

Each top-level section is a row with a hash, so that only changed rows are replaced. HTML comments (marks) surround
every section and column and contain JSON. For a section it is `[key, label, column, is allowed in columns, has a
picture]`, for a column its number, and for all rows together the hash of the HTML around them.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from markupsafe import escape
from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import ContactQuery
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import markup
from appliance.content.designs.document import Entry
from appliance.content.designs.render import SECTION_MARK, document_theme
from appliance.content.designs.theme import Theme
from appliance.content.templates import revisions, translations
from appliance.content.templates import store as templates
from appliance.core import errors
from appliance.core.errors import NotFound
from appliance.core.i18n import gettext
from appliance.sending.messages import languages, merge_tags, preview
from appliance.settings import config
from appliance.storage.models import Contact
from appliance.storage.transactions import fetch, render, scan
from ui import formats, static_files, view
from ui.forms import parse_id
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_canvas", url_prefix="/templates")

_MARKS = re.compile(f"<!--(/?){re.escape(SECTION_MARK)}([^<>]*?)-->")
_COLUMN = re.compile(r"\.columns\[(\d+)\]\.sections\Z")

_NOTE_STYLE = (
    "padding:18px;font:13px/1.5 system-ui,sans-serif;color:#6b6f76;text-align:center;border:1px dashed #b9bcc2"
)

# Sections of these kinds show nothing without a picture; `data-empty` marks where one can be dropped or chosen.
_PICTURE_KINDS = ("image", "gallery")

_EMPTY_PICTURE = (
    '<div data-note data-empty style="box-sizing:border-box;min-height:150px;width:%(width)s;'
    "max-width:568px;margin:12px auto;display:flex;flex-direction:column;align-items:center;justify-content:center;"
    "gap:8px;padding:16px;text-align:center;"
    "font:14px/1.5 system-ui,sans-serif;color:%(ink)s;background:%(ground)s;"
    'border:1.5px dashed %(brand)s;border-radius:10px">'
    '<svg width="28" height="28" viewBox="0 0 24 24" fill="none" style="color:%(brand)s" '
    'stroke="currentColor" stroke-width="1.6" aria-hidden="true">'
    '<rect x="3" y="3" width="18" height="18" rx="2"/><circle cx="9" cy="9" r="2"/>'
    '<path d="m21 15-3.1-3.1a2 2 0 0 0-2.8 0L6 21"/></svg>'
    "<span>%(text)s</span></div>"
)


class CanvasRow(NamedTuple):
    """A top-level section with all that it contains, as HTML; `digest` is the hash of the HTML."""

    digest: str
    html: str


class Canvas(NamedTuple):
    """An email as rows, with the HTML before and after them.

    `digest` is the hash of the HTML before and after the rows. An email that was written as HTML has no rows, and
    `before` contains all of it.
    """

    revision: int
    digest: str
    before: str
    rows: tuple[CanvasRow, ...] | None
    after: str

    @property
    def html(self) -> str:
        """Return the HTML of the whole email."""
        return self.before + "".join(row.html for row in self.rows or ()) + self.after

    @property
    def frame(self) -> CanvasRow:
        """Return the HTML around the rows, with its hash."""
        return CanvasRow(self.digest, self.before + self.after)


def render_canvas(
    account_id: int, template_id: int, contact_id: int | None = None, language: str | None = None
) -> Canvas:
    """Return the canvas of an email template, rendered for a contact, by default with sample values.

    Without a `language` it shows the original. Raises NotFound, also for an SMS template, or Invalid if the template
    does not render.
    """
    template = templates.get(account_id, template_id)
    if template.channel != "email":
        raise NotFound
    contact = contacts.get(account_id, contact_id) if contact_id else None
    fields = revisions.to_document(template)
    if language is None:
        fields["translations"] = {}
    html = preview.render_fields(account_id, fields, contact, marked=True, language=language).html
    if fields["body"] and not designs.list_entries(fields["design"]):
        return Canvas(template.revision, _hash_text(html), html, None, "")
    theme = document_theme(fields["design"], brands.build_look(brands.get(account_id)))
    return _RowSplitter(designs.list_entries(fields["design"]), contact, theme).split(html, template.revision)


class _RowSplitter:
    """A splitter of a rendered email into rows at its marks; `entries` are the sections of the email's design."""

    def __init__(self, entries: list[Entry], contact: Contact | None, theme: Theme) -> None:
        self._entries = {entry.section.path: entry for entry in entries}
        self._contact = contact
        self._theme = theme

    def split(self, html: str, revision: int) -> Canvas:
        """Return the canvas of a rendered email, with JSON in its marks and placeholders for empty sections."""
        pieces: list[str] = []
        opened: list[tuple[str, int]] = []
        rows: list[CanvasRow] = []
        before, at = "", 0
        for match in _MARKS.finditer(html):
            pieces.append(html[at : match.start()])
            at = match.end()
            if not match[1]:
                opened.append((match[2], len(pieces)))
                pieces.append(self._write_mark(match[2]))
                if match[2] == "rows":
                    before, pieces = "".join(pieces), []
                continue
            path, start = opened.pop()
            if path == "rows":
                break
            # A section with nothing but comments is invisible.
            if not markup.remove_comments("".join(pieces[start + 1 :])).strip():
                pieces.append(self._write_placeholder(path))
            elif _is_empty_picture(self._entries.get(path)):
                pieces[start + 1 :] = [self._write_empty_picture(path)]
            elif self._is_without_links(path, pieces[start + 1 :]):
                text = gettext("No social links yet. Add them to this section, or to your brand.")
                pieces[start + 1 :] = [
                    self._write_band(f'<div data-note style="{_NOTE_STYLE}">{escape(text)}</div>', path)
                ]
            pieces.append(f"<!--/{SECTION_MARK}-->")
            if len(opened) == 1:
                row = "".join(pieces)
                rows.append(CanvasRow(_hash_text(row), row))
                pieces = []
        if not rows:
            row = f'<!--{SECTION_MARK}["","",null,false]-->{self._write_placeholder("rows")}<!--/{SECTION_MARK}-->'
            rows.append(CanvasRow(_hash_text(row), row))
        after = f"{''.join(pieces)}<!--/{SECTION_MARK}-->{html[at:]}"
        name = _hash_text(before + after)
        return Canvas(
            revision, name, before.replace(f"{SECTION_MARK}rows", f'{SECTION_MARK}"{name}"'), tuple(rows), after
        )

    def _write_mark(self, path: str) -> str:
        entry = self._entries.get(path)
        if path == "rows":
            return f"<!--{SECTION_MARK}rows-->"
        column = _COLUMN.search(path)
        value: Any = int(column[1]) if column else None
        if entry is not None:
            kind = entry.section.kind
            is_allowed_in_columns = kind is not None and kind.is_in_columns
            has_picture = kind is not None and any(prop.kind == "image" for prop in kind.props)
            value = [entry.key, entry.label, entry.column if entry.parent else None, is_allowed_in_columns, has_picture]
        text = json.dumps(value)
        for character in "-<>":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return f"<!--{SECTION_MARK}{text}-->"

    def _write_placeholder(self, path: str) -> str:
        """Return the HTML of a placeholder for an empty section or column, so that it can be seen and selected."""
        entry = self._entries.get(path)
        if path == "rows":
            text = gettext("This email is empty. Add a section.")
        elif entry is None:
            text = gettext("Empty column")
        elif entry.section.kind is None:
            text = gettext("%(type)s: unknown section, not shown in emails", type=entry.section.type[:60] or "?")
        elif entry.section.props.get("show_if"):
            text = self._describe_hidden(entry.label)
        elif _is_empty_picture(entry):
            return self._write_empty_picture(path)
        else:
            text = gettext("%(section)s: empty", section=entry.label)
        return _wrap_in_table_row(f'<div data-note style="{_NOTE_STYLE}">{escape(text)}</div>', path)

    def _describe_hidden(self, section: str) -> str:
        names = (self._contact.first_name, self._contact.last_name) if self._contact is not None else ()
        name = " ".join(name for name in names if name)
        if name:
            return gettext("%(section)s: not shown to %(name)s", section=section, name=name)
        return gettext("%(section)s: not shown to this contact", section=section)

    def _write_empty_picture(self, path: str) -> str:
        """Return the drop area of a section without a picture."""
        light, dark = self._theme.light, self._theme.dark
        area = _EMPTY_PICTURE % {
            "text": gettext("Drop an image here or <u>select one</u>"),
            # In a column, as wide as the texts above and below it
            "width": "100%" if _is_in_column(path) else "calc(100% - 32px)",
            "brand": f"light-dark({light.link},{dark.link})",
            "ground": f"light-dark({light.page},{dark.page})",
            "ink": f"light-dark({light.text},{dark.text})",
        }
        return self._write_band(area, path)

    def _is_without_links(self, path: str, pieces: Sequence[str]) -> bool:
        """Return whether a section shows social links, and neither it nor the brand has one."""
        entry = self._entries.get(path)
        kind = entry.section.kind if entry else None
        return kind is not None and kind.name == "social" and not any("<a " in piece for piece in pieces)

    def _write_band(self, html: str, path: str) -> str:
        """Return the HTML of a placeholder on a band with the width and colour of sections; in a column, without it."""
        if _is_in_column(path):
            return _wrap_in_table_row(html, path)
        return (
            f'<div class="c-card" style="max-width:{self._theme.width}px;margin:0 auto;padding:1px 0;'
            f'background:{self._theme.light.card}">{html}</div>'
        )


def _is_in_column(path: str) -> bool:
    """Return whether the path of a section (`sections[1].props.columns[0].sections[2]`) is in a column."""
    return path.count("[") > 1


def _is_empty_picture(entry: Entry | None) -> bool:
    """Return whether a section is of a kind that shows only pictures, and has no picture yet."""
    kind = entry.section.kind if entry else None
    if entry is None or kind is None or kind.name not in _PICTURE_KINDS:
        return False
    values = entry.section.props
    items = next((prop.get_value(values) for prop in kind.props if prop.kind == "items"), None)
    return not values.get("src") and not any(isinstance(item, dict) and item.get("src") for item in items or ())


def _wrap_in_table_row(html: str, path: str) -> str:
    """Return the HTML of a placeholder; in a column, whose content is a table, as a row of that table."""
    return html if path.count("[") <= 1 else f"<tr><td>{html}</td></tr>"


def _hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


# The response of a save contains the changed rows, so that the canvas need not request them.


def list_rows(draft: Canvas, present: set[str]) -> dict[str, Any]:
    """Return a rendered email as data for the canvas: a dict with `revision`, `rows` and `frame`.

    The frame and each row are a pair (digest, HTML). The HTML is None if the digest is in `present`, because the
    canvas shows it already. `rows` is None for an email that is not split into rows.
    """
    rows = [_serialize_row(row, present) for row in draft.rows] if draft.rows is not None else None
    return {"revision": draft.revision, "rows": rows, "frame": _serialize_row(draft.frame, present)}


def _serialize_row(row: CanvasRow, present: set[str]) -> tuple[str, str | None]:
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
        draft = await render(render_canvas, visit.account_id, template_id, parse_id(contact_id) or None)
    except (errors.Invalid, errors.NotFound):
        return ""
    text = msgspec.json.encode({**list_rows(draft, set(present.split(","))), "as": contact_id}).decode()
    return f'<data id="drawn" value="{escape(text)}"></data>'


_MAX_PEOPLE = 7
_SCRIPTS = tuple(f"js/{name}.js" for name in ("canvas", "swap", "pointer", "drag", "caret"))
_HOST_PATTERN = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}\Z")
_HEAD_END_TAG = re.compile(r"</head\s*>", re.IGNORECASE)


@pages.get("/<template_id:int>/canvas", name="show")
@signed_in("templates:read")
async def show_canvas(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the email as the document of the editor's frame; `as` is the id of the contact whose values fill it in."""
    try:
        draft = await render(render_canvas, visit.account_id, template_id, _contact_id(request))
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
@signed_in("templates:read")
async def list_changed_rows(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Return the rows of the canvas as JSON, without the HTML of rows whose digest is in `have`."""
    present = set((request.args.get("have") or "").split(","))
    try:
        draft = await render(render_canvas, visit.account_id, template_id, _contact_id(request))
    except errors.Invalid as error:
        return _json_response({"error": _error_sentence(error)}, 422)
    return _json_response(list_rows(draft, present))


@pages.get("/<template_id:int>/size", name="size")
@signed_in("templates:read")
async def show_size(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the size of the email's HTML beside Gmail's limit."""
    size_bytes = await render(preview.measure_html_bytes, visit.account_id, template_id)
    if not view.is_partial(request):
        return view.redirect(request, f"/templates/{template_id}/edit")
    near = size_bytes is not None and size_bytes > preview.GMAIL_WARN_BYTES
    over = size_bytes is not None and size_bytes > preview.GMAIL_CLIP_BYTES
    return view.render_fragment(request, "editor/size.html", size=size_bytes, is_near_limit=near, is_over_limit=over)


@pages.get("/<template_id:int>/people", name="people")
@signed_in("templates:read")
async def choose_contact(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show contacts to preview the email with: search results, or the newest contacts and one lacking a first name."""
    search = (request.args.get("search") or "").strip()[:254]
    row = await fetch(templates.get, visit.account_id, template_id)
    if not view.is_partial(request):
        return view.redirect(request, f"/templates/{template_id}/edit")
    found_contacts, nameless = await scan(_find_contacts, visit.account_id, search)
    available = translations.get_available_languages(revisions.to_document(row))
    by_contact = {
        contact.id: languages.choose(available, contact.language, visit.account.locale).translation
        for contact in [*found_contacts, *([nameless] if nameless else [])]
    }
    return view.render(
        request, "canvas/people.html", rows=found_contacts, nameless=nameless, search=search, by_contact=by_contact,
        template_id=template_id,
    )  # fmt: skip


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
    'self'. Both the requested host and the host of the base URL are allowed, because the proxy may use a name other
    than the browser's.
    """
    requested_host = request.host if _HOST_PATTERN.match(request.host) else "invalid."
    hosts = dict.fromkeys((requested_host, urlsplit(config.base_url(config.current())).netloc))

    def at(*names: str) -> str:
        places = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return " ".join(f"{place}{static_files.url(name)}" for name in names for place in places)

    policy = view.email_policy().partition(";")[2].replace("style-src ", f"style-src {at('css/canvas.css')} ")
    return f"sandbox allow-scripts;{policy}; script-src {at(*_SCRIPTS)}"
