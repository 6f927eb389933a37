"""Merge tags of templates over the API: errors with line and column, and the list of variables."""

from typing import Any

import pytest

from tests.kit.client import Client


def design(**props: Any) -> dict[str, Any]:
    """Return a design whose third section has these properties."""
    kind = "button" if "href" in props else "text"
    return {"sections": [{"type": "header"}, {"type": "spacer"}, {"type": kind, "props": props}]}


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"subject": "Hi {{ first_name"}, "subject", "expected '}}' (line 1, column 4)"),
        ({"body": "<p>\n  {{ a | shout }}</p>"}, "body", "unknown filter 'shout' (line 2, column 10)"),
        ({"preheader": "{% if a %}x"}, "preheader", "(line 1,"),
        ({"subject": "{{ a" + " | upcase" * 21 + " }}"}, "subject",
         "more than 20 filters in one output (line 1, column 188)"),
        ({"body": "<p>\n  {% if " + "a and " * 101 + "a %}x{% endif %}</p>"}, "body",
         "more than 100 conditions in one tag (line 2, column 3)"),
        ({"body": "<p>\n  {{ a" + "[0]" * 21 + " }}</p>"}, "body",
         "more than 20 brackets in one tag (line 2, column 3)"),
        ({"design": design(content="<p>a</p>\n<p>{% if %}</p>")}, "design.sections[2].props.content", "(line 2,"),
        ({"design": design(text="{{ a._b }}", href="https://x.test")}, "design.sections[2].props.text",
         "names may not begin with _ (line 1, column"),
        ({"design": design(text="x", href="{{ contact.data.url }}")}, "design.sections[2].props.href",
         "a contact's data may not say where a link leads (line 1, column 1)"),
        ({"design": design(text="x", href="https://{{ email }}/")}, "design.sections[2].props.href",
         "a contact's data may not say where a link leads (line 1, column 9)"),
        ({"design": design(content='<p>x <a href="{{ contact.u }}">y</a></p>')}, "design.sections[2].props.content",
         "a contact's data may not say where a link leads (line 1, column 15)"),
    ],
)  # fmt: skip
def test_invalid_merge_tags_are_reported_with_their_place(
    api: Client, fields: dict[str, Any], path: str, words: str
) -> None:
    """The error has the field or property, line and column, in templates and in campaigns."""
    texts = api.post("/templates", fields).expect(422)["validation_errors"]
    assert list(texts) == [path] and words in texts[path][0]
    if "design" in fields:
        return
    nested = api.post("/campaigns", {"name": "x", "template_attributes": fields}).expect(422)["validation_errors"]
    assert nested == {f"template_attributes.{path}": texts[path]}


def test_variables_in_all_fields(api: Client) -> None:
    """Variables of every field are listed with default, sample, and whether they are required."""
    template = api.post("/templates", {
        "subject": '{{ first_name | default: "there" }}', "preheader": "{{ contact.data.city }}",
        "from_name": '{{ first_name | default: "there" }}', "body": '{{ data.code | default: "A" }}',
        "design": design(content='<p>{% if contact.data.vip %}{{ data.code | default: "B" }}{% endif %} '
                                 '{{ unsubscribe_url }}</p>'),
    }).expect(201)  # fmt: skip
    assert template["variables"] == {
        "contact.data.city": {"default": None, "sample": "Lisbon", "required": True},
        "contact.data.vip": {"default": None, "sample": "vip", "required": False},
        "data.code": {"default": None, "sample": "WELCOME10", "required": False},
        "first_name": {"default": "there", "sample": "there", "required": False},
    }


def test_send_a_message_from_a_design(api: Client) -> None:
    """A message by `template_id` is rendered from the sections at that time; its own body replaces them."""
    template = api.post("/templates", {"subject": "S", "design": design(content="<p>Code {{ data.code }}</p>")}).expect(
        201
    )
    message = api.post("/messages", {"to": "a@x.test", "template_id": template["id"], "data": {"code": "X1"}}).expect(
        201
    )
    api.patch(f"/templates/{template['id']}", {"design": design(content="<p>Changed</p>")}).expect(200)
    other = api.post("/messages", {"to": "a@x.test", "template_id": template["id"], "body": "<p>Own</p>"}).expect(201)
    for row in (message, other):
        api.wait(f"/messages/{row['id']}", lambda row: row["status"] == "sent")
    first, second = (api.get(f"/messages/{row['id']}").json for row in (message, other))
    assert "Code X1" in first["html"] and "Code X1" in first["text"] and "Changed" not in first["html"]
    assert "Own" in second["html"] and "Changed" not in second["html"]
