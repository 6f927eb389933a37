"""What flows can be made of, as data: for scripts that write them, and for the builder."""

from typing import Any

from appliance.events import kinds
from appliance.flows import document
from appliance.flows.steps import KINDS
from appliance.flows.steps.kind import Kind
from appliance.flows.steps.wait import MAX_SECONDS

# By clients, as docs/decisions.md#13 names them; any other name of theirs starts a flow too
_CLIENTS = (
    "product_view", "checkout", "cart_add", "cart_remove", "cart_abandoned", "browse_abandoned", "order_paid",
    "order_shipped", "password_reset",
)  # fmt: skip


def spec() -> dict[str, Any]:
    """Return the kinds of steps with what they take, the events that start flows, and limits."""
    return {
        "steps": [_kind(kind) for kind in KINDS],
        "events": [
            *({"name": kind.name, "group": kind.group, "words": kind.words} for kind in kinds.KINDS),
            *({"name": name, "group": "client", "words": kinds.words(name)} for name in _CLIENTS),
        ],
        "trigger": {
            "frequency": ["once", "every_time", {"min_gap_seconds": 86_400}],
            "data": ["frequency", "where", "keywords", "tag", "path", "yearly", "offset_days", "at"],
        },
        "limits": {"steps": document.MAX_STEPS, "depth": document.MAX_DEPTH, "wait_seconds": MAX_SECONDS},
    }


def _kind(kind: Kind) -> dict[str, Any]:
    return {
        "type": kind.type, "label": kind.label, "icon": kind.icon, "claims": sorted(kind.claims),
        "keys": sorted(kind.keys), "branches": list(document.BRANCHES) if kind.branches else [],
        "fields": [field._asdict() for field in kind.fields],
    }  # fmt: skip
