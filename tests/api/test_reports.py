"""The report of a campaign: its numbers add up, and each links to the recipients that it counts."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

BODY = '<p><a href="https://example.com/a?x=1">Spring</a> and <a href="https://example.com/b">Summer</a></p>'
CONTENT = {"subject": "Letter", "body": BODY}
WHO = ("open", "click", "bounce", "soft_bounce", "complain", "unsubscribe", "quiet")
AT = {"open": "gmail.com", "click": "googlemail.com", "quiet": "firm.example"}


def address_of(name: str) -> str:
    """Return the address of the contact whose name is its action."""
    return f"{name}@{AT.get(name, 'example.org')}"


@pytest.fixture(scope="module")
def sent_campaign(server: Server) -> Any:
    """Return a completed campaign with one recipient for each simulated event, and one unsubscribed contact."""
    api = server.client()
    list_id = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
    for name in (*WHO, "left"):
        api.post("/contacts", {"email": address_of(name), "list_ids": [list_id]}).expect(201)
    gone = api.get("/contacts/search", q=address_of("left")).expect(200)[0]
    channel = gone["channels"][0]["id"]
    api.patch(f"/contacts/{gone['id']}", {"channels_attributes": [{"id": channel, "subscribed": False}]}).expect(200)
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    api.post(f"/campaigns/{campaign['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed")
    captured = {row["to"]: row["id"] for row in api.get("/capture", limit=100).expect(200)}
    for name in WHO[:-1]:
        api.post(f"/capture/{captured[address_of(name)]}/simulate", {"action": name}).expect(200)
    return campaign


def get_report(api: Client, campaign: Any) -> Any:
    """Return the report of a campaign."""
    return api.get(f"/campaigns/{campaign['id']}/report").expect(200)


def names_behind(api: Client, path: str) -> list[str]:
    """Return the sorted names of the recipients that a path of the report lists."""
    parts = urlsplit(path)
    assert parts.path.startswith("/v1/my/")
    result = api.get(parts.path.removeprefix("/v1/my"), limit=100, **dict(parse_qsl(parts.query))).expect(200)
    return sorted(row["to"].partition("@")[0] for row in result)


def linked_counts(value: Any, where: str = "") -> list[tuple[str, int, str]]:
    """Return (place, count, path) of every number of a report that links to recipients."""
    counts = []
    if isinstance(value, dict):
        if isinstance(value.get("people"), str) and "count" in value:
            counts.append((where, value["count"], value["people"]))
        for name, inner in value.items():
            counts += linked_counts(inner, f"{where}.{name}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            counts += linked_counts(inner, f"{where}[{at}]")
    return counts


def test_report_numbers_link_to_their_recipients(api: Client, sent_campaign: Any) -> None:
    """Each path lists exactly as many recipients as its number."""
    result = linked_counts(get_report(api, sent_campaign))

    assert len(result) >= 20
    for where, count, path in result:
        assert len(names_behind(api, path)) == count, where


def test_the_ledger_adds_up(api: Client, sent_campaign: Any) -> None:
    """Each recipient is in one term, and the terms add up to the audience."""
    ledger = get_report(api, sent_campaign)["ledger"]
    terms = {term["name"]: term["count"] for term in ledger["terms"]}

    assert ledger["adds_up"] and ledger["sum"] == ledger["audience"]["count"] == sum(terms.values()) == 8
    assert {name: count for name, count in terms.items() if count} == {
        "sent": 4, "bounced": 2, "complained": 1, "skipped": 1
    }  # fmt: skip
    assert (ledger["accepted"]["count"], ledger["delivered_to"]) == (7, 5)


def test_engagement_in_a_report(api: Client, sent_campaign: Any) -> None:
    """Opens and clicks are those of people, with rates of delivered messages; a click counts as an open."""
    result = get_report(api, sent_campaign)

    assert names_behind(api, result["opens"]["people"]["people"]) == ["click", "open"]
    assert (result["opens"]["people"]["rate"], result["clicks"]["people"]["rate"]) == (0.4, 0.2)
    assert (result["opens"]["total"], result["clicks"]["total_human"], result["clicks"]["total_machine"]) == (1, 1, 0)
    assert names_behind(api, result["clicks"]["people"]["people"]) == ["click"]
    assert names_behind(api, result["unsubscribes"]["people"]) == ["unsubscribe"]
    assert names_behind(api, result["complaints"]["people"]) == ["complain"]
    assert names_behind(api, result["bounces"]["people"]) == ["bounce", "soft_bounce"]
    assert sum(period["opened"] for period in result["over_time"]) == 2
    assert sum(period["clicked"] for period in result["over_time"]) == 1


def test_links_and_domains_of_a_report(api: Client, sent_campaign: Any) -> None:
    """All links are listed with their clicks; domains are grouped by mailbox provider."""
    result = get_report(api, sent_campaign)
    links = {link["url"]: link for link in result["links"]}
    domains = {domain["name"]: domain for domain in result["domains"]}

    first, second = links["https://example.com/a?x=1"], links["https://example.com/b"]
    assert (first["words"], first["clicked"]["count"], first["clicked"]["rate"]) == ("Spring", 1, 1.0)
    assert (second["words"], second["clicked"]["count"], second["total"]) == ("Summer", 0, 0)
    assert {url for url, link in links.items() if not link["counted"]} == {"{{ unsubscribe_url }}"}
    [google] = [domain for domain in result["domains"] if set(domain["domains"]) == {"gmail.com", "googlemail.com"}]
    assert (google["audience"], google["accepted"], google["opened"], google["clicked"]) == (2, 2, 2, 1)
    assert names_behind(api, google["people"]) == ["click", "open"]
    rest = domains["example.org"]
    assert (rest["audience"], rest["accepted"], rest["bounced"], rest["complained"]) == (5, 4, 2, 1)
    assert domains["firm.example"]["audience"] == 1


def test_problems_of_a_report(api: Client, sent_campaign: Any) -> None:
    """A problem has the server's text, its class, its meaning and its recipients."""
    results = {problem["class"]: problem for problem in get_report(api, sent_campaign)["problems"] if problem["class"]}

    assert names_behind(api, results["hard"]["people"]) == ["bounce"]
    assert results["hard"]["meaning"] == "the address does not exist" and results["hard"]["text"]
    skipped = [problem for problem in get_report(api, sent_campaign)["problems"] if problem["status"] == "skipped"]
    assert [(entry["reason"], entry["count"]) for entry in skipped] == [("unsubscribed", 1)]
    assert names_behind(api, skipped[0]["people"]) == ["left"]


def test_problems_are_grouped_across_recipients(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Replies that differ only in address and queue id are one problem."""
    api = fresh_server(relay=smtp_server.port).client()
    list_id = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
    for at, name in enumerate(("ana", "ben", "eva")):
        words = f"5.1.1 <{name}@example.org>: Recipient address rejected, queue 4Zx{at}QabC12345"
        smtp_server.rules.reject("rcpt", f"{name}@*", code=550, text=words)
        api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [list_id]}).expect(201)
    response = api.post(
        "/campaigns", {"template_attributes": {**CONTENT, "from_email": "a@bakery.example"}, "name": "L"}
    )
    number = response.expect(201)["id"]
    api.post(f"/campaigns/{number}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{number}", lambda row: row["status"] == "completed")
    [problem] = get_report(api, response.json)["problems"]

    assert (problem["count"], problem["class"]) == (3, "hard")
    assert problem["text"] == "550 5.1.1 …: Recipient address rejected, queue …"
    assert names_behind(api, problem["people"]) == ["ana", "ben", "eva"]


def test_a_draft_has_an_empty_report(api: Client) -> None:
    """Every number is zero, no rate is shown, and the terms add up."""
    campaign = api.post("/campaigns", {"name": "Draft"}).expect(201)
    result = get_report(api, campaign)

    assert result["ledger"]["adds_up"] and result["ledger"]["sum"] == 0
    assert {count for _, count, _ in linked_counts(result)} == {0}
    assert result["opens"]["people"]["rate"] is None
    assert (result["links"], result["domains"], result["problems"], result["over_time"]) == ([], [], [], [])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"opened": "maybe"}, "opened"), ({"status": "lost"}, "status"), ({"link": "x"}, "link"),
        ({"nothing": "1"}, "nothing"),
    ],
)  # fmt: skip
def test_invalid_recipient_filters_are_rejected(
    query: dict[str, str], field: str, api: Client, sent_campaign: Any
) -> None:
    """An invalid or unknown filter is an error at its name."""
    response = api.get(f"/campaigns/{sent_campaign['id']}/recipients", **query).expect(422)

    assert list(response["validation_errors"]) == [field]


def test_recipient_filters_without_matches(api: Client, sent_campaign: Any) -> None:
    """Unknown domains, links and problems match no recipient, and wildcards have no meaning."""
    for query in ({"domain": "%"}, {"domain": "gmail.co_"}, {"domain": ""}, {"link": 99}, {"problem": "'; --"}):
        assert api.get(f"/campaigns/{sent_campaign['id']}/recipients", **query).expect(200) == [], query


def test_explain_one_contact(api: Client, sent_campaign: Any) -> None:
    """For a sent campaign it shows the contact's message, for a draft whether the contact would get it."""
    path = f"/campaigns/{sent_campaign['id']}/explain"
    left = api.get("/contacts/search", q=address_of("left")).expect(200)[0]["id"]
    rows = api.get(path, contact_id=left).expect(200)
    assert (rows["in_audience"], rows["status"], rows["skip_reason"]) == (True, "skipped", "unsubscribed")
    stranger = api.post("/contacts", {"email": "stranger@example.org"}).expect(201)["id"]
    rows = api.get(path, contact_id=stranger).expect(200)
    assert (rows["in_audience"], rows["message_id"]) == (False, None)
    assert [(part["kind"], part["name"], part["matches"]) for part in rows["parts"]] == [("list", "Readers", False)]

    group = rows["parts"][0]["id"]
    draft = api.post("/campaigns", {"name": "Next", "trigger_attributes": {"contact_list_id": group}}).expect(201)
    for number, inside, reason in ((left, True, "unsubscribed"), (stranger, False, None)):
        rows = api.get(f"/campaigns/{draft['id']}/explain", contact_id=number).expect(200)
        assert (rows["in_audience"], rows["skip_reason"], rows["status"]) == (inside, reason, None)
    assert api.get(path).expect(422)["validation_errors"] == {"contact_id": ["can't be blank"]}
    assert api.get(path, contact_id=999_999).expect(422)["validation_errors"] == {"contact_id": ["must exist"]}
