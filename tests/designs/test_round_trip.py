"""Documents are kept as they came: what nobody here knows stays, and one edit changes one thing."""

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from appliance.content.designs import document
from appliance.content.designs.render import render_design
from tests.designs.samples import LOOK, MAIL
from tests.designs.test_robust import _documents

_QUIET = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def _whole(value: dict[str, Any]) -> bool:
    # What JSON itself does not keep: numbers that are none
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


@_QUIET
@given(_documents.filter(_whole))
def test_reading_a_document_changes_nothing_in_it(value: dict[str, Any]) -> None:
    """Checking, walking and rendering leave every key where it was, known or not."""
    before = copy.deepcopy(value)
    document.validate(value, lambda path, words: None)
    list(document.walk_sections(value))
    document.find_unknown(value)
    render_design(value, LOOK)

    assert value == before
    assert json.dumps(value) == json.dumps(before)


@_QUIET
@given(_documents.filter(_whole), some.text(max_size=40), some.data())
def test_one_edit_changes_one_thing(value: dict[str, Any], words: str, draw: Any) -> None:
    """A document loaded, one property set at the path that `walk` tells, and saved: all else is what it was."""
    value["sections"].append({"type": "alien", "future": [1, {"a": None}], "props": {"x": 1}})
    value["later"] = {"kept": True}
    loaded = json.loads(document.to_canonical_json(value))
    found = draw.draw(some.sampled_from(list(document.walk_sections(loaded))))
    target = _at(loaded, found.path)
    if isinstance(target.get("props"), dict):
        old = target["props"].get("edited")
        target["props"]["edited"] = words
        saved = json.loads(document.to_canonical_json(loaded))
        again = _at(saved, found.path)["props"]

        assert again.pop("edited") == words
        if old is not None:
            again["edited"] = old
        assert document.to_canonical_json(saved) == document.to_canonical_json(value)


def _at(value: Any, path: str) -> Any:
    for part in path.replace("]", "").replace("[", ".").split("."):
        value = value[int(part)] if part.isdigit() else value[part]
    return value


def test_unknown_sections_are_named_and_the_rest_is_shown() -> None:
    """An alien section is listed for the checklist, advised about with its path, and hides nothing else."""
    value = copy.deepcopy(MAIL)
    value["sections"].insert(2, {"type": "alien", "props": {"x": "<b>"}})
    made = render_design(value, LOOK)

    assert [(one.type, one.path) for one in document.find_unknown(value)] == [("alien", "sections[2]")]
    assert [(one.code, one.path) for one in made.advice] == [("unknown_section", "sections[2]")]
    assert "The furnace is lit" in made.html
    assert "alien" not in made.html


def test_the_check_names_the_path_of_each_fault() -> None:
    """What no document may hold is told with the path of a field, all of it at once."""
    faults: dict[str, str] = {}
    value = {"theme": [1], "sections": [
        7, {"props": []}, {"type": "text", "props": {"content": "{% if %}"}},
        {"type": "button", "props": {"text": "x", "href": "javascript:x"}},
        {"type": "gallery", "props": {"items": [{"src": "https://x.example/a.png"}] * 7}},
        {"type": "list", "props": {"items": [{"title": "x" * 1_001}]}},
        {"type": "columns", "props": {"columns": [{"sections": [{"type": "columns", "props": {"columns": [
            {"sections": [{"type": "columns", "props": {"columns": []}}]}]}}]}]}},
    ]}  # fmt: skip
    document.validate(value, faults.__setitem__)
    inner = "sections[6].props.columns[0].sections[0].props.columns[0].sections[0].props.columns"

    assert set(faults) == {
        "theme", "sections[0]", "sections[1].props", "sections[2].props.content", "sections[3].props.href",
        "sections[4].props.items", "sections[5].props.items[0].title", inner,
    }  # fmt: skip
    assert faults["sections[5].props.items[0].title"] == "is too long (maximum is 1000 characters)"


def test_a_document_of_too_many_sections_or_tags_is_refused() -> None:
    """200 sections, 1,000 with those in columns, and as many merge tags as one message may have."""

    def told(sections: list[Any]) -> dict[str, str]:
        faults: dict[str, str] = {}
        document.validate({"sections": sections}, faults.__setitem__)
        return faults

    text = {"type": "text", "props": {"content": "x"}}
    column = {"type": "columns", "props": {"columns": [{"sections": [text] * 50}, {"sections": [text] * 50}]}}

    assert told([text] * 200) == {}
    assert told([text] * 201) == {"sections": "is too long (maximum is 200 entries)"}
    assert told([column] * 9) == {}
    assert "1000" in told([column] * 10)["sections"]
    assert told([{"type": "text", "props": {"content": "{{ a }}" * 1_900}}]) == {}
    assert "2000 tags" in told([{"type": "text", "props": {"content": "{{ a }}" * 1_001}}] * 2)["sections"]
