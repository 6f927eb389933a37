"""Messages in the language of each contact: texts, footers, links and values, of every kind of message."""

import quopri
import re
from email import message_from_bytes, policy
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.accounts.audit import Actor
from appliance.campaigns import content, preflight, special_preflight
from appliance.campaigns import store as campaigns
from appliance.campaigns.rehearsal import RehearsalRun
from appliance.content.templates import revisions, template_edits, translations
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateWrite
from appliance.core import recipient_texts, validation
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.sending.messages import prepare, preview, shared_content, test_sends, transactional
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Message, Template
from tests.domain.home import Home
from tests.domain.test_flow_messages import create_flow_with_messages, pin_step, start_runs
from tests.domain.test_flow_run import advance_until_idle
from ui.pages import canvas

DESIGN = {"sections": [
    {"id": "t", "type": "text", "props": {"content": "<p>Hello {{ first_name }}</p>"}},
    {"id": "b", "type": "button", "props": {"text": "Shop", "href": "https://acme.test/en"}},
    {"id": "b2", "type": "button", "props": {"text": "Map", "href": "https://acme.test/map"}},
    {"id": "f", "type": "footer", "props": {}},
]}  # fmt: skip
GERMAN = {
    "subject": "Hallo", "preheader": "Neu", "t/props.content": "<p>Guten Tag {{ contact.data.titel }}</p>",
    "b/props.text": "Zum Laden", "b/props.href": "https://acme.test/de",
}  # fmt: skip


def add_people(home: Home, kind: str = "email") -> dict[str, int]:
    """Create a contact for each language, and return their ids."""
    ids = {}
    for index, language in enumerate(("", "de", "de-AT", "fr", "pt-BR", "hu")):
        address = f"p{index}@example.org" if kind == "email" else f"+4915112345{index:02}"
        contact = home.upsert(**{kind: address, "first_name": f"N{index}", "data": {"titel": "Frau"}}).contact
        transactions.write(run, "UPDATE contact SET language = ? WHERE id = ?", (language or None, contact.id))
        ids[language] = contact.id
    return ids


def translate(template_id: int, language: str, texts: dict[str, str | None], **more: Any) -> Template:
    """Translate texts of a template."""
    template = Template.get_by_id(template_id)
    return transactions.write(template_edits.set_texts, template.account_id, template_id, language, texts, **more)


def draft(home: Home, ids: dict[str, int], **template: Any) -> Any:
    """Create a campaign in English and German."""
    fields = {"subject": "Hello", "preheader": "New", "body": None, "design": DESIGN, **template}
    campaign = home.campaign(home.list_of(*ids.values(), name="Everybody").id, **fields)
    translate(campaign.template_id, "de", GERMAN)
    return campaigns.get(home.account_id, campaign.id)


def load_rows_by_contact() -> dict[int, LedgerRow]:
    """Return the ledger rows of all messages by contact."""
    ledger_rows = [LedgerRow._make(row) for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")]
    return {
        ledger_row.contact_id: ledger_row._replace(first_attempt_at=1_780_000_000_000) for ledger_row in ledger_rows
    }


def read_mail(content: bytes) -> tuple[str, str, str]:
    """Return (subject, HTML, text) of an email."""
    mail = message_from_bytes(content, policy=policy.default)
    parts = {part.get_content_type(): part.get_content() for part in mail.walk() if not part.is_multipart()}
    return str(mail["Subject"]), parts["text/html"], parts["text/plain"]


def test_a_campaign_is_sent_in_the_language_of_each_contact(home: Home) -> None:
    """German contacts get the translation, all others the original; footers are in each contact's own language."""
    ids = add_people(home)
    campaign = home.send(draft(home, ids))
    ledger_rows, batch = load_rows_by_contact(), MessagePreparer()
    batch.prefetch(list(ledger_rows.values()))
    mails = {}
    for language, contact_id in ids.items():
        prepared = batch.prepare(ledger_rows[contact_id])
        assert prepared == MessagePreparer().prepare(ledger_rows[contact_id]), language
        mails[language] = read_mail(prepared.envelope.content)
        assert prepared == batch.prepare(ledger_rows[contact_id])
    for language, (subject, html, text) in mails.items():
        is_german = language.startswith("de")
        assert subject == ("Hallo" if is_german else "Hello"), language
        assert ("Guten Tag Frau" in html and "Neu" in html and "Zum Laden" in text) == is_german, language
        assert ("Hello N" in html and "Shop" in text) != is_german, language
        assert '<html lang="de" ' in html if is_german else '<html lang="en" ' in html
        label = recipient_texts.get_texts(recipient_texts.choose_language(language, "en"))["leave_title"]
        assert f">{label}</a>" in html and f"{label}: http" in text, language
        assert (f'lang="{language}">' in html) == (language in ("fr", "pt-BR")), language
    links = rows("SELECT number, url, words FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))
    urls = [url for _, url, _ in links]
    assert urls[:2] == ["https://acme.test/en", "https://acme.test/map"]
    assert [(number, words) for number, url, words in links if url == "https://acme.test/de"] == [
        (len(links), "Zum Laden")
    ]
    assert all("acme.test/" not in html for _, html, _ in mails.values())  # every link is tracked
    assert len(batch._contents) == 4  # original with three footers, and the translation: hu and none share one


def test_one_language_is_compiled_at_a_time(home: Home) -> None:
    """Contacts of many languages are read together, but the content of a language is compiled for its first message.

    Otherwise a large template in all languages would delay the mail of other accounts (T02).
    """
    design = {
        "sections": [*DESIGN["sections"], {"id": "p", "type": "text", "props": {"content": "{{ contact.phone }}"}}]
    }
    ids = add_people(home)
    for index in range(len(ids)):
        home.upsert(email=f"p{index}@example.org", phone=f"+4915112345{index:02}")
    home.send(draft(home, ids, design=design))
    ledger_rows, batch = load_rows_by_contact(), MessagePreparer()
    batch.prefetch(list(ledger_rows.values()))
    assert len(batch._contents) == 0
    for number, language in enumerate(("de", "fr"), 1):
        batch.prepare(ledger_rows[ids[language]])
        assert len(batch._contents) == number
    assert batch.prepare(ledger_rows[ids["pt-BR"]]) == MessagePreparer().prepare(ledger_rows[ids["pt-BR"]])
    assert "+4915112345" in read_mail(batch.prepare(ledger_rows[ids["hu"]]).envelope.content)[1]


def test_the_browser_shows_the_same_language(home: Home) -> None:
    """A message that is read in the browser, and a campaign of SMS, are in the contact's language."""
    ids = add_people(home)
    home.send(draft(home, ids))
    message = Message.get(Message.contact == ids["de-AT"])
    assert "Guten Tag Frau" in MessagePreparer().fill_again(message).html
    assert "Hello N3" in MessagePreparer().fill_again(Message.get(Message.contact == ids["fr"])).html


def test_sms_in_two_languages(home: Home) -> None:
    """SMS have the translated text, with the links of both languages numbered together."""
    home.configure(sms__transport="capture")
    ids = add_people(home, "phone")
    contact_list = home.list_of(*ids.values())
    campaign = home.campaign(contact_list.id, subject=None, body="Acme: sale https://acme.test/en stop")
    transactions.write(run, "UPDATE campaign SET channel = 'sms' WHERE id = ?", (campaign.id,))
    transactions.write(run, "UPDATE template SET channel = 'sms' WHERE id = ?", (campaign.template_id,))
    assert [text.id for text in translations.list_texts({"body": "Hello"}, "sms")] == ["body"]
    with pytest.raises(Invalid):
        translate(campaign.template_id, "de", {"body": "x" * 5_000})
    translate(campaign.template_id, "de", {"body": "Acme: Angebot https://acme.test/de stop"})
    hints = {"sms_opt_out_hint": "Reply QUIT", "sms_opt_out_hints": {"de": "ENDE schreiben", "fr": "Répondez FIN"}}
    transactions.write(accounts.update, home.account_id, validation.read(accounts.AccountWrite, hints))
    home.send(campaigns.get(home.account_id, campaign.id))
    ledger_rows = load_rows_by_contact()
    texts = {
        language: MessagePreparer().prepare(ledger_rows[contact_id]).envelope.content.decode()
        for language, contact_id in ids.items()
        if contact_id in ledger_rows
    }
    assert "Angebot" in texts["de"] and "Angebot" in texts["de-AT"] and "sale" in texts["fr"] and "sale" in texts[""]
    urls = [url for (url,) in rows("SELECT url FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))]
    assert urls == ["https://acme.test/en", "https://acme.test/de"]
    # The opt-out hint follows the contact, also where the text is not translated, and as it was at the start
    transactions.write(run, "UPDATE account SET sms_opt_out_hints = '{}', sms_opt_out_hint = NULL")
    ends = {"": "Reply QUIT", "de-AT": "ENDE schreiben", "fr": "Répondez FIN", "hu": "Reply QUIT"}
    assert {language: texts[language].endswith(end) for language, end in ends.items()} == dict.fromkeys(ends, True)
    assert all("acme.test/" not in text for text in texts.values())


def test_a_step_is_sent_in_the_language_of_each_contact(home: Home) -> None:
    """A step has the translation that was published with it, and the links of both languages."""
    ids = add_people(home)
    flow = create_flow_with_messages(home, [{"id": 1, "type": "email"}])
    [template] = Template.select().where(Template.flow == flow.id)
    translate(template.id, "de", {"subject": "Hallo", "body": '<p><a href="https://acme.test/de">DE</a></p>'})

    def publish() -> None:
        step = {"id": 1, "type": "email", "transactional": False}
        columns = pin_step(flow, Template.get_by_id(template.id), step)
        urls = [url for url, _ in columns["pinned"]["links"] if "acme" in url]
        assert urls == ["https://acme.test/a", "https://acme.test/de"]
        run("UPDATE step SET content_id = ?, pinned = ?",
            (columns["content"], validation.msgspec.json.encode(columns["pinned"]).decode()))  # fmt: skip

    transactions.write(publish)
    start_runs(home, flow, *ids.values())
    advance_until_idle()
    ledger_rows, batch = load_rows_by_contact(), MessagePreparer()
    batch.prefetch(list(ledger_rows.values()))
    for language, contact_id in ids.items():
        subject, html, _ = read_mail(batch.prepare(ledger_rows[contact_id]).envelope.content)
        assert (subject == "Hallo" and ">DE</a>" in html) == language.startswith("de"), language


def test_single_messages_and_tests(home: Home) -> None:
    """A message from a template is in its contact's language; a test in a given one, or that of its contact."""
    ids = add_people(home)
    template = transactions.write(
        templates.create, home.account_id,
        TemplateWrite(subject="Hello", preheader="New", design=DESIGN, from_email="a@acme.test"),
    )  # fmt: skip
    translate(template.id, "de", GERMAN)

    def queue(to: str, **body: Any) -> str:
        request = validation.read(
            transactional.MessageWrite, {"to": to, "template_id": template.id, "transactional": True, **body}
        )
        prepared = transactional.prepare(home.account_id, request)
        return str(transactions.write(transactional.queue_message, home.account_id, request, prepared=prepared).subject)

    assert [queue(f"p{index}@example.org") for index in range(4)] == ["Hello", "Hallo", "Hallo", "Hello"]
    assert queue("p1@example.org", subject="Own") == "Own" and queue("new@example.org") == "Hello"
    html = read_mail(MessagePreparer().prepare(load_rows_by_contact()[ids["de"]]).envelope.content)[1]
    assert "Guten Tag Frau" in html and '<html lang="de" ' in html and ">Abmelden</a>" in html

    def send_test(**body: Any) -> tuple[str, str, str]:
        request = validation.read(test_sends.TestRequest, {"email": "me@acme.test", **body})
        prepared = test_sends.prepare(home.account_id, template.id, request)
        result = transactions.write(test_sends.send, home.account_id, template.id, request, True, prepared)
        [row] = rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (result.results[0].message_id,))
        return read_mail(MessagePreparer().prepare(LedgerRow._make(row)).envelope.content)

    assert send_test()[0] == "[Test] Hello"
    subject, html, _ = send_test(language="DE_at")
    assert subject == "[Test] Hallo" and '<html lang="de" ' in html and ">Abmelden</a>" in html
    assert (
        send_test(contact_id=ids["de-AT"])[0] == "[Test] Hallo" and send_test(contact_id=ids["fr"])[0] == "[Test] Hello"
    )
    with pytest.raises(Invalid):
        send_test(language="tlhingan")


def test_previews(home: Home) -> None:
    """Previews are in the contact's language, or in a given one; the canvas shows the original unless one is given."""
    ids = add_people(home)
    campaign = draft(home, ids)
    shown = content.render_preview(home.account_id, campaign.id, ids["de-AT"])
    assert shown["subject"] == "Hallo" and "Guten Tag Frau" in shown["html"] and shown["lengths"]["preheader"] == 3
    assert content.render_preview(home.account_id, campaign.id, ids["fr"])["subject"] == "Hello"
    assert content.render_preview(home.account_id, campaign.id, ids["fr"], "de")["subject"] == "Hallo"
    fields = revisions.to_document(campaign.template)
    assert preview.build_inbox_line(home.account_id, fields, language="de").subject == "Hallo"
    assert "Zum Laden" not in canvas.render_canvas(home.account_id, campaign.template_id, ids["de"]).html
    assert "Zum Laden" in canvas.render_canvas(home.account_id, campaign.template_id, None, "de").html
    request = validation.read(preview.PreviewRequest, {
        "document": DESIGN, "translations": {"de": fields["translations"]["de"]}, "language": "de",
    })  # fmt: skip
    assert "Zum Laden" in preview.render_preview(home.account_id, request).html


def test_preflight_names_what_is_not_translated(home: Home) -> None:
    """Missing and changed texts, languages without a translation, unknown tags and errors are named by language."""
    ids = add_people(home)
    campaign = draft(home, ids)
    changed = {"subject": "Hello again"}
    transactions.write(templates.update, home.account_id, campaign.template_id, TemplateWrite(**changed))
    translate(campaign.template_id, "de", {"b2/props.text": "Karte {{ unknown_root.x }}", "preheader": None})
    result = preflight.run_preflight(home.account_id, campaign.id, Actor("key:1"))
    warnings = {finding.code: (finding.message, finding.field) for finding in result.warnings}
    de = "template_attributes.translations.de"
    assert warnings["translation_missing"] == ("German: 1 of 6 texts are not translated (Preview text)", de)
    assert warnings["translation_changed"] == ("German: 1 text has changed since its translation (Subject)", de)
    assert "German: unknown_root.x is not a known merge tag" in warnings["unknown_merge_tag"][0]
    untranslated = [finding.message for finding in result.warnings if finding.code == "language_untranslated"]
    assert untranslated == [
        f"1 recipient has the language {name}, which this message is not translated into"
        for name in ("French", "Hungarian", "Portuguese (Brazil)")
    ]
    counted = {row.language: (row.recipients, row.translation) for row in result.facts["languages"]}
    assert counted["de-AT"] == (1, "de") and counted["fr"] == (1, None) and counted[None] == (1, None)
    assert not [blocker for blocker in result.blockers if "German" in blocker.message]
    # A language that was added without a translation is named too
    transactions.write(run, "UPDATE template SET translations = json_set(translations, '$.it', json('{}')) "
                       "WHERE id = ?", (campaign.template_id,))  # fmt: skip
    result = preflight.run_preflight(home.account_id, campaign.id, Actor("key:1"))
    assert next(finding.message for finding in result.warnings if finding.field == f"{de[:-2]}it").startswith(
        "Italian: 5 of 5 texts are not translated (Subject, Preview text, "
    )
    # A translation that does not render blocks the send
    stored = Template.get_by_id(campaign.template_id).translations
    stored["de"]["subject"]["text"] = "{{ 'x' | truncatewords: }"
    transactions.write(run, "UPDATE template SET translations = ? WHERE id = ?",
                       (validation.msgspec.json.encode(stored).decode(), campaign.template_id))  # fmt: skip
    blockers = preflight.run_preflight(home.account_id, campaign.id, Actor("key:1")).blockers
    assert [blocker.message for blocker in blockers if blocker.message.startswith("German: the message cannot")]


def test_recipients_of_many_languages_are_counted(home: Home) -> None:
    """Preflight counts the largest languages, and its size is that of the longest translation."""
    limit = special_preflight.MAX_COUNTED_LANGUAGES
    ids = add_people(home)
    for number in range(limit + 5):
        contact_id = home.contact(f"many{number}@example.org").id
        tag = f"{'ab'[number % 2]}{chr(97 + number // 2 % 26)}-X{chr(65 + number // 52)}"
        transactions.write(run, "UPDATE contact SET language = ? WHERE id = ?", (tag, contact_id))
        ids[tag] = contact_id
    campaign = draft(home, ids)
    before = preflight.run_preflight(home.account_id, campaign.id, Actor("key:1")).facts
    assert len(before["languages"]) == limit and before["sendable"] == len(ids)
    translate(campaign.template_id, "de", {"b2/props.text": "Karte " + "lang " * 180})
    facts = preflight.run_preflight(home.account_id, campaign.id, Actor("key:1")).facts
    assert 700 < facts["html_bytes"] - before["html_bytes"] < 1_200


def test_content_is_cached_up_to_a_size(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content of another language takes the place of the one that was not used for longest."""
    ids = add_people(home)
    home.send(draft(home, ids))
    ledger_rows = load_rows_by_contact()
    size = prepare._get_size(shared_content.compile_shared(next(iter(ledger_rows.values())).campaign_id, ""))
    monkeypatch.setattr(prepare, "_MAX_CACHED_BYTES", int(2.5 * size))
    batch = MessagePreparer()
    for language in ("de", "fr", "pt-BR", "hu", "de"):
        assert batch.prepare(ledger_rows[ids[language]]) == MessagePreparer().prepare(ledger_rows[ids[language]])
        assert len(batch._contents) <= 2
    monkeypatch.setattr(prepare, "_MAX_CACHED_BYTES", size // 2)
    batch = MessagePreparer()
    for language in ("de", "fr"):
        batch.prepare(ledger_rows[ids[language]])
        assert len(batch._contents) == 1


def test_the_rehearsal_renders_each_language(home: Home) -> None:
    """A tag of the translation is missing for those who get the translation only."""
    ids = add_people(home)
    campaign = draft(home, ids)
    for contact_id in ids.values():
        transactions.write(run, "UPDATE contact SET data = '{}' WHERE id = ?", (contact_id,))
    *_, result = RehearsalRun(campaign).run()
    missing = {value.name: value.contact_ids for value in result.lacking if value.count}
    assert (result.done, result.failed) == (6, 0)
    assert missing == {"contact.data.titel": [ids["de"], ids["de-AT"]]}
    assert "contact.data.titel" in Template.get_by_id(campaign.template_id).variables


def test_translations_are_part_of_the_history(home: Home) -> None:
    """Edits of translations are undone, copied, and refused if the template has changed since it was read."""
    ids = add_people(home)
    campaign = draft(home, ids)
    template = Template.get_by_id(campaign.template_id)
    newest = revisions.get(home.account_id, template.id, template.revision)
    assert newest.label == "Translated into German"
    undone = transactions.write(template_edits.undo, home.account_id, template.id)
    assert undone.translations == {}
    redone = transactions.write(template_edits.redo, home.account_id, template.id)
    assert set(redone.translations["de"]) == set(GERMAN)
    with pytest.raises(Conflict):
        translate(template.id, "de", {"subject": "Servus"}, revision=1)
    with pytest.raises(Invalid):
        translate(template.id, "en", {"subject": "Hi"})
    copied = transactions.write(templates.duplicate, home.account_id, template.id)
    assert copied.translations == redone.translations
    other = home.campaign(home.list_of(*ids.values(), name="Others").id, subject="Own")
    transactions.write(content.apply_template, home.account_id, other.id, copied.id)
    used = campaigns.get(home.account_id, other.id).template
    assert set(used.translations["de"]) == set(GERMAN) - {"subject"} and used.subject == "Own"
    # A section that is removed takes its translations along, and brings them back when it is restored
    shorter = {"sections": DESIGN["sections"][:1]}
    transactions.write(templates.update, home.account_id, copied.id, TemplateWrite(design=shorter))
    assert set(Template.get_by_id(copied.id).translations["de"]) == {"subject", "preheader", "t/props.content"}
    assert set(transactions.write(template_edits.undo, home.account_id, copied.id).translations["de"]) == set(GERMAN)
    removed = transactions.write(template_edits.remove, home.account_id, copied.id, "de")
    assert removed.translations == {}
    with pytest.raises(NotFound):
        transactions.write(template_edits.remove, home.account_id, copied.id, "de")


def test_translations_follow_the_entries_of_a_list(home: Home) -> None:
    """Moving and removing entries of a list keeps each translation with its original; an edited one keeps its place."""

    def build(*titles: str) -> dict[str, Any]:
        return {"sections": [{"id": "l", "type": "list", "props": {"items": [{"title": title} for title in titles]}}]}

    def update(*titles: str) -> list[tuple[str, str | None, str]]:
        transactions.write(templates.update, home.account_id, template.id, TemplateWrite(design=build(*titles)))
        states = translations.summarize(revisions.to_document(Template.get_by_id(template.id)), "de").texts
        return [(each.text.text, each.translation, each.state) for each in states]

    template = transactions.write(
        templates.create, home.account_id, TemplateWrite(design=build("Bread", "Cake", "Tea"))
    )
    translate(template.id, "de", {"l/props.items.0.title": "Brot", "l/props.items.1.title": "Kuchen"})
    bread, cake, tea = ("Bread", "Brot", "translated"), ("Cake", "Kuchen", "translated"), ("Tea", None, "missing")
    assert update("Cake", "Tea", "Bread") == [cake, tea, bread]
    assert update("Tea", "Bread") == [tea, bread]
    assert update("Tea", "White bread") == [tea, ("White bread", "Brot", "changed")]
    transactions.write(template_edits.undo, home.account_id, template.id)
    assert update("Bread", "Bread", "Tea") == [("Bread", None, "missing"), bread, tea]


def test_contacts_without_language_get_the_same_bytes(home: Home) -> None:
    """A translation does not change the message of contacts who get the original."""
    ids = {"": home.contact("a@example.org", first_name="Ann").id}
    plain = home.campaign(home.list_of(*ids.values()).id, subject="Hello", preheader="New", body=None, design=DESIGN)
    home.send(plain)
    before = MessagePreparer().prepare(load_rows_by_contact()[ids[""]])
    transactions.write(run, "DELETE FROM message")
    campaign = draft(home, ids)
    home.send(campaign)
    after = MessagePreparer().prepare(load_rows_by_contact()[ids[""]])
    assert _strip(after.envelope.content, campaign.id) == _strip(before.envelope.content, plain.id)


def _strip(content: bytes, campaign_id: int) -> bytes:
    """Return the HTML and text of an email without the tokens of its links."""
    body = quopri.decodestring(content.partition(b"\r\n\r\n")[2])
    return re.sub(rb"https?://[^\s\"<>]+|--=_[^\r\n]+", b"", body)
