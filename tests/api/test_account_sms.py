"""What an account says about its SMS: who they are from, when they rest, how people leave (docs/decisions.md#14)."""

from typing import Any

import pytest

from tests.kit.client import Client

NIGHT = {"from": "21:00", "to": "08:00"}


def test_they_are_kept_and_cleared(api: Client) -> None:
    """Each is answered as it was kept, without filler; null clears it, and what is not named stays."""
    said = {"sms_from": " +1 (555) 123-4567 ", "sms_quiet_hours": NIGHT, "sms_opt_out_hint": " Reply STOP to end "}
    shown = api.patch("/account", said).expect(200)
    kept = {"sms_from": "+15551234567", "sms_quiet_hours": NIGHT, "sms_opt_out_hint": "Reply STOP to end"}
    assert {name: shown[name] for name in kept} == kept
    again = api.patch("/account", {"sms_opt_out_hint": ""}).expect(200)
    assert (again["sms_from"], again["sms_quiet_hours"], again["sms_opt_out_hint"]) == ("+15551234567", NIGHT, None)
    cleared = api.patch("/account", dict.fromkeys(kept)).expect(200)
    assert {name: cleared[name] for name in kept} == dict.fromkeys(kept)


@pytest.mark.parametrize(
    "sender",
    ["+4917012345678", "12345", "787878", "Bakery", "Bakery 24", "4ever", "A2345678901", "MG" + "0a" * 16],
)  # fmt: skip
def test_who_an_sms_can_be_from(api: Client, sender: str) -> None:
    """A number, a short code, a name that holds a letter, or a service that chooses one of its numbers."""
    assert api.patch("/account", {"sms_from": sender}).expect(200)["sms_from"] == sender


@pytest.mark.parametrize(
    "sender",
    ["A23456789012", "123456789", "12", "0123456", "Bäckerei", "Ba-kery", "+0123456789", "+12", "B\nakery", "Ba\x00k",
     "https://x.example", 12345, ["Bakery"]],
)  # fmt: skip
def test_who_it_cannot_be_from(api: Client, sender: Any) -> None:
    """What no network shows is refused, and nothing of the request is kept."""
    before = api.get("/account").expect(200)
    refused = api.patch("/account", {"sms_from": sender, "name": "Another"}).expect(422)
    assert refused["validation_errors"] == {"sms_from": ["is invalid"]}
    assert api.get("/account").expect(200)["updated_at"] == before["updated_at"]


@pytest.mark.parametrize(
    ("hours", "where"),
    [
        ({"from": "21:00"}, {"sms_quiet_hours.to"}),
        ({"from": "25:00", "to": "8:00"}, {"sms_quiet_hours.from", "sms_quiet_hours.to"}),
        ({"from": "21:00", "to": "21:00"}, {"sms_quiet_hours"}),
        ({"from": "21:00\n", "to": "08:00"}, {"sms_quiet_hours.from"}),
        ({"from": 21, "to": None}, {"sms_quiet_hours.from", "sms_quiet_hours.to"}),
        (["21:00", "08:00"], {"sms_quiet_hours"}),
        ("night", {"sms_quiet_hours"}),
    ],
)
def test_hours_that_nobody_can_read(api: Client, hours: Any, where: set[str]) -> None:
    """Quiet hours have a beginning and an end that differ; every fault is told at its path."""
    assert set(api.patch("/account", {"sms_quiet_hours": hours}).expect(422)["validation_errors"]) == where


def test_what_is_no_part_of_the_hours_is_named(api: Client) -> None:
    """A key that nobody reads is ignored and told, so that a misspelt one is noticed."""
    answer = api.patch("/account", {"sms_quiet_hours": {**NIGHT, "days": ["sunday"]}, "capabilities": {"sms": True}})
    assert answer.expect(200)["sms_quiet_hours"] == NIGHT
    assert answer.headers["X-Ignored-Fields"] == "sms_quiet_hours.days, capabilities"


def test_words_that_are_too_long_or_no_line(api: Client) -> None:
    """The way out is one line that can be filled in, and leaves room for what it stands behind."""
    for hint, words in (
        ("x" * 161, "is too long (maximum is 160 characters)"), ("a\nb", "is invalid"),
        ("Stop: {{ unsubscribe_url", "expected '}}' (line 1, column 7)"),
    ):  # fmt: skip
        refused = api.patch("/account", {"sms_opt_out_hint": hint}).expect(422)
        assert refused["validation_errors"] == {"sms_opt_out_hint": [words]}


def test_what_carries_sms_is_told(api: Client) -> None:
    """A fresh installation keeps SMS in its inbox."""
    shown = api.get("/account").expect(200)
    assert (shown["transport"]["sms"], shown["usage"]["sms_sent"]) == ("capture", 0)
