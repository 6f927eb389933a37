"""UTM parameters in what is sent: campaigns with variants, flows, test emails, clicks and reports."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.kit.client import Client
from tests.kit.server import Server

PAGE = "https://shop.example/sale"
BODY = f'<p><a href="{PAGE}?utm_term=mine#top">Sale</a> <a href="{{{{ preferences_url }}}}">You</a></p>'
SETTINGS = {"source": "news", "medium": "{{ channel }}", "campaign": "{{ campaign.name }}", "term": "t"}
FINAL = f"{PAGE}?utm_term=mine&utm_source=news&utm_medium=email&utm_campaign=spring-sale#top"


@pytest.fixture
def api(server: Server) -> Client:
    """Return a client of an account whose links get UTM parameters."""
    client = server.client()
    client.patch("/account", {"utm": SETTINGS}).expect(200)
    return client


def create_list(api: Client, *addresses: str) -> int:
    """Return the id of a list with contacts."""
    list_id = int(api.post("/lists", {"name": f"Readers of {addresses[0]}"}).expect(201)["id"])
    for address in addresses:
        api.post("/contacts", {"email": address, "list_ids": [list_id]}).expect(201)
    return list_id


def create_campaign(api: Client, list_id: int, **fields: Any) -> dict[str, Any]:
    """Create a campaign to a list."""
    content = {"subject": "Hello", "body": BODY}
    body = {"name": "Spring Sale!", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
    created: dict[str, Any] = api.post("/campaigns", body | fields).expect(201)
    return created


def send(api: Client, campaign: dict[str, Any]) -> list[str]:
    """Send a campaign, and return the addresses of its links as the report lists them."""
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send").expect(200)
    api.wait(path, lambda row: row["status"] == "completed")
    links = api.get(f"{path}/report").expect(200)["links"]
    return [link["url"] for link in links if link["url"].startswith("https:")]


def test_settings_are_read_as_they_were_written(api: Client) -> None:
    """Null turns them off; values with unknown fields are refused, each at its place."""
    assert api.get("/account").expect(200)["utm"] == SETTINGS | {"content": None}
    faults = api.patch("/account", {"utm": {"source": "{{ first_name }}", "term": "x" * 101}}).expect(422)
    assert faults["validation_errors"].keys() == {"utm.source", "utm.term"}
    assert api.patch("/account", {"utm": {"source": " "}}).expect(200)["utm"] is None
    assert api.patch("/account", {"utm": None}).expect(200)["utm"] is None


def test_links_of_a_campaign(api: Client, server: Server) -> None:
    """Clicks lead to the final address, which the report and the event have too; own values of the link stay."""
    list_id = create_list(api, "reader@example.org")
    assert send(api, create_campaign(api, list_id)) == [FINAL]
    (captured,) = api.get("/capture", search="reader@").expect(200)
    api.post(f"/capture/{captured['id']}/simulate", {"action": "click"}).expect(200)
    (event,) = api.wait("/events", bool, event="email_clicked")
    assert event["resource_url"] == FINAL
    assert (event["utm_source"], event["utm_term"], event["utm_campaign"]) == ("news", "mine", "spring-sale")


def test_own_parameters_of_a_campaign(api: Client) -> None:
    """They replace those of the account as a whole; an empty object adds none; duplicates have them too."""
    list_id = create_list(api, "own@example.org")
    campaign = create_campaign(api, list_id, utm={"content": "x"})
    copy = api.post(f"/campaigns/{campaign['id']}/duplicate", {}).expect(201)
    assert copy["utm"] == {"source": None, "medium": None, "campaign": None, "term": None, "content": "x"}
    assert send(api, campaign) == [f"{PAGE}?utm_term=mine&utm_content=x#top"]
    api.patch(f"/campaigns/{copy['id']}", {"utm": {}}).expect(200)
    assert send(api, copy) == [f"{PAGE}?utm_term=mine#top"]
    locked = api.patch(f"/campaigns/{copy['id']}", {"utm": None}).expect(422)
    assert locked["reason"] == "campaign_locked"


def test_variants_and_untracked_links(api: Client) -> None:
    """Each variant has its letter; links that are not tracked have the parameters in the message itself."""
    list_id = create_list(api, *(f"v{number}@example.org" for number in range(12)))
    body = f'<a href="{PAGE}">Sale</a>'
    campaign = create_campaign(
        api, list_id, utm={"content": "{{ variant }}"}, tracking=False,
        experiment={"variants": [{}, {"subject": "B"}], "metric": "event", "event": "order_paid"},
        template_attributes={"subject": "A", "body": body},
    )  # fmt: skip
    assert send(api, campaign) == [f"{PAGE}?utm_content=a", f"{PAGE}?utm_content=b"]
    for message in api.get("/capture", limit=12).expect(200):
        html = api.get(f"/capture/{message['id']}").expect(200)["html"]
        assert f"{PAGE}?utm_content={message['subject'].lower()}" in html


def test_flows_and_test_emails(api: Client) -> None:
    """A step has the name of its flow, unless it has its own parameters; a transactional one has none."""
    own = dict.fromkeys(("source", "medium", "campaign", "term", "content")) | {"campaign": "{{ step }}"}
    steps = [{"subject": "One", "body": BODY}, {"subject": "Two", "body": BODY, "utm": own},
             {"subject": "Three", "body": BODY, "transactional": True}]  # fmt: skip
    flow = api.post("/flows", {"name": "Spring Sale", "trigger": {"event": "list_add"}, "steps": steps}).expect(201)
    assert [step.get("utm") for step in flow["steps"]] == [None, own, None]
    unchanged = api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)
    assert unchanged["steps"] == flow["steps"]
    api.post(f"/templates/{flow['steps'][0]['template_id']}/send_test", {"email": "tester@example.org"}).expect(200)
    api.post(f"/flows/{flow['id']}/activate", {}).expect(200)
    create_list(api, "flow@example.org")
    captured = api.wait("/capture", lambda rows: len(rows) == 3, search="flow@")
    bodies = {row["subject"]: api.get(f"/capture/{row['id']}").expect(200)["html"] for row in captured}
    assert "utm_" not in bodies["Three"].replace("utm_term=mine", "")
    (tested,) = api.wait("/capture", bool, search="tester@")
    assert FINAL.replace("&", "&amp;") in api.get(f"/capture/{tested['id']}").expect(200)["html"]
    targets = [follow(api, bodies[subject]) for subject in ("One", "Two")]
    assert targets[0] == FINAL
    assert parse_qs(urlsplit(targets[1]).query) == {
        "utm_term": ["mine"], "utm_campaign": [str(flow["steps"][1]["id"])],
    }  # fmt: skip


def follow(api: Client, html: str) -> str:
    """Return where the first tracked link of a message leads."""
    match = re.search(r'href="http://[^/"]*(/c/[^"]+)"', html)
    assert match is not None
    return str(api.request("GET", match[1], validate=False).headers["Location"])
