"""People opt out, and people edit, in the middle of a send (P4)."""

import re
import time
from urllib.parse import urlsplit

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.client import Client
from tests.kit.patience import soon
from tests.kit.recipients import address, completed, crowd, draft, send
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# What is in hand when somebody opts out arrives at once or never
IN_FLIGHT_SECONDS = 0.5


def links(sink: SmtpServer) -> dict[str, str]:
    """Return the one-click path of everybody who has got a mail."""
    found = {}
    for message in sink.messages:
        matched = re.search("<(.+)>", message.header("List-Unsubscribe") or "")
        assert matched
        found[message.to] = urlsplit(matched[1]).path
    return found


def members(api: Client, group: int) -> dict[str, int]:
    """Return the ids of the people of a list, by address."""
    return {row["channels"][0]["value"]: row["id"] for row in api.all("/contacts", list_id=group)}


def number_of(who: str) -> int:
    """Return the number within an address."""
    return int(re.sub(r"\D", "", who))


def skip_reasons(api: Client, path: str) -> dict[str, str]:
    """Return why rows of a campaign were skipped, by address."""
    found = api.all("/messages", campaign_id=path.rpartition("/")[2], status="skipped")
    return {row["to"]: row["skip_reason"] for row in found}


def test_who_opts_out_in_the_middle_gets_nothing_more(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """By one click, by a person at the desk, by suppression: from the answer on nothing starts for them."""
    count, leaving = (20_000, 2_000) if full else (1_200, 240)
    api = relayed().client(validate=False, keep_alive=True)
    group = crowd(api, count)
    completed(api, send(api, group, subject="First"), timeout=300)
    click = links(smtp_server)
    people = members(api, group)
    smtp_server.forget()
    smtp_server.rules.delay("body", 0.015)
    path = send(api, group, subject="Second")
    smtp_server.wait_for(20)
    known: dict[str, float] = {}
    slowest = 0.0
    for who in sorted(people, reverse=True)[:leaving]:
        begun = time.time()
        match number_of(who) % 12:
            case 0:
                api.patch(f"/contacts/{people[who]}", {"subscribed_email": False}).expect(200)
            case 1:
                api.post("/suppressions", {"address": who}).expect(201)
            case _:
                assert api.request("POST", click[who], b"List-Unsubscribe=One-Click", FORM).status == 200
        known[who] = time.time()
        slowest = max(slowest, known[who] - begun)
    completed(api, path, timeout=300)
    books = balance(api, path, smtp_server.messages)
    late = [message for message in smtp_server.messages if message.time > known.get(message.to, message.time)]
    skipped = skip_reasons(api, path)
    figures.books(books, left=leaving, skipped=len(skipped), after_their_answer=len(late), slowest=f"{slowest:.2f} s")

    assert all(message.time - known[message.to] < IN_FLIGHT_SECONDS for message in late)
    assert len(late) <= CONNECTIONS and slowest < soon(1)
    assert skipped.keys() | {message.to for message in smtp_server.messages if message.to in known} == known.keys()
    assert len(skipped) > leaving * 0.8
    for who, reason in skipped.items():
        assert reason == ("suppressed_manual" if number_of(who) % 12 == 1 else "unsubscribed")
    assert (books.copies, books.missing) == (0, 0)


def test_what_is_edited_in_the_middle_changes_nothing_that_was_promised(
    relayed: Relayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """Content, sender and audience are those of the moment of sending; who is deleted or moved gets nothing."""
    count = 600
    smtp_server.rules.delay("body", 0.01)
    api = relayed().client(validate=False)
    group = crowd(api, count)
    path = draft(api, group)
    sent = api.post(f"{path}/send").expect(200)
    smtp_server.wait_for(20)
    people = members(api, group)
    template = api.patch(f"/templates/{sent['template']['id']}", {"subject": "Changed"})
    campaign = api.patch(path, {"template_attributes": {"body": "<p>Changed</p>"}})
    api.put("/brand", {"company_name": "Changed", "physical_address": "2 New Road, Bristol"}).expect(200)
    api.post("/contacts", {"email": "added@crowd.example", "list_ids": [group]}).expect(201)
    removed, moved, deleted = address(count - 1), address(count - 2), address(count - 3)
    api.post(f"/lists/{group}/remove_contacts", {"contact_ids": [people[removed]]})
    api.patch(f"/contacts/{people[moved]}", {"email": "moved@crowd.example"}).expect(200)
    api.delete(f"/contacts/{people[deleted]}").expect(200)
    assert api.get(path).expect(200)["stats"]["pending"] > 0
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    arrived = {message.to for message in smtp_server.messages}
    figures.books(books, skipped=books.stats["skipped"])

    assert (template.status, campaign.status) == (422, 422)
    assert campaign.json["reason"] == "campaign_locked"
    assert arrived == {address(index) for index in range(count)} - {moved, deleted}
    assert (books.accepted, books.stats["skipped"], books.copies, books.missing) == (count - 2, 2, 0, 0)
    for message in smtp_server.messages:
        html = message.html() or ""
        assert message.subject.startswith("News for N") and "how we bake" in html
        assert "1 Mill Lane" in html and "New Road" not in html
