"""Templates and their designs: stored unchanged, validated completely (docs/decisions.md#11)."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser

KINDS = ("text", "heading", "button", "columns", "footer", "hologram")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00{"), max_size=12)
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
# Keys that no section kind has, so that any value is valid
KEYS = TEXTS.map(lambda text: f"x_{text}")
OPEN = st.dictionaries(KEYS, VALUES, max_size=4)
SECTIONS = st.builds(
    lambda type, props, styles, more, name: {**type, **more, "props": {**name, **props}, "styles": styles},
    st.one_of(st.just({}), st.sampled_from(KINDS).map(lambda kind: {"type": kind})), OPEN, OPEN, OPEN,
    st.one_of(st.just({}), TEXTS.map(lambda text: {"text": text, "level": 2})),
)  # fmt: skip
DESIGNS = st.builds(
    lambda sections, theme, more: {**more, "theme": theme, "sections": sections},
    st.lists(SECTIONS, max_size=4), OPEN, OPEN,
)  # fmt: skip


def without_added_keys(design: dict[str, Any], like: dict[str, Any]) -> str:
    """Return a design as JSON, without the `id` and `type` that the API added to its sections."""
    for section, sent in zip(design["sections"], like["sections"], strict=True):
        for key in ("id", "type"):
            if sent.get(key) is None:
                section.pop(key, None)
    return json.dumps(design)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(design=DESIGNS)
def test_a_design_round_trips(design: dict[str, Any], api: Client) -> None:
    """Reading and saving a design with one changed field keeps every value, key and the order of keys."""
    template = api.post("/templates", {"design": design}).expect(201)
    read = api.get(f"/templates/{template['id']}").expect(200)
    saved = api.patch(f"/templates/{template['id']}", {"subject": "new", "design": read["design"]}).expect(200)

    assert read == template
    assert json.dumps(saved["design"]) == json.dumps(read["design"])
    assert without_added_keys(read["design"], design) == json.dumps(design)
    ids = [section["id"] for section in saved["design"]["sections"]]
    assert len(set(ids)) == len(ids)


def test_sections_get_ids_and_types(api: Client) -> None:
    """Missing ids and types are added the same way each time, also in columns; given ones stay."""
    inner = {"props": {"content": "<p>x</p>"}}
    button = {"props": {"text": "Go", "href": "https://example.org"}}
    columns = {"type": "columns", "props": {"columns": [{"sections": [inner]}, {}]}}
    kept = {"id": "mine", "type": "hologram", "beam": 3}
    design = {"sections": [button, button, kept, columns, {"what": "is this"}]}
    first, second = (api.post("/templates", {"design": design}).expect(201)["design"] for _ in range(2))
    got = first["sections"]

    assert first == second
    assert [section.get("type") for section in got] == ["button", "button", "hologram", "columns", None]
    assert got[2] == kept
    assert len({section["id"] for section in got}) == 5
    assert got[3]["props"]["columns"][0]["sections"][0].keys() == {"props", "id", "type"}


def test_all_errors_of_a_design_are_reported(api: Client) -> None:
    """Script URLs, unclosed tags, unknown conditions and wrong types are reported at their paths."""
    condition = [
        {"name": "nobody_knows", "predicate": "eq", "value": 1},
        {"name": "list", "predicate": "eq", "value": 9},
    ]
    inner = {"type": "button", "props": {"text": "x", "href": "javascript:alert(1)"}}
    design = {"theme": "red", "sections": [
        {"type": "button", "props": {"text": "a {{ b", "href": "data:text/html,x"}},
        {"type": "text", "props": {"content": ["no text"], "show_if": condition}},
        {"type": "header", "props": {"links": [{"text": "ok", "href": "https://example.org"}, {"href": "vbscript:x"}]}},
        {"type": "columns", "props": {"columns": [{"sections": [inner]}, {"sections": {}}]}},
        "no section", {"type": "text", "props": []}, {"type": "hologram", "props": {"href": "javascript:kept"}},
    ]}  # fmt: skip
    errors = api.post("/templates", {"design": design, "subject": "{{ x"}).expect(422)["validation_errors"]

    assert {
        "subject", "design.theme", "design.sections[0].props.text", "design.sections[0].props.href",
        "design.sections[1].props.content", "design.sections[1].props.show_if[0].name",
        "design.sections[2].props.links[1].href", "design.sections[3].props.columns[0].sections[0].props.href",
        "design.sections[3].props.columns[1].sections", "design.sections[4]", "design.sections[5].props",
    } <= set(errors)  # fmt: skip
    assert not any(path.startswith("design.sections[6]") for path in errors)
    assert "line 1" in errors["design.sections[0].props.text"][0]
    named = {"template_attributes": {"design": {"sections": [inner]}}, "name": "x"}
    result = api.post("/campaigns", named).expect(422)["validation_errors"]
    assert set(result) == {"template_attributes.design.sections[0].props.href"}


@pytest.mark.parametrize(
    ("design", "field"),
    [
        ({"sections": [{"type": "spacer", "props": {}}] * 201}, "design.sections"),
        ({"sections": [], "blob": "x" * 1_048_576}, "design"),
        ({"sections": {}}, "design.sections"),
        ([], "design"),
        ("{}", "design"),
    ],
)
def test_invalid_designs_are_rejected(design: Any, field: str, api: Client) -> None:
    """A design is an object with at most 200 sections and 1 MiB (docs/decisions.md#4)."""
    assert list(api.post("/templates", {"design": design}).expect(422)["validation_errors"]) == [field]


def test_the_largest_valid_design(api: Client) -> None:
    """200 sections with almost 1 MiB are stored unchanged."""
    design = {"sections": [{"id": f"s{n}", "type": "text", "props": {"content": "x" * 5_000}} for n in range(200)]}
    template = api.post("/templates", {"design": design}).expect(201)
    assert template["design"] == design


def test_patch_a_template(api: Client) -> None:
    """An absent field stays, null clears, and a design is replaced as a whole."""
    sections = [{"id": "a", "type": "spacer", "props": {}}]
    body = {"name": "Letter", "subject": "s", "body": "b", "preheader": "p", "from_name": "f",
            "from_email": "f@example.org", "reply_to": "r@example.org",
            "design": {"sections": sections, "theme": {"bg_color": "#ffffff"}}}  # fmt: skip
    template = api.post("/templates", body).expect(201)
    kept = api.patch(f"/templates/{template['id']}", {"subject": "t"}).expect(200)
    replaced = api.patch(f"/templates/{template['id']}", {"design": {"sections": sections}}).expect(200)
    cleared = api.patch(f"/templates/{template['id']}", dict.fromkeys(body)).expect(200)

    moving = {"subject", "updated_at"}
    assert {k: v for k, v in kept.items() if k not in moving} == {k: v for k, v in template.items() if k not in moving}
    assert replaced["design"] == {"sections": sections}
    assert cleared["design"] == {"sections": [], "theme": {}}
    assert [cleared[name] for name in body if name != "design"] == [None] * 7


def test_list_templates(api: Client) -> None:
    """The list has the templates of campaigns too; `standalone` and `search` filter it."""
    mine = api.post("/templates", {"name": "Listed", "subject": "Zebra crossing"}).expect(201)["id"]
    campaign = api.post("/campaigns", {"name": "c", "template_attributes": {"subject": "Zebra too"}}).expect(201)
    theirs = campaign["template"]["id"]

    assert {mine, theirs} <= {row["id"] for row in api.all("/templates")}
    assert [row["id"] for row in api.get("/templates", search="zebra").json] == [theirs, mine]
    assert [row["id"] for row in api.get("/templates", search="zebra", standalone="true").json] == [mine]
    assert [row["id"] for row in api.get("/templates", search="zebra", standalone="false").json] == [theirs]
    assert [row["id"] for row in api.get("/templates", search="listed").json] == [mine]
    assert list(api.get("/templates", standalon="true").expect(422)["validation_errors"]) == ["standalon"]


def test_a_template_in_use_is_not_deleted(api: Client) -> None:
    """The error names the campaign or flow to which it belongs, over the API and on the page."""
    campaign = api.post("/campaigns", {"name": "Spring"}).expect(201)
    flow = api.post("/flows", {"name": "Welcome", "steps": [{"subject": "Hi", "body": "Hi"}]}).expect(201)
    page = ScriptlessBrowser(api)
    for template_id, owner in (
        (campaign["template"]["id"], {"campaign_id": campaign["id"], "name": "Spring"}),
        (flow["steps"][0]["template_id"], {"flow_id": flow["id"], "name": "Welcome"}),
    ):
        refused = api.delete(f"/templates/{template_id}").expect(422)
        assert (refused["reason"], refused["used_by"]) == ("in_use", [owner])
        answer = page.submit(f"/templates/{template_id}/delete")
        assert answer.status == 422 and f"In use by: {owner['name']}." in answer.text


def test_an_edit_conflict_of_a_template(api: Client) -> None:
    """A PATCH with an old `updated_at` is a 409 that names the changed fields."""
    template = api.post("/templates", {"name": "shared", "subject": "one"}).expect(201)
    path = f"/templates/{template['id']}"
    first = api.patch(path, {"subject": "two", "updated_at": template["updated_at"]}).expect(200)
    api.patch(path, {"design": {"sections": [{"type": "spacer"}]}, "updated_at": first["updated_at"]}).expect(200)
    late = api.patch(path, {"subject": "three", "updated_at": template["updated_at"]}).expect(409)

    assert (late["code"], late["changed"], late["revision"]) == ("conflict", ["subject", "design"], 3)
    assert api.get(path).json["subject"] == "two"
    assert api.patch(path, {"subject": "three", "updated_at": late["updated_at"]}).expect(200)["subject"] == "three"
    assert api.patch(path, {"subject": "four"}).expect(200)["subject"] == "four"


def test_variables_of_a_template(api: Client) -> None:
    """Variables of subject, preheader, body and sections are listed with default and sample."""
    button = {"type": "button", "props": {"text": "{{ data.word }}", "href": "https://example.org/{{ data.code }}"}}
    template = api.post("/templates", {
        "subject": 'Hi {{ contact.first_name | default: "you" }}', "preheader": "{{ data.preview }}",
        "body": "{{ event.amount }}", "design": {"sections": [button]},
    }).expect(201)  # fmt: skip

    assert set(template["variables"]) == {
        "contact.first_name",
        "data.preview",
        "event.amount",
        "data.word",
        "data.code",
    }
    assert template["variables"]["contact.first_name"] == {"default": "you", "sample": "you", "required": False}
    assert all(set(variable) == {"default", "sample", "required"} for variable in template["variables"].values())


def test_template_spec(api: Client) -> None:
    """The specification lists section kinds with properties, and starters that can be stored as they are."""
    result = api.get("/templates/spec").expect(200)
    kinds = {kind["type"]: kind for kind in result["kinds"]}

    assert set(kinds) == {
        "header", "hero", "heading", "text", "list", "quote", "button", "image", "split", "product", "product_grid",
        "gallery", "columns", "coupon", "video", "divider", "spacer", "social", "footer", "html",
    }  # fmt: skip
    assert {"text", "href", "show_if", "hide_on", "align", "name"} <= {
        prop["name"] for prop in kinds["button"]["props"]
    }
    assert kinds["spacer"]["defaults"]["height"] == 24
    assert result["limits"]["sections"] == 200 and "default" in result["merge"]["filters"]
    assert [starter["name"] for starter in result["starters"]] == [
        "newsletter", "announcement", "offer", "invitation", "letter", "welcome",
    ]  # fmt: skip
    for starter_row in result["starters"]:
        asked = {"name": starter_row["label"], **{key: starter_row[key] for key in ("subject", "preheader", "design")}}
        template = api.post("/templates", asked).expect(201)
        assert template["design"] == starter_row["design"]
        preview = api.post("/templates/preview", {"document": starter_row["design"]}).expect(200)
        codes = {warning["code"] for warning in preview["warnings"]}
        assert codes <= {"image_missing", "placeholder_content", "placeholder_link"}


def test_channel_of_a_template(api: Client) -> None:
    """The channel is set when it is created or by its campaign or step, and cannot be changed alone."""
    template = api.post("/templates", {"name": "Note", "channel": "sms", "body": "Open: <b>now</b>"}).expect(201)
    result = api.get("/templates", channel="sms").expect(200)
    changed = api.patch(f"/templates/{template['id']}", {"channel": "email"}).expect(422)

    assert template["channel"] == "sms" and template["body"] == "Open: <b>now</b>"
    assert [row["id"] for row in result] == [template["id"]]
    assert changed["validation_errors"] == {"channel": ["cannot be changed: make another template"]}
    assert api.patch(f"/templates/{template['id']}", template).expect(200)["channel"] == "sms"
    assert api.patch(f"/templates/{template['id']}", {"body": "x" * 1601}).expect(422)["validation_errors"].keys() == {
        "body"
    }
    campaign = api.post("/campaigns", {"name": "Moves"}).expect(201)
    assert campaign["template"]["channel"] == "email"
    moved = api.patch(f"/campaigns/{campaign['id']}", {"channel": "sms"}).expect(200)
    assert moved["template"]["channel"] == moved["channel"] == "sms"
    flow = api.post("/flows", {"name": "Texts", "steps": [{"type": "sms", "body": "hi"}]}).expect(201)
    assert flow["templates"][0]["channel"] == "sms"
