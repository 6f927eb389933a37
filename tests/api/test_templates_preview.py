"""Previews: the rendered message for a contact, quickly, whatever the design (docs/decisions.md#11)."""

import json
import threading
import time
from typing import Any

import pytest

from tests.domain.test_sms_segments import VECTORS
from tests.kit.client import Client
from tests.kit.sampling import every_nth
from tests.kit.timeouts import extend_timeout

TEXT = {"type": "text", "props": {"content": "<p>Hi {{ contact.first_name }}, {{ data.code }}</p>"}}


def preview(api: Client, *sections: Any, **more: Any) -> Any:
    """Return the preview of a design with these sections."""
    return api.post("/templates/preview", {"document": {"sections": list(sections)}, **more}).expect(200)


def test_preview_response(api: Client) -> None:
    """It has HTML, text, warnings and size, with sample values in place of merge tags."""
    result = preview(api, TEXT)

    assert set(result) == {"html", "text", "warnings", "bytes", "sms"}
    assert result["sms"] is None
    assert "Hi Anna" in result["html"] and "Hi Anna" in result["text"]
    assert "{{" not in result["html"] + result["text"]
    assert result["bytes"] == len(result["html"].encode())
    assert result["warnings"] == []


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_the_document_must_be_an_object(document: Any, api: Client) -> None:
    """Any other value, or none, is an error at `document`."""
    assert list(api.post("/templates/preview", {"document": document}).expect(422)["validation_errors"]) == ["document"]
    assert list(api.post("/templates/preview", {}).expect(422)["validation_errors"]) == ["document"]


@pytest.mark.parametrize("document", [{}, {"sections": []}, {"theme": {"bg_color": "#101010"}}])
def test_preview_of_an_empty_document(document: Any, api: Client) -> None:
    """It is a complete HTML document without text."""
    preview_ = api.post("/templates/preview", {"document": document}).expect(200)

    assert preview_["html"].startswith("<!doctype html>") and preview_["html"].rstrip().endswith("</html>")
    assert preview_["text"].strip() == ""
    assert document.get("theme") is None or "#101010" in preview_["html"]


def test_preview_with_values_of_a_contact(api: Client) -> None:
    """Values of the contact and of `data` are escaped, and not parsed as merge tags."""
    person = api.post("/contacts", {"email": "zoe@example.org", "first_name": "Zoë <b>{{ 7 }}"}).expect(201)
    result = preview(api, TEXT, contact_id=person["id"], data={"code": "{% if %}<i>"})

    assert "Hi Zoë &lt;b&gt;{{ 7 }}, {% if %}&lt;i&gt;" in result["html"]
    assert "Hi Zoë <b>{{ 7 }}, {% if %}<i>" in result["text"]
    gone = api.post("/templates/preview", {"document": {}, "contact_id": 10**9}).expect(422)
    assert gone["validation_errors"] == {"contact_id": ["must exist"]}


def test_conditional_sections_in_a_preview(api: Client) -> None:
    """A conditional section is shown to matching contacts, and without a contact always."""
    names = {name: api.post("/contacts", {"email": f"{name}@example.org", "first_name": name}).json["id"]
             for name in ("ada", "ben")}  # fmt: skip
    ada = [{"name": "contact_first_name", "predicate": "eq", "value": "ada"}]
    only = {"type": "text", "props": {"content": "<p>Only for Ada</p>", "show_if": ada}}

    assert "Only for Ada" in preview(api, TEXT, only)["html"]
    assert "Only for Ada" in preview(api, TEXT, only, contact_id=names["ada"])["html"]
    assert "Only for Ada" not in json.dumps(preview(api, TEXT, only, contact_id=names["ben"]))


def test_preview_warnings(api: Client) -> None:
    """Unknown sections, script URLs and unknown conditions are left out with a warning."""
    result = preview(
        api, TEXT, {"type": "hologram"}, {"type": "button", "props": {"text": "x", "href": "javascript:alert(1)"}},
        {"type": "text", "props": {"content": "x", "show_if": [{"name": "nobody", "predicate": "eq", "value": 1}]}},
    )  # fmt: skip

    assert "javascript" not in result["html"]
    fields = {warning["field"] for warning in result["warnings"]}
    assert {"document.sections[1]", "document.sections[2]", "document.sections[3].props.show_if[0].name"} <= fields
    assert "unknown_section" in {warning["code"] for warning in result["warnings"]}


def test_invalid_merge_tags_in_a_preview(api: Client) -> None:
    """The error has the path of the property and the line."""
    document = {"sections": [TEXT, {"type": "heading", "props": {"text": "a {{ b"}}]}
    body = {"document": document, "subject": "{% if %}"}
    errors = api.post("/templates/preview", body).expect(422)["validation_errors"]

    assert set(errors) == {"document.sections[1].props.text", "subject"}
    assert "line 1" in errors["document.sections[1].props.text"][0]


def nested_columns(levels: int) -> dict[str, Any]:
    """Return a columns section with nested columns."""
    inner: dict[str, Any] = TEXT
    for _ in range(levels):
        inner = {"type": "columns", "props": {"columns": [{"sections": [inner, inner]}, {"sections": [inner]}]}}
    return inner


LOOP = "{% for a in (1..100) %}{% for b in (1..100) %}{% for c in (1..100) %}x{% endfor %}{% endfor %}{% endfor %}"
HOSTILE: dict[str, Any] = {
    "200 sections": [TEXT] * 200,
    "more than that": [TEXT] * 5_000,
    "columns in columns": [nested_columns(8)],
    "a megabyte of text": [{"type": "text", "props": {"content": "<p>" + "x " * 90_000 + "</p>"}}] * 5,
    "a megabyte of tags": [{"type": "text", "props": {"content": "<p>" * 60_000}}] * 5,
    "open brackets": [{"type": "html", "props": {"html": "<" * 190_000}}] * 5,
    "open braces": [{"type": "heading", "props": {"text": "{{" * 400}}] * 200,
    "unclosed tags": [{"type": "text", "props": {"content": "{{ a " * 30_000}}],
    "a loop in a loop": [{"type": "text", "props": {"content": LOOP}}] * 50,
    "many values": [{"type": "text", "props": {"content": "{{ contact.first_name }}" * 600}}] * 4,
    "quotes": [{"type": "button", "props": {"text": '"' * 900, "href": "https://x.example/" + '"<' * 900}}] * 200,
    "entities": [{"type": "text", "props": {"content": "&amp;" * 30_000}}] * 6,
    "styles": [{"type": "html", "props": {"html": f'<p style="{"color:red;" * 15_000}">x</p>'}}] * 5,
    "nested markup": [{"type": "html", "props": {"html": "<div>" * 30_000}}] * 5,
    "conditions": [
        {**TEXT, "props": {**TEXT["props"], "show_if": [
            {"name": "contact_first_name", "predicate": "eq", "value": f"{n}-{m}"} for m in range(20)]}}
        for n in range(200)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", every_nth(HOSTILE, 3))
def test_hostile_documents_are_fast(name: str, api: Client) -> None:
    """Each is rendered or rejected within a second on a quiet machine, and other requests are not blocked."""
    body = json.dumps({"document": {"sections": HOSTILE[name]}}).encode()
    assert len(body) < 2_097_152, "the door would refuse it"
    took, waited = _measure_preview(api, body)
    assert took < extend_timeout(1), f"{took:.2f} s"
    assert waited < extend_timeout(0.6), f"others waited {waited:.2f} s"


def _measure_preview(api: Client, body: bytes) -> tuple[float, float]:
    """Return how long a preview took, and the longest time of other requests meanwhile."""
    responses: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            at = time.monotonic()
            assert api.request("GET", "/healthz", None, {}).status == 200
            responses.append(time.monotonic() - at)

    other = threading.Thread(target=ask)
    other.start()
    started_at = time.monotonic()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"}
    response = api.request("POST", "/v1/my/templates/preview", body, headers)
    took = time.monotonic() - started_at
    over.set()
    other.join()
    assert response.status in (200, 422), response.text[:500]
    return took, max(responses)


def preview_sms(api: Client, body: str, **more: Any) -> Any:
    """Return the preview of an SMS."""
    asked = {"document": {}, "channel": "sms", "body": body, "transactional": True, **more}
    return api.post("/templates/preview", asked).expect(200)


def test_sms_preview_counts_segments(api: Client) -> None:
    """Segments, alphabet and the first character outside GSM-7 are right for all test vectors."""
    for body, parts, forcing in VECTORS:
        result = preview_sms(api, body)
        sms = result["sms"]
        assert sms["body"] == result["text"] == body.replace("\r", "\n")
        assert (sms["segments"], sms["characters"]) == (parts, len(body))
        assert sms["alphabet"] == ("GSM-7" if forcing is None else "UCS-2")
        assert (sms["forcing"] or {}).get("character") == forcing
        assert ("sms_ucs2" in [warning["code"] for warning in result["warnings"]]) == (forcing is not None)
        assert (sms["problem"] is None) == (1 <= parts <= 10)


def test_characters_outside_gsm_7_are_named(api: Client) -> None:
    """The character is shown if it is visible, and else named by code and name."""
    result = preview_sms(api, "Soft\u00adhyphen")
    assert result["sms"]["forcing"] == {"character": "\u00ad", "name": "U+00AD SOFT HYPHEN"}
    assert "because “U+00AD SOFT HYPHEN” is not a standard SMS character" in result["warnings"][0]["message"]
    visible = preview_sms(api, "Gift 🎁")
    assert "because “🎁” is not a standard SMS character" in visible["warnings"][0]["message"]


def test_sms_preview_counts_after_merging(api: Client) -> None:
    """Segments are those of the text with the values of the contact."""
    near = api.post("/contacts", {"email": "jurgen@example.org", "first_name": "Jürgen"}).expect(201)
    far = api.post("/contacts", {"email": "lukasz@example.org", "first_name": "Łukasz"}).expect(201)
    body = "Hi {{ first_name }} " + "a" * 100
    assert preview_sms(api, body)["sms"]["body"].startswith("Hi Anna ")
    assert preview_sms(api, body, contact_id=near["id"])["sms"]["forcing"] is None
    result = preview_sms(api, body, contact_id=far["id"])["sms"]
    assert (result["segments"], result["forcing"]["name"]) == (2, "U+0141 LATIN CAPITAL LETTER L WITH STROKE")
    assert preview_sms(api, "Code {{ data.code }} < 5", data={"code": "&1"})["sms"]["body"] == "Code &1 < 5"


def test_marketing_sms_preview(api: Client) -> None:
    """A marketing SMS has short tracked links and the opt-out hint; a transactional one has neither."""
    api.patch("/account", {"sms_opt_out_hint": "STOP to end"}).expect(200)
    body = "Sale https://example.org/" + "x" * 150
    long, short = preview_sms(api, body)["sms"], preview_sms(api, body, transactional=False)["sms"]
    assert (long["body"], long["segments"]) == (body, 2)
    assert short["body"].startswith("Sale http") and short["body"].endswith(" STOP to end") and "/c/" in short["body"]
    assert short["segments"] == 1
    api.patch("/account", {"sms_opt_out_hint": None}).expect(200)


@pytest.mark.parametrize("body", ["{{ first_name", "{% if %}", "{{ _x }}", "{{ a | nope }}"])
def test_an_sms_with_invalid_merge_tags_is_rejected(body: str, api: Client) -> None:
    """The error is reported at `body`."""
    asked = {"document": {}, "channel": "sms", "body": body}
    assert list(api.post("/templates/preview", asked).expect(422)["validation_errors"]) == ["body"]


def test_problems_of_an_sms_preview(api: Client) -> None:
    """A too long text, an empty text and unknown tags are reported."""
    assert preview_sms(api, "Ж" * 671)["sms"]["problem"] == "the text takes 11 parts (maximum is 10)"
    assert [warning["code"] for warning in preview_sms(api, "")["warnings"]] == ["sms_problem"]
    assert "unknown_merge_tag" in [warning["code"] for warning in preview_sms(api, "Hi {{ nobody.knows }}")["warnings"]]


_DATED = [
    {"type": "coupon", "props": {"code": "WINTER", "expires_at": "2026-12-31"}},
    {"type": "text", "props": {"content": "<p>{{ contact.data.born | date }}, {{ contact.data.born | date: '%A' }}, "
                                          "{{ contact.data.balance | money: 'EUR' }}</p>"}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("locale", "expected"),
    [
        ("en", ("Valid until 31 December 2026", "8 June 1964, Monday, 1,234.50 EUR")),
        ("de-AT", ("31. Dezember 2026", "8. Juni 1964, Montag, 1.234,50 EUR")),
        ("pl", ("31 grudnia 2026", "8 czerwca 1964, poniedziałek, 1 234,50 EUR")),
    ],
)
def test_dates_and_amounts_are_in_the_language_of_the_email(
    locale: str, expected: tuple[str, str], api: Client
) -> None:
    """An email of a German account has German dates and amounts, in coupons as in merge tags, and so has an SMS."""
    data = {"born": "1964-06-08", "balance": 1234.5}
    person = api.post("/contacts", {"email": f"ana-{locale}@example.org", "data": data}).expect(201)
    api.patch("/account", {"locale": locale}).expect(200)
    text = preview(api, *_DATED, contact_id=person["id"])["text"].replace("\xa0", " ")
    sms = preview_sms(api, "Until {{ contact.data.born | date }}", contact_id=person["id"])["sms"]["body"]
    api.patch("/account", {"locale": "en"}).expect(200)

    assert all(part in text for part in expected), text
    assert sms == f"Until {expected[1].partition(',')[0]}"


def test_dates_of_a_translation_are_in_its_language(api: Client) -> None:
    """The German translation of an email in English has German dates."""
    section = {"id": "a", "type": "heading", "props": {"text": "On the day"}}
    translated = {"source": "On the day", "text": "Am {{ '2026-12-31' | date }}"}
    result = preview(api, section, language="de", translations={"de": {"a/props.text": translated}})
    assert "Am 31. Dezember 2026" in result["text"], result
