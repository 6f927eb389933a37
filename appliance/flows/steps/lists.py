"""The steps that add the contact to a list, or remove it from one."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from appliance.audience import lists
from appliance.audience.lists import MIRROR_MESSAGE
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import (
    CONTINUE,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    skip,
)
from appliance.storage.database import rows
from appliance.storage.models import ContactList


class _ListStep(StepKind):
    """Base class of steps that change one list; `summary` inserts its name into `pattern`, marked for translation."""

    icon = "list"
    keys = frozenset({"contact_list_id"})
    fields = (StepField("contact_list_id", gettext_noop("List"), "list", required=True),)
    pattern: ClassVar[str]

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse the id of a list, which must not mirror a segment."""
        list_id = raw.get("contact_list_id")
        error = "can't be blank" if list_id is None else _check_list(context.account_id, list_id)
        if error:
            context.add_fault("contact_list_id", error)
        return {"contact_list_id": list_id}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return an error if the list has been deleted, or has become the mirror of a segment."""
        error = _check_list(account_id, props["contact_list_id"])
        return [("contact_list_id", error)] if error else []

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the name of the list."""
        contact_list = _find_list(account_id, props["contact_list_id"])
        return gettext(self.pattern, list=contact_list.name if contact_list else gettext("a deleted list"))


class ListAdd(_ListStep):
    """A step that adds the contact to a list."""

    type = "list_add"
    label = gettext_noop("Add to list")
    pattern = gettext_noop("Add to %(list)s")

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Add all contacts to the list, except those who left the list themselves, for whom the step is skipped.

        It is skipped for all contacts if the list has been deleted, or has become the mirror of a segment.
        """
        list_id = node.props["contact_list_id"]
        reason = _get_skip_reason(context.account_id, list_id)
        if reason is not None:
            return [skip(reason) for _ in runs]
        stays_out: set[int] = set()
        if lists.add_members(context.account_id, list_id, _get_contact_ids(runs)).kept_opt_outs:
            refusals = rows(
                "SELECT contact_id FROM list_opt_out WHERE contact_list_id = ? AND contact_id IN "
                "(SELECT value FROM json_each(?))",
                (list_id, json.dumps(_get_contact_ids(runs))),
            )
            stays_out = {row[0] for row in refusals}
        return [skip("left_list") if run.contact_id in stays_out else CONTINUE for run in runs]


class ListRemove(_ListStep):
    """A step that removes the contact from a list."""

    type = "list_remove"
    label = gettext_noop("Remove from list")
    pattern = gettext_noop("Remove from %(list)s")

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Remove all contacts from the list.

        The step is skipped for all if the list has been deleted, or has become the mirror of a segment.
        """
        list_id = node.props["contact_list_id"]
        reason = _get_skip_reason(context.account_id, list_id)
        if reason is not None:
            return [skip(reason) for _ in runs]
        lists.remove_members(context.account_id, list_id, _get_contact_ids(runs))
        return [CONTINUE for _ in runs]


def _find_list(account_id: int, list_id: Any) -> Any:
    if type(list_id) is not int or not 0 < list_id < 2**63:
        return None
    return ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)


def _get_contact_ids(runs: Sequence[ActiveRun]) -> list[int]:
    return [run.contact_id for run in runs if run.contact_id is not None]


def _get_skip_reason(account_id: int, list_id: int) -> str | None:
    """Return the skip reason if the list was deleted, or made a mirror of a segment, after the flow was published."""
    contact_list = _find_list(account_id, list_id)
    if contact_list is None:
        return "list_deleted"
    return "list_is_view" if contact_list.segment_id is not None else None


def _check_list(account_id: int, list_id: Any) -> str | None:
    contact_list = _find_list(account_id, list_id)
    if contact_list is None:
        return "must exist"
    return gettext(MIRROR_MESSAGE) if contact_list.segment_id is not None else None
