"""Going back and forth in what a template was: nothing is ever lost, each step is a revision of its own.

Undo goes to the edit that the present one was made from; redo comes back the same way, until something is edited.
"""

from typing import Any, Literal

from msgspec import Struct

from appliance.content.templates import checks, revisions, store
from appliance.content.templates.revisions import Origin
from appliance.core.errors import Invalid
from appliance.storage.models import Template
from appliance.storage.work import writing


class Reach(Struct):
    """The edits that undo and redo would go to; None where there is none."""

    undo: int | None
    redo: int | None


def reach(template: Template) -> Reach:
    """Return where undo and redo of a template would go."""
    origins = revisions.origins_of(template.id)
    return Reach(_before(origins, template.revision), _behind(origins, template.revision))


def undo(account_id: int, template_id: int, user_id: int | None = None, revision: int | None = None) -> Template:
    """Go back to what was there before the last edit; raises NotFound, Conflict, or Invalid where there is nothing."""
    return _move(account_id, template_id, user_id, revision, "undo")


def redo(account_id: int, template_id: int, user_id: int | None = None, revision: int | None = None) -> Template:
    """Take an undo back; raises NotFound, Conflict, or Invalid where there is nothing."""
    return _move(account_id, template_id, user_id, revision, "redo")


def restore(
    account_id: int, template_id: int, number: int, user_id: int | None = None, revision: int | None = None
) -> Template:
    """Bring a revision back as an edit of its own; raises NotFound, Conflict, or Invalid past a campaign's lock."""
    writing()
    template = store.get(account_id, template_id)
    store.require(template, revision=revision)
    found = revisions.get(account_id, template_id, number)
    store.write(template, _held(found.document), user_id, f"Restored {_said(found)}", restores=number)
    return template


def warm(account_id: int, template_id: int, to: int | Literal["undo", "redo"]) -> None:
    """Look at the texts of the revision that a move goes to, before the writer has to; raises NotFound."""
    template = store.get(account_id, template_id)
    number: int | None = to if isinstance(to, int) else getattr(reach(template), to)
    if number is not None:
        found = revisions.get(account_id, template_id, number)
        checks.variables(revisions.document(template) | _held(found.document))


def _move(account_id: int, template_id: int, user_id: int | None, revision: int | None, way: str) -> Template:
    writing()
    template = store.get(account_id, template_id)
    store.require(template, revision=revision)
    number: int | None = getattr(reach(template), way)
    if number is None:
        raise Invalid({"base": [f"there is nothing to {way}"]})
    found = revisions.get(account_id, template_id, number)
    label = f"{way.capitalize()}: back to {_said(found)}"
    store.write(template, _held(found.document), user_id, label, restores=number, moved=True)
    return template


def _before(origins: dict[int, Origin], number: int) -> int | None:
    found = origins[origins[number].position].follows
    return found if found in origins else None


def _behind(origins: dict[int, Origin], number: int) -> int | None:
    """Walk back from the last edit to where the template stands; the step before that is where redo goes."""
    here = origins[number].position
    at: int | None = max(one.number for one in origins.values() if one.position == one.number)
    while at is not None and at in origins and at != here:
        follows = origins[at].follows
        if follows == here:
            return at
        at = follows
    return None


def _held(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in revisions.FIELDS if name in document}


def _said(found: Any) -> str:
    return f"revision {found.number} ({found.label})"[:200] if found.label else f"revision {found.number}"
