"""From whom an SMS is, by the country of who gets it, and what stands in the way of that."""

from collections.abc import Iterable
from functools import lru_cache

from appliance.core import addresses
from appliance.sending.sms import numbers
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.storage.models import Account
from appliance.storage.open import fetch_one

# Where networks take no names; all but Canada share the numbers of the United States and its rules
AMERICAN = frozenset({"US", "PR", "VI", "GU", "AS", "MP"})
_NAMELESS = AMERICAN | {"CA"}
# Of what stays in the inbox, where nobody has chosen anything
_AT_HOME = "Campanero"
_LACKS_SENDER = "SMS are from nobody: set a number or name in the account (sms_from)"
_UNNAMED = "no sender is named (sms_from of the account): whatever carries the SMS has to know its own"
_ONE_WAY = "a name can be written to by nobody: {country} needs a number (sms.country_senders)"
# A message of ours to the United States that is known to have arrived, looked for among SMS alone
_ARRIVED = (
    "SELECT 1 FROM message INDEXED BY message_provider_id WHERE provider_id IS NOT NULL AND channel = 'sms' "
    "AND account_id = ? AND status = 'delivered' AND test = 0 AND recipient_key LIKE '+1%' LIMIT 1"
)


def resolve(account: Account, number: str, transport: str | None = None) -> str:
    """Return who an SMS to a number is from: its country's sender, the account's, or the provider's.

    Where networks take no names the first that is a number. Empty: nobody, and such an SMS is not sent (`fault`), or
    from whom the provider says.
    `transport` is its own where that is not the one that is set: tests stay here.
    """
    return sender_to(account.sms_from, numbers.look(number).country, transport)


def sender_to(own: str | None, country: str | None, transport: str | None = None) -> str:
    """Return who an SMS to a country is from, where an account's own sender is `own`; as `resolve`."""
    here = config.current().sms
    found = [
        one for one in (_by_country(tuple(here.country_senders)).get(country or ""), own, here.twilio.from_) if one
    ]
    if (transport or here.transport) == "capture":
        # What nobody gets may be from anybody
        return found[0] if found else _AT_HOME
    return next((one for one in found if country not in _NAMELESS or not is_name(one)), "")


def may_be_nobody(transport: str) -> bool:
    """Return whether SMS may leave without a sender: a gateway of one's own knows its number."""
    return PROVIDERS[transport].chooses_sender


def limit_of(sender: str) -> str:
    """Return the name under which the limits of a sender are counted."""
    return f"from {sender.lower()}"


def limits(account_id: int, recipients: Iterable[str]) -> list[str]:
    """Return the names of the limits that SMS of an account to some numbers keep to, each once."""
    found = fetch_one("SELECT sms_from FROM account WHERE id = ?", (account_id,))
    own = found[0] if found is not None else None
    return [*dict.fromkeys(limit_of(sender_to(own, numbers.look(number).country)) for number in recipients)]


def is_name(sender: str) -> bool:
    """Return whether a sender is a name, which nobody can answer."""
    return any(letter.isalpha() for letter in sender) and not addresses.is_sender_service(sender)


def problems(account: Account, transport: str) -> list[tuple[str, str]]:
    """Return (field, words) for everything that forbids sending any SMS on a transport that leaves the machine."""
    here = config.current().sms
    is_somebody = account.sms_from or here.twilio.from_ or here.country_senders
    if transport == "capture" or is_somebody or may_be_nobody(transport):
        return []
    return [("base", _LACKS_SENDER)]


def fault(account: Account, number: str, transport: str) -> str | None:
    """Return why nobody may write to a number from this account on a transport that leaves the machine, or None."""
    if transport == "capture" or resolve(account, number):
        return None
    country = numbers.look(number).country
    if country in _NAMELESS and sender_to(account.sms_from, None, transport):
        return _ONE_WAY.format(country=country)
    return None if may_be_nobody(transport) else _LACKS_SENDER


def advice(account: Account, countries: set[str], hint: str | None, real: bool) -> list[tuple[str, str]]:
    """Return (code, words) of what is not right with senders to some countries; `hint` says how to opt out.

    With names nobody can answer; in the United States whoever is not registered is not delivered.
    """
    found: list[tuple[str, str]] = []
    senders = {country: sender_to(account.sms_from, country) for country in sorted(countries)}
    named = sorted(country for country, sender in senders.items() if sender and is_name(sender))
    if named and hint and "://" not in hint:
        words = f"the hint asks for an answer, and nobody can answer {senders[named[0]]}: {', '.join(named)}"
        found.append(("sms_sender_one_way", words))
    missing = [country for country, sender in senders.items() if not sender]
    if real and missing and not sender_to(account.sms_from, None):
        found.append(
            ("sms_sender_missing", _UNNAMED if may_be_nobody(config.current().sms.transport) else _LACKS_SENDER)
        )
    elif real and missing:
        found.append(("sms_sender_missing", _ONE_WAY.format(country=", ".join(missing))))
    american = next((sender for country, sender in senders.items() if country in AMERICAN and sender), None)
    if real and american and fetch_one(_ARRIVED, (account.id,)) is None:
        found.append(("sms_unregistered", _registration(american)))
    return found


def _registration(sender: str) -> str:
    """Return where a sender has to be known before networks of the United States deliver it."""
    if sender.startswith("+") and numbers.look(sender).type == "toll_free":
        how = "verified as a toll-free number"
    elif sender.startswith("+"):
        how = "registered (10DLC: brand and campaign)"
    else:
        how = "leased and approved as a short code"
    return f"networks in the US block SMS of senders that are not known to them: {sender} has to be {how} first"


@lru_cache(8)
def _by_country(lines: tuple[str, ...]) -> dict[str, str]:
    return {line[:2].upper(): line[3:].strip() for line in lines}
