"""List steps: put the person into a list, or take them out of one."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from appliance.audience.contacts import lists
from appliance.audience.contacts.lists import VIEW
from appliance.flows.steps.kind import ON, Field, Going, Here, Kind, Move, Node, Reading, skipped
from appliance.storage.models import ContactList
from appliance.storage.open import rows


class _ListStep(Kind):
    """A step about one list."""

    icon = "list"
    keys = frozenset({"contact_list_id"})
    fields = (Field("contact_list_id", "List", "list", required=True),)
    pattern: ClassVar[str]

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read the id of a list that has members of its own."""
        number = raw.get("contact_list_id")
        words = "can't be blank" if number is None else _fault(reading.account_id, number)
        if words:
            reading.fault("contact_list_id", words)
        return {"contact_list_id": number}

    def lacks(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return whether the list is gone by now."""
        words = _fault(account_id, props["contact_list_id"])
        return [("contact_list_id", words)] if words else []

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Name the list."""
        found = _find(account_id, props["contact_list_id"])
        return self.pattern.format(found.name if found else "a list that was deleted")


class ListAdd(_ListStep):
    """Put the person into a list."""

    type = "list_add"
    label = "Add to list"
    pattern = "Add to {}"

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Put all of them in; who left it by their own act stays out."""
        number = node.props["contact_list_id"]
        reason = _gone(here.account_id, number)
        if reason is not None:
            return [skipped(reason) for _ in goings]
        stays_out: set[int] = set()
        if lists.join(here.account_id, number, _people(goings)).kept:
            refusals = rows(
                "SELECT contact_id FROM list_refusal WHERE contact_list_id = ? AND contact_id IN "
                "(SELECT value FROM json_each(?))",
                (number, json.dumps(_people(goings))),
            )
            stays_out = {row[0] for row in refusals}
        return [skipped("left_list") if going.contact_id in stays_out else ON for going in goings]


class ListRemove(_ListStep):
    """Take the person out of a list."""

    type = "list_remove"
    label = "Remove from list"
    pattern = "Remove from {}"

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Take all of them out."""
        number = node.props["contact_list_id"]
        reason = _gone(here.account_id, number)
        if reason is not None:
            return [skipped(reason) for _ in goings]
        lists.leave(here.account_id, number, _people(goings))
        return [ON for _ in goings]


def _find(account_id: int, number: Any) -> Any:
    if type(number) is not int or not 0 < number < 2**63:
        return None
    return ContactList.get_or_none(ContactList.account == account_id, ContactList.id == number)


def _people(goings: Sequence[Going]) -> list[int]:
    return [going.contact_id for going in goings if going.contact_id is not None]


def _gone(account_id: int, number: int) -> str | None:
    """Return why a list takes nobody: it was deleted, or made the view of a segment, since the flow went live."""
    found = _find(account_id, number)
    if found is None:
        return "list_deleted"
    return "list_is_view" if found.segment_id is not None else None


def _fault(account_id: int, number: Any) -> str | None:
    found = _find(account_id, number)
    if found is None:
        return "must exist"
    return VIEW if found.segment_id is not None else None
