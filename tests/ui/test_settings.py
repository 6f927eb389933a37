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
