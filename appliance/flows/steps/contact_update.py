"""The step that changes custom data of the contact."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from appliance.audience.consent import Evidence
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactPatch
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import Data, read
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


class _DataMerge(Struct):
    """The values to merge into the contact's custom data, for validation."""

    data_merge: Data


class ContactUpdate(StepKind):
    """A step that merges values into the custom data of the contact (RFC 7396)."""

    type = "contact_update"
    label = gettext_noop("Update custom fields")
    icon = "pencil"
    batch_size = 10
    keys = frozenset({"data_merge"})
    fields = (
        StepField(
            "data_merge", gettext_noop("Custom fields"), "object", required=True,
            help=gettext_noop("null removes a value."),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `data_merge`, a JSON object with at least one key."""
        if raw.get("data_merge") is None:
            context.add_fault("data_merge", "can't be blank")
            return {"data_merge": {}}
        try:
            return {"data_merge": read(_DataMerge, {"data_merge": raw["data_merge"]}, context.path).data_merge}
        except Invalid as error:
            context.faults.merge(error.fields)
            return {"data_merge": {}}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Update each contact as the API does.

        The step is skipped for a deleted contact, and for a contact whose data would become invalid or too long.
        """
        evidence, request = (
            Evidence("flow", f"flow:{context.flow_id}"),
            ContactPatch(data_merge=node.props["data_merge"]),
        )
        return [_update_contact(run, request, evidence) for run in runs]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text that names the keys that are set and those that are cleared."""
        values = props["data_merge"]
        set_keys = ", ".join(key for key, value in values.items() if value is not None)
        cleared_keys = ", ".join(key for key, value in values.items() if value is None)
        if set_keys and cleared_keys:
            return gettext("Set %(set)s and clear %(cleared)s", set=set_keys, cleared=cleared_keys)
        return (
            gettext("Set %(fields)s", fields=set_keys) if set_keys else gettext("Clear %(fields)s", fields=cleared_keys)
        )


def _update_contact(run: ActiveRun, request: ContactPatch, evidence: Evidence) -> StepResult:
    if run.contact_id is None:
        return skip("contact_deleted")
    try:
        write.update(run.account_id, run.contact_id, request, evidence)
    except Invalid:
        return skip("invalid_data")
    return CONTINUE
