"""The account's page of settings: what is typed there is what the service goes by."""

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.server import EMAIL, Server


def test_tests_and_rules_of_the_account(server: Server, api: Client) -> None:
    """Who gets tests, and two rules of sending, are kept as the boxes say; a wrong address is said at its field."""
    owner = Visitor(server, "owner@example.com")
    said = {"name": "Bakery", "rules": "asked", "test_email_recipients": "ann@example.com;  bob@example.com"}
    assert owner.send("POST", "/settings", {**said, "block_on_missing_variable": "yes"}).status == 303
    account = api.get("/account").expect(200)
    assert account["test_email_recipients"] == ["ann@example.com", "bob@example.com"]
    assert (account["block_on_missing_variable"], account["transactional_allowed"]) == (True, False)
    shown = owner.send("GET", "/settings").text
    assert 'value="ann@example.com, bob@example.com"' in shown
    assert 'name="block_on_missing_variable" value="yes" checked' in shown
    assert 'name="transactional_allowed" value="yes" checked' not in shown

    wrong = owner.send("POST", "/settings", {**said, "test_email_recipients": "ann@example.com, nobody"})
    assert wrong.status == 422 and "Write an address like name@example.com." in wrong.text
    assert "ann@example.com, nobody" in wrong.text
    many = ",".join(f"p{number}@example.com" for number in range(6))
    assert owner.send("POST", "/settings", {**said, "test_email_recipients": many}).status == 422
    # What a form does not ask for stays
    assert owner.send("POST", "/settings", {"name": "Bakery"}).status == 303
    assert api.get("/account").expect(200)["transactional_allowed"] is False
    cleared = {**said, "test_email_recipients": "", "transactional_allowed": "yes"}
    assert owner.send("POST", "/settings", cleared).status == 303
    account = api.get("/account").expect(200)
    assert (account["test_email_recipients"], account["transactional_allowed"]) == ([], True)


def test_tests_of_campaigns_go_to_the_testers_of_the_team(server: Server) -> None:
    """Until somebody tested something else: their own last addresses stand there then."""
    api, owner = server.client(), Visitor(server, EMAIL)
    api.patch("/account", {"test_email_recipients": ["ann@example.com", "bob@example.com"]}).expect(200)
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)
    page = owner.send("GET", f"/campaigns/{campaign['id']}/test").text
    assert 'value="ann@example.com, bob@example.com"' in page
    words = {"subject": "News", "body": "<p>Bread.</p>"}
    api.patch(f"/campaigns/{campaign['id']}", {"template_attributes": words}).expect(200)
    assert owner.send("POST", f"/campaigns/{campaign['id']}/test", {"addresses": EMAIL}).status == 303
    page = owner.send("GET", f"/campaigns/{campaign['id']}/test").text
    assert f'value="{EMAIL}"' in page and "tests of this team: ann@example.com, bob@example.com." in page


def test_the_country_and_the_language_of_the_account(server: Server) -> None:
    """Numbers typed on pages are completed by the country; the pages of recipients speak the language."""
    api, owner = server.client(), Visitor(server, EMAIL)
    person = {"first_name": "Ann", "phone": "07700 900123"}
    refused = owner.send("POST", "/contacts", person)
    assert refused.status == 422 and "This number has no country code." in refused.text
    said = {"name": "Bakery", "country_code": "GB", "locale": "fr"}
    assert owner.send("POST", "/settings", said).status == 303
    account = api.get("/account").expect(200)
    assert (account["country_code"], account["locale"]) == ("GB", "fr")
    shown = owner.send("GET", "/settings").text
    assert '<option value="GB" selected>' in shown and '<option value="fr" selected>Français' in shown
    assert owner.send("POST", "/contacts", person).status == 303
    number = api.get("/contacts", search="Ann").json[0]
    assert number["channels"][0]["value"] == "+447700900123"
    blocked = {"address": "07700 900124", "reason": "manual"}
    assert owner.send("POST", "/contacts/suppressions", blocked).status == 303
    assert api.get("/suppressions").json[0]["address"] == "+447700900124"
    form = api.post("/forms", {"name": "Lettre", "list_ids": []}).expect(201)
    assert "Adresse e-mail" in owner.send("GET", f"/f/{form['public_key']}").text
    api.patch("/account", {"locale": "de-AT"}).expect(200)
    assert '<option value="de-AT" selected>Deutsch (de-AT)' in owner.send("GET", "/settings").text
    assert owner.send("POST", "/settings", {**said, "locale": "xx yy"}).status == 422
