"""Templates in several languages over the API: their texts, a campaign in the inbox, its clicks, and preflight."""

import re
import urllib.error
import urllib.request
from typing import Any

import apsw
import pytest

from tests.api.test_flows import LETTER, create_flow
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server

DESIGN = {"sections": [
    {"id": "t", "type": "text", "props": {"content": "<p>Hello</p>"}},
    {"id": "b", "type": "button", "props": {"text": "Shop", "href": "https://acme.test/en"}},
    {"id": "f", "type": "footer", "props": {}},
]}  # fmt: skip
GERMAN = {"subject": "Hallo", "t/props.content": "<p>Guten Tag</p>", "b/props.text": "Laden",
          "b/props.href": "https://acme.test/de"}  # fmt: skip


def add_people(api: Client, server: Server) -> int:
    """Create a list of contacts with a language each, and return its id."""
    list_id = api.post("/lists", {"name": "All languages"}).expect(201)["id"]
    database = apsw.Connection(str(server.data / "campanero.db"))
    database.set_busy_timeout(10_000)
    for language in ("de", "de-AT", "fr", "none"):
        contact = api.post("/contacts", {"email": f"{language}@example.org", "list_ids": [list_id]}).expect(201)
        if language != "none":
            database.execute("UPDATE contact SET language = ? WHERE id = ?", (language, contact["id"]))
    database.close()
    return int(list_id)


def test_translate_a_template(api: Client) -> None:
    """Texts are set and removed one by one; the languages are listed with their counts; errors name their texts."""
    template = api.post("/templates", {"subject": "Hello", "design": DESIGN}).expect(201)
    path = f"/templates/{template['id']}/translations"
    assert template["languages"] == [] and api.get(path).expect(200) == []
    assert api.get(f"{path}/de").status == 404 and api.delete(f"{path}/de").status == 404

    translation = api.put(f"{path}/DE", {"texts": GERMAN}).expect(200)
    assert (translation["language"], translation["translated"], translation["missing"]) == ("de", 4, 0)
    assert [text["id"] for text in translation["texts"]] == list(GERMAN)
    assert translation["texts"][1] == {
        "id": "t/props.content", "label": "Text", "section": "Text", "kind": "rich", "source": "<p>Hello</p>",
        "text": "<p>Guten Tag</p>", "state": "translated",
    }  # fmt: skip
    assert api.get(f"/templates/{template['id']}").expect(200)["languages"] == ["de"]
    api.put(f"{path}/pt_br", {"texts": {"subject": "Olá"}}).expect(200)
    api.patch(f"/templates/{template['id']}", {"subject": "Hello again"}).expect(200)
    changed = api.put(f"{path}/de", {"texts": {"b/props.text": None}}).expect(200)
    assert [text["state"] for text in changed["texts"]] == ["changed", "translated", "missing", "translated"]
    assert [tuple(row.values()) for row in api.get(path).expect(200)] == [("de", 2, 1, 1), ("pt-BR", 0, 1, 2)]
    assert api.get(path, limit=1).headers["X-Total-Count"] == "2"

    wrong = {"texts": {"subject": "x" * 999, "b/props.href": "javascript:x", "nothing": "x", "t/props.content": 5}}
    errors = api.put(f"{path}/de", wrong).expect(422)["validation_errors"]
    assert set(errors) == {f"texts.{text_id}" for text_id in wrong["texts"]}
    for language in ("xx-not", "en", "e"):
        assert "language" in api.put(f"{path}/{language}", {"texts": {}}).expect(422)["validation_errors"], language
    assert api.put(f"{path}/fr", {}).expect(422)["validation_errors"] == {"texts": ["can't be blank"]}
    assert api.delete(f"{path}/de").expect(200)["language"] == "de"
    assert api.get(f"/templates/{template['id']}").expect(200)["languages"] == ["pt-BR"]
    preview = {"document": DESIGN, "language": "de", "translations": {"de": {
        "b/props.text": {"source": "Shop", "text": "Laden"}}}}  # fmt: skip
    assert "Laden" in api.post("/templates/preview", preview).expect(200)["html"]
    assert "language" in api.post("/templates/preview", {**preview, "language": "?"}).expect(422)["validation_errors"]
    [test] = api.post(f"/templates/{template['id']}/send_test", {"email": "me@example.org", "language": "pt"}).expect(
        200
    )["results"]
    [row] = api.wait("/capture", bool, message_id=test["message_id"])
    assert row["subject"] == "[Test] Olá"


def test_a_language_is_checked_the_same_everywhere(api: Client) -> None:
    """Translations, previews, test sends and contacts reject what is not a language with one text."""
    template = api.post("/templates", {"subject": "Hello", "design": DESIGN}).expect(201)
    path, error = f"/templates/{template['id']}", {"language": ["must be a language code such as de or pt-BR"]}
    for language in ("xx", "de-Abcd", "de-XX", "de-Zzzz", "de-ZZ", "de-Latn-QQ", "de-999"):
        for response in (
            api.put(f"{path}/translations/{language}", {"texts": {}}),
            api.post("/templates/preview", {"document": DESIGN, "language": language}),
            api.post(f"{path}/send_test", {"email": "me@example.org", "language": language}),
            api.post("/contacts", {"email": "me@example.org", "language": language}),
        ):
            assert response.expect(422)["validation_errors"] == error, language
    for language in ("zh-hant-tw", "sr_LATN", "es-419"):
        api.put(f"{path}/translations/{language}", {"texts": {}}).expect(200)
    assert api.get(path).expect(200)["languages"] == ["es-419", "sr-Latn", "zh-Hant-TW"]


def test_a_translation_does_not_overwrite_a_newer_template(api: Client) -> None:
    """`updated_at` as last read is compared with the template; the response has the one for the next request."""
    template = api.post("/templates", {"subject": "Hello", "design": DESIGN}).expect(201)
    path = f"/templates/{template['id']}/translations/de"
    first = api.put(path, {"texts": {"subject": "Hallo"}, "updated_at": template["updated_at"]}).expect(200)
    assert (
        first["updated_at"] > template["updated_at"] and api.get(path).expect(200)["updated_at"] == first["updated_at"]
    )
    refused = api.put(path, {"texts": {"subject": "Moin"}, "updated_at": template["updated_at"]}).expect(409)
    assert refused["code"] == "conflict" and refused["updated_at"] == first["updated_at"]
    assert api.get(path).expect(200)["texts"][0]["text"] == "Hallo"
    second = api.put(path, {"texts": {"subject": "Moin"}, "updated_at": first["updated_at"]}).expect(200)
    assert second["texts"][0]["text"] == "Moin"
    wrong = api.put(path, {"texts": {}, "updated_at": "yesterday"}).expect(422)
    assert wrong["validation_errors"] == {"updated_at": ["is invalid"]}


def test_the_texts_of_a_request_are_limited(api: Client) -> None:
    """A request with too many texts is rejected as a whole, and of unknown ids only the first are reported."""
    path = f"/templates/{api.post('/templates', {'subject': 'Hello', 'design': DESIGN}).expect(201)['id']}/translations"
    many = api.put(f"{path}/de", {"texts": {f"text{number}": "x" for number in range(90_000)}}).expect(422)
    assert many["validation_errors"] == {"texts": ["is too long (maximum is 2000 entries)"]}
    unknown = api.put(f"{path}/de", {"texts": {f"text{number}": "x" for number in range(2_000)}}).expect(422)
    assert len(unknown["validation_errors"]) == 100
    long = api.put(f"{path}/de", {"texts": {"x" * 256: "x"}}).expect(422)["validation_errors"]
    assert list(long.values()) == [["is too long (maximum is 255 characters)"]]


@pytest.fixture(scope="module")
def campaign(server: Server) -> Any:
    """Return a campaign in English and German to contacts of four languages, not sent yet."""
    api = server.client()
    list_id = add_people(api, server)
    content = {"subject": "Hello", "design": DESIGN}
    body = {"name": "Two", "template_attributes": content, "trigger_attributes": {"contact_list_id": list_id}}
    campaign = api.post("/campaigns", body).expect(201)
    api.put(f"/templates/{campaign['template']['id']}/translations/de", {"texts": GERMAN}).expect(200)
    return api.get(f"/campaigns/{campaign['id']}").expect(200)


def test_preflight_counts_the_languages(api: Client, campaign: Any) -> None:
    """Preflight says how many recipients get which language, and for whom there is none."""
    assert campaign["template"]["languages"] == ["de"]
    path = f"/campaigns/{campaign['id']}/preflight"
    result = api.wait(path, lambda row: row["facts"]["rehearsal"]["status"] == "complete")
    assert result["facts"]["rehearsal"]["failed"] == 0
    languages = {row["language"]: (row["recipients"], row["translation"]) for row in result["facts"]["languages"]}
    assert languages == {"de": (1, "de"), "de-AT": (1, "de"), "fr": (1, None), None: (1, None)}
    warnings = {warning["code"]: warning["message"] for warning in result["warnings"]}
    assert warnings["language_untranslated"].startswith("1 recipient has the language French")
    assert "translation_missing" not in warnings


def test_everybody_gets_their_language_and_is_counted(api: Client, campaign: Any) -> None:
    """Emails in the inbox have the contact's language, and a click on a translated link is in the report."""
    api.post(f"/campaigns/{campaign['id']}/send").expect(200)
    api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed")
    rows = {row["to"].partition("@")[0]: row for row in api.get("/capture", limit=100).expect(200)}
    mails = {name: api.get(f"/capture/{rows[name]['id']}").expect(200) for name in ("de", "de-AT", "fr", "none")}
    for name, mail in mails.items():
        is_german = name.startswith("de")
        assert rows[name]["subject"] == ("Hallo" if is_german else "Hello")
        assert ("Guten Tag" in mail["html"]) == is_german and ("Hello" in mail["html"]) != is_german
        assert ("Abmelden" in mail["html"]) == is_german and ("Unsubscribe" in mail["html"]) == (name == "none")
    for name, target in (("de-AT", "https://acme.test/de"), ("none", "https://acme.test/en")):
        [link] = re.findall(r'<a href="([^"]+)"[^>]*>(?:\s|<[^>]+>)*(?:Laden|Shop)', mails[name]["html"])
        opener = urllib.request.build_opener(_NoRedirects)
        request = urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"})
        try:
            opener.open(request, timeout=10)
        except urllib.error.HTTPError as redirect:
            assert redirect.headers["Location"] == target
    report = api.wait(
        f"/campaigns/{campaign['id']}/report",
        lambda row: sum(link["total"] for link in row["links"]) == 2,
    )
    counted = {link["url"]: link["total"] for link in report["links"] if "acme" in link["url"]}
    assert counted == {"https://acme.test/en": 1, "https://acme.test/de": 1}


def test_translations_of_a_live_flow_stay_a_draft_in_the_browser(api: Client) -> None:
    """A translation in the browser is published with the flow's other changes; over the API it is live at once."""
    flow = create_flow(api, LETTER)
    template_id = flow["steps"][0]["template_id"]
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    browser, path = ScriptlessBrowser(api), f"/templates/{template_id}/translations"

    def get_version() -> int:
        return int(api.get(f"/flows/{flow['id']}").expect(200)["version"])

    api.put(f"{path}/fr", {"texts": {"subject": "Bonjour"}}).expect(200)
    live = get_version()
    assert browser.submit(path, language="de").status == 303
    page = HtmlPage(browser, f"{path}/de")
    subject = page.all(".pair")[0]
    select(subject, "input.input")[0].set("value", "Hallo")
    page.press(select(subject, "noscript button")[0])
    assert browser.submit(f"{path}/fr/remove").status == 303
    assert api.get(f"/templates/{template_id}").expect(200)["languages"] == ["de"]
    assert get_version() == live and "Hallo" in browser.get(f"{path}/de")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises an error for a redirect instead of following it."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        """Follow nothing."""
