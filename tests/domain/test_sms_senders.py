"""The sender of an SMS, chosen by country, and errors and advice about senders."""

from typing import Any

import msgspec
import pytest

from appliance.sending.messages import senders
from appliance.settings import config
from appliance.settings.schema import Twilio
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import Account
from tests.domain.home import Home

BERLIN, BOSTON, TORONTO = "+4915112345678", "+16175550123", "+14165550123"


def configure_transport(home: Home, **settings: Any) -> None:
    """Configure an SMS transport that sends, with these settings of `sms`."""
    current = config.current()
    options = {"transport": "twilio"} | settings
    config.set_current(msgspec.structs.replace(current, sms=msgspec.structs.replace(current.sms, **options)))


def update_account(home: Home, **values: Any) -> Account:
    """Change the account and return it."""
    for name, value in values.items():
        transactions.write(run, f"UPDATE account SET {name} = ? WHERE id = ?", (value, home.account_id))
    return Account.get_by_id(home.account_id)


def test_the_sender_of_a_country_comes_first(home: Home) -> None:
    """A country's sender is used before the account's, and that before the provider's."""
    configure_transport(home, twilio=Twilio(from_="+15550001111"))
    assert senders.resolve_sms(update_account(home), BERLIN) == "+15550001111"
    account = update_account(home, sms_from="+4915199999999")
    assert senders.resolve_sms(account, BERLIN) == "+4915199999999"
    configure_transport(home, country_senders=["de Acme Shop", "US 12345"])
    assert senders.resolve_sms(account, BERLIN) == "Acme Shop"
    assert senders.resolve_sms(account, BOSTON) == "12345"
    assert senders.resolve_sms(account, "+33612345678") == "+4915199999999"


def test_countries_without_names_get_a_number(home: Home) -> None:
    """To the United States, Canada and Puerto Rico a number replaces the name; without a number nothing is sent."""
    account = update_account(home, sms_from="Acme")
    configure_transport(home, twilio=Twilio(from_="+15550001111"))
    assert [senders.resolve_sms(account, number) for number in (BERLIN, BOSTON, TORONTO, "+17875550123")] == [
        "Acme", "+15550001111", "+15550001111", "+15550001111",
    ]  # fmt: skip
    configure_transport(home, twilio=Twilio())
    assert senders.resolve_sms(account, BOSTON) == ""
    assert "US needs a number" in (senders.find_sms_fault(account, BOSTON, "twilio") or "")
    assert senders.find_sms_fault(account, BERLIN, "twilio") is None
    assert senders.find_sms_problems(account, "twilio") == []


def test_a_missing_sender_is_a_problem_on_real_transports(home: Home) -> None:
    """Without a sender a real transport cannot send; the capture inbox has a default name."""
    account = update_account(home)
    assert (
        senders.find_sms_problems(account, "capture") == []
        and senders.find_sms_fault(account, BOSTON, "capture") is None
    )
    assert senders.resolve_sms(account, BOSTON) == "Campanero"
    configure_transport(home)
    [(field, message)] = senders.find_sms_problems(account, "twilio")
    assert field == "base" and "sms_from" in message
    assert {senders.find_sms_fault(account, number, "twilio") for number in (BERLIN, BOSTON)} == {message}


def test_an_http_gateway_needs_no_sender(home: Home) -> None:
    """Without one it gets an empty sender, with advice; a name is still rejected for the United States."""
    account = update_account(home)
    configure_transport(home, transport="http")
    assert senders.find_sms_problems(account, "http") == [] and senders.resolve_sms(account, BOSTON) == ""
    assert senders.find_sms_fault(account, BOSTON, "http") is None
    [(code, message)] = senders.find_sms_advice(account, {"US", "DE"}, None, True)
    assert code == "sms_sender_missing" and "has to use its own" in message
    named = update_account(home, sms_from="Acme")
    assert "US needs a number" in (senders.find_sms_fault(named, BOSTON, "http") or "")


def test_advice_on_senders(home: Home) -> None:
    """Advice about a name that cannot be replied to, a country without sender, and an unregistered number."""
    configure_transport(home)
    account = update_account(home, sms_from="Acme")
    assert senders.find_sms_advice(account, {"DE"}, "Opt out: https://acme.example/u", True) == []
    assert [code for code, _ in senders.find_sms_advice(account, {"DE", "US"}, "Reply STOP", True)] == [
        "sms_sender_one_way", "sms_sender_missing",
    ]  # fmt: skip
    account = update_account(home, sms_from="+15550001111")
    [(code, message)] = senders.find_sms_advice(account, {"US", "DE"}, "Reply STOP", True)
    assert code == "sms_unregistered" and "10DLC" in message
    assert (
        "toll-free" in senders.find_sms_advice(update_account(home, sms_from="+18005550123"), {"US"}, None, True)[0][1]
    )
    assert senders.find_sms_advice(account, {"US"}, "Reply STOP", False) == []


@pytest.mark.parametrize("line", ["USA +15550001111", "US", "US +0555", "US Twelve chars", "US 1234567890", "US é"])
def test_invalid_country_senders_are_configuration_errors(line: str, home: Home) -> None:
    """The configuration is rejected with the name of the setting."""
    with pytest.raises(config.ConfigError, match=r"sms\.country_senders"):
        home.configure(sms__country_senders=line)
