"""Templates, brand and account over the API (docs/decisions.md#11 and #14)."""

import pytest

from tests.kit.client import Client


def test_a_template_round_trips(api: Client) -> None:
    """All fields are returned unchanged, with unknown keys of the design, and variables are listed."""
    section = {"type": "text", "props": {"content": "x", "mystery": [1]}, "styles": {}}
    design = {"sections": [section], "theme": {"a": "b"},
              "future": True}  # fmt: skip
    body = {"name": "Letter", "subject": "Hi {{ contact.first_name }}", "body": "<p>{{ data.code | upcase }}</p>",
            "preheader": "p", "from_name": "Ana", "from_email": "ana@example.org", "reply_to": "r@example.org",
            "design": design}  # fmt: skip
    template = api.post("/templates", body).expect(201)

    design["sections"] = [{**section, "id": template["design"]["sections"][0]["id"]}]
    assert {name: template[name] for name in body} == body
    assert set(template["variables"]) == {"contact.first_name", "data.code"}
    assert template["variables"]["data.code"] == {"default": None, "sample": "WELCOME10", "required": True}
    assert (template["flow_id"], template["action_id"]) == (None, None)
    assert api.get(f"/templates/{template['id']}").expect(200) == template


def test_create_and_delete_an_empty_template(api: Client) -> None:
    """An empty template has a default name; DELETE returns it once more."""
    template = api.post("/templates").expect(201)

    assert (template["name"], template["design"]) == ("Untitled template", {"sections": [], "theme": {}})
    assert api.delete(f"/templates/{template['id']}").expect(200)["id"] == template["id"]
    assert api.get(f"/templates/{template['id']}").status == 404


def test_a_newer_template_is_not_overwritten(api: Client) -> None:
    """A PATCH with an old `updated_at` is a 409."""
    template = api.post("/templates", {"name": "v"}).json
    api.patch(f"/templates/{template['id']}", {"subject": "two"}).expect(200)

    assert (
        api.patch(f"/templates/{template['id']}", {"subject": "three", "updated_at": template["updated_at"]}).status
        == 409
    )


def test_invalid_parts_of_a_template_are_rejected(api: Client) -> None:
    """Sections are objects; the error of an invalid tag names its line."""
    error = api.post("/templates", {"design": {"sections": ["x"], "theme": []}, "body": "a\n{{ b"}).expect(422)

    assert set(error["validation_errors"]) == {"design.sections[0]", "design.theme", "body"}
    assert "line 2" in error["validation_errors"]["body"][0]


def test_the_default_brand_and_partial_updates(api: Client) -> None:
    """All fields are empty at first; absent fields stay, null clears; a complete brand has colour and name."""
    fresh = api.get("/brand").expect(200)
    api.put("/brand", {"brand_color": "#0f617d", "links": [{"url": "https://example.org", "title": "Shop"}]}).expect(
        200
    )
    full = api.put("/brand", {"company_name": "Bakery", "physical_address": "1 Main St"}).expect(200)
    cleared = api.put("/brand", {"links": None, "company_name": None}).expect(200)

    assert (fresh["brand_color"], fresh["complete"], fresh["links"], fresh["default_theme"]) == (None, False, [], {})
    assert (full["brand_color"], full["complete"]) == ("#0f617d", True)
    assert full["links"] == [{"url": "https://example.org", "icon": "", "title": "Shop"}]
    assert (cleared["links"], cleared["complete"], cleared["physical_address"]) == ([], False, "1 Main St")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"brand_color": "#fff"}, "brand_color"),
        ({"text_color": "red"}, "text_color"),
        ({"logo": "not-a-blob"}, "logo"),
        ({"logo": "javascript:alert(1)"}, "logo"),
        ({"logo": "https://{{contact.data.host}}/a.png"}, "logo"),
        ({"logo": "https://x.test/{%oops"}, "logo"),
        ({"links": [{"url": "javascript:alert(1)"}]}, "links[0].url"),
        ({"links": [{}]}, "links[0].url"),
        ({"default_theme": []}, "default_theme"),
    ],
)
def test_invalid_brands_are_rejected(api: Client, body: dict[str, object], field: str) -> None:
    """Each error is reported at its field, and nothing is written."""
    before = api.get("/brand").json

    assert list(api.put("/brand", body).expect(422)["validation_errors"]) == [field]
    assert api.get("/brand").json == before


def test_account_status(api: Client) -> None:
    """The account shows transport, blockers and onboarding steps; settings are written."""
    account = api.get("/account").expect(200)
    changed = api.patch("/account", {"time_zone": "Europe/Berlin", "email_from_name": "Ana"}).expect(200)

    assert (account["using_sandbox"], account["can_send"], account["transport"]["email"]) == (True, True, "capture")
    assert {blocker["code"] for blocker in account["blockers"]} >= {"domain_unverified"}
    assert set(account["onboarding"]["steps"]) == {
        "brand_setup", "domain_verified", "first_contact", "first_draft", "first_send",
    }  # fmt: skip
    assert (changed["time_zone"], changed["email_from_name"]) == ("Europe/Berlin", "Ana")
    assert list(api.patch("/account", {"time_zone": "Mars/Base"}).expect(422)["validation_errors"]) == ["time_zone"]
