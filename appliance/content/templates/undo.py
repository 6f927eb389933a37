"""Undo, redo and restored revisions of a template.

Each restores an earlier revision and is a revision itself, so that no content is lost.
"""

from typing import Literal

from appliance.content.templates import revisions
from appliance.content.templates.store import PreparedContent, get, prepare_values, require_unchanged, write
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_stored
from appliance.storage.models import Template
from appliance.storage.transactions import require_write_transaction

_RESTORED = gettext_stored("Restored %(revision)s", revisions.HISTORY)
_UNDONE = gettext_stored("Undo: back to %(revision)s", revisions.HISTORY)
_REDONE = gettext_stored("Redo: back to %(revision)s", revisions.HISTORY)


def undo(
    account_id: int, template_id: int, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Restore the content before the last edit.

    Raises NotFound, Conflict if `revision` is not the current revision, Invalid if there is nothing to undo, or the
    errors of `write`.
    """
    return _undo_or_redo(account_id, template_id, user_id, revision, "undo", prepared)


def redo(
    account_id: int, template_id: int, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Reverse the last undo.

    Raises NotFound, Conflict if `revision` is not the current revision, Invalid if there is nothing to redo, or the
    errors of `write`.
    """
    return _undo_or_redo(account_id, template_id, user_id, revision, "redo", prepared)


def restore(
    account_id: int, template_id: int, number: int, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Restore the content of the revision `number` as a new edit.

    Raises NotFound, Conflict if `revision` is not the current revision, or the errors of `write`.
    """
    require_write_transaction()
    template = get(account_id, template_id)
    require_unchanged(template, revision=revision)
    revision_row = revisions.get(account_id, template_id, number)
    write(
        template,
        revisions.get_content_values(revision_row.document),
        user_id,
        _RESTORED % {"revision": revisions.describe_revision(revision_row)},
        restored_number=number,
        prepared=prepared,
    )
    return template


def prepare_revision(account_id: int, template_id: int, to: int | Literal["undo", "redo"]) -> PreparedContent | None:
    """Parse the content of the revision `to`, or of the revision that undo or redo would restore; raises NotFound.

    Returns None if there is nothing to undo or redo.
    """
    template = get(account_id, template_id)
    number: int | None = to if isinstance(to, int) else getattr(revisions.find_undo_steps(template), to)
    if number is None:
        return None
    revision = revisions.get(account_id, template_id, number)
    return prepare_values(template, revisions.get_content_values(revision.document))


def _undo_or_redo(
    account_id: int, template_id: int, user_id: int | None, revision: int | None, direction: str,
    prepared: PreparedContent | None,
) -> Template:  # fmt: skip
    require_write_transaction()
    template = get(account_id, template_id)
    require_unchanged(template, revision=revision)
    number: int | None = getattr(revisions.find_undo_steps(template), direction)
    if number is None:
        nothing_undone, nothing_redone = gettext("There is nothing to undo."), gettext("There is nothing to redo.")
        raise Invalid({"base": [nothing_undone if direction == "undo" else nothing_redone]})
    target = revisions.get(account_id, template_id, number)
    revision_name = revisions.describe_revision(target)
    label = (_UNDONE if direction == "undo" else _REDONE) % {"revision": revision_name}
    values = revisions.get_content_values(target.document)
    write(template, values, user_id, label, restored_number=number, moved=True, prepared=prepared)
    return template
