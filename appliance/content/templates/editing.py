"""Editing a design value by value, by several people at once: who changes what another did not is never refused.

What somebody had before them is told by a digest of the one value. Is it another one by now, they are told both.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET, Struct

from appliance.audience.filters import read as filters
from appliance.audience.segments import people
from appliance.content.designs import document
from appliance.content.designs import document as designs
from appliance.content.designs.document import Entry
from appliance.content.templates import checks, places, revisions, store
from appliance.content.templates.places import Place
from appliance.content.templates.requests import DESIGN_BYTES, TemplateWrite
from appliance.core import fields
from appliance.core.errors import Conflict, Faults, Invalid, NotFound
from appliance.storage.models import Template, TemplateRevision, User
from appliance.storage.work import writing

# What stands beside the sections, each a value of its own
DETAILS = ("name", "subject", "preheader", "from_name", "from_email", "reply_to", "body")
LABELS = {"name": "Name", "subject": "Subject", "preheader": "Preview line", "from_name": "Name people see",
          "from_email": "Address people see", "reply_to": "Answers go to", "body": "Content"}  # fmt: skip


class Change(Struct):
    """A value as somebody typed it, and the digest of the one that they had before them (None: they need none)."""

    path: str
    typed: str
    seen: str | None = None


class Edit(NamedTuple):
    """What an edit makes of a template: its fields, the words of the history, and the one value that it touches."""

    values: dict[str, Any]
    label: str
    touched: str | None = None


class Edited(NamedTuple):
    """A template after an edit, and the section to look at next."""

    template: Template
    key: str | None = None


Make = Callable[[dict[str, Any], list[Entry]], tuple[str, str | None]]


def change(account_id: int, template_id: int, key: str | None, asked: list[Change], user_id: int | None) -> Edited:
    """Write values into a section, or into the theme without one; raises NotFound, Conflict, or Invalid at the path."""
    writing()
    template = store.get(account_id, template_id)
    edit = changed(template, key, asked)
    if edit is not None:
        store.write(template, edit.values, user_id, edit.label, touched=edit.touched)
    return Edited(template, key)


def changed(template: Template, key: str | None, asked: list[Change]) -> Edit | None:
    """Return what values make of a template, None where nothing changes; it is not touched itself."""
    design = copy.deepcopy(template.design)
    entry = None
    if key is not None:
        entry = document.find_section(document.entries(design), key)
        if entry is None:
            raise NotFound
    labels = []
    for one in asked:
        here = places.place(one.path, entry.section.kind if entry is not None else None)
        if (here.root == "theme") != (entry is None):
            raise NotFound
        if _write(template, entry, design, here, one):
            labels.append(here.words)
    if not labels:
        return None
    who = entry.label if entry is not None else "Theme"
    touched = f"{key or 'theme'} {asked[0].path}" if len(asked) == 1 else None
    return Edit({"design": _checked(design)}, f"{who}: {', '.join(labels)} changed"[:255], touched)


def _write(template: Template, entry: Entry | None, design: dict[str, Any], here: Place, one: Change) -> bool:
    holder = places.holder_of(entry, design, here)
    have, wanted = places.value_of(here, holder), places.read(here, one.typed)
    if have == wanted and type(have) is type(wanted):
        return False
    if one.seen is not None and one.seen != places.digest(have):
        raise _conflict(template, here.path, have, f"{entry.key if entry is not None else 'theme'} {here.path}")
    if here.prop.kind == "filters" and wanted is not None:
        filters.filters(wanted, people.scope(template.account_id, writing=True), here.path)
    places.put(here, holder, wanted)
    if here.path == "props.preset" and entry is not None:
        _fit_columns(entry.raw, wanted)
    return True


def _fit_columns(raw: dict[str, Any], preset: str | None) -> None:
    """Let there be as many columns as a preset has; what stood in those that go stands in the last that stays."""
    found = document.columns(raw)
    if preset is None or not all(isinstance(one, dict) for one in found):
        return
    many = preset.count(":") + 1
    while len(found) < many:
        found.append({"sections": []})
    for gone in found[many:]:
        kept = found[many - 1]
        kept["sections"] = [*(kept.get("sections") or []), *(gone.get("sections") or [])]
    del found[many:]
    for one in found:
        one.pop("width", None)


def _checked(design: dict[str, Any]) -> dict[str, Any]:
    """Return a design as it is stored; raises Invalid for one that is too large, or where a section cannot stand."""
    found: list[str] = []
    for path, words in designs_faults(design):
        if path.endswith(("sections", "columns")):
            found.append(words)
    if len(designs.canonical(design).encode("utf-8", "replace")) > DESIGN_BYTES:
        found.append("is too large")
    if found:
        raise Invalid({"base": found[:1]})
    kept: dict[str, Any] = checks.kept("design", design)
    return kept


def designs_faults(design: dict[str, Any]) -> list[tuple[str, str]]:
    """Return everything that no design may hold."""
    found: list[tuple[str, str]] = []
    designs.check(design, lambda path, words: found.append((path, words)))
    return found


def details(account_id: int, template_id: int, asked: list[Change], user_id: int | None) -> Edited:
    """Write what stands beside the sections; raises NotFound, Conflict, or Invalid at the path."""
    writing()
    template = store.get(account_id, template_id)
    edit = detailed(template, asked)
    if edit is not None:
        store.write(template, edit.values, user_id, edit.label, touched=edit.touched)
    return Edited(template)


def detailed(template: Template, asked: list[Change]) -> Edit | None:
    """Return what values beside the sections make of a template, None where nothing changes."""
    raw, seen = {}, {}
    for one in asked:
        name = one.path.removeprefix("email.")
        if name not in DETAILS or (name == "name" and template.flow_id is not None):
            raise NotFound
        raw[name], seen[name] = one.typed or None, one.seen
    try:
        request = fields.read(TemplateWrite, raw)
        faults = Faults()
        checks.check(template.account_id, request, "", faults, template.channel)
        faults.check()
    except Invalid as refused:
        raise Invalid({f"email.{name}": words for name, words in refused.fields.items()}) from None
    values = {}
    for name in raw:
        wanted, have = getattr(request, name), getattr(template, name)
        wanted = checks.kept(name, None if wanted is UNSET else wanted)
        if name == "name" and wanted is None:
            wanted = store.UNTITLED
        if wanted == have:
            continue
        if seen[name] is not None and seen[name] != places.digest(have):
            raise _conflict(template, f"email.{name}", have, f"email {name}")
        values[name] = wanted
    if not values:
        return None
    label = f"{', '.join(LABELS[name] for name in values)} changed"
    return Edit(values, label, f"email {next(iter(values))}" if len(values) == 1 else None)


def _conflict(template: Template, path: str, have: Any, touched: str) -> Conflict:
    """Make the refusal that says what is there by now, and who wrote it when."""
    of_this = TemplateRevision.select().where(TemplateRevision.template == template.id)
    newest = of_this.order_by(TemplateRevision.number.desc())
    last = newest.where(TemplateRevision.touched == touched).first() or newest.first()
    who = User.get_or_none(User.id == last.user_id) if last.user_id is not None else None
    return Conflict(
        "somebody else changed this", path=path, theirs=have, seen=places.digest(have),
        changed_by=(who.name or who.email) if who is not None else None, changed_at=last.created_at,
    )  # fmt: skip


def restructure(account_id: int, template_id: int, make: Make, user_id: int | None) -> Edited:
    """Let `make` change the sections of a design; it answers the words of the history and the section to look at.

    Raises NotFound, and Invalid where a section cannot stand.
    """
    writing()
    template = store.get(account_id, template_id)
    edit, key = restructured(template, make)
    store.write(template, edit.values, user_id, edit.label)
    return Edited(template, key)


def restructured(template: Template, make: Make) -> tuple[Edit, str | None]:
    """Return what `make` makes of the sections of a template, and the section to look at next."""
    design = copy.deepcopy(template.design)
    if not isinstance(design.get("sections"), list):
        design["sections"] = []
    label, key = make(design, document.entries(design))
    return Edit({"design": _checked(design)}, label), key


def warm(template: Template, edit: Edit | None) -> None:
    """Look at the texts of an edit before the writer has to."""
    if edit is None:
        return
    said = revisions.document(template) | edit.values
    checks.variables(said, template.channel)
    if template.action_id is not None:
        store.step_template_changing.send(template, said)
