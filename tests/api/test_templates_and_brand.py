"""Templates, brand and account over the API (docs/decisions.md#11 and #14)."""

import pytest

from tests.kit.client import Client


def test_a_template_round_trips(api: Client) -> None:
    """What is written is read again, unknown keys of a design included; variables are found."""
    section = {"type": "text", "props": {"content": "x", "mystery": [1]}, "styles": {}}
    design = {"sections": [section], "theme": {"a": "b"},
              "future": True}  # fmt: skip
    body = {"name": "Letter", "subject": "Hi {{ contact.first_name }}", "body": "<p>{{ data.code | upcase }}</p>",
            "preheader": "p", "from_name": "Ana", "from_email": "ana@example.org", "reply_to": "r@example.org",
            "design": design}  # fmt: skip
    made = api.post("/templates", body).expect(201)

    design["sections"] = [{**section, "id": made["design"]["sections"][0]["id"]}]
    assert {name: made[name] for name in body} == body
    assert set(made["variables"]) == {"contact.first_name", "data.code"}
    assert made["variables"]["data.code"] == {"default": None, "sample": "WELCOME10", "required": True}
    assert (made["flow_id"], made["action_id"]) == (None, None)
    assert api.get(f"/templates/{made['id']}").expect(200) == made


def test_a_template_needs_nothing_and_is_deleted(api: Client) -> None:
    """An empty template has a name of its own; deleting answers it once more."""
    made = api.post("/templates").expect(201)

    assert (made["name"], made["design"]) == ("Untitled template", {"sections": [], "theme": {}})
    assert api.delete(f"/templates/{made['id']}").expect(200)["id"] == made["id"]
    assert api.get(f"/templates/{made['id']}").status == 404


def test_a_newer_template_is_not_overwritten(api: Client) -> None:
    """The version that was read guards the one that is stored."""
    made = api.post("/templates", {"name": "v"}).json
    api.patch(f"/templates/{made['id']}", {"subject": "two"}).expect(200)

    assert api.patch(f"/templates/{made['id']}", {"subject": "three", "updated_at": made["updated_at"]}).status == 409


def test_a_design_has_to_be_a_document(api: Client) -> None:
    """Sections are a list of objects; a broken tag is told with its line."""
    fault = api.post("/templates", {"design": {"sections": ["x"], "theme": []}, "body": "a\n{{ b"}).expect(422)

    assert set(fault["validation_errors"]) == {"design.sections[0]", "design.theme", "body"}
    assert "line 2" in fault["validation_errors"]["body"][0]


def test_the_brand_is_there_from_the_start_and_put_is_partial(api: Client) -> None:
    """Nulls at first; absent keeps, null clears; complete means colour and name."""
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
def test_faults_of_the_brand(api: Client, body: dict[str, object], field: str) -> None:
    """Each fault stands under its field and nothing is written."""
    before = api.get("/brand").json

    assert list(api.put("/brand", body).expect(422)["validation_errors"]) == [field]
    assert api.get("/brand").json == before


def test_the_account_says_what_it_can_do(api: Client) -> None:
    """Capture mode, warnings, progress and counts; writable fields are written."""
    account = api.get("/account").expect(200)
    changed = api.patch("/account", {"time_zone": "Europe/Berlin", "email_from_name": "Ana"}).expect(200)

    assert (account["using_sandbox"], account["can_send"], account["transport"]["email"]) == (True, True, "capture")
    assert {one["code"] for one in account["blockers"]} >= {"domain_unverified"}
    assert set(account["onboarding"]["steps"]) == {
        "brand_setup", "domain_verified", "first_contact", "first_draft", "first_send",
    }  # fmt: skip
    assert (changed["time_zone"], changed["email_from_name"]) == ("Europe/Berlin", "Ana")
    assert list(api.patch("/account", {"time_zone": "Mars/Base"}).expect(422)["validation_errors"]) == ["time_zone"]
