"""What somebody wants to get, said on the page that every message leads to (D36, D41)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Response
from tests.kit.forms import ask, contact, events, letters, link
from tests.kit.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose brand has a name and colours."""
    with Server().set_up() as running:
        running.client().put("/brand", {"company_name": "Bäckerei {{ 7 }}", "brand_color": "#aa3355"}).expect(200)
        yield running
        running.stop()


def mailed(server: Server, name: str, **body: Any) -> tuple[dict[str, Any], str, int]:
    """Send somebody marketing; return the contact, the path of their preferences, and a list they are in."""
    api = server.client()
    group = api.post("/lists", {"name": name, "public": True}).expect(201)["id"]
    who = api.post("/contacts", {"email": f"{name.lower()}@example.org", "list_ids": [group], **body}).expect(201)
    content = {"to": f"{name.lower()}@example.org", "subject": "s", "body": "<a href='{{ preferences_url }}'>p</a>"}
    sent = api.post("/messages", {**content, "transactional": False}).expect(201)
    # What is counted of a message is counted when it is handed over
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")
    return who, str(re.search(r"/p/[\w-]+", api.get(f"/messages/{sent['id']}").json["html"])[0]), group  # type: ignore[index]  # every marketing mail has this link


def stored(server: Server, who: dict[str, Any]) -> dict[str, Any]:
    """Return a contact as it is now."""
    found: dict[str, Any] = server.client().get(f"/contacts/{who['id']}").expect(200)
    return found


def save(server: Server, path: str, **form: Any) -> Response:
    """Press the page's first button, with what is ticked."""
    return ask(server, "POST", path, {"act": "save", **form})


def test_the_page_shows_what_there_is_and_changes_nothing(server: Server) -> None:
    """Addresses masked, public lists, tracking; in the brand's colours, from nowhere else."""
    who, path, group = mailed(server, "Reader", phone="+442079460018")
    hidden = server.client().post("/lists", {"name": "Hidden"}).expect(201)["id"]
    server.client().patch(f"/contacts/{who['id']}", {"list_ids": [group, hidden]}).expect(200)
    before = stored(server, who)
    page = ask(server, "GET", path)
    for method in ("GET", "HEAD", "OPTIONS"):
        ask(server, method, path)

    assert page.status == 200 and "r…r@e…e.org" in page.text and "+44…18" in page.text
    assert "reader@example.org" not in page.text and "+442079460018" not in page.text
    assert "Reader" in page.text and "Hidden" not in page.text
    assert "Bäckerei {{ 7 }}" in page.text and "light-dark(#aa3355" in page.text
    assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", page.text)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src" not in policy
    assert (page.headers["Referrer-Policy"], page.headers["X-Robots-Tag"]) == ("no-referrer", "noindex")
    assert "Set-Cookie" not in page.headers and stored(server, who) == before
    wrong = [ask(server, "POST", path, body).status for body in ({}, {"act": "x"}, {"List-Unsubscribe": "One-Click"})]
    assert wrong == [400] * 3 and stored(server, who) == before


def test_one_post_saves_and_says_what_changed(server: Server) -> None:
    """Channels, lists, tracking at once; each change has its evidence, and a repeat changes nothing more."""
    who, path, group = mailed(server, "Chooser", phone="+442079460019")
    other = server.client().post("/lists", {"name": "Other", "public": True}).expect(201)["id"]
    email, phone = (one["id"] for one in who["channels"])
    form = {
        "channel_shown": [email, phone], "channel": [email], "list_shown": [group, other], "list": [other],
        "tracking": "none",
    }  # fmt: skip
    page = save(server, path, **form)
    after = stored(server, who)
    assert page.status == 200 and "Text messages to +44…19: off" in page.text and "Other: on" in page.text
    assert "Chooser: off" in page.text and "Tracking: No tracking" in page.text
    assert (after["subscribed_email"], after["subscribed_phone"], after["list_ids"], after["tracking"]) == (
        True, False, [other], "none",
    )  # fmt: skip
    assert after["last_interacted_at"] is not None and after["verification_status"] == "verified"
    again = save(server, path, **form)
    assert "Everything is as it was." in again.text

    rows = server.client().get(f"/contacts/{who['id']}/consents").expect(200)
    mine = {one["act"]: one for one in rows if one["source"] == "preferences"}
    assert set(mine) == {"opt_out", "list_left", "list_joined", "tracking"}
    assert len([one for one in rows if one["source"] == "preferences"]) == 4
    for one in mine.values():
        assert (one["by"], one["actor"], one["ip"]) == ("recipient", "recipient", "127.0.0.0")
        assert one["text"].startswith("What do you want to get?") and one["data"]["message_id"]
    assert (mine["list_left"]["list_id"], mine["list_joined"]["list_id"]) == (group, other)
    assert mine["tracking"]["data"]["tracking"] == "none"


def test_a_page_that_lay_open_takes_nothing_back(server: Server) -> None:
    """What was refused elsewhere meanwhile stays refused: a tick that was there when the page came is no wish."""
    who, path, group = mailed(server, "Sleeper")
    page = ask(server, "GET", path).text
    boxes = re.findall(r'<input type="(checkbox|hidden|radio)" name="(\w+)" value="([^"]*)"( checked)?', page)
    form: dict[str, list[str]] = {}
    for kind, name, value, checked in boxes:
        if kind == "hidden" or checked:
            form.setdefault(name, []).append(value)
    email = who["channels"][0]["id"]
    save(server, path, channel_shown=[email], list_shown=[group], tracking="none")
    late = save(server, path, **form)
    after = stored(server, who)

    assert form["channel"] == [str(email)] and form["list"] == [str(group)] and form["tracking"] == ["full"]
    assert (after["subscribed_email"], after["list_ids"], after["tracking"]) == (False, [], "none")
    assert "Everything is as it was." in late.text


def test_a_list_that_was_left_is_left_for_good(server: Server) -> None:
    """No write but their own brings somebody back to it; other lists go on (D36)."""
    who, path, group = mailed(server, "Leaver")
    api = server.client()
    save(server, path, list_shown=[group])
    kept = api.patch(f"/contacts/{who['id']}", {"list_ids": [group]}).expect(200)
    bulk = api.post(f"/lists/{group}/contacts/bulk", {"add": [who["id"]]}).expect(200)
    assert kept["list_ids"] == [] and kept["kept_opt_out"] == [f"list:{group}"] and bulk["added"] == 0
    assert stored(server, who)["subscribed_email"] is True
    save(server, path, list_shown=[group], list=[group])
    assert stored(server, who)["list_ids"] == [group]


def test_what_the_page_did_not_show_stays(server: Server) -> None:
    """Lists of others, hidden lists and addresses of others cannot be named; what is absent says nothing."""
    who, path, group = mailed(server, "Absent")
    stranger, _, _ = mailed(server, "Stranger")
    hidden = server.client().post("/lists", {"name": "Secret"}).expect(201)["id"]
    number = stranger["channels"][0]["id"]
    page = save(server, path, list_shown=[hidden, 987654], list=[hidden], channel_shown=[number, "x", "9" * 30])
    assert page.status == 200 and "Everything is as it was." in page.text
    assert stored(server, who)["list_ids"] == [group] and stored(server, stranger)["subscribed_email"]


def test_an_opt_out_is_taken_back_by_an_act_of_its_own(server: Server) -> None:
    """The page after unsubscribing offers it; it is a POST, and evidence of it is kept (D41)."""
    who, path, _ = mailed(server, "Back")
    letter = server.client().get(f"/messages/{server.client().get('/messages', to='back@example.org').json[0]['id']}")
    unsubscribe = re.search(r"/u/[\w-]+", letter.json["html"])
    assert unsubscribe is not None
    done = ask(server, "POST", unsubscribe[0], {"confirm": 1})
    assert f'action="{path}"' in done.text and not stored(server, who)["subscribed_email"]
    for _ in range(2):
        page = ask(server, "POST", path, {"act": "undo"})
        assert page.status == 200 and "subscribed again" in page.text
    assert stored(server, who)["subscribed_email"]
    assert len(events(server, "opt_in", contact_id=who["id"])) == 2


def test_a_complaint_is_not_taken_back_there(server: Server) -> None:
    """Neither the switch nor the undo lifts it; the page says what does."""
    who, path, _ = mailed(server, "Angry")
    server.client().post("/suppressions", {"address": "angry@example.org", "reason": "complaint"}).expect(201)
    number = who["channels"][0]["id"]
    save(server, path, channel_shown=[number], channel=[number])
    page = ask(server, "POST", path, {"act": "undo"})
    assert "reported a message" in page.text and not stored(server, who)["subscribed_email"]


def test_who_asks_to_be_erased_is_erased_once_they_confirm(server: Server) -> None:
    """Asked on the page, confirmed by a POST from a mail; the team sees it, and nothing is left but the suppression."""
    who, path, _ = mailed(server, "Forgetme", first_name="Zacharias")
    asked = [ask(server, "POST", path, {"act": "erase"}) for _ in range(2)]
    assert [one.status for one in asked] == [200, 200] and "Check your inbox" in asked[0].text
    (letter,) = letters(server, "forgetme@example.org")
    assert stored(server, who)["first_name"] == "Zacharias"
    assert len(events(server, "erase_requested", contact_id=who["id"])) == 1
    where = link(letter)
    for method in ("GET", "HEAD", "OPTIONS"):
        ask(server, method, where)
    assert stored(server, who)["first_name"] == "Zacharias"
    answers = [ask(server, "POST", where, {"confirm": 1}) for _ in range(2)]
    assert [one.status for one in answers] == [200, 200] and "Everything is deleted" in answers[1].text
    assert contact(server, "forgetme@example.org") is None
    assert server.client().get(f"/contacts/{who['id']}").status == 404
    again = server.client().post("/contacts", {"email": "forgetme@example.org"}).expect(201)
    assert again["channels"][0]["suppression_reason"] == "erased" and not again["subscribed_email"]
    assert ask(server, "GET", path).status == 200, "the link of a mail never breaks"


def test_a_request_that_no_mail_can_confirm_waits_for_the_team(server: Server) -> None:
    """Where mail does not arrive it is noted, in activity and audit, and nothing is erased by itself."""
    who, path, _ = mailed(server, "Bounced")
    server.client().post("/suppressions", {"address": "bounced@example.org", "reason": "hard_bounce"}).expect(201)
    before = ask(server, "GET", path).text
    assert "as soon as somebody there has read" in before and "We first send you an email" not in before
    page = ask(server, "POST", path, {"act": "erase"})
    assert "request is noted" in page.text and stored(server, who)["id"] == who["id"]
    assert server.client().get("/messages", to="bounced@example.org", source_type="system").json == []
    assert len(events(server, "erase_requested", contact_id=who["id"])) == 1


@pytest.mark.parametrize(
    ("locale", "words"),
    [("de-AT", "Was möchten Sie erhalten?"), ("fr", "Que souhaitez-vous recevoir ?"), ("es", "¿Qué quiere recibir?"),
     ("fi", "What do you want to get?")],
)  # fmt: skip
def test_pages_speak_the_language_of_the_account(locale: str, words: str, server: Server) -> None:
    """Where we have words; else English. The evidence is in the words that were read."""
    server.client().patch("/account", {"locale": locale}).expect(200)
    who, path, group = mailed(server, f"Speaks{locale[:2]}")
    page = ask(server, "GET", path)
    assert words in page.text and f'<html lang="{locale[:2] if locale != "fi" else "en"}"' in page.text
    save(server, path, list_shown=[group])
    rows = server.client().get(f"/contacts/{who['id']}/consents").expect(200)
    assert rows[0]["text"].startswith(words)
    server.client().patch("/account", {"locale": "en"}).expect(200)


def test_tokens_of_other_purposes_open_nothing(server: Server) -> None:
    """Each link is for its own page; a changed character is nobody's (T24)."""
    who, path, _ = mailed(server, "Guess")
    token = path.removeprefix("/p/")
    letter = server.client().get(f"/messages/{server.client().get('/messages', to='guess@example.org').json[0]['id']}")
    others = [found for kind in "uv" for found in re.findall(rf"/{kind}/([\w-]+)", letter.text)]
    assert others
    changed = [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(len(token))]
    before = stored(server, who)
    for guess in [*changed, *others, token + "A", token[:-1], "x", "%00"]:
        for kind in "pdu":
            if kind == "u" and guess in others:
                continue
            for form in (None, {"act": "undo", "confirm": 1}):
                answer = ask(server, "POST" if form else "GET", f"/{kind}/{guess}", form)
                assert answer.status == 404, (kind, guess)
    assert stored(server, who) == before
