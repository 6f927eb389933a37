"""Sign-up through a form, and its confirmation (docs/decisions.md#9 and #16; T25, T36)."""

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import pytest

from tests.kit.clock import TestClock
from tests.kit.forms import (
    BEHIND_PROXY,
    FORM_HEADERS,
    anonymous_client,
    create_form,
    find_contact,
    get_events,
    get_link,
    request_as_visitor,
    submit_form,
    wait_for_system_emails,
)
from tests.kit.server import Server
from tests.kit.shared_clock import clock, server

__all__ = ["clock", "server"]
# Each request can have its own client address
SERVER_ENV = BEHIND_PROXY
ACCEPTED = {"accepted": True, "suggested_email": None}
SCANNERS = ("BarracudaCentral", "Mozilla/5.0 (compatible; SafeLinks)", "curl/8", "")


def test_double_opt_in(server: Server) -> None:
    """A submission creates no contact until its link is confirmed; then contact, consent and events exist."""
    form = create_form(server, "Letter", fields=["email", "first_name", "data.city"], consent_text="Yes, news please")
    submission = {"email": "new@example.org", "first_name": "Ana", "data": {"city": "Bath", "other": "x"}, "extra": 1}
    assert submit_form(server, form, **submission).expect(202) == ACCEPTED
    (email,) = wait_for_system_emails(server, "new@example.org")
    assert find_contact(server, "new@example.org") is None
    page = request_as_visitor(server, "GET", get_link(email))
    assert "n…w@e…e.org" in page.text and "subscribed to: Letter." in page.text and "new@example.org" not in page.text

    assert request_as_visitor(server, "POST", get_link(email), {"confirm": 1}).status == 200
    created = find_contact(server, "new@example.org")
    assert created is not None
    (channel,) = created["channels"]
    assert (created["first_name"], created["data"], created["list_ids"]) == ("Ana", {"city": "Bath"}, form["list_ids"])
    assert (channel["subscribed"], channel["verified"], created["verification_status"]) == (True, True, "verified")
    assert created["source"] == "form" and created["last_interacted_at"] is not None
    rows = server.client().get(f"/contacts/{created['id']}/consents").expect(200)
    acts = {row["act"]: row for row in rows}
    assert (acts["requested"]["text"], acts["requested"]["actor"]) == ("Yes, news please", f"form:{form['id']}")
    assert (acts["opt_in"]["by"], acts["opt_in"]["source"]) == ("recipient", "double_opt_in")
    assert "n…w@e…e.org" in acts["opt_in"]["text"] and acts["opt_in"]["ip"] == "127.0.0.0"
    assert acts["list_joined"]["list_id"] == form["list_ids"][0]
    (confirmed,) = get_events(server, "double_opt_in_confirmed", contact_id=created["id"])
    assert (confirmed["data"]["form_id"], confirmed["resource_name"]) == (form["id"], "Letter")
    (submitted,) = [row for row in get_events(server, "form_submitted") if row["data"]["form_id"] == form["id"]]
    assert (submitted["contact_id"], submitted["resource_name"], submitted["ip"], submitted["user_agent"]) == (
        None,
        "Letter",
        None,
        None,
    )
    counted = server.client().get(f"/forms/{form['id']}").expect(200)
    assert (counted["submissions_count"], counted["confirmed_count"]) == (1, 1)


def test_the_language_of_a_sign_up(server: Server) -> None:
    """The field for the language, else the browser's, decides for the email, the pages and the new contact."""
    browser = {"Accept-Language": "de-CH,de;q=0.9,en;q=0.5"}
    form = create_form(server, "Language", fields=["email", "language"])
    path = f"/f/{form['public_key']}"
    page = request_as_visitor(server, "GET", path, **browser)
    assert '<html lang="de"' in page.text and "E-Mail-Adresse" in page.text
    assert '<html lang="en"' in request_as_visitor(server, "GET", path, **{"Accept-Language": "sv"}).text
    assert '<option value="pt-BR" lang="pt-BR">Português (Brasil)</option>' in page.text
    submit_form(server, form, browser, email="by-browser@example.org").expect(202)
    submit_form(server, form, browser, email="by-field@example.org", language="fr").expect(202)
    wrong = submit_form(server, form, email="wrong@example.org", language="klingon").expect(422)
    assert wrong["validation_errors"] == {"language": ["must be a language code such as de or pt-BR"]}
    for address, subject, lang, stored in (
        ("by-browser@example.org", "Bitte bestätigen", "de", "de-CH"), ("by-field@example.org", "Merci de", "fr", "fr")
    ):  # fmt: skip
        (email,) = wait_for_system_emails(server, address)
        assert subject in email["subject"] and f'<html lang="{lang}"' in email["html"]
        assert f'<html lang="{lang}"' in request_as_visitor(server, "GET", get_link(email)).text
        assert request_as_visitor(server, "POST", get_link(email), {"confirm": 1}).status == 200
        created = find_contact(server, address)
        assert created is not None and created["language"] == stored

    # What is known already is not replaced by the language of a browser
    submit_form(server, form, {"Accept-Language": "pl"}, email="by-field@example.org").expect(202)
    kept = find_contact(server, "by-field@example.org")
    assert kept is not None and kept["language"] == "fr"


def test_a_form_in_one_language(server: Server) -> None:
    """A form with a language of its own has it for every visitor, and new contacts get it."""
    form = create_form(server, "Lettera", language="it", double_opt_in=False)
    browser = {"Accept-Language": "de"}
    assert '<html lang="it"' in request_as_visitor(server, "GET", f"/f/{form['public_key']}", **browser).text
    submit_form(server, form, browser, email="lettera@example.org").expect(202)
    created = find_contact(server, "lettera@example.org")
    assert created is not None and created["language"] == "it"
    client = server.client()
    wrong = client.patch(f"/forms/{form['id']}", {"language": "Italian"}).expect(422)
    assert wrong["validation_errors"] == {"language": ["must be a language code such as de or pt-BR"]}
    assert client.patch(f"/forms/{form['id']}", {"language": None}).expect(200)["language"] is None


@pytest.mark.parametrize(("address", "suggestion"), [("typo@gmail.con", "gmail.com"), ("typo@example.org", None)])
def test_a_typo_in_the_domain_is_accepted_and_named(server: Server, address: str, suggestion: str | None) -> None:
    """A sign-up with typo@gmail.con is accepted, and the page of thanks asks for gmail.com, with a way back."""
    form = create_form(server, f"Typo of {address}")
    path = f"/f/{form['public_key']}"
    thanks = request_as_visitor(server, "POST", path, {"email": address})
    assert thanks.status == 200 and "Almost done" in thanks.text
    assert (f"Did you mean <b>{suggestion}</b>?" in thanks.text) is (suggestion is not None)
    assert (f'href="{path}"' in thanks.text) is (suggestion is not None)
    assert wait_for_system_emails(server, address)


def test_a_typo_is_named_before_the_redirect(server: Server) -> None:
    """Instead of redirecting at once, the page names the typo, with a link to the redirect URL; bots see the same."""
    target = "https://shop.example/thanks?a=1&b=2"
    form = create_form(server, "Typo and redirect", redirect_url=target)
    path, client = f"/f/{form['public_key']}", {"X-Forwarded-For": "203.0.113.24"}
    right = request_as_visitor(server, "POST", path, {"email": "right@gmail.com"}, **client)
    assert (right.status, right.headers["Location"]) == (303, target)
    for fields in ({}, {"website": "https://spam.example"}):
        page = request_as_visitor(server, "POST", path, {"email": "redirect@gmail.con", **fields}, **client)
        assert page.status == 200 and "Did you mean <b>gmail.com</b>?" in page.text
        assert f'href="{target.replace("&", "&amp;")}"' in page.text and f'href="{path}"' in page.text
    assert wait_for_system_emails(server, "redirect@gmail.con")


def test_the_api_names_a_typo(server: Server) -> None:
    """The response to a script suggests the probable address, which depends on nothing but the one it sent."""
    form = create_form(server, "Typo of a script", fields=["email", "phone"])
    suggested = {"accepted": True, "suggested_email": "Script@gmail.com"}
    for fields in ({}, {"website": "https://spam.example"}):
        assert submit_form(server, form, email=" Script@GMAIL.con ", **fields).expect(202) == suggested
    for fields in ({"email": "script@gmail.com"}, {"phone": "+14155550199"}):
        assert submit_form(server, form, **fields).expect(202)["suggested_email"] is None
    assert wait_for_system_emails(server, "Script@gmail.con")


def test_websites_that_may_embed_the_form_show_its_thanks(server: Server) -> None:
    """A form in a frame of an allowed website shows its page of thanks there."""
    form = create_form(server, "In a frame", origins=["https://shop.example"])
    path, client = f"/f/{form['public_key']}", {"X-Forwarded-For": "203.0.113.25"}
    thanks = request_as_visitor(server, "POST", path, {"email": "embedded@example.org"}, **client)
    for page in (request_as_visitor(server, "GET", path), thanks):
        assert page.status == 200
        assert page.headers["Content-Security-Policy"].endswith("frame-ancestors https://shop.example")


def test_the_submission_event_has_network_and_browser(server: Server) -> None:
    """The event of a known contact has the truncated IP address and the browser."""
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
    form = create_form(server, "Seen")
    contact_id = server.client().post("/contacts", {"email": "known-here@example.org"}).expect(201)["id"]
    submit_form(server, form, {"User-Agent": agent, "X-Forwarded-For": "198.51.100.77"}, email="known-here@example.org")
    (submitted,) = get_events(server, "form_submitted", contact_id=contact_id)
    assert (submitted["ip"], submitted["user_agent"]) == ("198.51.100.0", agent)
    assert (submitted["browser"], submitted["os"], submitted["device_type"]) == ("Firefox", "Linux", "desktop")


def test_only_a_post_confirms(server: Server) -> None:
    """GET, HEAD, OPTIONS and other bodies confirm nothing; repeated POSTs confirm once (T25)."""
    form = create_form(server, "Scanned")
    submit_form(server, form, email="scanned@example.org").expect(202)
    (email,) = wait_for_system_emails(server, "scanned@example.org")
    path = get_link(email)
    for method in ("GET", "HEAD", "OPTIONS"):
        for agent in SCANNERS * 5:
            request_as_visitor(server, method, path, **{"User-Agent": agent})
    wrong = [
        request_as_visitor(server, "POST", path, body).status
        for body in ({}, {"confirm": "0"}, {"List-Unsubscribe": "One-Click"})
    ]
    assert wrong == [400] * 3 and find_contact(server, "scanned@example.org") is None
    responses = [request_as_visitor(server, "POST", path, {"confirm": 1}) for _ in range(3)]
    assert [response.status for response in responses] == [200] * 3
    assert all("Set-Cookie" not in response.headers and "Location" not in response.headers for response in responses)
    created = find_contact(server, "scanned@example.org")
    assert created is not None and len(get_events(server, "double_opt_in_confirmed", contact_id=created["id"])) == 1
    assert len(wait_for_system_emails(server, "scanned@example.org")) == 1


def test_the_confirmation_email_contains_no_submitted_text(server: Server) -> None:
    """The confirmation email has no submitted text and no list headers, and is marked as auto-generated (T36, D01)."""
    form = create_form(server, "Quiet", fields=["email", "first_name", "data.note"])
    spam = "Buy cheap https://spam.example now"
    submit_form(server, form, email="quiet@example.org", first_name=spam, data={"note": spam}).expect(202)
    (email,) = wait_for_system_emails(server, "quiet@example.org")
    raw = server.client().get(f"/messages/{email['id']}").text
    assert "spam.example" not in raw and "cheap" not in raw
    assert (email["source_type"], email["transactional"], email["campaign_id"]) == ("system", True, None)
    names = {name.lower(): value for name, value in email["headers"].items()}
    assert names["auto-submitted"] == "auto-generated"
    assert not {"list-unsubscribe", "list-unsubscribe-post", "list-id", "feedback-id", "precedence"} & set(names)
    assert "/u/" not in email["html"] and "{{" not in email["html"] + email["text"] + email["subject"]


def test_one_confirmation_email_a_day(server: Server, clock: TestClock) -> None:
    """However often an address is submitted, it gets one email in 24 hours; its link confirms all forms."""
    first, second = create_form(server, "One"), create_form(server, "Two")
    server.client().patch(f"/lists/{first['list_ids'][0]}", {"public": True}).expect(200)
    statuses = []
    for number in range(30):
        client = {"X-Forwarded-For": f"203.0.113.{number}"}
        statuses.append(submit_form(server, second if number % 2 else first, client, email="flood@example.org").status)
    assert statuses[:10] == [202] * 10 and set(statuses[10:]) == {429}
    clock.advance(3600)
    submit_form(server, second, {"X-Forwarded-For": "198.51.100.1"}, email="Flood@Example.org").expect(202)
    (email,) = wait_for_system_emails(server, "flood@example.org")
    page = request_as_visitor(server, "GET", get_link(email))
    # The name of a list that is not public is for the team.
    assert "subscribed to: One list, Two." in page.text
    assert request_as_visitor(server, "POST", get_link(email), {"confirm": 1}).status == 200
    created = find_contact(server, "flood@example.org")
    assert created is not None and created["list_ids"] == sorted(first["list_ids"] + second["list_ids"])
    clock.advance(24 * 3600)
    submit_form(server, first, email="flood@example.org").expect(202)
    assert len(wait_for_system_emails(server, "flood@example.org", 2)) == 2


def test_a_stranger_changes_nothing_by_another_confirmation(server: Server) -> None:
    """Values that others submit for an address do not replace those of its owner, who confirms; own later ones do."""
    form = create_form(server, "Strangers", fields=["email", "first_name", "phone", "data.city"])
    ann = {"X-Forwarded-For": "192.0.2.1", "User-Agent": "Ann's browser"}
    eve = {"X-Forwarded-For": "203.0.113.66", "User-Agent": "Eve's browser"}
    fake = {"first_name": "You won https://evil.example", "phone": "+14155550199", "data": {"city": "Hull"}}
    other = create_form(server, "Other", fields=["email"])
    for address, first, confirming in (
        ("ann@example.org", ann, ann), ("by-phone@example.org", ann, {}), ("late@ann.example.org", eve, ann)
    ):  # fmt: skip
        own = {"email": address, "first_name": "Ann", "data": {"city": "Bath"}, "phone": f"+1415555{len(address):04}"}
        if first is eve:
            submit_form(server, form, eve, email=address, **fake).expect(202)
        submit_form(server, form, ann, **own | {"first_name": "An"}).expect(202)
        submit_form(server, other, ann, **own).expect(202)
        submit_form(server, form, eve, email=address, **fake).expect(202)
        (email,) = wait_for_system_emails(server, address)
        assert request_as_visitor(server, "POST", get_link(email), {"confirm": 1}, **confirming).status == 200
        created = find_contact(server, address)
        assert created is not None, address
        # Submissions that were not mailed are replaced by later ones of the same form, so Ann's of `form` may be lost.
        assert created["first_name"] == "Ann", address
        assert first is eve or created["data"] == {"city": "Bath"}, address
        phones = [channel["value"] for channel in created["channels"] if channel["kind"] == "phone"]
        assert first is eve or phones == [own["phone"]], address
        assert created["list_ids"] == sorted(form["list_ids"] + other["list_ids"])


def test_three_confirmation_emails_an_hour_for_a_client(server: Server, clock: TestClock) -> None:
    """Further addresses that a client submits get no email until the hour is over; other clients are not affected."""
    form, api = create_form(server, "Client"), server.client()
    for number in range(6):
        submit_form(server, form, {"X-Forwarded-For": "203.0.113.7"}, email=f"p{number}@example.org").expect(202)
    submit_form(server, form, {"X-Forwarded-For": "9.9.9.9, 203.0.113.8"}, email="other@example.org").expect(202)
    addresses = [*(f"p{number}@example.org" for number in range(6)), "other@example.org"]
    mailed = [address for address in addresses if api.get("/messages", source_type="system", to=address).json]
    assert mailed == ["p0@example.org", "p1@example.org", "p2@example.org", "other@example.org"]
    clock.advance(3601)
    submit_form(server, form, {"X-Forwarded-For": "203.0.113.7"}, email="p5@example.org").expect(202)
    assert len(wait_for_system_emails(server, "p5@example.org")) == 1


def test_five_confirmation_emails_a_day_for_a_mailbox(server: Server, clock: TestClock) -> None:
    """Addresses with a plus, and at Gmail with dots, lead to one mailbox, which many clients cannot fill (T36)."""
    form, api = create_form(server, "Mailbox"), server.client()
    tagged = [f"ann+{number}@mailbox.example" for number in range(8)]
    dotted = ["annlee@gmail.com", "ann.lee@gmail.com", "a.n.n.lee@googlemail.com", "Ann.Lee+x@gmail.com",
              "an.nlee@gmail.com", "annle.e@gmail.com", "a.nnlee+1@googlemail.com"]  # fmt: skip
    for number, address in enumerate([*tagged, *dotted, "other@mailbox.example"]):
        submit_form(server, form, {"X-Forwarded-For": f"198.51.100.{number}"}, email=address).expect(202)

    def is_mailed(address: str) -> bool:
        return bool(api.get("/messages", source_type="system", to=address).expect(200))

    assert [is_mailed(address) for address in tagged] == [True] * 5 + [False] * 3
    assert [is_mailed(address) for address in dotted] == [True] * 5 + [False] * 2 and is_mailed("other@mailbox.example")
    clock.advance(86_401)
    submit_form(server, form, {"X-Forwarded-For": "198.51.100.99"}, email=tagged[-1]).expect(202)
    assert len(wait_for_system_emails(server, tagged[-1])) == 1


def test_a_confirmation_link_expires_after_seven_days(server: Server, clock: TestClock) -> None:
    """An expired link returns 404 and confirms nothing; a new submission creates a new link."""
    form = create_form(server, "Late")
    submit_form(server, form, email="late@example.org").expect(202)
    path = get_link(wait_for_system_emails(server, "late@example.org")[0])
    clock.advance(7 * 86_400 + 60)
    for response in (request_as_visitor(server, "GET", path), request_as_visitor(server, "POST", path, {"confirm": 1})):
        assert response.status == 404 and "expired" in response.text
    assert find_contact(server, "late@example.org") is None
    submit_form(server, form, email="late@example.org").expect(202)
    request_as_visitor(
        server, "POST", get_link(wait_for_system_emails(server, "late@example.org", 2)[0]), {"confirm": 1}
    )
    assert find_contact(server, "late@example.org") is not None


def test_opted_out_contacts_must_confirm(server: Server) -> None:
    """A form without double opt-in still asks opted-out and complained addresses, and emails no bounced ones."""
    form = create_form(server, "Direct", double_opt_in=False)
    api = server.client()
    opted_out, complained, bounced = (
        api.post("/contacts", {"email": f"{name}@example.org", "first_name": name}).expect(201)["id"]
        for name in ("gone", "angry", "bounced")
    )
    api.patch(f"/contacts/{opted_out}", {"subscribed_email": False}).expect(200)
    for name, reason in (("angry", "complaint"), ("bounced", "hard_bounce")):
        api.post("/suppressions", {"address": f"{name}@example.org", "reason": reason}).expect(201)
    for name in ("gone", "angry", "bounced", "fresh"):
        submit_form(server, form, email=f"{name}@example.org", first_name="Mallory").expect(202)

    fresh = find_contact(server, "fresh@example.org")
    assert fresh is not None and fresh["subscribed_email"] and fresh["list_ids"] == form["list_ids"]
    for contact_id in (opted_out, complained):
        assert not api.get(f"/contacts/{contact_id}").json["subscribed_email"]
    assert api.get("/messages", to="bounced@example.org", source_type="system").json == []
    for name, contact_id in (("gone", opted_out), ("angry", complained)):
        request_as_visitor(
            server, "POST", get_link(wait_for_system_emails(server, f"{name}@example.org")[0]), {"confirm": 1}
        )
        contact_row = api.get(f"/contacts/{contact_id}").json
        assert contact_row["sendable_email"] and contact_row["list_ids"] == form["list_ids"], name
    assert api.get(f"/contacts/{bounced}").json["channels"][0]["suppression_reason"] == "hard_bounce"


def test_a_submission_overwrites_no_field(server: Server) -> None:
    """Without confirmation a form fills empty fields of a known contact and overwrites none."""
    form = create_form(server, "Fill", double_opt_in=False, fields=["email", "first_name", "last_name", "data.city"])
    api = server.client()
    known = {"email": "known@example.org", "first_name": "Ana", "data": {"city": "Bath"}}
    contact_id = api.post("/contacts", known).expect(201)["id"]
    submit_form(
        server, form, email="known@example.org", first_name="Eve", last_name="Lee", data={"city": "Hull"}
    ).expect(202)
    after = api.get(f"/contacts/{contact_id}").json
    assert (after["first_name"], after["last_name"], after["data"]) == ("Ana", "Lee", {"city": "Bath"})
    assert after["list_ids"] == form["list_ids"]


def test_bots_and_invalid_submissions(server: Server) -> None:
    """A filled honeypot is accepted and dropped; invalid input returns an error and writes no log entry."""
    form = create_form(server, "Trap")
    assert submit_form(server, form, email="bot@example.org", website="https://x").expect(202) == ACCEPTED
    errors = submit_form(server, form, email="no address").expect(422)["validation_errors"]
    assert errors == {"email": ["is invalid"]}
    assert submit_form(server, form).expect(422)["validation_errors"] == {"email": ["can't be blank"]}
    assert submit_form(server, form, email="a@example.org", first_name="x\x00").expect(422)["validation_errors"]
    path = f"/v1/public/forms/{form['public_key']}"
    for body, content_type, status in (
        (b"{", "application/json", 400), (b"[]", "application/json", 400), (b"x", "text/plain", 415),
        (b"\xff=1", FORM_HEADERS["Content-Type"], 400), (b"email=" + b"x" * 70_000, FORM_HEADERS["Content-Type"], 413),
        (b"&".join(b"a%d=1" % n for n in range(300)), FORM_HEADERS["Content-Type"], 400),
    ):  # fmt: skip
        response = anonymous_client(server).request("POST", path, body, {"Content-Type": content_type})
        assert response.status == status, (body[:20], response.text)
    for key in ("camp_pub_" + "x" * 36, "nothing", form["public_key"][:-1]):
        assert submit_form(server, {"public_key": key}, email="a@example.org").status == 404
        assert request_as_visitor(server, "GET", f"/f/{key}").status == 404
    for body, content_type in (
        (b"\x9d\xff", FORM_HEADERS["Content-Type"]),
        (b"--x\r\n\xdd", "multipart/form-data; boundary=x"),
        (b"x", "multipart/form-data"),
    ):
        assert (
            anonymous_client(server)
            .request("POST", f"/f/{form['public_key']}", body, {"Content-Type": content_type})
            .status
            == 422
        )
    assert "Traceback" not in server.output, "an anonymous request was logged as an error"
    assert server.client().get(f"/forms/{form['id']}").json["submissions_count"] == 0
    assert server.client().get("/messages", to="bot@example.org").json == []


def test_too_much_custom_data_is_shown_at_its_field(server: Server) -> None:
    """Data that the contact has no room for is an error at its field that keeps the values; a confirmation goes on."""
    api = server.client()
    fields = [*[f"data.n{number}" for number in range(19)], "email"]
    values = {f"data.n{number}": '"' * (980 + number) for number in range(19)}
    values["email"] = "long@example.org"
    form = create_form(server, "Long", fields=fields, double_opt_in=False)
    response = request_as_visitor(server, "POST", f"/f/{form['public_key']}", values)
    assert response.status == 422 and response.text.count("That’s too long") == 1, response.text
    wrong = re.search(r'<[^>]*name="data\.n18"[^>]*>', response.text)
    assert wrong is not None and 'aria-invalid="true"' in wrong[0]
    assert all(value in unescape(response.text) for value in values.values())
    assert find_contact(server, "long@example.org") is None

    api.post("/contacts", {"email": "full@example.org", "data": {"story": "x" * 32_000}, "opt_in": False}).expect(201)
    form = create_form(server, "Full", fields=["data.n0", "email"], double_opt_in=False)
    values = {"email": "full@example.org", "data.n0": "y" * 900}
    response = request_as_visitor(server, "POST", f"/f/{form['public_key']}", values)
    assert response.status == 422 and "That’s too long" in response.text and "y" * 900 in response.text
    assert submit_form(server, form, email="full@example.org", data={"n0": "y" * 900}).status == 422
    mailed = create_form(server, "Mailed", fields=["data.n0", "email"])
    submit_form(server, mailed, email="full@example.org", data={"n0": "y" * 900}).expect(202)
    (email,) = wait_for_system_emails(server, "full@example.org")
    assert request_as_visitor(server, "POST", get_link(email), {"confirm": 1}).status == 200
    confirmed = find_contact(server, "full@example.org")
    assert confirmed is not None and confirmed["subscribed_email"] and list(confirmed["data"]) == ["story"]


def test_an_empty_form_names_the_required_field(server: Server) -> None:
    """A form with one address requires it; a form with email and phone requires one of them."""
    for fields, message in ((["email"], "Please fill this in."), (["email", "phone"], "an email address or a phone")):
        form = create_form(server, f"Asks for {len(fields)}", fields=fields)
        response = request_as_visitor(server, "POST", f"/f/{form['public_key']}", {"email": ""})
        assert response.status == 422 and message in response.text


def test_a_public_key_has_no_api_access(server: Server) -> None:
    """Every API request with a form's public key returns 403 (docs/decisions.md#2)."""
    form = create_form(server, "Key")
    api = server.client(form["public_key"])
    for path in ("/contacts", "/forms", f"/forms/{form['id']}", "/account"):
        assert api.get(path).expect(403)["code"] == "forbidden"
    assert api.post("/contacts", {"email": "x@example.org"}).status == 403


def test_internationalised_origins_and_redirects(server: Server) -> None:
    """Origins and redirects with `müller.example` appear in headers in the ASCII form that browsers compare."""
    origins = ["https://Müller.example:443", "http://a.example:8080"]
    form = create_form(server, "Names", origins=origins, redirect_url="https://müller.example/schön?a=1")
    origin = "https://xn--mller-kva.example"
    assert form["origins"] == [origin, "http://a.example:8080"]
    assert form["redirect_url"] == "https://müller.example/schön?a=1"
    allowed = submit_form(server, form, {"Origin": origin}, email="origin@example.org").headers
    assert allowed["Access-Control-Allow-Origin"] == origin
    policy = request_as_visitor(server, "GET", f"/f/{form['public_key']}").headers["Content-Security-Policy"]
    assert f"form-action 'self' {origin};" in policy
    assert policy.endswith(f"frame-ancestors {origin} http://a.example:8080")
    for form_path in ("/f/", "/v1/public/forms/"):
        response = request_as_visitor(
            server, "POST", f"{form_path}{form['public_key']}", {"email": f"d{len(form_path)}@example.org"}
        )
        assert (response.status, response.headers["Location"]) == (303, f"{origin}/sch%C3%B6n?a=1")


def test_cors_of_a_form(server: Server) -> None:
    """Only the form's origins may read the response, on this path alone; a browser's form is redirected."""
    form = create_form(server, "Cors", origins=["https://Shop.example/"], redirect_url="https://shop.example/thanks")
    assert form["origins"] == ["https://shop.example"]
    path = f"/v1/public/forms/{form['public_key']}"
    for origin, allowed in (("https://shop.example", True), ("https://evil.example", False), ("null", False)):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight = anonymous_client(server).request("OPTIONS", path, None, headers)
        posted = submit_form(server, form, {"Origin": origin}, email="cors@example.org")
        wrong = submit_form(server, form, {"Origin": origin}, email="?")
        assert (preflight.status, posted.status, wrong.status) == (204, 202, 422)
        for response in (preflight, posted, wrong):
            assert response.headers["Access-Control-Allow-Origin"] == (origin if allowed else None)
            assert "Access-Control-Allow-Credentials" not in response.headers
    other = anonymous_client(server).request("GET", "/v1/my/contacts", None, {"Origin": "https://shop.example"})
    assert other.headers["Access-Control-Allow-Origin"] is None
    sent = request_as_visitor(server, "POST", path, {"email": "cors@example.org", "data[x]": "1"})
    assert (sent.status, sent.headers["Location"]) == (303, "https://shop.example/thanks")


def test_a_list_with_double_opt_in(server: Server) -> None:
    """Unconfirmed contacts of such a list are skipped as `not_verified`; a form for it always asks for confirmation."""
    api = server.client()
    list_id = api.post("/lists", {"name": "Careful", "double_opt_in": True}).expect(201)["id"]
    form = api.post("/forms", {"name": "Careful", "list_ids": [list_id], "double_opt_in": False}).expect(201)
    api.post("/contacts", {"email": "unsure@example.org", "list_ids": [list_id]}).expect(201)
    submit_form(server, form, email="sure@example.org").expect(202)
    request_as_visitor(server, "POST", get_link(wait_for_system_emails(server, "sure@example.org")[0]), {"confirm": 1})
    assert api.get(f"/lists/{list_id}").expect(200)["sendable_count"] == {"email": 1, "sms": 0}
    campaign = api.post("/campaigns", {"name": "c", "template_attributes": {"subject": "s", "body": "<p>b</p>"}}).json
    api.post(f"/campaigns/{campaign['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed")
    rows = {row["to"]: row for row in api.get("/messages", campaign_id=campaign["id"]).json}
    assert rows["unsure@example.org"]["skip_reason"] == "not_verified"
    assert rows["sure@example.org"]["status"] == "sent"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"list_ids": [987654]}, "list_ids"), ({"origins": ["shop.example"]}, "origins[0]"),
        ({"origins": ["https://a.example;script-src *"]}, "origins[0]"),
        ({"origins": ["https://a@b.example"]}, "origins[0]"), ({"origins": ["https://b.example/path"]}, "origins[0]"),
        ({"fields": ["data.tags"]}, "fields[0]"), ({"fields": ["email", "data.a b"]}, "fields[1]"),
        ({"fields": ["city", "data.city"]}, "fields[1]"), ({"redirect_url": "javascript:alert(1)"}, "redirect_url"),
        ({"name": " "}, "name"), ({"fields": [{"name": "email", "label": "a\x00"}]}, "fields[0].label"),
    ],
)  # fmt: skip
def test_invalid_forms_are_rejected(body: dict[str, object], field: str, server: Server) -> None:
    """Each error is reported at its field."""
    response = server.client().post("/forms", {"name": "Wrong", **body})
    assert list(response.expect(422)["validation_errors"]) == [field]


def test_forms_over_the_api(server: Server) -> None:
    """Fields are returned as sent, PATCH keeps absent fields, and a deleted list disappears from forms."""
    api = server.client()
    fields = ["email", {"name": "data.city", "label": "Town", "required": True}]
    form = create_form(server, "Kept", fields=fields)
    assert form["fields"] == fields and form["double_opt_in"] is True and form["public_key"].startswith("camp_pub_")
    patched = api.patch(f"/forms/{form['id']}", {"name": "Other", "redirect_url": None}).expect(200)
    assert patched == form | {"name": "Other", "updated_at": patched["updated_at"]}
    api.delete(f"/lists/{form['list_ids'][0]}").expect(200)
    assert api.get(f"/forms/{form['id']}").json["list_ids"] == []
    errors = submit_form(server, form, email="town@example.org").expect(422)["validation_errors"]
    assert errors == {"data.city": ["can't be blank"]}
    assert api.delete(f"/forms/{form['id']}").expect(200)["name"] == "Other"
    assert (
        api.get(f"/forms/{form['id']}").status == 404 and submit_form(server, form, email="a@example.org").status == 404
    )


def test_an_unsubscribe_link_works_for_years(server: Server, clock: TestClock) -> None:
    """The link works after three years and after its campaign is deleted; the next campaign skips the contact (D02)."""
    api = server.client()
    list_id = api.post("/lists", {"name": "Years"}).expect(201)["id"]
    contact_id = api.post("/contacts", {"email": "years@example.org", "list_ids": [list_id]}).expect(201)["id"]

    def send() -> dict[str, object]:
        body = {"name": "y", "template_attributes": {"subject": "s", "body": "<p>b</p>"}}
        campaign_id = api.post("/campaigns", body).expect(201)["id"]
        api.post(f"/campaigns/{campaign_id}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
        api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
        message: dict[str, object] = api.get("/messages", campaign_id=campaign_id).expect(200)[0]
        return message

    first = send()
    match = re.search(r"/u/[\w-]+", api.get(f"/messages/{first['id']}").expect(200)["html"])
    assert match is not None
    api.delete(f"/campaigns/{first['campaign_id']}").expect(200)
    clock.advance(3 * 365 * 86_400)
    response = request_as_visitor(server, "POST", match[0], {"List-Unsubscribe": "One-Click"})
    assert response.status == 200 and not api.get(f"/contacts/{contact_id}").json["subscribed_email"]
    assert send()["skip_reason"] == "unsubscribed"


def test_concurrent_submissions_and_confirmations(server: Server) -> None:
    """Ten simultaneous submissions of an address lead to one email, and ten confirmations count once."""
    form = create_form(server, "Crowd")
    with ThreadPoolExecutor(10) as pool:
        sent = list(pool.map(lambda _: submit_form(server, form, email="crowd@example.org").status, range(10)))
        (email,) = wait_for_system_emails(server, "crowd@example.org")
        statuses = list(
            pool.map(lambda _: request_as_visitor(server, "POST", get_link(email), {"confirm": 1}).status, range(10))
        )
    assert sent == [202] * 10 and statuses == [200] * 10
    created = find_contact(server, "crowd@example.org")
    assert created is not None and created["list_ids"] == form["list_ids"]
    # One event for the email's submission, one for the latest, both confirmed at once
    confirmed = get_events(server, "double_opt_in_confirmed", contact_id=created["id"])
    assert len(confirmed) == 2 and len(get_events(server, "opt_in", contact_id=created["id"])) == 1
