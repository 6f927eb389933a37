"""Documents are stored as they came: unknown keys are kept, and an edit changes one property."""

import copy
import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from appliance.content.designs import document
from appliance.content.designs.render import render_design
from tests.designs.samples import LOOK, MAIL
from tests.designs.test_hostile_documents import _documents
from tests.kit.sampling import examples

_QUIET = settings(max_examples=examples(30, full=100), deadline=None, suppress_health_check=list(HealthCheck))


def _is_valid_json(value: dict[str, Any]) -> bool:
    # JSON has no NaN and no infinity
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


@_QUIET
@given(_documents)
def test_reading_does_not_change_a_document(value: dict[str, Any]) -> None:
    """Validation, walking and rendering leave the document unchanged."""
    assume(_is_valid_json(value))
    before = copy.deepcopy(value)
    document.validate(value, lambda path, words: None)
    list(document.walk_sections(value))
    document.find_unknown(value)
    render_design(value, LOOK)

    assert value == before
    assert json.dumps(value) == json.dumps(before)


@_QUIET
@given(_documents, some.text(max_size=40), some.data())
def test_an_edit_changes_one_property(value: dict[str, Any], text: str, draw: Any) -> None:
    """Setting a property at a path of `walk_sections` and saving leaves the rest as it was, also unknown sections."""
    assume(_is_valid_json(value))  # a filter would write out the whole strategy for each value that it refuses
    value["sections"].append({"type": "alien", "future": [1, {"a": None}], "props": {"x": 1}})
    value["later"] = {"kept": True}
    loaded = json.loads(document.to_canonical_json(value))
    section = draw.draw(some.sampled_from(list(document.walk_sections(loaded))))
    target = _at(loaded, section.path)
    if isinstance(target.get("props"), dict):
        old = target["props"].get("edited")
        target["props"]["edited"] = text
        saved = json.loads(document.to_canonical_json(loaded))
        props = _at(saved, section.path)["props"]

        assert props.pop("edited") == text
        if old is not None:
            props["edited"] = old
        assert document.to_canonical_json(saved) == document.to_canonical_json(value)


def _at(value: Any, path: str) -> Any:
    for part in path.replace("]", "").replace("[", ".").split("."):
        value = value[int(part)] if part.isdigit() else value[part]
    return value


def test_unknown_sections_are_reported_and_skipped() -> None:
    """An unknown section is listed, causes advice with its path, and does not hide the others."""
    value = copy.deepcopy(MAIL)
    value["sections"].insert(2, {"type": "alien", "props": {"x": "<b>"}})
    design = render_design(value, LOOK)

    assert [(entry.type, entry.path) for entry in document.find_unknown(value)] == [("alien", "sections[2]")]
    assert [(entry.code, entry.path) for entry in design.advice] == [("unknown_section", "sections[2]")]
    assert "The furnace is lit" in design.html
    assert "alien" not in design.html


def test_validation_reports_the_path_of_each_error() -> None:
    """Validation reports all errors at once, each with the path of its field."""
    errors: dict[str, str] = {}
    value = {"theme": [1], "sections": [
        7, {"props": []}, {"type": "text", "props": {"content": "{% if %}"}},
        {"type": "button", "props": {"text": "x", "href": "javascript:x"}},
        {"type": "gallery", "props": {"items": [{"src": "https://x.example/a.png"}] * 7}},
        {"type": "list", "props": {"items": [{"title": "x" * 1_001}]}},
        {"type": "columns", "props": {"columns": [{"sections": [{"type": "columns", "props": {"columns": [
            {"sections": [{"type": "columns", "props": {"columns": []}}]}]}}]}]}},
    ]}  # fmt: skip
    document.validate(value, errors.__setitem__)
    inner = "sections[6].props.columns[0].sections[0].props.columns[0].sections[0].props.columns"

    assert set(errors) == {
        "theme", "sections[0]", "sections[1].props", "sections[2].props.content", "sections[3].props.href",
        "sections[4].props.items", "sections[5].props.items[0].title", inner,
    }  # fmt: skip
    assert errors["sections[5].props.items[0].title"] == "is too long (maximum is 1000 characters)"


def test_limits_of_sections_and_merge_tags() -> None:
    """At most 200 top-level sections, 1,000 with those in columns, and 2,000 merge tags are valid."""

    def errors_of(sections: list[Any]) -> dict[str, str]:
        errors: dict[str, str] = {}
        document.validate({"sections": sections}, errors.__setitem__)
        return errors

    text = {"type": "text", "props": {"content": "x"}}
    column = {"type": "columns", "props": {"columns": [{"sections": [text] * 50}, {"sections": [text] * 50}]}}

    assert errors_of([text] * 200) == {}
    assert errors_of([text] * 201) == {"sections": "is too long (maximum is 200 entries)"}
    assert errors_of([column] * 9) == {}
    assert "1000" in errors_of([column] * 10)["sections"]
    assert errors_of([{"type": "text", "props": {"content": "{{ a }}" * 1_900}}]) == {}
    assert "2000 tags" in errors_of([{"type": "text", "props": {"content": "{{ a }}" * 1_001}}] * 2)["sections"]
