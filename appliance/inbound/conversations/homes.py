"""Which accounts an SMS concerns that somebody wrote: the one it is for, and those that know the number."""

import re

from appliance.core import addresses
from appliance.core.addresses import Address
from appliance.settings import config
from appliance.storage.models import Account
from appliance.storage.open import fetch_one, rows

_DIGITS = re.compile("[0-9]+")
# What was last handed over to a number by an account, but for what answered them by itself
_LAST = (
    "SELECT id FROM message WHERE recipient_key = ? AND account_id = ? AND channel = 'sms' "
    "AND sent_at IS NOT NULL AND source_type <> 'system' AND test = ? ORDER BY sent_at DESC, id DESC LIMIT 1"
)
_WRITER = (
    "SELECT account_id FROM message WHERE recipient_key = ? AND account_id IN ({}) AND channel = 'sms' "
    "AND sent_at IS NOT NULL ORDER BY sent_at DESC, id DESC LIMIT 1"
)
_KNOWING = (
    "SELECT id FROM account a WHERE EXISTS (SELECT 1 FROM channel c WHERE c.account_id = a.id AND c.kind = 'phone' "
    "AND c.key = :key) OR EXISTS (SELECT 1 FROM message m WHERE m.recipient_key = :key AND m.account_id = a.id "
    "AND m.channel = 'sms')"
)


def home(sender: str, to: str) -> int:
    """Return the account that an SMS is for: whose number it came to, else who last wrote to whoever wrote it.

    Empty `to`: whoever brought it does not say which number it came to.
    """
    known = list(Account.select(Account.id, Account.sms_from).order_by(Account.id))
    usual = config.current().sms.twilio.from_
    named = [row.id for row in known if to and _key(row.sms_from or usual) == _key(to)]
    if len(named) == 1:
        return int(named[0])
    among = named or [row.id for row in known]
    last = fetch_one(_WRITER.format(",".join("?" * len(among))), (sender, *among))
    if last or len(among) == 1:
        return int(last[0] if last else among[0])
    return next((number for number in knowing(sender) if number in among), among[0])


def spelled(account_id: int, to: str) -> str:
    """Return a number or name of ours as the account has it, from which it is answered."""
    ours = Account.get_by_id(account_id).sms_from or config.current().sms.twilio.from_
    return str(ours) if ours and _key(ours) == _key(to) else to


def knowing(sender: str) -> list[int]:
    """Return the accounts that have a number or have written to it."""
    return [row[0] for row in rows(_KNOWING, {"key": sender})]


def number(sender: str) -> Address | None:
    """Return the number that an SMS came from, or None for what is none (a short code, a name).

    Providers lose the plus, or say 00 or a scheme before it: that costs nobody whom we know their STOP.
    """
    try:
        return addresses.phone(sender)
    except ValueError:
        pass
    whole = "+" + "".join(_DIGITS.findall(sender)).removeprefix("00")
    try:
        address = addresses.phone(whole)
    except ValueError:
        return None
    return address if knowing(address.key) else None


def last_to(account_id: int, sender: str, test: bool) -> int | None:
    """Return which message an account last sent to a number, which one from there may answer; a test to a test."""
    found = fetch_one(_LAST, (sender, account_id, test))
    return found[0] if found else None


def _key(name: str) -> str:
    """Return a number or name of ours as it is compared; of a number the digits, for providers lose its plus."""
    try:
        return addresses.phone(name).key[1:]
    except ValueError:
        return name.strip().casefold()
