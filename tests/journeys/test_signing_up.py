"""Signing up through a form, and confirming it: T25, T36, docs/decisions.md#9 and #16."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.clock import TestClock
from tests.kit.forms import BEHIND, FORM, ask, contact, events, letters, link, make_form, stranger, submit
from tests.kit.server import Server


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """The clock of the server of this module; it only ever goes on."""
    return TestClock(tmp_path_factory.mktemp("clock") / "clock")


@pytest.fixture(scope="module")
def server(clock: TestClock) -> Iterator[Server]:
    """A server behind a proxy, so that each request can be of another client."""
    with Server(clock=clock, env=BEHIND).set_up() as running:
        yield running
        running.stop()


SCANNERS = ("BarracudaCentral", "Mozilla/5.0 (compatible; SafeLinks)", "curl/8", "")


def test_nobody_is_signed_up_before_they_confirm(server: Server) -> None:
    """A form asks the owner of the address; what was typed is no contact until then, and afterwards it is one."""
    form = make_form(server, "Letter", fields=["email", "first_name", "data.city"], consent_text="Yes, news please")
    said = {"email": "new@example.org", "first_name": "Ana", "data": {"city": "Bath", "other": "x"}, "extra": 1}
    assert submit(server, form, **said).expect(202) == {"accepted": True}
    (letter,) = letters(server, "new@example.org")
    assert contact(server, "new@example.org") is None
    page = ask(server, "GET", link(letter))
    assert "n…w@e…e.org" in page.text and "Letter list" in page.text and "new@example.org" not in page.text

    assert ask(server, "POST", link(letter), {"confirm": 1}).status == 200
    made = contact(server, "new@example.org")
    assert made is not None
    (channel,) = made["channels"]
    assert (made["first_name"], made["data"], made["list_ids"]) == ("Ana", {"city": "Bath"}, form["list_ids"])
    assert (channel["subscribed"], channel["verified"], made["verification_status"]) == (True, True, "verified")
    assert made["source"] == "form" and made["last_interacted_at"] is not None
    rows = server.client().get(f"/contacts/{made['id']}/consents").expect(200)
    acts = {one["act"]: one for one in rows}
    assert (acts["requested"]["text"], acts["requested"]["actor"]) == ("Yes, news please", f"form:{form['id']}")
    assert (acts["opt_in"]["by"], acts["opt_in"]["source"]) == ("recipient", "double_opt_in")
    assert "n…w@e…e.org" in acts["opt_in"]["text"] and acts["opt_in"]["ip"] == "127.0.0.0"
    assert acts["list_joined"]["list_id"] == form["list_ids"][0]
    (told,) = events(server, "double_opt_in_confirmed", contact_id=made["id"])
    assert (told["data"]["form_id"], told["resource_name"]) == (form["id"], "Letter")
    (sent,) = [one for one in events(server, "form_submitted") if one["data"]["form_id"] == form["id"]]
    assert (sent["contact_id"], sent["resource_name"], sent["ip"], sent["user_agent"]) == (None, "Letter", None, None)
    counted = server.client().get(f"/forms/{form['id']}").expect(200)
    assert (counted["submissions_count"], counted["confirmed_count"]) == (1, 1)


def test_what_somebody_signs_up_with_is_seen(server: Server) -> None:
    """Of a person who is known, the event of their form says with what program, and in which network, they were."""
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
    form = make_form(server, "Seen")
    known = server.client().post("/contacts", {"email": "known-here@example.org"}).expect(201)["id"]
    submit(server, form, {"User-Agent": agent, "X-Forwarded-For": "198.51.100.77"}, email="known-here@example.org")
    (sent,) = events(server, "form_submitted", contact_id=known)
    assert (sent["ip"], sent["user_agent"]) == ("198.51.100.0", agent)
    assert (sent["browser"], sent["os"], sent["device_type"]) == ("Firefox", "Linux", "desktop")


def test_reading_confirms_nothing_and_one_post_does_once(server: Server) -> None:
    """GET, HEAD, OPTIONS and other bodies as often as one likes: nothing; a second POST says the same (T25)."""
    form = make_form(server, "Scanned")
    submit(server, form, email="scanned@example.org").expect(202)
    (letter,) = letters(server, "scanned@example.org")
    path = link(letter)
    for method in ("GET", "HEAD", "OPTIONS"):
        for agent in SCANNERS * 5:
            ask(server, method, path, **{"User-Agent": agent})
    wrong = [
        ask(server, "POST", path, body).status for body in ({}, {"confirm": "0"}, {"List-Unsubscribe": "One-Click"})
    ]
    assert wrong == [400] * 3 and contact(server, "scanned@example.org") is None
    answers = [ask(server, "POST", path, {"confirm": 1}) for _ in range(3)]
    assert [one.status for one in answers] == [200] * 3
    assert all("Set-Cookie" not in one.headers and "Location" not in one.headers for one in answers)
    made = contact(server, "scanned@example.org")
    assert made is not None and len(events(server, "double_opt_in_confirmed", contact_id=made["id"])) == 1
    assert len(letters(server, "scanned@example.org")) == 1


def test_the_mail_is_a_plain_question(server: Server) -> None:
    """No word that was typed is in it, no list header, and nobody's machine answers it (T36, D01)."""
    form = make_form(server, "Quiet", fields=["email", "first_name", "data.note"])
    spam = "Buy cheap https://spam.example now"
    submit(server, form, email="quiet@example.org", first_name=spam, data={"note": spam}).expect(202)
    (letter,) = letters(server, "quiet@example.org")
    raw = server.client().get(f"/messages/{letter['id']}").text
    assert "spam.example" not in raw and "cheap" not in raw
    assert (letter["source_type"], letter["transactional"], letter["campaign_id"]) == ("system", True, None)
    names = {name.lower(): value for name, value in letter["headers"].items()}
    assert names["auto-submitted"] == "auto-generated"
    assert not {"list-unsubscribe", "list-unsubscribe-post", "list-id", "feedback-id", "precedence"} & set(names)
    assert "/u/" not in letter["html"] and "{{" not in letter["html"] + letter["text"] + letter["subject"]


def test_one_mail_a_day_asks_for_all(server: Server, clock: TestClock) -> None:
    """However often and from wherever an address is typed, it gets one mail in 24 hours; one answer confirms all."""
    first, second = make_form(server, "One"), make_form(server, "Two")
    statuses = []
    for number in range(30):
        client = {"X-Forwarded-For": f"203.0.113.{number}"}
        statuses.append(submit(server, second if number % 2 else first, client, email="flood@example.org").status)
    assert statuses[:10] == [202] * 10 and set(statuses[10:]) == {429}
    clock.advance(3600)
    submit(server, second, {"X-Forwarded-For": "198.51.100.1"}, email="Flood@Example.org").expect(202)
    (letter,) = letters(server, "flood@example.org")
    page = ask(server, "GET", link(letter))
    assert "One list" in page.text and "Two list" in page.text
    assert ask(server, "POST", link(letter), {"confirm": 1}).status == 200
    made = contact(server, "flood@example.org")
    assert made is not None and made["list_ids"] == sorted(first["list_ids"] + second["list_ids"])
    clock.advance(24 * 3600)
    submit(server, first, email="flood@example.org").expect(202)
    assert len(letters(server, "flood@example.org", 2)) == 2


def test_one_client_makes_three_mails_an_hour(server: Server, clock: TestClock) -> None:
    """The next addresses that a client types get none, until the hour is over; other clients are not affected."""
    form, api = make_form(server, "Client"), server.client()
    for number in range(6):
        submit(server, form, {"X-Forwarded-For": "203.0.113.7"}, email=f"p{number}@example.org").expect(202)
    submit(server, form, {"X-Forwarded-For": "9.9.9.9, 203.0.113.8"}, email="other@example.org").expect(202)
    addresses = [*(f"p{number}@example.org" for number in range(6)), "other@example.org"]
    mailed = [one for one in addresses if api.get("/messages", source_type="system", to=one).json]
    assert mailed == ["p0@example.org", "p1@example.org", "p2@example.org", "other@example.org"]
    clock.advance(3601)
    submit(server, form, {"X-Forwarded-For": "203.0.113.7"}, email="p5@example.org").expect(202)
    assert len(letters(server, "p5@example.org")) == 1


def test_a_link_works_for_seven_days(server: Server, clock: TestClock) -> None:
    """Then it says that it is too late, and nothing happens; signing up anew makes a new one."""
    form = make_form(server, "Late")
    submit(server, form, email="late@example.org").expect(202)
    path = link(letters(server, "late@example.org")[0])
    clock.advance(7 * 86_400 + 60)
    for answer in (ask(server, "GET", path), ask(server, "POST", path, {"confirm": 1})):
        assert answer.status == 404 and "expired" in answer.text
    assert contact(server, "late@example.org") is None
    submit(server, form, email="late@example.org").expect(202)
    ask(server, "POST", link(letters(server, "late@example.org", 2)[0]), {"confirm": 1})
    assert contact(server, "late@example.org") is not None


def test_who_opted_out_or_complained_comes_back_only_so(server: Server) -> None:
    """A form without double opt-in asks them all the same; the question reaches them, and their word lifts it."""
    form = make_form(server, "Direct", double_opt_in=False)
    api = server.client()
    gone, angry, bounced = (
        api.post("/contacts", {"email": f"{name}@example.org", "first_name": name}).expect(201)["id"]
        for name in ("gone", "angry", "bounced")
    )
    api.patch(f"/contacts/{gone}", {"subscribed_email": False}).expect(200)
    for name, reason in (("angry", "complaint"), ("bounced", "hard_bounce")):
        api.post("/suppressions", {"address": f"{name}@example.org", "reason": reason}).expect(201)
    for name in ("gone", "angry", "bounced", "fresh"):
        submit(server, form, email=f"{name}@example.org", first_name="Mallory").expect(202)

    fresh = contact(server, "fresh@example.org")
    assert fresh is not None and fresh["subscribed_email"] and fresh["list_ids"] == form["list_ids"]
    for number in (gone, angry):
        assert not api.get(f"/contacts/{number}").json["subscribed_email"]
    assert api.get("/messages", to="bounced@example.org", source_type="system").json == []
    for name, number in (("gone", gone), ("angry", angry)):
        ask(server, "POST", link(letters(server, f"{name}@example.org")[0]), {"confirm": 1})
        back = api.get(f"/contacts/{number}").json
        assert back["sendable_email"] and back["list_ids"] == form["list_ids"], name
    assert api.get(f"/contacts/{bounced}").json["channels"][0]["suppression_reason"] == "hard_bounce"


def test_a_stranger_changes_nothing_that_is_known(server: Server) -> None:
    """Without confirmation a form fills what is empty and goes over nothing."""
    form = make_form(server, "Fill", double_opt_in=False, fields=["email", "first_name", "last_name", "data.city"])
    api = server.client()
    known = {"email": "known@example.org", "first_name": "Ana", "data": {"city": "Bath"}}
    number = api.post("/contacts", known).expect(201)["id"]
    submit(server, form, email="known@example.org", first_name="Eve", last_name="Lee", data={"city": "Hull"}).expect(
        202
    )
    after = api.get(f"/contacts/{number}").json
    assert (after["first_name"], after["last_name"], after["data"]) == ("Ana", "Lee", {"city": "Bath"})
    assert after["list_ids"] == form["list_ids"]


def test_robots_and_garbage_get_nothing(server: Server) -> None:
    """A filled honeypot is accepted and dropped; what is no address is told, and no key means no form."""
    form = make_form(server, "Trap")
    assert submit(server, form, email="bot@example.org", website="https://x").expect(202) == {"accepted": True}
    faults = submit(server, form, email="no address").expect(422)["validation_errors"]
    assert faults == {"email": ["is invalid"]}
    assert submit(server, form).expect(422)["validation_errors"] == {"email": ["can't be blank"]}
    assert submit(server, form, email="a@example.org", first_name="x\x00").expect(422)["validation_errors"]
    path = f"/v1/public/forms/{form['public_key']}"
    for body, kind, status in (
        (b"{", "application/json", 400), (b"[]", "application/json", 400), (b"x", "text/plain", 415),
        (b"\xff=1", FORM["Content-Type"], 400), (b"email=" + b"x" * 70_000, FORM["Content-Type"], 413),
        (b"&".join(b"a%d=1" % n for n in range(300)), FORM["Content-Type"], 400),
    ):  # fmt: skip
        answer = stranger(server).request("POST", path, body, {"Content-Type": kind})
        assert answer.status == status, (body[:20], answer.text)
    for key in ("camp_pub_" + "x" * 36, "nothing", form["public_key"][:-1]):
        assert submit(server, {"public_key": key}, email="a@example.org").status == 404
        assert ask(server, "GET", f"/f/{key}").status == 404
    for body, kind in ((b"\x9d\xff", FORM["Content-Type"]), (b"--x\r\n\xdd", "multipart/form-data; boundary=x"),
                       (b"x", "multipart/form-data")):  # fmt: skip
        assert stranger(server).request("POST", f"/f/{form['public_key']}", body, {"Content-Type": kind}).status == 422
    assert "Traceback" not in server.output, "what strangers send fills no log"
    assert server.client().get(f"/forms/{form['id']}").json["submissions_count"] == 0
    assert server.client().get("/messages", to="bot@example.org").json == []


def test_an_empty_form_says_what_it_wants(server: Server) -> None:
    """Where there is one address it has to be filled in; of two, one."""
    for fields, words in ((["email"], "Please fill this in."), (["email", "phone"], "an email address or a phone")):
        form = make_form(server, f"Asks for {len(fields)}", fields=fields)
        answer = ask(server, "POST", f"/f/{form['public_key']}", {"email": ""})
        assert answer.status == 422 and words in answer.text


def test_a_public_key_opens_its_form_alone(server: Server) -> None:
    """On the API it is 403, whatever it asks for (docs/decisions.md#2)."""
    form = make_form(server, "Key")
    api = server.client(form["public_key"])
    for path in ("/contacts", "/forms", f"/forms/{form['id']}", "/account"):
        assert api.get(path).expect(403)["code"] == "forbidden"
    assert api.post("/contacts", {"email": "x@example.org"}).status == 403


def test_names_that_are_not_ascii_are_written_as_browsers_write_them(server: Server) -> None:
    """A form may stand on, and lead to, `müller.example`: what goes into headers is what a browser compares it with."""
    origins = ["https://Müller.example:443", "http://a.example:8080"]
    form = make_form(server, "Names", origins=origins, redirect_url="https://müller.example/schön?a=1")
    there = "https://xn--mller-kva.example"
    assert form["origins"] == [there, "http://a.example:8080"]
    assert form["redirect_url"] == "https://müller.example/schön?a=1"
    allowed = submit(server, form, {"Origin": there}, email="origin@example.org").headers
    assert allowed["Access-Control-Allow-Origin"] == there
    policy = ask(server, "GET", f"/f/{form['public_key']}").headers["Content-Security-Policy"]
    assert f"form-action 'self' {there};" in policy
    assert policy.endswith(f"frame-ancestors {there} http://a.example:8080")
    for door in ("/f/", "/v1/public/forms/"):
        answer = ask(server, "POST", f"{door}{form['public_key']}", {"email": f"d{len(door)}@example.org"})
        assert (answer.status, answer.headers["Location"]) == (303, f"{there}/sch%C3%B6n?a=1")


def test_pages_of_named_origins_may_read_the_answer(server: Server) -> None:
    """CORS is for the form's origins, on this path alone; a browser's own form is sent on to the redirect."""
    form = make_form(server, "Cors", origins=["https://Shop.example/"], redirect_url="https://shop.example/thanks")
    assert form["origins"] == ["https://shop.example"]
    path = f"/v1/public/forms/{form['public_key']}"
    for origin, allowed in (("https://shop.example", True), ("https://evil.example", False), ("null", False)):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight = stranger(server).request("OPTIONS", path, None, headers)
        posted = submit(server, form, {"Origin": origin}, email="cors@example.org")
        wrong = submit(server, form, {"Origin": origin}, email="?")
        assert (preflight.status, posted.status, wrong.status) == (204, 202, 422)
        for answer in (preflight, posted, wrong):
            assert answer.headers["Access-Control-Allow-Origin"] == (origin if allowed else None)
            assert "Access-Control-Allow-Credentials" not in answer.headers
    other = stranger(server).request("GET", "/v1/my/contacts", None, {"Origin": "https://shop.example"})
    assert other.headers["Access-Control-Allow-Origin"] is None
    sent = ask(server, "POST", path, {"email": "cors@example.org", "data[x]": "1"})
    assert (sent.status, sent.headers["Location"]) == (303, "https://shop.example/thanks")


def test_a_list_may_want_its_people_confirmed(server: Server) -> None:
    """Who never confirmed is skipped as `not_verified`; a form without double opt-in asks for such a list."""
    api = server.client()
    group = api.post("/lists", {"name": "Careful", "double_opt_in": True}).expect(201)["id"]
    form = api.post("/forms", {"name": "Careful", "list_ids": [group], "double_opt_in": False}).expect(201)
    api.post("/contacts", {"email": "unsure@example.org", "list_ids": [group]}).expect(201)
    submit(server, form, email="sure@example.org").expect(202)
    ask(server, "POST", link(letters(server, "sure@example.org")[0]), {"confirm": 1})
    assert api.get(f"/lists/{group}").expect(200)["sendable_count"] == {"email": 1, "sms": 0}
    made = api.post("/campaigns", {"name": "c", "template_attributes": {"subject": "s", "body": "<p>b</p>"}}).json
    api.post(f"/campaigns/{made['id']}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    api.wait(f"/campaigns/{made['id']}", lambda row: row["status"] == "completed")
    rows = {one["to"]: one for one in api.get("/messages", campaign_id=made["id"]).json}
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
def test_a_form_that_cannot_be_is_refused(body: dict[str, object], field: str, server: Server) -> None:
    """Each fault stands at its field."""
    answer = server.client().post("/forms", {"name": "Wrong", **body})
    assert list(answer.expect(422)["validation_errors"]) == [field]


def test_a_form_is_kept_as_it_was_written(server: Server) -> None:
    """Fields are answered as they were sent; PATCH keeps what is absent; a deleted list is in no form any more."""
    api = server.client()
    fields = ["email", {"name": "data.city", "label": "Town", "required": True}]
    form = make_form(server, "Kept", fields=fields)
    assert form["fields"] == fields and form["double_opt_in"] is True and form["public_key"].startswith("camp_pub_")
    patched = api.patch(f"/forms/{form['id']}", {"name": "Other", "redirect_url": None}).expect(200)
    assert patched == form | {"name": "Other", "updated_at": patched["updated_at"]}
    api.delete(f"/lists/{form['list_ids'][0]}").expect(200)
    assert api.get(f"/forms/{form['id']}").json["list_ids"] == []
    faults = submit(server, form, email="town@example.org").expect(422)["validation_errors"]
    assert faults == {"data.city": ["can't be blank"]}
    assert api.delete(f"/forms/{form['id']}").expect(200)["name"] == "Other"
    assert api.get(f"/forms/{form['id']}").status == 404 and submit(server, form, email="a@example.org").status == 404


def test_a_way_out_works_for_years(server: Server, clock: TestClock) -> None:
    """Also after its campaign is deleted; whoever took it is skipped by the next one (D02)."""
    api = server.client()
    group = api.post("/lists", {"name": "Years"}).expect(201)["id"]
    who = api.post("/contacts", {"email": "years@example.org", "list_ids": [group]}).expect(201)["id"]

    def send() -> dict[str, object]:
        body = {"name": "y", "template_attributes": {"subject": "s", "body": "<p>b</p>"}}
        made = api.post("/campaigns", body).expect(201)["id"]
        api.post(f"/campaigns/{made}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
        api.wait(f"/campaigns/{made}", lambda row: row["status"] == "completed")
        found: dict[str, object] = api.get("/messages", campaign_id=made).expect(200)[0]
        return found

    first = send()
    way = re.search(r"/u/[\w-]+", api.get(f"/messages/{first['id']}").expect(200)["html"])
    assert way is not None
    api.delete(f"/campaigns/{first['campaign_id']}").expect(200)
    clock.advance(3 * 365 * 86_400)
    answer = ask(server, "POST", way[0], {"List-Unsubscribe": "One-Click"})
    assert answer.status == 200 and not api.get(f"/contacts/{who}").json["subscribed_email"]
    assert send()["skip_reason"] == "unsubscribed"


def test_many_at_once_are_as_one(server: Server) -> None:
    """An address typed by ten clients at the same moment gets one mail, and ten answers to it confirm once."""
    form = make_form(server, "Crowd")
    with ThreadPoolExecutor(10) as pool:
        sent = list(pool.map(lambda _: submit(server, form, email="crowd@example.org").status, range(10)))
        (letter,) = letters(server, "crowd@example.org")
        answers = list(pool.map(lambda _: ask(server, "POST", link(letter), {"confirm": 1}).status, range(10)))
    assert sent == [202] * 10 and answers == [200] * 10
    made = contact(server, "crowd@example.org")
    assert made is not None and made["list_ids"] == form["list_ids"]
    # What the mail asks for and what was typed last, both confirmed by the first answer
    told = events(server, "double_opt_in_confirmed", contact_id=made["id"])
    assert len(told) == 2 and len(events(server, "opt_in", contact_id=made["id"])) == 1
