"""An email as its editor shows it: rows that its sections make, each known by a digest, so that one can be replaced.

Comments stand around every section and column. What they say is JSON: `[key, label, column, may stand in a column, has
a picture]` for a section, the number of a column, or for all rows together the digest of what stands around them.
"""

import hashlib
import json
import re
from html import escape
from typing import Any, NamedTuple

from appliance.audience.contacts import store as contacts
from appliance.content.designs import document
from appliance.content.designs.document import Entry
from appliance.content.designs.merge import MergeError
from appliance.content.designs.render import MARK
from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.core.errors import NotFound
from appliance.sending.messages import sample_render
from appliance.storage.models import Campaign, Contact

_MARKS = re.compile(f"<!--(/?){re.escape(MARK)}([^>]*?)-->")
_COLUMN = re.compile(r"\.columns\[(\d+)\]\.sections\Z")
# Comments of ours and of Outlook's show nothing
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOTE = "padding:18px;font:13px/1.5 system-ui,sans-serif;color:#6b6f76;text-align:center;border:1px dashed #b9bcc2"
# Of these kinds nothing is left without a picture; `data-empty` is where one is dropped or chosen
_PICTURES = ("image", "gallery")
_PICTURE = (
    '<div data-note data-empty style="box-sizing:border-box;min-height:150px;width:calc(100% - 32px);'
    "max-width:568px;margin:12px auto;display:flex;flex-direction:column;align-items:center;justify-content:center;"
    "gap:8px;padding:16px;text-align:center;"
    "font:14px/1.5 system-ui,sans-serif;color:light-dark(#565b62,#c3c8cf);background:light-dark(#f3f5f6,#2a2e33);"
    'border:1.5px dashed #8a9099;border-radius:10px">'
    '<svg width="28" height="28" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.6" '
    'aria-hidden="true"><rect x="3" y="3" width="18" height="18" rx="2"/><circle cx="9" cy="9" r="2"/>'
    '<path d="m21 15-3.1-3.1a2 2 0 0 0-2.8 0L6 21"/></svg>'
    "<span>Drop an image here or <u>choose one</u></span></div>"
)


class Row(NamedTuple):
    """A section with those in it as HTML, and its digest."""

    digest: str
    html: str


class Drawn(NamedTuple):
    """An email in rows; `before` and `after` are what stands around them, `digest` that of both.

    One that was written as HTML is one piece, without rows.
    """

    revision: int
    digest: str
    before: str
    rows: tuple[Row, ...] | None
    after: str

    @property
    def html(self) -> str:
        """Return the whole email."""
        return self.before + "".join(one.html for one in self.rows or ()) + self.after

    @property
    def frame(self) -> Row:
        """Return what stands around the rows."""
        return Row(self.digest, self.before + self.after)


def draw(account_id: int, template_id: int, contact_id: int | None = None) -> Drawn:
    """Render an email as a person gets it, or somebody invented; raises NotFound, or Invalid if it cannot be."""
    template = templates.get(account_id, template_id)
    if template.channel != "email":
        raise NotFound
    contact = contacts.get(account_id, contact_id) if contact_id else None
    said = revisions.document(template)
    html = sample_render.of_fields(account_id, said, contact, marked=True).html
    if said["body"] and not document.entries(said["design"]):
        return Drawn(template.revision, _digest(html), html, None, "")
    return _Cut(document.entries(said["design"]), contact).drawn(html, template.revision)


def weight(account_id: int, template_id: int) -> int | None:
    """Return how many bytes of HTML an email has as it is sent, None while it cannot be; raises NotFound."""
    template = templates.get(account_id, template_id)
    mine = Campaign.select(Campaign.tracking).where(Campaign.flow == template.flow_id, Campaign.template == template.id)
    campaign = mine.first() if template.flow_id is not None else None
    try:
        return sample_render.weigh(account_id, revisions.document(template), campaign is None or campaign.tracking)
    except MergeError:
        return None


class _Cut:
    """Cuts one rendering at its marks."""

    def __init__(self, entries: list[Entry], contact: Contact | None) -> None:
        self.known = {one.section.path: one for one in entries}
        self.whose = contact

    def drawn(self, html: str, revision: int) -> Drawn:
        """Return the rows of a rendering, with what they hold told at their marks."""
        pieces: list[str] = []
        opened: list[tuple[str, int]] = []
        rows: list[Row] = []
        before, at = "", 0
        for found in _MARKS.finditer(html):
            pieces.append(html[at : found.start()])
            at = found.end()
            if not found[1]:
                opened.append((found[2], len(pieces)))
                pieces.append(self._begin(found[2]))
                if found[2] == "rows":
                    before, pieces = "".join(pieces), []
                continue
            path, start = opened.pop()
            if path == "rows":
                break
            if not _COMMENT.sub("", "".join(pieces[start + 1 :])).strip():
                pieces.append(self._nothing(path))
            elif _is_empty_picture(self.known.get(path)):
                pieces[start + 1 :] = [_boxed(_PICTURE, path)]
            pieces.append(f"<!--/{MARK}-->")
            if len(opened) == 1:
                row = "".join(pieces)
                rows.append(Row(_digest(row), row))
                pieces = []
        if not rows:
            row = f'<!--{MARK}["","",null,false]-->{self._nothing("rows")}<!--/{MARK}-->'
            rows.append(Row(_digest(row), row))
        after = f"{''.join(pieces)}<!--/{MARK}-->{html[at:]}"
        name = _digest(before + after)
        return Drawn(revision, name, before.replace(f"{MARK}rows", f'{MARK}"{name}"'), tuple(rows), after)

    def _begin(self, path: str) -> str:
        entry = self.known.get(path)
        if path == "rows":
            return f"<!--{MARK}rows-->"
        column = _COLUMN.search(path)
        told: Any = int(column[1]) if column else None
        if entry is not None:
            kind = entry.section.kind
            may = kind is not None and kind.in_columns
            has_picture = kind is not None and any(one.kind == "image" for one in kind.props)
            told = [entry.key, entry.label, entry.column if entry.parent else None, may, has_picture]
        text = json.dumps(told)
        for one in "-<>":
            text = text.replace(one, f"\\u{ord(one):04x}")
        return f"<!--{MARK}{text}-->"

    def _nothing(self, path: str) -> str:
        """Return what is shown where nothing is, so that it can be seen, chosen and dropped upon."""
        entry = self.known.get(path)
        if path == "rows":
            words = "Nothing here yet. Add a first section."
        elif entry is None:
            words = "Empty column"
        elif entry.section.kind is None:
            words = f"{entry.section.type[:60] or 'A section'}: from the API, kept as it is and not shown in emails"
        elif entry.section.props.get("show_if"):
            words = f"{entry.label}: not shown to {_name(self.whose)}"
        elif _is_empty_picture(entry):
            return _boxed(_PICTURE, path)
        else:
            words = f"{entry.label}: nothing in it yet"
        return _boxed(f'<div data-note style="{_NOTE}">{escape(words)}</div>', path)


def _is_empty_picture(entry: Entry | None) -> bool:
    """Return whether a section is one that shows nothing but pictures, and none of them is chosen yet."""
    kind = entry.section.kind if entry else None
    if entry is None or kind is None or kind.name not in _PICTURES:
        return False
    own = entry.section.props
    items = next((prop.of(own) for prop in kind.props if prop.kind == "items"), None)
    return not own.get("src") and not any(isinstance(one, dict) and one.get("src") for one in items or ())


def _boxed(html: str, path: str) -> str:
    """Return what is shown in place of a section, as a row of its table where it stands in a column."""
    return html if path.count("[") <= 1 else f"<tr><td>{html}</td></tr>"


def _name(contact: Contact | None) -> str:
    if contact is None:
        return "this person"
    return " ".join(one for one in (contact.first_name, contact.last_name) if one) or "this person"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
