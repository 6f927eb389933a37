"""The preferences page: what recipients choose, change and undo there (D36, D41)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Response
from tests.kit.forms import (
    create_form,
    find_contact,
    get_events,
    get_link,
    request_as_visitor,
    submit_form,
    wait_for_system_emails,
)
from tests.kit.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose brand has a name and colours."""
    with Server().set_up() as running:
        running.client().put("/brand", {"company_name": "Bäckerei {{ 7 }}", "brand_color": "#aa3355"}).expect(200)
        yield running
        running.stop()


def send_marketing(server: Server, name: str, **body: Any) -> tuple[dict[str, Any], str, int]:
    """Send marketing to a new contact; return the contact, the path of its preferences page and the id of its list."""
    api = server.client()
    list_id = api.post("/lists", {"name": name, "public": True}).expect(201)["id"]
    contact_row = api.post("/contacts", {"email": f"{name.lower()}@example.org", "list_ids": [list_id], **body}).expect(
        201
    )
    content = {"to": f"{name.lower()}@example.org", "subject": "s", "body": "<a href='{{ preferences_url }}'>p</a>"}
    message = api.post("/messages", {**content, "transactional": False}).expect(201)
    # Events of the message are recorded when it is sent
    api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")
    return contact_row, str(re.search(r"/p/[\w-]+", api.get(f"/messages/{message['id']}").json["html"])[0]), list_id  # type: ignore[index]  # every marketing mail has this link


def get_contact(server: Server, contact_row: dict[str, Any]) -> dict[str, Any]:
    """Return the current state of a contact."""
    row: dict[str, Any] = server.client().get(f"/contacts/{contact_row['id']}").expect(200)
    return row


def save(server: Server, path: str, **form: Any) -> Response:
    """Save the preferences page with these values."""
    return request_as_visitor(server, "POST", path, {"act": "save", **form})


def test_the_preferences_page(server: Server) -> None:
    """The page shows masked addresses, public lists and tracking in the brand's colours; reading changes nothing."""
    contact_row, path, list_id = send_marketing(server, "Reader", phone="+442079460018")
    hidden = server.client().post("/lists", {"name": "Hidden"}).expect(201)["id"]
    server.client().patch(f"/contacts/{contact_row['id']}", {"list_ids": [list_id, hidden]}).expect(200)
    before = get_contact(server, contact_row)
    page = request_as_visitor(server, "GET", path)
    for method in ("GET", "HEAD", "OPTIONS"):
        request_as_visitor(server, method, path)

    assert page.status == 200 and "r…r@e…e.org" in page.text and "+44…18" in page.text
    assert "reader@example.org" not in page.text and "+442079460018" not in page.text
    assert "Reader" in page.text and "Hidden" not in page.text
    assert "Bäckerei {{ 7 }}" in page.text and "light-dark(#aa3355" in page.text
    assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", page.text)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src" not in policy
    assert (page.headers["Referrer-Policy"], page.headers["X-Robots-Tag"]) == ("no-referrer", "noindex")
    assert "Set-Cookie" not in page.headers and get_contact(server, contact_row) == before
    wrong = [
        request_as_visitor(server, "POST", path, body).status
        for body in ({}, {"act": "x"}, {"List-Unsubscribe": "One-Click"})
    ]
    assert wrong == [400] * 3 and get_contact(server, contact_row) == before


def test_the_link_in_a_test_message(server: Server) -> None:
    """The page says that it belongs to a test, what contacts choose on it, and not that the address is unknown."""
    api = server.client()
    content = {"name": "Tested", "subject": "s", "body": "<a href='{{ preferences_url }}'>p</a>"}
    template_id = api.post("/templates", content).expect(201)["id"]
    sent = api.post(f"/templates/{template_id}/send_test", {"email": "colleague@example.net"}).expect(200)
    message = api.wait(f"/messages/{sent['results'][0]['message_id']}", lambda row: row["status"] == "sent")
    path = re.search(r"/p/[\w-]+", message["html"])
    assert path is not None
    page = request_as_visitor(server, "GET", path[0]).text
    assert "This link is from a test message" in page and "Contacts choose here" in page
    assert "We hold no data about you" not in page


def test_a_number_of_somebody_else_is_not_opted_in(server: Server) -> None:
    """A number that only a sign-up form has named is not on the page of the email address, and keeps its STOP."""
    api, stopped = server.client(), "+442079460077"
    sms = api.post("/messages", {"channel": "sms", "to": stopped, "body": "Hello"}).expect(201)
    api.wait(f"/messages/{sms['id']}", lambda row: row["status"] == "sent")
    [captured] = api.get("/capture", message_id=sms["id"]).expect(200)
    api.post(f"/capture/{captured['id']}/simulate", {"action": "reply", "text": "STOP"}).expect(200)
    form = create_form(server, "Any number", fields=["email", "phone"])
    for address, number in (("mallory@example.org", "+442079460078"), ("mallet@example.org", stopped)):
        submit_form(server, form, email=address, phone=number).expect(202)
        done = request_as_visitor(server, "POST", get_link(wait_for_system_emails(server, address)[0]), {"confirm": 1})
        path = str(re.search(r"/p/[\w-]+", done.text)[0])  # type: ignore[index]  # the page has the link
        contact_row = find_contact(server, address)
        assert contact_row is not None
        (phone,) = [row["id"] for row in contact_row["channels"] if row["kind"] == "phone"]
        assert "Text messages to" not in request_as_visitor(server, "GET", path).text
        page = save(server, path, channel_shown=f"{phone}-off", channel=phone)
        assert page.status == 200 and "You made no changes." in page.text
        assert get_contact(server, contact_row)["subscribed_phone"] is False
    assert [row["reason"] for row in api.get("/suppressions", search=stopped).expect(200)] == ["stop_keyword"]


def test_saving_preferences(server: Server) -> None:
    """One request saves channels, lists and tracking with evidence of each change; a repeat changes nothing."""
    contact_row, path, list_id = send_marketing(server, "Chooser", phone="+442079460019")
    other = server.client().post("/lists", {"name": "Other", "public": True}).expect(201)["id"]
    email, phone = (row["id"] for row in contact_row["channels"])
    form = {
        "channel_shown": [email, phone], "channel": [email], "list_shown": [list_id, other], "list": [other],
        "tracking": "none",
    }  # fmt: skip
    page = save(server, path, **form)
    after = get_contact(server, contact_row)
    assert page.status == 200 and "Unsubscribed: Text messages to +44…19" in page.text
    assert "Subscribed: Other" in page.text
    assert "Unsubscribed: Chooser" in page.text and "Tracking: No tracking" in page.text
    assert (after["subscribed_email"], after["subscribed_phone"], after["list_ids"], after["tracking"]) == (
        True, False, [other], "none",
    )  # fmt: skip
    assert after["last_interacted_at"] is not None and after["verification_status"] == "verified"
    repeated = save(server, path, **form)
    assert "You made no changes." in repeated.text

    rows = server.client().get(f"/contacts/{contact_row['id']}/consents").expect(200)
    evidence = {row["act"]: row for row in rows if row["source"] == "preferences"}
    assert set(evidence) == {"opt_out", "list_left", "list_joined", "tracking"}
    assert len([row for row in rows if row["source"] == "preferences"]) == 4
    for row in evidence.values():
        assert (row["by"], row["actor"], row["ip"]) == ("recipient", "recipient", "127.0.0.0")
        assert row["text"].startswith("What would you like to receive?") and row["data"]["message_id"]
    assert (evidence["list_left"]["list_id"], evidence["list_joined"]["list_id"]) == (list_id, other)
    assert evidence["tracking"]["data"]["tracking"] == "none"


def test_an_outdated_page_changes_nothing_back(server: Server) -> None:
    """Saving a page that was loaded before other changes keeps those changes."""
    contact_row, path, list_id = send_marketing(server, "Sleeper")
    page = request_as_visitor(server, "GET", path).text
    boxes = re.findall(r'<input type="(checkbox|hidden|radio)" name="(\w+)" value="([^"]*)"( checked)?', page)
    form: dict[str, list[str]] = {}
    for kind, name, value, checked in boxes:
        if kind == "hidden" or checked:
            form.setdefault(name, []).append(value)
    email = contact_row["channels"][0]["id"]
    save(server, path, channel_shown=[email], list_shown=[list_id], tracking="none")
    late = save(server, path, **form)
    after = get_contact(server, contact_row)

    assert form["channel"] == [str(email)] and form["list"] == [str(list_id)] and form["tracking"] == ["full"]
    assert (after["subscribed_email"], after["list_ids"], after["tracking"]) == (False, [], "none")
    assert "You made no changes." in late.text


def test_a_left_list_is_rejoined_only_by_the_recipient(server: Server) -> None:
    """Writes over the API do not add the contact to the list again; the preferences page does (D36)."""
    contact_row, path, list_id = send_marketing(server, "Leaver")
    api = server.client()
    save(server, path, list_shown=[list_id])
    patched = api.patch(f"/contacts/{contact_row['id']}", {"list_ids": [list_id]}).expect(200)
    bulk = api.post(f"/lists/{list_id}/contacts/bulk", {"add": [contact_row["id"]]}).expect(200)
    assert patched["list_ids"] == [] and patched["kept_opt_out"] == [f"list:{list_id}"] and bulk["added"] == 0
    assert get_contact(server, contact_row)["subscribed_email"] is True
    save(server, path, list_shown=[list_id], list=[list_id])
    assert get_contact(server, contact_row)["list_ids"] == [list_id]


def test_values_that_the_page_did_not_show_are_ignored(server: Server) -> None:
    """Hidden lists and channels of other contacts cannot be changed."""
    contact_row, path, list_id = send_marketing(server, "Absent")
    other_contact, _, _ = send_marketing(server, "Stranger")
    hidden = server.client().post("/lists", {"name": "Secret"}).expect(201)["id"]
    number = other_contact["channels"][0]["id"]
    page = save(server, path, list_shown=[hidden, 987654], list=[hidden], channel_shown=[number, "x", "9" * 30])
    assert page.status == 200 and "You made no changes." in page.text
    assert (
        get_contact(server, contact_row)["list_ids"] == [list_id]
        and get_contact(server, other_contact)["subscribed_email"]
    )


def test_undoing_an_opt_out(server: Server) -> None:
    """The page after unsubscribing has a form that subscribes again and records an opt-in each time (D41)."""
    contact_row, path, _ = send_marketing(server, "Back")
    message = server.client().get(f"/messages/{server.client().get('/messages', to='back@example.org').json[0]['id']}")
    unsubscribe = re.search(r"/u/[\w-]+", message.json["html"])
    assert unsubscribe is not None
    response = request_as_visitor(server, "POST", unsubscribe[0], {"confirm": 1})
    assert f'action="{path}"' in response.text and not get_contact(server, contact_row)["subscribed_email"]
    for _ in range(2):
        page = request_as_visitor(server, "POST", path, {"act": "undo"})
        assert page.status == 200 and "subscribed again" in page.text
    assert get_contact(server, contact_row)["subscribed_email"]
    assert len(get_events(server, "opt_in", contact_id=contact_row["id"])) == 2


def test_a_complaint_is_not_undone(server: Server) -> None:
    """Neither saving nor undo lifts a complaint; the page says so."""
    contact_row, path, _ = send_marketing(server, "Angry")
    server.client().post("/suppressions", {"address": "angry@example.org", "reason": "complaint"}).expect(201)
    number = contact_row["channels"][0]["id"]
    save(server, path, channel_shown=[number], channel=[number])
    page = request_as_visitor(server, "POST", path, {"act": "undo"})
    assert "reported a message" in page.text and not get_contact(server, contact_row)["subscribed_email"]


def test_a_confirmed_erasure_request(server: Server) -> None:
    """An erasure is requested on the page and confirmed by a POST from an email; only the suppression remains."""
    contact_row, path, _ = send_marketing(server, "Forgetme", first_name="Zacharias")
    responses = [request_as_visitor(server, "POST", path, {"act": "erase"}) for _ in range(2)]
    assert [response.status for response in responses] == [200, 200] and "Check your inbox" in responses[0].text
    (email,) = wait_for_system_emails(server, "forgetme@example.org")
    assert get_contact(server, contact_row)["first_name"] == "Zacharias"
    assert len(get_events(server, "erase_requested", contact_id=contact_row["id"])) == 1
    confirm_path = get_link(email)
    for method in ("GET", "HEAD", "OPTIONS"):
        request_as_visitor(server, method, confirm_path)
    assert get_contact(server, contact_row)["first_name"] == "Zacharias"
    confirmations = [request_as_visitor(server, "POST", confirm_path, {"confirm": 1}) for _ in range(2)]
    assert [response.status for response in confirmations] == [200, 200] and "Everything is deleted" in confirmations[
        1
    ].text
    assert find_contact(server, "forgetme@example.org") is None
    assert server.client().get(f"/contacts/{contact_row['id']}").status == 404
    recreated = server.client().post("/contacts", {"email": "forgetme@example.org"}).expect(201)
    assert recreated["channels"][0]["suppression_reason"] == "erased" and not recreated["subscribed_email"]
    assert request_as_visitor(server, "GET", path).status == 200, "the link of a mail never breaks"


def test_an_erasure_request_without_email_waits_for_the_team(server: Server) -> None:
    """For a suppressed address the request is recorded as an event, no email is sent, and nothing is erased."""
    contact_row, path, _ = send_marketing(server, "Bounced")
    server.client().post("/suppressions", {"address": "bounced@example.org", "reason": "hard_bounce"}).expect(201)
    before = request_as_visitor(server, "GET", path).text
    assert "after reviewing your request" in before and "we send you an email" not in before
    page = request_as_visitor(server, "POST", path, {"act": "erase"})
    assert "request is noted" in page.text and get_contact(server, contact_row)["id"] == contact_row["id"]
    assert server.client().get("/messages", to="bounced@example.org", source_type="system").json == []
    assert len(get_events(server, "erase_requested", contact_id=contact_row["id"])) == 1


@pytest.mark.parametrize(
    ("locale", "heading"),
    [("de-AT", "Was möchten Sie erhalten?"), ("fr", "Que souhaitez-vous recevoir\u202f?"),
     ("es", "¿Qué le gustaría recibir?"),
     ("fi", "What would you like to receive?")],
)  # fmt: skip
def test_the_language_of_the_preferences_page(locale: str, heading: str, server: Server) -> None:
    """The page is in the account's language where translated, else in English; the evidence has that text."""
    server.client().patch("/account", {"locale": locale}).expect(200)
    contact_row, path, list_id = send_marketing(server, f"Speaks{locale[:2]}")
    page = request_as_visitor(server, "GET", path)
    assert heading in page.text and f'<html lang="{locale[:2] if locale != "fi" else "en"}"' in page.text
    save(server, path, list_shown=[list_id])
    rows = server.client().get(f"/contacts/{contact_row['id']}/consents").expect(200)
    assert rows[0]["text"].startswith(heading)
    server.client().patch("/account", {"locale": "en"}).expect(200)


def test_pages_follow_the_language_of_the_contact(server: Server) -> None:
    """A German contact of an English account reads German pages, and chooses another language on one of them."""
    contact_row, path, list_id = send_marketing(server, "Berta", language="de-AT")
    page = request_as_visitor(server, "GET", path)
    assert "Was möchten Sie erhalten?" in page.text and '<html lang="de"' in page.text
    assert '<option value="de" lang="de" selected>Deutsch</option>' in page.text
    (message,) = server.client().get("/messages", to="berta@example.org").json
    (away,) = set(re.findall(r"/u/[\w-]+", server.client().get(f"/messages/{message['id']}").json["html"]))
    assert '<html lang="de"' in request_as_visitor(server, "GET", away).text

    same = save(server, path, list_shown=[list_id], language="de", language_shown="de")
    assert '<html lang="de"' in same.text and get_contact(server, contact_row)["language"] == "de-AT"
    changed = save(server, path, language="pt_BR", language_shown="de")
    assert '<html lang="pt-BR"' in changed.text and "Português (Brasil)" in changed.text
    assert get_contact(server, contact_row)["language"] == "pt-BR"
    assert save(server, path, language="tlh", language_shown="pt_BR").status == 200
    assert get_contact(server, contact_row)["language"] == "pt-BR"
    (change,) = [
        event for event in get_events(server, "contact_update", contact_id=contact_row["id"])
        if event["data"]["fields"] == ["language"]
    ]  # fmt: skip
    assert change["data"]["source"] == "preferences"

    request_as_visitor(server, "POST", path, {"act": "erase"})
    (email,) = wait_for_system_emails(server, "berta@example.org")
    assert email["subject"].startswith("Por favor, confirme") or "confirme" in email["subject"].lower()
    assert '<html lang="pt-BR"' in request_as_visitor(server, "GET", get_link(email)).text


def test_tokens_of_other_pages_are_rejected(server: Server) -> None:
    """Tokens of other pages and changed tokens return 404 and change nothing (T24)."""
    contact_row, path, _ = send_marketing(server, "Guess")
    token = path.removeprefix("/p/")
    message = server.client().get(f"/messages/{server.client().get('/messages', to='guess@example.org').json[0]['id']}")
    others = [other_token for kind in "uv" for other_token in re.findall(rf"/{kind}/([\w-]+)", message.text)]
    assert others
    changed = [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(len(token))]
    before = get_contact(server, contact_row)
    for guess in [*changed, *others, token + "A", token[:-1], "x", "%00"]:
        for kind in "pdu":
            if kind == "u" and guess in others:
                continue
            for form in (None, {"act": "undo", "confirm": 1}):
                response = request_as_visitor(server, "POST" if form else "GET", f"/{kind}/{guess}", form)
                assert response.status == 404, (kind, guess)
    assert get_contact(server, contact_row) == before
