"""Contact update: custom data of the person is changed."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from appliance.audience.contacts import write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.requests import ContactPatch
from appliance.core.errors import Invalid
from appliance.core.fields import Data, read
from appliance.flows.steps.kind import ON, Field, Going, Here, Kind, Move, Node, Reading, skipped


class _Merged(Struct):
    """What is merged into the data."""

    data_merge: Data


class ContactUpdate(Kind):
    """Merge values into the custom data of the person (RFC 7396)."""

    type = "contact_update"
    label = "Change data"
    icon = "pencil"
    at_once = 10
    keys = frozenset({"data_merge"})
    fields = (Field("data_merge", "Data", "object", required=True, help="null takes a value away."),)

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read an object with at least one key."""
        if raw.get("data_merge") is None:
            reading.fault("data_merge", "can't be blank")
            return {"data_merge": {}}
        try:
            return {"data_merge": read(_Merged, {"data_merge": raw["data_merge"]}, reading.path).data_merge}
        except Invalid as refused:
            reading.faults.merge(refused.fields)
            return {"data_merge": {}}

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Change each as the API would; data that would be too long or wrong stays as it is."""
        evidence, request = Evidence("flow", f"flow:{here.flow_id}"), ContactPatch(data_merge=node.props["data_merge"])
        return [_changed(going, request, evidence) for going in goings]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return what is set and what is taken away."""
        merged = props["data_merge"]
        put = [key for key, value in merged.items() if value is not None]
        taken = [key for key, value in merged.items() if value is None]
        parts = [f"{verb} {', '.join(keys)}" for verb, keys in (("set", put), ("clear", taken)) if keys]
        return " and ".join(parts).capitalize()


def _changed(going: Going, request: ContactPatch, evidence: Evidence) -> Move:
    if going.contact_id is None:
        return skipped("contact_deleted")
    try:
        write.update(going.account_id, going.contact_id, request, evidence)
    except Invalid:
        return skipped("invalid_data")
    return ON
