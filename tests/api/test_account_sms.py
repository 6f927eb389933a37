"""The SMS settings of an account: sender, quiet hours and opt-out hint (docs/decisions.md#14)."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server

NIGHT = {"from": "21:00", "to": "08:00"}


def test_sms_settings_are_normalized_and_cleared(api: Client) -> None:
    """Each setting is returned in its normal form; null clears it, and absent settings stay."""
    fields = {"sms_from": " +1 (555) 123-4567 ", "sms_quiet_hours": NIGHT, "sms_opt_out_hint": " Reply STOP to end "}
    shown = api.patch("/account", fields).expect(200)
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
def test_valid_sms_senders(api: Client, sender: str) -> None:
    """A phone number, a short code, a name with a letter, and a Twilio messaging service are valid senders."""
    assert api.patch("/account", {"sms_from": sender}).expect(200)["sms_from"] == sender


@pytest.mark.parametrize(
    "sender",
    ["A23456789012", "123456789", "12", "0123456", "Bäckerei", "Ba-kery", "+0123456789", "+12", "B\nakery", "Ba\x00k",
     "https://x.example", 12345, ["Bakery"]],
)  # fmt: skip
def test_invalid_sms_senders_are_rejected(api: Client, sender: Any) -> None:
    """An invalid sender is rejected, and no other field of the request is written."""
    before = api.get("/account").expect(200)
    error = api.patch("/account", {"sms_from": sender, "name": "Another"}).expect(422)
    assert error["validation_errors"] == {"sms_from": ["is invalid"]}
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
def test_invalid_quiet_hours_are_rejected(api: Client, hours: Any, where: set[str]) -> None:
    """Quiet hours need two different times; every error is reported at its path."""
    assert set(api.patch("/account", {"sms_quiet_hours": hours}).expect(422)["validation_errors"]) == where


def test_unknown_keys_of_quiet_hours_are_reported(api: Client) -> None:
    """An unknown key is ignored and listed in `X-Ignored-Fields`."""
    response = api.patch("/account", {"sms_quiet_hours": {**NIGHT, "days": ["sunday"]}, "capabilities": {"sms": True}})
    assert response.expect(200)["sms_quiet_hours"] == NIGHT
    assert response.headers["X-Ignored-Fields"] == "sms_quiet_hours.days, capabilities"


def test_invalid_opt_out_hints_are_rejected(api: Client) -> None:
    """The hint is one line of at most 160 characters with valid merge tags."""
    for hint, words in (
        ("x" * 161, "is too long (maximum is 160 characters)"), ("a\nb", "is invalid"),
        ("Stop: {{ unsubscribe_url", "expected '}}' (line 1, column 7)"),
    ):  # fmt: skip
        error = api.patch("/account", {"sms_opt_out_hint": hint}).expect(422)
        assert error["validation_errors"] == {"sms_opt_out_hint": [words]}


def test_a_new_installation_captures_sms(api: Client) -> None:
    """The SMS transport of a new installation is the built-in inbox."""
    shown = api.get("/account").expect(200)
    assert (shown["transport"]["sms"], shown["usage"]["sms_sent"]) == ("capture", 0)


def test_opt_out_hints_in_other_languages(api: Client) -> None:
    """Each is kept under its language, errors are at the language, and a contact gets the one in theirs."""
    hints = {"de": " STOP zum Abmelden ", "PT_br": "{{ brand.company_name }}: SAIR"}
    account = api.patch("/account", {"sms_opt_out_hint": "STOP to end", "sms_opt_out_hints": hints}).expect(200)
    assert account["sms_opt_out_hints"] == {"de": "STOP zum Abmelden", "pt-BR": "{{ brand.company_name }}: SAIR"}
    wrong = {"xx-invalid": "x", "fr": "{{ x", "it": " ", "es": "x" * 161}
    errors = api.patch("/account", {"sms_opt_out_hints": wrong}).expect(422)["validation_errors"]
    assert set(errors) <= {f"sms_opt_out_hints.{tag}" for tag in wrong} and errors
    assert api.get("/account").expect(200)["sms_opt_out_hints"] == account["sms_opt_out_hints"]

    def preview(**fields: Any) -> str:
        body = {"document": {}, "channel": "sms", "transactional": False, "body": "Sale", **fields}
        return str(api.post("/templates/preview", body).expect(200)["sms"]["body"])

    assert preview(language="de-AT").endswith("Sale STOP zum Abmelden")
    assert preview(language="fr").endswith("Sale STOP to end") and preview().endswith("Sale STOP to end")
    contact = api.post("/contacts", {"phone": "+4915112345601", "language": "de"}).expect(201)
    assert preview(contact_id=contact["id"]).endswith("Sale STOP zum Abmelden")
    assert api.patch("/account", {"sms_opt_out_hints": {}}).expect(200)["sms_opt_out_hints"] == {}
    assert preview(language="de").endswith("Sale STOP to end")


def test_number_of_another_account_is_refused() -> None:
    """Replies to it would come to the account that takes it; a name can be shared, because nobody replies to it."""
    env = {"CAMPANERO_SMS__TWILIO__FROM": "+447700900999", "CAMPANERO_SMS__COUNTRY_SENDERS": "US +15550001111"}
    with Server(env=env).set_up() as server:
        api, other_id = server.client(), server.cli("account", "add", "Elsewhere").stdout.strip()
        theirs = server.client(server.new_key("theirs", "--account", other_id))
        for own in ("+15550009999", f"MG{'0a' * 16}", "82228"):
            api.patch("/account", {"sms_from": own}).expect(200)
            error = theirs.patch("/account", {"sms_from": f" {own}"}).expect(422)
            assert error["validation_errors"] == {"sms_from": ["has already been taken"]}
            api.patch("/account", {"sms_from": own, "name": "Bakery"}).expect(200)
        for configured in ("+44 7700 900999", "+15550001111"):
            theirs.patch("/account", {"sms_from": configured}).expect(422)
            api.patch("/account", {"sms_from": configured}).expect(200)
        for client in (api, theirs):
            client.patch("/account", {"sms_from": "Bakery"}).expect(200)
