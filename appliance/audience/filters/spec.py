"""What a builder of filters can offer: fields, predicates, types and limits, straight from the registries."""

from functools import cache
from typing import Any

from appliance.audience.filters import read, values
from appliance.audience.filters.fields import FIELDS
from appliance.audience.filters.predicates import BY_TYPE
from appliance.audience.filters.read import GROUPS

_GROUPS = (
    ("contact_list", "audience"), ("contact_segment", "audience"), ("contact_flow", "audience"),
    ("contact_", "person"), ("campaign_", "activity"), ("email_", "activity"), ("sms_", "activity"),
)  # fmt: skip


@cache
def spec() -> dict[str, Any]:
    """Return fields, predicates by type, and limits."""
    types = {
        kind: [
            {"predicate": key, "takes": test.takes, "negative": negative,
             "words": (test.opposite_words if negative else test.words).replace("{}", "").strip()}
            for key, (test, negative) in tests.items()
        ]
        for kind, tests in BY_TYPE.items()
    }  # fmt: skip
    types["history"] = [
        {"predicate": key, "takes": "event", "negative": key != "performed", "words": words}
        for key, words in (("performed", "did"), ("not_performed", "did not do"))
    ]
    types["group"] = [
        {"predicate": mode, "takes": "filters", "negative": mode == "none", "words": f"{mode} of"} for mode in GROUPS
    ]
    fields = [
        {"name": field.name, "type": field.type, "label": field.label, "section": _section(field.name),
         "aliases": list(field.aliases), "choices": list(field.choices), "of": field.of or None}
        for field in FIELDS if field.listed
    ]  # fmt: skip
    fields.insert(9, {"name": "contact_data.<path>", "type": "json", "label": "custom data", "section": "person",
                      "aliases": ["data.<path>"], "choices": [], "of": None})  # fmt: skip
    limits = {"filters": read.MAX_FILTERS, "group": read.MAX_IN_GROUP, "depth": read.MAX_DEPTH, "in": values.MAX_IN}
    return {"fields": fields, "types": types, "limits": limits}


def _section(name: str) -> str:
    return next((section for start, section in _GROUPS if name.startswith(start)), "activity")
