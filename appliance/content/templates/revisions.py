"""Revisions of templates: each save adds a revision, old revisions are pruned, and undo and redo find their revision.

Undo restores the edit that the current edit was based on. Redo reverses undo, step by step, until the next edit.
"""

from typing import Any

from msgspec import Struct
from peewee import JOIN

from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.i18n import gettext, gettext_noop, gettext_stored, translate_stored
from appliance.core.validation import PageQuery
from appliance.storage.database import Page, connection, paginate, rows
from appliance.storage.models import Template, TemplateRevision, User
from appliance.storage.transactions import require_write_transaction

CONTENT_FIELDS = (
    "name", "subject", "body", "preheader", "from_name", "from_email", "reply_to", "design", "translations",
)  # fmt: skip
_FIELD_LABELS = {
    "name": gettext_noop("name"), "subject": gettext_noop("subject"), "preheader": gettext_noop("preview text"),
    "body": gettext_noop("content"), "design": gettext_noop("design"), "from_name": gettext_noop("From name"),
    "from_email": gettext_noop("From address"), "reply_to": gettext_noop("Reply-to address"),
    "translations": gettext_noop("translations"),
}  # fmt: skip
# Labels are stored in English. `HISTORY` is their scope in `i18n.translate_stored`, which `translate_label` calls.
HISTORY = "history"
_EDITED = gettext_noop("Edited")
_CHANGED = gettext_stored("Changed %(fields)s", HISTORY)
_LABELLED_REVISION = gettext_stored("revision %(number)s (%(label)s)", HISTORY)
_REVISION = gettext_stored("revision %(number)s", HISTORY)
# The number of newest edits that `prune` keeps in any case.
MAX_KEPT_EDITS = 200
# Changes of the same value by the same user within this time share one revision.
FOLD_WINDOW_MS = 3_000
_PRUNE_INTERVAL = 10
_PRUNABLE = """
WITH r AS (SELECT id, number, parent_number, restored_number, named, created_at / :day AS day,
    restored_number IS NOT NULL AND parent_number IS NULL AS is_step FROM template_revision WHERE template_id = :id),
edits AS (SELECT number FROM r WHERE NOT is_step ORDER BY number DESC LIMIT :last)
SELECT number, parent_number FROM r WHERE named = 0 AND number > 1
AND NOT EXISTS (SELECT 1 FROM campaign WHERE content_id = r.id
    AND flow_id = (SELECT flow_id FROM template WHERE id = :id))
AND NOT EXISTS (SELECT 1 FROM step WHERE template_id = :id AND content_id = r.id)
AND CASE WHEN is_step THEN number <= (SELECT max(number) FROM r) - :last
ELSE number < (SELECT min(number) FROM edits)
    AND number < (SELECT max(number) FROM r AS other WHERE other.day = r.day AND NOT other.is_step)
    AND number NOT IN (SELECT restored_number FROM r WHERE restored_number IS NOT NULL) END
"""


_IN_USE = """
SELECT EXISTS (SELECT 1 FROM campaign WHERE content_id = :id
    AND flow_id = (SELECT flow_id FROM template WHERE id = :template_id))
OR EXISTS (SELECT 1 FROM step WHERE template_id = :template_id AND content_id = :id)
"""


class Origin(Struct):
    """The number of a revision and how its content came about.

    An edit has the `parent_number` of the revision that it was based on. Restoring a revision is an edit that also has
    a `restored_number`. A step of undo or redo has only a `restored_number`; an edit made after it is based on the
    restored revision.
    """

    number: int
    parent_number: int | None
    restored_number: int | None

    @property
    def position(self) -> int:
        """Return the number of the edit that the template's content comes from.

        For a step of undo or redo this is the restored edit, otherwise the revision itself.
        """
        return self.restored_number if self.restored_number is not None and self.parent_number is None else self.number


def to_document(template: Template) -> dict[str, Any]:
    """Return the fields of a template that a revision stores, by name."""
    return {name: getattr(template, name) for name in CONTENT_FIELDS}


def add_revision(
    template: Template, label: str, user_id: int | None, origin: Origin, edited_field: str | None = None
) -> TemplateRevision:
    """Store the template's current content as a revision; every `_PRUNE_INTERVAL`-th revision also prunes old ones.

    `edited_field` names the changed value if only one changed.
    """
    require_write_transaction()
    revision = TemplateRevision.create(
        template=template, number=origin.number, parent_number=origin.parent_number,
        restored_number=origin.restored_number,
        document=to_document(template), label=label[:255], edited_field=edited_field, user=user_id,
        created_at=template.updated_at,
    )  # fmt: skip
    if origin.number % _PRUNE_INTERVAL == 0:
        prune(template.id)
    return revision


def pop_mergeable_revision(template: Template, edited_field: str | None, user_id: int | None) -> Origin | None:
    """Delete the current revision and return its origin, if the next edit continues it; otherwise return None.

    The next edit continues the current revision if the same user changed the same value (`edited_field`) in it at most
    FOLD_WINDOW_MS ago. The first revision, and revisions that are named, restored, or used by a campaign or a version
    of a flow, are never deleted.
    """
    require_write_transaction()
    if edited_field is None:
        return None
    last = TemplateRevision.get(TemplateRevision.template == template.id, TemplateRevision.number == template.revision)
    is_same = (last.edited_field, last.user_id, last.restored_number, last.named) == (
        edited_field,
        user_id,
        None,
        False,
    )
    if not is_same or last.number == 1 or abs(clock.now_ms() - last.created_at) > FOLD_WINDOW_MS:
        return None
    if rows(_IN_USE, {"id": last.id, "template_id": template.id})[0][0]:
        return None
    origin = Origin(last.number, last.parent_number, None)
    connection().execute("DELETE FROM template_revision WHERE id = ?", (last.id,))
    return origin


def describe_change(names: list[str]) -> str:
    """Return the label of an edit that changed the named fields, in English."""
    return _CHANGED % {"fields": ", ".join(_FIELD_LABELS.get(name, name) for name in names)}


def translate_label(label: str | None) -> str:
    """Return the label of a revision in the language of this request; `Edited` for a revision without a label."""
    return translate_stored(label, HISTORY) if label else gettext(_EDITED)


def fetch_origins(template_id: int) -> dict[int, Origin]:
    """Return the origins of a template's revisions by revision number, oldest first."""
    origin_rows = rows(
        "SELECT number, parent_number, restored_number FROM template_revision WHERE template_id = ? ORDER BY number",
        (template_id,),
    )
    return {row[0]: Origin(*row) for row in origin_rows}


def fetch_page(account_id: int, template_id: int, query: PageQuery) -> Page:
    """Return a page of a template's revisions with their authors, without documents, newest first; raises NotFound."""
    _require_template(account_id, template_id)
    Revision = TemplateRevision
    query_rows = (
        Revision.select(
            Revision.id,
            Revision.number,
            Revision.parent_number,
            Revision.restored_number,
            Revision.named,
            Revision.label,
            Revision.created_at,
            User,
        )
        .join_from(Revision, User, JOIN.LEFT_OUTER)
        .where(Revision.template == template_id)
        .order_by(Revision.number.desc())
    )
    return paginate(query_rows, query.page, query.size())


def get(account_id: int, template_id: int, number: int) -> TemplateRevision:
    """Return the revision with this number of a template; raises NotFound."""
    _require_template(account_id, template_id)
    revision = TemplateRevision.get_or_none(TemplateRevision.template == template_id, TemplateRevision.number == number)
    if revision is None:
        raise NotFound
    return revision


def is_written_by_person(template: Template) -> bool:
    """Return whether a user, not a program, wrote the current revision."""
    return find_author(template) is not None


def find_author(template: Template) -> int | None:
    """Return the id of the user who wrote the current revision, or None if a program wrote it."""
    authors = TemplateRevision.select(TemplateRevision.user).where(
        TemplateRevision.template == template.id, TemplateRevision.number == template.revision
    )
    row = authors.first()
    return row.user_id if row is not None else None


def name_revision(account_id: int, template_id: int, number: int, label: str | None) -> TemplateRevision:
    """Name a revision, which exempts it from pruning, or remove its name if `label` is empty; raises NotFound."""
    require_write_transaction()
    revision = get(account_id, template_id, number)
    label = (label or "").strip()[:255]
    revision.label, revision.named = label or _EDITED, bool(label)
    revision.save(only=[TemplateRevision.label, TemplateRevision.named])
    return revision


def pin_current(template: Template, label: str) -> TemplateRevision:
    """Name the current revision, unless it has a name, so that it is not pruned; return the revision."""
    require_write_transaction()
    revision = TemplateRevision.get(
        TemplateRevision.template == template.id, TemplateRevision.number == template.revision
    )
    if not revision.named:
        revision.label, revision.named = label, True
        revision.save(only=[TemplateRevision.label, TemplateRevision.named])
    return revision


def find_at(template: Template, moment: int) -> TemplateRevision | None:
    """Return the newest stored revision created at or before a time in milliseconds, or None."""
    revision: TemplateRevision | None = (
        TemplateRevision.select()
        .where(TemplateRevision.template == template.id, TemplateRevision.created_at <= moment)
        .order_by(TemplateRevision.number.desc())
        .first()
    )
    return revision


def prune(template_id: int) -> int:
    """Delete old revisions and return the number deleted.

    These are kept: the newest MAX_KEPT_EDITS edits, the first revision, the last edit of each day, and revisions that
    are named, used by a campaign or flow version, or restored by another revision. A step of undo or redo is deleted
    when it is at least MAX_KEPT_EDITS revisions old. Revisions based on a deleted revision are then based on its
    parent, so that undo skips the gap.
    """
    require_write_transaction()
    database = connection()
    pruned = rows(_PRUNABLE, {"id": template_id, "last": MAX_KEPT_EDITS, "day": clock.DAY_MS})
    for number, parent_number in sorted(pruned, reverse=True):
        database.execute(
            "UPDATE template_revision SET parent_number = ? WHERE template_id = ? AND parent_number = ?",
            (parent_number, template_id, number),
        )
        database.execute("DELETE FROM template_revision WHERE template_id = ? AND number = ?", (template_id, number))
    return len(pruned)


def _require_template(account_id: int, template_id: int) -> None:
    if not Template.select().where(Template.account == account_id, Template.id == template_id).exists():
        raise NotFound


def find_changed_fields(earlier: dict[str, Any], later: dict[str, Any]) -> list[str]:
    """Return the names of the fields in which two revision documents differ."""
    return [field for field in CONTENT_FIELDS if earlier.get(field) != later.get(field)]


class UndoSteps(Struct):
    """The numbers of the revisions that undo and redo would restore; None if there is nothing to undo or redo."""

    undo: int | None
    redo: int | None


def find_undo_steps(template: Template) -> UndoSteps:
    """Return the numbers of the revisions that undo and redo would restore now."""
    origins = fetch_origins(template.id)
    return UndoSteps(_find_undo(origins, template.revision), _find_redo(origins, template.revision))


def _find_undo(origins: dict[int, Origin], number: int) -> int | None:
    parent = origins[origins[number].position].parent_number
    return parent if parent in origins else None


def _find_redo(origins: dict[int, Origin], number: int) -> int | None:
    """Return the edit that follows the current position on the way to the newest edit, or None."""
    position = origins[number].position
    at: int | None = max(value.number for value in origins.values() if value.position == value.number)
    while at is not None and at in origins and at != position:
        parent_number = origins[at].parent_number
        if parent_number == position:
            return at
        at = parent_number
    return None


def get_content_values(document: dict[str, Any]) -> dict[str, Any]:
    """Return the values of CONTENT_FIELDS that a revision's document has."""
    return {name: document[name] for name in CONTENT_FIELDS if name in document}


def describe_revision(revision: Any) -> str:
    """Return the number of a revision, and its label if it has one, in English."""
    if not revision.label:
        return _REVISION % {"number": revision.number}
    return (_LABELLED_REVISION % {"number": revision.number, "label": revision.label})[:200]
