"""Placeholder texts and links of sections and starters are reported before a send, each at its section."""

from typing import Any

import pytest

from appliance.content.designs import merge
from appliance.content.designs.sections import BY_NAME, KINDS, build_initial_props
from appliance.content.designs.theme import Look
from appliance.content.templates import placeholders, starters
from appliance.core.i18n import LANGUAGES, use_language
from tests.kit.client import Client

STARTERS = {starter.key: starter for starter in starters.build_starters(Look())}
LINKED = Look(links=(("Shop", "https://acme.example/shop"),))
FLOW_DESIGNS = [email.design for email in starters.build_flow_emails("https://acme.example").values()]
OWN = {"type": "text", "props": {"content": "<p>Our oven is new.</p>"}}
# The kinds whose new sections have texts; a new header and a new gallery have none.
BEGUN = [kind.name for kind in KINDS if kind.initial_props and kind.name not in ("header", "gallery")]


def find(design: dict[str, Any], **fields: str) -> list[tuple[str, str]]:
    """Return code and path of each placeholder of a template."""
    return [
        (placeholder.code, placeholder.path)
        for placeholder in placeholders.find_placeholders({"design": design, **fields})
    ]


def create_draft(api: Client, **template: Any) -> int:
    """Create a draft to a list with one contact and return its id."""
    list_id = api.post("/lists", {"name": f"Placeholders {sorted(template)}"}).expect(201)["id"]
    api.post("/contacts", {"email": "p@example.org", "list_ids": [list_id]})
    body = {
        "name": "Draft", "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": {"subject": "Bread", **template},
    }  # fmt: skip
    return int(api.post("/campaigns", body).expect(201)["id"])


def placeholder_warnings(warnings: Any) -> list[tuple[str, str]]:
    """Return code and field of each warning about a placeholder."""
    return [
        (warning["code"], warning["field"])
        for warning in warnings["warnings"]
        if warning["code"].startswith("placeholder_")
    ]


@pytest.mark.parametrize("key", STARTERS)
def test_placeholders_of_an_unchanged_starter(key: str) -> None:
    """Each section of a starter with a text or heading of its own is reported, and the subject and preview text."""
    starter = STARTERS[key]
    result = find(starter.email.design, subject=starter.email.subject, preheader=starter.email.preheader)
    assert ("placeholder_content", "preheader") in result
    assert (("placeholder_content", "subject") in result) is (starter.email.subject not in starters.SENDABLE_TEXTS)
    wanted = {
        f"design.sections[{at}]" for at, section in enumerate(starter.email.design["sections"])
        if section["type"] in ("heading", "text", "hero", "list", "quote", "coupon", "product_grid")
        and section["props"].get("text") not in starters.SENDABLE_TEXTS
        and section["props"].get("content", "")[3:-4] not in starters.SENDABLE_TEXTS
    }  # fmt: skip
    assert wanted <= {path for code, path in result if code == "placeholder_content"}


@pytest.mark.parametrize("name", starters.build_flow_emails(""))
def test_placeholders_of_flow_starters(name: str) -> None:
    """Text and preview text are placeholders, and the button until the brand has a web address."""
    email = starters.build_flow_emails(starters.FALLBACK_URL)[name]
    result = find(email.design, preheader=email.preheader)
    assert [code for code, _ in result] == ["placeholder_content", "placeholder_content", "placeholder_link"]
    linked = starters.build_flow_emails("https://acme.example")[name]
    assert "placeholder_link" not in [code for code, _ in find(linked.design)]


@pytest.mark.parametrize("kind", BEGUN)
def test_a_new_section_is_a_placeholder(kind: str) -> None:
    """The default text of a new section is reported at its path; a button is reported for its missing link instead."""
    raw = {"id": "s1", "type": kind, "props": BY_NAME[kind].initial_props}
    result = find({"sections": [OWN, raw]})
    if kind == "button":
        assert result == []
    else:
        assert result and all(path.startswith("design.sections[1]") for _, path in result)
        assert {code for code, _ in result} == {"placeholder_content"}


def test_replaced_texts_are_no_placeholders() -> None:
    """New texts, greetings, headings of flow emails, and labels with real links are not placeholders."""
    for design in (*(starter.email.design for starter in starters.build_starters(LINKED)), *FLOW_DESIGNS):
        kinds = ("header", "footer", "heading") if design in FLOW_DESIGNS else ("header", "footer")
        kept = [section for section in design["sections"] if section["type"] in kinds]
        buttons = [{"type": "button", "props": {"text": "Learn more", "href": "https://acme.example/new"}}]
        hello = [{"type": "text", "props": {"content": f"<p>{starters.GREETING}</p><p>Our oven is new.</p>"}}]
        assert find({"sections": [*kept, *buttons, *hello]}, subject="You are invited", preheader="Ours") == []


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ({"type": "heading", "props": {}}, "placeholder_content"),
        ({"type": "text", "props": {"content": "<p>Hello</p><p>Lorem ipsum dolor</p>"}}, "placeholder_content"),
        ({"type": "button", "props": {"text": "Go", "href": "#"}}, "placeholder_link"),
        ({"type": "button", "props": {"text": "Go", "href": "www.example.com/x"}}, "placeholder_link"),
        ({"type": "text", "props": {"content": '<p><a href="https://example.org">x</a></p>'}}, "placeholder_link"),
        ({"type": "hero", "props": {"title": "Ours", "cta_text": "Go", "cta_url": "#"}}, "placeholder_link"),
    ],
)
def test_kinds_of_placeholders(section: dict[str, Any], code: str) -> None:
    """Default texts, filler texts, `#` and example domains are placeholders, also in columns."""
    column = {"type": "columns", "props": {"columns": [{"sections": [section]}, {"sections": [OWN]}]}}
    assert find({"sections": [OWN, section]}) == [(code, "design.sections[1]")]
    assert find({"sections": [column]}) == [(code, "design.sections[0].props.columns[0].sections[0]")]


def test_preflight_warns_about_placeholders(api: Client) -> None:
    """Placeholders are warnings at their sections, and do not block a send."""
    design = {"sections": [OWN, {"type": "text", "props": {"content": "<p>Add your text here.</p>"}}]}
    number = create_draft(api, design=design)
    preflight = api.get(f"/campaigns/{number}/preflight").expect(200)
    assert preflight["ok"] and placeholder_warnings(preflight) == [
        ("placeholder_content", "template_attributes.design.sections[1]")
    ]
    words = next(warning["message"] for warning in preflight["warnings"] if warning["code"] == "placeholder_content")
    assert words == "“Add your text here.” in the section “Text” is still placeholder text"
    api.patch(f"/campaigns/{number}", {"template_attributes": {"design": {"sections": [OWN]}}}).expect(200)
    assert placeholder_warnings(api.get(f"/campaigns/{number}/preflight").expect(200)) == []


def test_placeholders_in_html_bodies(api: Client) -> None:
    """Filler text and `#` links in a body are reported at the body."""
    number = create_draft(api, body='<p>Lorem ipsum dolor sit amet</p><p><a href="#">Shop</a></p>')
    preflight = api.get(f"/campaigns/{number}/preflight").expect(200)
    field = "template_attributes.body"
    assert placeholder_warnings(preflight) == [("placeholder_content", field), ("placeholder_link", field)]


def test_previews_and_test_sends_report_placeholders(api: Client) -> None:
    """Both report them at the fields of their request, and the test email is sent."""
    starter = STARTERS["letter"]
    asked = {"document": starter.email.design, "subject": starter.email.subject, "preheader": starter.email.preheader}
    result = placeholder_warnings(api.post("/templates/preview", asked).expect(200))
    assert ("placeholder_content", "preheader") in result and ("placeholder_content", "document.sections[0]") in result
    row = api.post("/templates", {"name": "Letter", "design": starter.email.design, "subject": "Own"}).expect(201)["id"]
    sent = api.post(f"/templates/{row}/send_test", {"email": "me@example.org"}).expect(200)
    assert sent["sent"] == 1 and ("placeholder_content", "design.sections[0]") in placeholder_warnings(sent)


def test_flow_simulations_report_placeholders(api: Client) -> None:
    """One note for each step names all its placeholders."""
    email = starters.build_flow_emails(starters.FALLBACK_URL)["birthday"]
    flow = api.post("/flows", {"name": "Birthday", "trigger": {"event": "manual"}, "steps": [email._asdict()]}).expect(
        201
    )["id"]
    notes = api.post(f"/flows/{flow}/simulate", {}).expect(200)["notes"]
    start = f"Email “{merge.make_readable(email.subject)}” has unfinished content:"
    [note] = [note for note in notes if "has unfinished content" in note]
    head, *problems = note.split("\n- ")
    assert head.strip() == start and len(problems) > 1, notes
    assert any(problem.startswith("“Today is your day.") for problem in problems), notes


@pytest.mark.parametrize("language", LANGUAGES)
def test_placeholders_are_known_in_all_languages(language: str) -> None:
    """Ready-made emails and new sections are placeholders in each language, whatever that of the account."""
    for english, starter in zip(STARTERS.values(), starters.build_starters(Look(locale=language)), strict=True):
        email = {"subject": starter.email.subject, "preheader": starter.email.preheader, "design": starter.email.design}
        source = {
            "subject": english.email.subject,
            "preheader": english.email.preheader,
            "design": english.email.design,
        }
        paths = [each.path for each in placeholders.find_placeholders(email)]
        assert paths == [each.path for each in placeholders.find_placeholders(source)] and "preheader" in paths
    with use_language(language):
        props = build_initial_props(BY_NAME["columns"])
    assert len(placeholders.find_placeholders({"design": {"sections": [{"type": "columns", "props": props}]}})) == 2


def test_starters_and_sections_in_the_language_of_the_account() -> None:
    """Ready-made emails and new sections are in the language of the account."""
    starter = next(each for each in starters.build_starters(Look(locale="de")) if each.key == "newsletter")
    assert starter.email.subject == "Drei Dinge, die sich lohnen" and "Guten Tag{% if" in str(starter.email.design)
    email = {"subject": starter.email.subject, "design": starter.email.design}
    assert "subject" in [each.path for each in placeholders.find_placeholders(email)]
    assert starters.build_flow_emails("", "de")["birthday"].subject.startswith("Alles Gute zum Geburtstag{% if")

    with use_language("de"):
        props = build_initial_props(BY_NAME["columns"])
    assert props["preset"] == "1:1" and "linken Spalte" in str(props)
    design = {"sections": [{"type": "columns", "props": props}]}
    assert [each.code for each in placeholders.find_placeholders({"design": design})] == [
        "placeholder_content",
        "placeholder_content",
    ]
