"""The tables of filters, sections and steps agree with the registries of the service."""

from typing import Any

import pytest

from appliance.audience.filters.fields import FIELDS_BY_NAME
from appliance.audience.segments import suggestions as filter_spec
from appliance.content.designs import document as design
from appliance.flows import document
from tests.rules import published
from tests.rules.contract import filters, sections, steps

# Aliases of fields other than those of a Contact
FURTHER = {
    "data.<path>", "phone_number", "country", "tag", "tags", "verified", "enriched", "suppressed",
    "suppression_reason", "unsubscribed_at", "flow_id", "segment_id",
}  # fmt: skip


def test_filter_names() -> None:
    """Exactly the fields of the table are offered, with their types and aliases."""
    offered = filter_spec.describe_builder()["fields"]
    assert {field["name"]: field["type"] for field in offered} == filters.NAMES
    for alias, name in filters.ALIASES.items():
        assert FIELDS_BY_NAME[alias].name == name, alias
    contact = set(published.document()["components"]["schemas"]["Contact"]["properties"])
    ours = {"group", "event"} | {name for name in filters.NAMES if "<path>" in name}
    further = {alias for entry in offered for alias in entry["aliases"]} - set(filters.ALIASES) - ours
    assert further <= contact | FURTHER


def test_filter_predicates() -> None:
    """Each type has exactly the predicates of the table; JSON has those of all types that it can be."""
    offered = {
        kind: {test["predicate"] for test in tests} for kind, tests in filter_spec.describe_builder()["types"].items()
    }
    json = offered.pop("json")
    assert offered == filters.PREDICATES
    assert filters.PREDICATES["text"] | filters.PREDICATES["number"] <= json
    assert json <= set().union(*filters.PREDICATES.values())
    assert filter_spec.describe_builder()["limits"] == filters.LIMITS


def _to_notation(prop: dict[str, Any]) -> str:
    """Return a property in the notation of the table."""
    fields = ",".join(row["name"] for row in prop.get("fields", ()))
    within = f"[{fields}]" if fields else ""
    most = f"{prop['minimum']}-{prop['maximum']}" if prop["kind"] == "items" else ""
    return f"{prop['name']}{within}{most}" + (f"({','.join(prop['options'])})" if prop["kind"] == "choice" else "")


def _matches(promised: str, actual: str) -> bool:
    """Return whether a property matches the table; the table may leave out the number of items."""
    return promised == actual or (promised.endswith("]") and actual.startswith(promised))


@pytest.mark.parametrize("kind", sections.KINDS)
def test_section_properties(kind: str) -> None:
    """A section kind has exactly the properties of the table, besides the common ones."""
    spec = next(description for description in design.describe_designs()["kinds"] if description["type"] == kind)
    common = {prop.partition("(")[0] for prop in sections.COMMON}
    own = {prop["name"] for prop in spec["props"]}
    results = {prop["name"]: _to_notation(prop) for prop in spec["props"]}
    promised = {prop.partition("(")[0].partition("[")[0]: prop for prop in sections.KINDS[kind]}
    ours = {name for owner, name in sections.OURS if owner == kind}
    assert common <= own and own - common - set(promised) == ours
    assert all(_matches(prop, results[name]) for name, prop in promised.items()), (promised, results)


def test_design_kinds_theme_styles_and_limits() -> None:
    """Kinds, theme, styles and limits are those of the table."""
    spec = design.describe_designs()
    assert {kind["type"] for kind in spec["kinds"]} == set(sections.KINDS)
    ours = {name for owner, name in sections.OURS if owner == "theme"}
    assert {field["name"] for field in spec["theme"]} == {*sections.THEME, *ours}
    assert tuple(style["name"] for style in spec["styles"]) == sections.STYLES
    assert sections.LIMITS.items() <= spec["limits"].items()


@pytest.mark.parametrize(("props", "kind"), sections.GUESSES)
def test_section_types_are_inferred(props: dict[str, Any], kind: str) -> None:
    """A section without `type` gets the type that its properties imply."""
    assert design.read_section({"props": props}, "sections[0]").type == kind
    assert design.read_section({"props": props, "type": "spacer"}, "sections[0]").type == "spacer"


def test_step_types() -> None:
    """Exactly the step types of the table exist, with their keys and limits."""
    spec = document.build_spec()
    offered = {step["type"]: step for step in spec["steps"]}
    assert set(offered) == set(steps.CLAIMS) | set(steps.BY_TYPE_ONLY)
    assert {name: set(entry["claims"]) for name, entry in offered.items() if entry["claims"]} == steps.CLAIMS
    for name, keys in steps.BY_TYPE_ONLY.items():
        assert set(offered[name]["keys"]) == keys
    for name, keys in steps.BESIDE.items():
        assert keys <= set(offered[name]["keys"])
    assert spec["limits"] == steps.LIMITS
    assert tuple(spec["trigger"]["frequency"]) == steps.FREQUENCIES
    assert tuple(spec["trigger"]["data"]) == steps.TRIGGER_DATA
