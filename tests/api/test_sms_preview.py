"""Previews of SMS: what somebody would get, what it costs, and which character makes it cost more."""

from typing import Any

import pytest

from tests.domain.test_gsm import VECTORS
from tests.kit.client import Client


def shown(api: Client, body: str, **more: Any) -> Any:
    """Return the preview of an SMS."""
    asked = {"document": {}, "channel": "sms", "body": body, "transactional": True, **more}
    return api.post("/templates/preview", asked).expect(200)


def test_parts_alphabet_and_forcing_character_are_told(api: Client) -> None:
    """All vectors of the standard, each as it was written."""
    for body, parts, forcing in VECTORS:
        found = shown(api, body)
        told = found["sms"]
        assert told["body"] == found["text"] == body.replace("\r", "\n")
        assert (told["segments"], told["characters"]) == (parts, len(body))
        assert told["alphabet"] == ("GSM-7" if forcing is None else "UCS-2")
        assert (told["forcing"] or {}).get("character") == forcing
        assert ("sms_ucs2" in [one["code"] for one in found["warnings"]]) == (forcing is not None)
        assert (told["problem"] is None) == (1 <= parts <= 10)


def test_a_forcing_character_is_named(api: Client) -> None:
    """By its code and name, for it may be one that nobody sees."""
    found = shown(api, "Soft\u00adhyphen")
    assert found["sms"]["forcing"] == {"character": "\u00ad", "name": "U+00AD SOFT HYPHEN"}
    assert "U+00AD SOFT HYPHEN is not in GSM-7" in found["warnings"][0]["message"]


def test_parts_are_counted_after_merging(api: Client) -> None:
    """With the values of the person who is named; an umlaut of theirs costs nothing, a letter of elsewhere does."""
    near = api.post("/contacts", {"email": "jurgen@example.org", "first_name": "Jürgen"}).expect(201)
    far = api.post("/contacts", {"email": "lukasz@example.org", "first_name": "Łukasz"}).expect(201)
    body = "Hi {{ first_name }} " + "a" * 100
    assert shown(api, body)["sms"]["body"].startswith("Hi Anna ")
    assert shown(api, body, contact_id=near["id"])["sms"]["forcing"] is None
    told = shown(api, body, contact_id=far["id"])["sms"]
    assert (told["segments"], told["forcing"]["name"]) == (2, "U+0141 LATIN CAPITAL LETTER L WITH STROKE")
    assert shown(api, "Code {{ data.code }} < 5", data={"code": "&1"})["sms"]["body"] == "Code &1 < 5"


def test_marketing_has_the_hint_and_short_links(api: Client) -> None:
    """As it would leave, with links as long as they will be; what is asked for has neither."""
    api.patch("/account", {"sms_opt_out_hint": "STOP to end"}).expect(200)
    body = "Sale https://example.org/" + "x" * 150
    long, short = shown(api, body)["sms"], shown(api, body, transactional=False)["sms"]
    assert (long["body"], long["segments"]) == (body, 2)
    assert short["body"].startswith("Sale http") and short["body"].endswith(" STOP to end") and "/c/" in short["body"]
    assert short["segments"] == 1
    api.patch("/account", {"sms_opt_out_hint": None}).expect(200)


@pytest.mark.parametrize("body", ["{{ first_name", "{% if %}", "{{ _x }}", "{{ a | nope }}"])
def test_what_cannot_be_read_is_refused(body: str, api: Client) -> None:
    """Under the name of the field, with its place."""
    asked = {"document": {}, "channel": "sms", "body": body}
    assert list(api.post("/templates/preview", asked).expect(422)["validation_errors"]) == ["body"]


def test_what_is_too_long_is_shown_and_told(api: Client) -> None:
    """Somebody who writes too much sees by how much; nothing and unknown tags are told too."""
    assert shown(api, "Ж" * 671)["sms"]["problem"] == "it takes 11 parts (maximum is 10)"
    assert [one["code"] for one in shown(api, "")["warnings"]] == ["sms_problem"]
    assert "unknown_merge_tag" in [one["code"] for one in shown(api, "Hi {{ nobody.knows }}")["warnings"]]
