"""The settings of an account, and the language of the pages for a user."""

from appliance.core import i18n
from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server


def test_test_recipients_and_sending_rules(server: Server, api: Client) -> None:
    """Test recipients and two rules are saved as the form says; an invalid address is an error at its field."""
    owner = Visitor(server, "owner@example.com")
    form = {"name": "Bakery", "content_checkboxes": "yes", "test_email_recipients": "ann@example.com;  bob@example.com"}
    assert owner.send("POST", "/settings", {**form, "block_on_missing_variable": "yes"}).status == 303
    account = api.get("/account").expect(200)
    assert account["test_email_recipients"] == ["ann@example.com", "bob@example.com"]
    assert (account["block_on_missing_variable"], account["transactional_allowed"]) == (True, False)
    page = owner.send("GET", "/settings").text
    assert 'value="ann@example.com, bob@example.com"' in page
    assert 'name="block_on_missing_variable" value="yes" checked' in page
    assert 'name="transactional_allowed" value="yes" checked' not in page

    response = owner.send("POST", "/settings", {**form, "test_email_recipients": "ann@example.com, nobody"})
    assert response.status == 422 and "Enter an email address like name@example.com." in response.text
    assert "ann@example.com, nobody" in response.text
    too_many = ",".join(f"p{number}@example.com" for number in range(6))
    assert owner.send("POST", "/settings", {**form, "test_email_recipients": too_many}).status == 422
    # Options that a form does not contain stay unchanged
    assert owner.send("POST", "/settings", {"name": "Bakery"}).status == 303
    assert api.get("/account").expect(200)["transactional_allowed"] is False
    cleared = {**form, "test_email_recipients": "", "transactional_allowed": "yes"}
    assert owner.send("POST", "/settings", cleared).status == 303
    account = api.get("/account").expect(200)
    assert (account["test_email_recipients"], account["transactional_allowed"]) == ([], True)


def test_default_test_recipients(server: Server) -> None:
    """A test is addressed to the account's test recipients until the user has sent one to others."""
    api, owner = server.client(), Visitor(server, EMAIL)
    api.patch("/account", {"test_email_recipients": ["ann@example.com", "bob@example.com"]}).expect(200)
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)
    page = owner.send("GET", f"/campaigns/{campaign['id']}/test").text
    assert 'value="ann@example.com, bob@example.com"' in page
    content = {"subject": "News", "body": "<p>Bread.</p>"}
    api.patch(f"/campaigns/{campaign['id']}", {"template_attributes": content}).expect(200)
    assert owner.send("POST", f"/campaigns/{campaign['id']}/test", {"addresses": EMAIL}).status == 303
    page = owner.send("GET", f"/campaigns/{campaign['id']}/test").text
    assert f'value="{EMAIL}"' in page and "Your team’s test addresses: ann@example.com, bob@example.com." in page


def test_country_and_language(server: Server) -> None:
    """Phone numbers are completed by the account's country, and recipients' pages are in its language."""
    api, owner = server.client(), Visitor(server, EMAIL)
    person = {"first_name": "Ann", "phone": "020 7946 0123"}
    response = owner.send("POST", "/contacts", person)
    assert response.status == 422 and "This number has no country code." in response.text
    form_values = {"name": "Bakery", "country_code": "GB", "locale": "fr"}
    assert owner.send("POST", "/settings", form_values).status == 303
    account = api.get("/account").expect(200)
    assert (account["country_code"], account["locale"]) == ("GB", "fr")
    page = owner.send("GET", "/settings").text
    assert '<option value="GB" selected>' in page and '<option value="fr" selected>Français' in page
    assert owner.send("POST", "/contacts", person).status == 303
    contact = api.get("/contacts", search="Ann").json[0]
    assert contact["channels"][0]["value"] == "+442079460123"
    blocked = {"address": "020 7946 0124", "reason": "manual"}
    assert owner.send("POST", "/contacts/suppressions", blocked).status == 303
    assert api.get("/suppressions").json[0]["address"] == "+442079460124"
    too_short = owner.send("POST", "/contacts", {"first_name": "Bea", "phone": "0790 1234"})
    assert too_short.status == 422 and "This number is not valid in the United Kingdom." in too_short.text
    form = api.post("/forms", {"name": "Lettre", "list_ids": []}).expect(201)
    assert "Adresse e-mail" in owner.send("GET", f"/f/{form['public_key']}").text
    api.patch("/account", {"locale": "de-AT"}).expect(200)
    assert '<option value="de-AT" selected>Deutsch (de-AT)' in owner.send("GET", "/settings").text
    assert owner.send("POST", "/settings", {**form_values, "locale": "xx yy"}).status == 422


def test_language_of_the_pages(server: Server) -> None:
    """A user's language is stored, recorded and used for all pages; an unknown one is an error at its field."""
    owner = Visitor(server, EMAIL)
    page = owner.send("GET", "/settings/you").text
    assert '<option value="" selected>Browser language</option>' in page
    for code, name in i18n.LANGUAGES.items():
        assert f'<option value="{code}">{name}</option>' in page
        assert owner.send("POST", "/settings/you/language", {"language": code}).status == 303
        chosen_page = owner.send("GET", "/settings/you").text
        assert f'<option value="{code}" selected>{name}</option>' in chosen_page
        tag = code.replace("_", "-")
        assert f'<html lang="{tag}"' in chosen_page and f'<html lang="{tag}"' in owner.send("GET", "/lists").text
        assert f"{code}<" in owner.send("GET", "/settings/audit?action=user_language").text
    for unknown in ("xx", "../de"):
        response = owner.send("POST", "/settings/you/language", {"language": unknown})
        assert response.status == 422 and 'id="f-language-err"' in response.text
    stored = [*i18n.LANGUAGES][-1]
    assert f'<option value="{stored}" selected>' in owner.send("GET", "/settings/you").text
    assert owner.send("POST", "/settings/you/language", {"language": ""}).status == 303
    assert '<option value="" selected>' in owner.send("GET", "/settings/you").text
