"""What the page of a proposal shows: a change of any value of a design, a step, a trigger or custom data is in it."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from appliance.agents.differences import Difference, compare, flatten_content, flatten_steps, flatten_translations
from appliance.agents.flow_words import Worded, word_filters, word_trigger_value
from appliance.agents.kinds.flows import _flatten_settings
from appliance.audience import lists
from appliance.audience.lists import ListCreate
from appliance.audience.segments import members
from appliance.content.designs.kind import COMMON, STYLES, THEME, Prop
from appliance.content.designs.sections import KINDS as SECTION_KINDS
from appliance.events import log
from appliance.flows import triggers
from appliance.flows.steps import KINDS as STEP_KINDS
from appliance.flows.triggers import _DATA_CHECKS
from appliance.storage import transactions
from appliance.storage.models import NESTED_STEP_KEYS
from tests.domain.home import Home

CONDITION = {"name": "contact_email", "predicate": "cont", "value": "a@example.org"}
NESTED = [{"id": 90, "type": "wait", "duration": 60}, {"id": 91, "type": "exit"}]
# What the sample of a step has under its keys; any other key has a text.
SAMPLES: dict[str, Any] = {
    "duration": 60, "filters": [CONDITION], "event_data": {"a": 1, "b": {"c": [None, ""]}}, "payload": {"a": None},
    "headers": {"X-A": "1"}, "secret_headers": {"X-B": None}, "signed": True, "forward_event_data": True,
    "data_merge": {"vip": None, "level": 1}, "save_to_contact": {"score": "a.b"}, "save_to_run": {"a": "b"},
    "timeout": 60, "weekdays": ["mon"], "user_id": 1, "contact_list_id": 1, "step_id": 90, "max_jumps": 3,
    "offset_days": 0, "transactional": True, "utm": {"source": "a", "medium": None}, "yes": NESTED, "no": NESTED,
    "else": NESTED, "by_amount": False, "uneven": True, "channel": "email", "template_id": None,
    "branches": [{"key": "b1", "name": "", "share": 40, "values": ["a", "b"], "steps": NESTED},
                 {"key": "b2", "name": "B", "share": 60, "values": ["c"], "steps": []}],
    "design": {"sections": [{"id": "a", "type": "text", "props": {"content": "A"}}], "theme": {"width": 600}},
}  # fmt: skip
TRIGGER_SAMPLES: dict[str, Any] = {
    "frequency": {"min_gap_seconds": 60}, "where": [CONDITION], "keywords": ["a", "b"], "tag": "vip",
    "offset_days": 0, "max_per_hour": 1, "yearly": False, "at": "09:00", "path": "data.birthday", "holdout": 0.1,
    "holdout_event": "order", "respect_control_group": False,
    "other": {"name": 1, "Name": 2, "a": {"b": 1}, "a · b": 2},
}  # fmt: skip


def mutate(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (path of the change, changed copy) for each change of one place in a JSON value."""
    if isinstance(value, dict):
        for name in value:
            for inner_path, changed in mutate(value[name], (*path, name)):
                yield inner_path, {**value, name: changed}
            yield (*path, name, "removed"), {key: inner for key, inner in value.items() if key != name}
        names = list(value)
        for first, second in pairwise(names):
            yield (*path, first, "swapped"), {**value, first: value[second], second: value[first]}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for inner_path, changed in mutate(item, (*path, index)):
                yield inner_path, [*value[:index], changed, *value[index + 1 :]]
            yield (*path, index, "removed"), [*value[:index], *value[index + 1 :]]
            yield (*path, index, "moved"), [*value[index + 1 :], *value[: index + 1]]
        yield (*path, "longer"), [*value, {}]
    else:
        others: tuple[Any, ...] = (
            "",
            None,
            False,
            True,
            0,
            "0",
            f"{value}",
            f"{value} ",
            f"{value}\u200b",
            [],
            {},
            [value],
        )
        yield from ((path, other) for other in others)


def is_equal(first: Any, second: Any) -> bool:
    """Return whether two values are the same JSON."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def get_sample(prop: Prop) -> Any:
    """Return a value of a property of a section."""
    if prop.kind == "items":
        return [{field.name: get_sample(field) for field in prop.fields} for _ in range(2)]
    if prop.kind == "group":
        return {field.name: get_sample(field) for field in prop.fields}
    if prop.kind == "sections":
        return [{"sections": [{"id": "i", "type": "text", "props": {"content": "In"}}]}, {"sections": []}, {}]
    if prop.kind == "filters":
        return [CONDITION]
    return {"number": 10, "flag": True, "colour": "#ffffff", "image": "https://a.example/b.png"}.get(prop.kind, "Text")


def build_section(kind: Any, key: str) -> dict[str, Any]:
    """Return a section with a value of every property."""
    props = {prop.name: get_sample(prop) for prop in (*kind.props, *COMMON)}
    return {"id": key, "type": kind.name, "props": props, "styles": {prop.name: get_sample(prop) for prop in STYLES}}


def assert_shown(before: Any, path: tuple[Any, ...], after: Any, differences: list[Difference]) -> None:
    """Assert that the page shows a change, with two texts that can be told apart."""
    assert differences, (path, before, after)
    assert all(row.before != row.after and row.label for row in differences), (path, differences)


# An empty group of properties or of styles is the same as none.
HARMLESS: tuple[dict[str, Any], ...] = ({"props": {}}, {"styles": {}}, {"theme": {}})


@pytest.mark.parametrize("kind", SECTION_KINDS, ids=lambda kind: kind.name)
def test_any_change_of_a_section_is_shown(kind: Any) -> None:
    """Each property and style that is declared, the order and identity of sections, and sections without properties."""
    plain: list[dict[str, Any]] = [{"id": "p", "type": "text", "props": {"content": "Plain"}}, {"type": "divider"}]
    sections: list[dict[str, Any]] = [build_section(kind, "s"), *plain, build_section(kind, "t")]
    sections[-1]["props"] = dict(list(sections[-1]["props"].items())[:1])
    design = {"sections": sections, "theme": {prop.name: get_sample(prop) for prop in THEME}}
    for path, changed in mutate(design):
        if is_equal(design, changed) or (path[-1] in ("props", "styles", "theme") and changed in HARMLESS):
            continue
        before, after = (flatten_content({"design": value}) for value in (design, changed))
        assert_shown(design, path, changed, compare(before, after))


@pytest.mark.parametrize("kind", STEP_KINDS, ids=lambda kind: kind.type)
def test_any_change_of_a_step_is_shown(home: Home, kind: Any) -> None:
    """Each key of each kind of step, also null in custom fields, and those of its branches."""
    names = {*kind.keys, *(field.name for field in kind.fields), *kind.branch_keys} - {"template_id"}
    step = {"id": 1, "type": kind.type, **{name: SAMPLES.get(name, "Text") for name in sorted(names)}}
    for name in names:
        for path, changed in mutate(step[name], (name,)):
            is_nested = name in NESTED_STEP_KEYS[:3] and len(path) > 2 and path[2] not in ("removed", "moved")
            is_malformed = name in NESTED_STEP_KEYS and (not has_form_of_steps(changed) or "steps" in path)
            is_secret = name == "secret_headers" and path[-1] not in ("removed", "swapped")
            if is_equal(step[name], changed) or is_nested or is_malformed or is_secret:
                continue
            before, after = (flatten_steps(home.account_id, [row], [step]) for row in (step, {**step, name: changed}))
            assert_shown(step, path, changed, compare(before, after))


def has_form_of_steps(value: Any) -> bool:
    """Return whether a value has the form of branches or of the steps of a branch."""
    items = value if isinstance(value, list) and all(isinstance(item, dict) and item for item in value) else [{}]
    texts = [text for item in items for text in (item.get("key", "" if "id" in item else None), *as_list(item))]
    return all(isinstance(text, str) for text in texts)


def as_list(item: dict[str, Any]) -> list[Any]:
    """Return the values of a branch, or a list with an invalid one if they are no list."""
    values = item.get("values", [] if "id" in item else None)
    return values if isinstance(values, list) else [None]


def test_a_step_in_the_place_of_another_is_shown(home: Home) -> None:
    """Two steps that look the same may have other secrets, translations and results."""
    request = {"type": "http_request", "url": "https://a.example", "secret_headers": {"Authorization": None}}
    split = {"id": 3, "type": "split", "filters": [CONDITION], "yes": [{"id": 4, **request}], "no": []}
    steps = [{"id": 1, **request}, {"id": 2, **request}, split]

    def show(changed: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
        before, after = (flatten_steps(home.account_id, value, steps) for value in (steps, changed))
        return [(row.label, row.before, row.after) for row in compare(before, after)]

    name, moved = "HTTP request", "HTTP request (moved from Step {})"
    assert show([steps[1], steps[0], split]) == [
        ("Step 1", name, moved.format(2)), ("Step 2", name, moved.format(1)),
    ]  # fmt: skip
    inner = show([{"id": 4, **request}, steps[1], {**split, "yes": [steps[0]]}])
    assert inner == [("Step 1", name, moved.format("3 · Yes · 1")), ("Step 3 · Yes · 1", name, moved.format(1))]
    assert show([{"id": 9, **request}, steps[1], split]) == [("Step 1", name, "HTTP request (new)")]
    assert show(steps) == []


def test_any_change_of_a_trigger_or_of_data_is_shown(home: Home) -> None:
    """Each key of a trigger, and keys of data that have the same label or path, or differ in an empty value."""
    assert TRIGGER_SAMPLES.keys() >= _DATA_CHECKS.keys()
    for name, sample in {"trigger": {"event": "a", "data": TRIGGER_SAMPLES}, "data": TRIGGER_SAMPLES}.items():
        for path, changed in mutate(sample):
            if is_equal(sample, changed) or len(path) == 1 or not isinstance(changed.get("data", {}), dict):
                continue
            before, after = (_flatten_settings(home.account_id, {name: value}) for value in (sample, changed))
            assert_shown(sample, path, changed, compare(before, after))


def test_a_translation_that_moves_to_another_text_is_shown() -> None:
    """The first of two texts with the same label need not be translated."""
    sections = [{"id": name, "type": "text", "props": {"content": f"<p>{name}</p>"}} for name in ("aaaa", "bbbb")]
    translated = {"de": {"aaaa/props.content": {"source": "x", "text": "<p>A</p>"}}}
    swapped = [{**sections[0], "id": "bbbb"}, {**sections[1], "id": "aaaa"}]
    before, after = (
        flatten_translations({"design": {"sections": value}, "translations": translated}, "email")
        for value in (sections, swapped)
    )
    rows = [(row.label.rpartition(" ")[2], row.before, row.after) for row in compare(before, after)]
    assert rows == [("Text", "<p>A</p>", ""), ("(2)", "", "<p>A</p>")]


def test_values_that_look_the_same_are_told_apart() -> None:
    """Other white space, code points, directions, types and empty values have their JSON beside them."""
    pairs: tuple[tuple[Any, Any], ...] = (
        ("a b", "a\u00a0b"), ("e\u0301", "\u00e9"), ("1", 1), (True, "Yes"), ("a\r\nb", "a\nb"), ("[U+202E]", "\u202e"),
        ("", []), ("x", "x "), ("x", "x\u200d"), ("x", "x\ufe0f"), (None, ""), (1, 1.0),
    )  # fmt: skip
    for pair in pairs:
        before, after = (_flatten_settings(0, {"data": {"value": value}}) for value in pair)
        [row] = compare(before, after)
        assert row.before.split() != row.after.split(), pair


CLEAR: tuple[dict[str, Any], ...] = (
    {"name": "contact_email", "predicate": "cont", "value": "a"},
    {"name": "data.level", "predicate": "eq", "value": "gold"},
)
UNCLEAR: tuple[dict[str, Any], ...] = (
    {"name": "contact_email", "predicate": "in", "value": [f"{number}@a.example" for number in range(7)]},
    {"name": "contact_first_name", "predicate": "cont", "value": "A” and email address contains “b"},
    {"name": "data.email_address", "predicate": "cont", "value": "a"},
    {"name": "data.Email address", "predicate": "cont", "value": "a"},
    {"name": "contact_created_at", "predicate": "lt", "value": "2026-01-01T10:00:01Z"},
    {"name": "event", "predicate": "performed", "value": {"event": "email_opened", "include_machine": True}},
    {"name": "event", "predicate": "performed", "value": {"event": "email_opened", "since": "2026-01-01T10:00:01Z"}},
    {"name": "group", "predicate": "any", "value": [{"name": "data.tags", "predicate": "cont", "value": "a"}]},
)


def test_conditions_that_the_sentence_leaves_unclear_have_their_json(home: Home) -> None:
    """A sentence rounds times, leaves out values, and has labels and names that anybody may give."""
    scope = members.build_scope(home.account_id)
    for filters, is_clear in (*((row, True) for row in CLEAR), *((row, False) for row in UNCLEAR)):
        worded = word_filters(home.account_id, [filters], scope)
        assert isinstance(worded, Worded), filters
        assert ("predicate" not in worded.text) == is_clear, worded.text
    home_list = transactions.write(lists.create, home.account_id, ListCreate(name="A” and email address contains “b"))
    member = {"name": "contact_list", "predicate": "eq", "value": home_list.id}
    assert "predicate" in word_filters(home.account_id, [member], scope).text
    conditions = {"event.total": True, "data.total": False}
    for name, has_code in conditions.items():
        filters = [{"name": name, "predicate": "gt", "value": 5}]
        worded = word_filters(home.account_id, filters, triggers.get_condition_scope(home.account_id))
        assert ("predicate" in worded.text) == has_code, worded.text


def test_an_event_that_has_the_label_of_another_is_named(home: Home) -> None:
    """An event of a client may be called as an event of the service is labelled."""
    label = log.name_event("segment_enter")
    for name, expected in (("segment_enter", label), (label.lower().replace(" ", "_"), f"{label} ({{}})")):
        worded = word_trigger_value(home.account_id, "event", name)
        assert worded.text == expected.format(name)
