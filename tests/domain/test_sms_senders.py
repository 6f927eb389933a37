"""From whom an SMS is: by the country it goes to, and what is said where that cannot be."""

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


def real(home: Home, **settings: Any) -> None:
    """Let SMS leave this machine, by these settings of `sms`."""
    here = config.current()
    given = {"transport": "twilio"} | settings
    config.set_current(msgspec.structs.replace(here, sms=msgspec.structs.replace(here.sms, **given)))


def account_of(home: Home, **changed: Any) -> Account:
    """Change the account and answer it."""
    for name, value in changed.items():
        transactions.write(run, f"UPDATE account SET {name} = ? WHERE id = ?", (value, home.account_id))
    return Account.get_by_id(home.account_id)


def test_a_country_has_its_sender(home: Home) -> None:
    """A country's sender goes before the account's, that before the provider's."""
    real(home, twilio=Twilio(from_="+15550001111"))
    assert senders.resolve_sms(account_of(home), BERLIN) == "+15550001111"
    account = account_of(home, sms_from="+4915199999999")
    assert senders.resolve_sms(account, BERLIN) == "+4915199999999"
    real(home, country_senders=["de Acme Shop", "US 12345"])
    assert senders.resolve_sms(account, BERLIN) == "Acme Shop"
    assert senders.resolve_sms(account, BOSTON) == "12345"
    assert senders.resolve_sms(account, "+33612345678") == "+4915199999999"


def test_where_no_name_is_taken_the_next_number_is(home: Home) -> None:
    """To the United States, Canada and Puerto Rico a name gives way to a number; where there is none, nothing goes."""
    account = account_of(home, sms_from="Acme")
    real(home, twilio=Twilio(from_="+15550001111"))
    assert [senders.resolve_sms(account, one) for one in (BERLIN, BOSTON, TORONTO, "+17875550123")] == [
        "Acme", "+15550001111", "+15550001111", "+15550001111",
    ]  # fmt: skip
    real(home, twilio=Twilio())
    assert senders.resolve_sms(account, BOSTON) == ""
    assert "US needs a number" in (senders.find_sms_fault(account, BOSTON, "twilio") or "")
    assert senders.find_sms_fault(account, BERLIN, "twilio") is None
    assert senders.find_sms_problems(account, "twilio") == []


def test_nobody_is_a_problem_only_where_sms_leave(home: Home) -> None:
    """Without any sender a real transport has nobody to send from; the inbox has a name of its own."""
    account = account_of(home)
    assert (
        senders.find_sms_problems(account, "capture") == []
        and senders.find_sms_fault(account, BOSTON, "capture") is None
    )
    assert senders.resolve_sms(account, BOSTON) == "Campanero"
    real(home)
    [(field, words)] = senders.find_sms_problems(account, "twilio")
    assert field == "base" and "sms_from" in words
    assert {senders.find_sms_fault(account, one, "twilio") for one in (BERLIN, BOSTON)} == {words}


def test_a_gateway_may_know_its_own_sender(home: Home) -> None:
    """A server of one's own is given no sender where none is chosen; a name still is none to the United States."""
    account = account_of(home)
    real(home, transport="http")
    assert senders.find_sms_problems(account, "http") == [] and senders.resolve_sms(account, BOSTON) == ""
    assert senders.find_sms_fault(account, BOSTON, "http") is None
    [(code, words)] = senders.find_sms_advice(account, {"US", "DE"}, None, True)
    assert code == "sms_sender_missing" and "has to know its own" in words
    named = account_of(home, sms_from="Acme")
    assert "US needs a number" in (senders.find_sms_fault(named, BOSTON, "http") or "")


def test_advice_on_senders(home: Home) -> None:
    """A name with a hint that wants an answer, a country without sender, and an unregistered number are named."""
    real(home)
    account = account_of(home, sms_from="Acme")
    assert senders.find_sms_advice(account, {"DE"}, "Opt out: https://acme.example/u", True) == []
    assert [code for code, _ in senders.find_sms_advice(account, {"DE", "US"}, "Reply STOP", True)] == [
        "sms_sender_one_way", "sms_sender_missing",
    ]  # fmt: skip
    account = account_of(home, sms_from="+15550001111")
    [(code, words)] = senders.find_sms_advice(account, {"US", "DE"}, "Reply STOP", True)
    assert code == "sms_unregistered" and "10DLC" in words
    assert "toll-free" in senders.find_sms_advice(account_of(home, sms_from="+18005550123"), {"US"}, None, True)[0][1]
    assert senders.find_sms_advice(account, {"US"}, "Reply STOP", False) == []


@pytest.mark.parametrize("line", ["USA +15550001111", "US", "US +0555", "US Twelve chars", "US 1234567890", "US é"])
def test_a_sender_that_cannot_be_one_stops_the_start(line: str, home: Home) -> None:
    """Senders of countries are looked at before anything starts."""
    with pytest.raises(config.ConfigError, match=r"sms\.country_senders"):
        home.configure(sms__country_senders=line)
