"""Senders: who messages are from, what forbids one, and the warm-up of domains (docs/decisions.md#6, Sender)."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from appliance.content import brand as brands
from appliance.core import addresses, clock
from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.mx_routes import DIRECT, domain_of
from appliance.sending.domains import records
from appliance.sending.domains import store as domains
from appliance.sending.messages.ledger import Claim
from appliance.sending.sms import numbers
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Account
from appliance.storage.transactions import require_write_transaction


def resolve_email(account: Account, chosen: str | None) -> str:
    """Return the From address: the chosen one, the account's, or hello@ of the first verified domain."""
    return chosen or account.email_from_email or _get_default_address(account.id)


class FromAddress(NamedTuple):
    """An address that email may come from."""

    address: str
    is_verified: bool


def list_from_addresses(account: Account) -> list[FromAddress]:
    """Return the addresses to choose from: those of verified domains first, then by latest use."""
    used = [
        row[0]
        for row in rows(
            "SELECT from_email FROM template WHERE account_id = ? AND from_email IS NOT NULL "
            "GROUP BY lower(from_email) ORDER BY max(updated_at) DESC LIMIT 8",
            (account.id,),
        )
    ]
    candidates = dict.fromkeys(
        address for address in (resolve_email(account, None), *used) if not address.endswith("@campanero.invalid")
    )
    choices = [
        FromAddress(address, domains.is_verified(account.id, records.domain_of_address(address)))
        for address in candidates
    ]
    return sorted(choices, key=lambda choice: not choice.is_verified)


def find_email_problems(account: Account, address: str, transport: str, marketing: bool) -> list[tuple[str, str]]:
    """Return (field, text) of everything that forbids a sender on a transport that delivers."""
    if transport == "capture":
        return []
    problems = []
    domain = records.domain_of_address(address)
    if not config.current().email.allow_unverified_domains and not domains.is_verified(account.id, domain):
        problems.append(("from_email", f"{records.display_domain(domain)} is not verified as yours"))
    if marketing and not (brands.get(account.id).physical_address or "").strip():
        problems.append(("base", "the law wants a postal address: add it to the brand"))
    return problems


def find_email_advice(account_id: int, address: str, real: bool) -> list[tuple[str, str]]:
    """Return (code, text) of advice about the domain of a sender that may be used anyway."""
    name = records.domain_of_address(address)
    if not domains.is_verified(account_id, name):
        if real and not config.current().email.allow_unverified_domains:
            return []  # that is reported as a problem
        if real and mx_routes.is_mailbox_provider(name):
            prefix = f"{name} belongs to its provider"
            return [
                ("domain_unverified", f"{prefix}: mail in its name is refused, or taken for spam, from other servers")
            ]
        reason = "receivers may take it for spam" if real else "mail that leaves needs that"
        return [("domain_unverified", f"{records.display_domain(name)} is not verified as yours: {reason}")]
    attention = domains.get_attention(account_id, name)
    return [("domain_attention", f"DNS of {records.display_domain(name)}: {attention}")] if attention else []


def has_domain_failed(account_id: int, address: str) -> bool:
    """Return whether email from an address has to stop because its domain failed, on a transport that delivers."""
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return False
    return domains.has_failed(account_id, records.domain_of_address(address))


def is_domain_unverified(account_id: int, address: str) -> bool:
    """Return whether email from an address has to wait, as its domain failed or was deleted, on a transport that
    delivers.
    """
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return False
    return not domains.is_verified(account_id, records.domain_of_address(address))


def _get_default_address(account_id: int) -> str:
    return f"hello@{domains.find_default_domain(account_id) or 'campanero.invalid'}"


# The sender of an SMS depends on the country of the recipient.

# Networks that accept no names as senders; all but Canada share the numbers and rules of the United States.
US_COUNTRIES = frozenset({"US", "PR", "VI", "GU", "AS", "MP"})
_NUMBER_ONLY_COUNTRIES = US_COUNTRIES | {"CA"}
# Sender of captured SMS if none is configured.
_CAPTURE_SENDER = "Campanero"
_LACKS_SENDER = "SMS are from nobody: set a number or name in the account (sms_from)"
_PROVIDER_CHOOSES = "no sender is named (sms_from of the account): whatever carries the SMS has to know its own"
_NUMBER_REQUIRED = "a name can be written to by nobody: {country} needs a number (sms.country_senders)"

# A delivered message to the United States, searched among SMS alone.
_DELIVERED_TO_US = (
    "SELECT 1 FROM message INDEXED BY message_provider_id WHERE provider_id IS NOT NULL AND channel = 'sms' "
    "AND account_id = ? AND status = 'delivered' AND test = 0 AND recipient_key LIKE '+1%' LIMIT 1"
)


def resolve_sms(account: Account, number: str, transport: str | None = None) -> str:
    """Return the sender of an SMS: that of its country, of the account, or of the provider.

    Where networks accept no names, the first that is a number. An empty sender means that the SMS is not sent
    (`find_sms_fault`), or that the provider chooses. `transport` replaces the configured one, as for tests.
    """
    return pick_sms_sender(account.sms_from, numbers.inspect_number(number).country, transport)


def pick_sms_sender(own: str | None, country: str | None, transport: str | None = None) -> str:
    """Return the sender of an SMS to a country, given the account's own sender; see `resolve_sms`."""
    settings = config.current().sms
    senders = [
        sender
        for sender in (
            _parse_country_senders(tuple(settings.country_senders)).get(country or ""),
            own,
            settings.twilio.from_,
        )
        if sender
    ]
    if (transport or settings.transport) == "capture":
        # A captured SMS may have any sender.
        return senders[0] if senders else _CAPTURE_SENDER
    return next(
        (sender for sender in senders if country not in _NUMBER_ONLY_COUNTRIES or not is_alphanumeric(sender)), ""
    )


def allows_no_sender(transport: str) -> bool:
    """Return whether SMS may leave without a sender: a gateway of one's own knows its number."""
    return PROVIDERS[transport].chooses_sender


def get_limit_name(sender: str) -> str:
    """Return the name of a sender's rate limit."""
    return f"from {sender.lower()}"


def list_limit_names(account_id: int, recipients: Iterable[str]) -> list[str]:
    """Return the names of the rate limits that apply to SMS of an account to these numbers, each once."""
    row = fetch_one("SELECT sms_from FROM account WHERE id = ?", (account_id,))
    account_sender = row[0] if row is not None else None
    return [
        *dict.fromkeys(
            get_limit_name(pick_sms_sender(account_sender, numbers.inspect_number(number).country))
            for number in recipients
        )
    ]


def is_alphanumeric(sender: str) -> bool:
    """Return whether a sender is a name, which cannot be replied to."""
    return any(letter.isalpha() for letter in sender) and not addresses.is_messaging_service(sender)


def find_sms_problems(account: Account, transport: str) -> list[tuple[str, str]]:
    """Return (field, text) of everything that forbids SMS on a transport that delivers."""
    settings = config.current().sms
    has_sender = account.sms_from or settings.twilio.from_ or settings.country_senders
    if transport == "capture" or has_sender or allows_no_sender(transport):
        return []
    return [("base", _LACKS_SENDER)]


def find_sms_fault(account: Account, number: str, transport: str) -> str | None:
    """Return why this account may not write to a number on a transport that delivers, or None."""
    if transport == "capture" or resolve_sms(account, number):
        return None
    country = numbers.inspect_number(number).country
    if country in _NUMBER_ONLY_COUNTRIES and pick_sms_sender(account.sms_from, None, transport):
        return _NUMBER_REQUIRED.format(country=country)
    return None if allows_no_sender(transport) else _LACKS_SENDER


def find_sms_advice(account: Account, countries: set[str], hint: str | None, real: bool) -> list[tuple[str, str]]:
    """Return (code, text) of advice about senders to these countries; `hint` tells how to opt out.

    A name cannot be replied to; in the United States unregistered senders are blocked.
    """
    advice: list[tuple[str, str]] = []
    senders = {country: pick_sms_sender(account.sms_from, country) for country in sorted(countries)}
    named = sorted(country for country, sender in senders.items() if sender and is_alphanumeric(sender))
    if named and hint and "://" not in hint:
        text = f"the hint asks for an answer, and nobody can answer {senders[named[0]]}: {', '.join(named)}"
        advice.append(("sms_sender_one_way", text))
    countries_without_sender = [country for country, sender in senders.items() if not sender]
    if real and countries_without_sender and not pick_sms_sender(account.sms_from, None):
        advice.append(
            (
                "sms_sender_missing",
                _PROVIDER_CHOOSES if allows_no_sender(config.current().sms.transport) else _LACKS_SENDER,
            )
        )
    elif real and countries_without_sender:
        advice.append(("sms_sender_missing", _NUMBER_REQUIRED.format(country=", ".join(countries_without_sender))))
    american = next((sender for country, sender in senders.items() if country in US_COUNTRIES and sender), None)
    if real and american and fetch_one(_DELIVERED_TO_US, (account.id,)) is None:
        advice.append(("sms_unregistered", _describe_registration(american)))
    return advice


def _describe_registration(sender: str) -> str:
    """Return where a sender has to be registered before networks of the United States deliver it."""
    if sender.startswith("+") and numbers.inspect_number(sender).type == "toll_free":
        requirement = "verified as a toll-free number"
    elif sender.startswith("+"):
        requirement = "registered (10DLC: brand and campaign)"
    else:
        requirement = "leased and approved as a short code"
    return f"networks in the US block SMS of senders that are not known to them: {sender} has to be {requirement} first"


@lru_cache(8)
def _parse_country_senders(lines: tuple[str, ...]) -> dict[str, str]:
    return {line[:2].upper(): line[3:].strip() for line in lines}


# Warm-up: in direct delivery a new domain sends few messages a day, and more after each day that went well. Servers
# trust a domain that sends a little wanted mail, then more of it; they reject a sudden crowd (D22). Days are those of
# UTC. A bounce counts for the day on which it arrived.

DAY_MS = 24 * 3600 * 1000
DAILY_CAPS = (50, 100, 200, 400, 700, 1_000, 1_500, 2_500, 4_000, 6_000, 9_000, 13_000, 20_000)
# Conditions for a larger day: the share of the quota used, and the shares of hard bounces, rejections and complaints.
_MIN_USED_SHARE, _MAX_HARD_SHARE, _MAX_REFUSED_SHARE, _MAX_COMPLAINT_SHARE = 0.6, 0.02, 0.05, 0.001
# After this many days of silence a domain starts over, as servers forget it.
_RESTART_AFTER_DAYS = 30


class WarmUpDay(NamedTuple):
    """A day of a domain: its step in the plan, its quota (0: unlimited), and its counts."""

    domain: str
    day: int
    step: int
    cap: int
    accepted: int
    hard: int = 0
    refused: int = 0
    complaints: int = 0

    @property
    def ends_at(self) -> int:
        """The time at which the next day begins, in milliseconds."""
        return (self.day + 1) * DAY_MS

    def was_successful(self) -> bool:
        """Return whether a larger day may follow."""
        return (
            self.accepted >= _MIN_USED_SHARE * self.cap
            and self.hard < _MAX_HARD_SHARE * (self.accepted + self.hard)
            and self.refused < _MAX_REFUSED_SHARE * (self.accepted + self.refused)
            and self.complaints < max(_MAX_COMPLAINT_SHARE * self.accepted, 1)
        )


_DAY_COLUMNS = ", ".join(WarmUpDay._fields)


def is_warm_up_on() -> bool:
    """Return whether sending domains are warmed up here."""
    email = config.current().email
    return email.transport == DIRECT and email.direct.warm_up


def get_day_number() -> int:
    """Return the number of today, counted from 1970."""
    return clock.now_ms() // DAY_MS


def get_or_create_today(domain: str) -> WarmUpDay:
    """Return today's quota of a domain; the first call of a day creates it by the result of the day before."""
    require_write_transaction()
    day = get_day_number()
    row = fetch_one(f"SELECT {_DAY_COLUMNS} FROM warm_up_day WHERE domain = ? AND day = ?", (domain, day))
    if row is not None:
        return WarmUpDay(*row)
    last_row = fetch_one(
        f"SELECT {_DAY_COLUMNS} FROM warm_up_day WHERE domain = ? ORDER BY day DESC LIMIT 1", (domain,)
    )
    step = 0 if last_row is None else get_next_step(WarmUpDay(*last_row), day)
    today = WarmUpDay(domain, day, step, DAILY_CAPS[step] if step < len(DAILY_CAPS) else 0, 0)
    marks = ", ".join("?" * len(today))
    run(f"INSERT INTO warm_up_day ({_DAY_COLUMNS}) VALUES ({marks})", today)
    return today


def get_next_step(before: WarmUpDay, day: int) -> int:
    """Return the step of a day, given the last day on which something was sent."""
    if day - before.day > _RESTART_AFTER_DAYS:
        return 0
    if before.step >= len(DAILY_CAPS) or day <= before.day or not before.was_successful():
        return before.step
    return before.step + 1


def get_account_domains(account_id: int) -> set[str]:
    """Return the domains that an account sends from; those of other accounts are not disclosed to it."""
    sender_rows = rows(
        "SELECT '@' || name FROM sending_domain WHERE account_id = ?1 UNION SELECT email_from_email FROM account "
        "WHERE id = ?1 UNION SELECT json_extract(sender, '$.email') FROM campaign WHERE account_id = ?1",
        (account_id,),
    )
    return {domain_of(row[0]) for row in sender_rows if row[0]}


def list_warm_up_days(account_id: int) -> list[WarmUpDay]:
    """Return the last day of each of an account's domains that is still warming up."""
    own_domains = get_account_domains(account_id)
    day_rows = rows(
        f"SELECT {_DAY_COLUMNS} FROM warm_up_day w WHERE step < ? AND day > ? "
        "AND day = (SELECT max(day) FROM warm_up_day WHERE domain = w.domain) ORDER BY domain",
        (len(DAILY_CAPS), get_day_number() - _RESTART_AFTER_DAYS),
    )
    return [WarmUpDay(*row) for row in day_rows if row[0] in own_domains]


def estimate_end(day: WarmUpDay, remaining: int) -> int | None:
    """Return the start of the day on which so many more will be sent if all goes well, or None if that is today."""
    remaining -= max(0, day.cap - day.accepted) if day.cap else remaining
    day_number, step = day.day, day.step
    while remaining > 0:
        day_number, step = day_number + 1, step + 1
        remaining -= DAILY_CAPS[step] if step < len(DAILY_CAPS) else remaining
    return day_number * DAY_MS if day_number > day.day else None


def describe_full_day(day: WarmUpDay) -> str:
    """Describe, for people, that a domain has used up today's quota."""
    day_number = f"day {day.step + 1} of {len(DAILY_CAPS)} of a new domain"
    return f"today's {day.cap} messages from {day.domain} have gone, {day_number}"


def format_day(ms: int) -> str:
    """Write a day for people."""
    then = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{then.day} {then.strftime('%B')}"


# The counts below are written in the transaction that records outcomes.


def count_warm_up_sent(counts: Mapping[str, int]) -> None:
    """Count accepted messages by the domain that they are from."""
    require_write_transaction()
    day = get_day_number()
    for domain, count in counts.items():
        run("UPDATE warm_up_day SET accepted = accepted + ? WHERE domain = ? AND day = ?", (count, domain, day))


def count_warm_up_failure(row: Claim, column: str, sender: str | None = None) -> None:
    """Count something against the day of a domain: `hard`, `refused` or `complaints`."""
    require_write_transaction()
    if row.provider != DIRECT or row.test:
        return
    domain = domain_of(sender or scalar("SELECT sender FROM message WHERE id = ?", (row.id,)) or "")
    run(f"UPDATE warm_up_day SET {column} = {column} + 1 WHERE domain = ? AND day = ?", (domain, get_day_number()))
