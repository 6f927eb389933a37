"""Choose and check the senders of email and SMS, and limit new domains (warm-up, docs/decisions.md#6)."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from appliance.content import brand as brands
from appliance.core import addresses, clock, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.mx_routes import DIRECT, domain_of
from appliance.sending.domains import records
from appliance.sending.domains import store as domains
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config, transports
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Account
from appliance.storage.transactions import require_write_transaction

# The domain of the From address of an account that has no sending domain (RFC 2606, section 2: it never resolves).
PLACEHOLDER_DOMAIN = "campanero.invalid"


def resolve_email(account: Account, chosen: str | None) -> str:
    """Return the From address: `chosen`, else the account's, else `hello@` at the account's default domain.

    Without a default domain it is `hello@` at `PLACEHOLDER_DOMAIN`.
    """
    return chosen or account.email_from_email or _get_default_address(account.id)


class FromAddress(NamedTuple):
    """A From address that a user can choose, and whether its domain is verified."""

    address: str
    is_verified: bool


def list_from_addresses(account: Account) -> list[FromAddress]:
    """Return the From addresses to choose from, addresses of verified domains first.

    The candidates are the account's default address and the eight addresses that templates used last.
    """
    used = [
        row[0]
        for row in rows(
            "SELECT from_email FROM template WHERE account_id = ? AND from_email IS NOT NULL "
            "GROUP BY lower(from_email) ORDER BY max(updated_at) DESC LIMIT 8",
            (account.id,),
        )
    ]
    candidates = dict.fromkeys(
        address
        for address in (resolve_email(account, None), *used)
        if records.domain_of_address(address) != PLACEHOLDER_DOMAIN
    )
    choices = [
        FromAddress(address, domains.is_verified(account.id, records.domain_of_address(address)))
        for address in candidates
    ]
    return sorted(choices, key=lambda choice: not choice.is_verified)


def find_email_problems(account: Account, address: str, transport: str, marketing: bool) -> list[tuple[str, str]]:
    """Return (field, text) of each problem that prevents email from `address`; captured email has none.

    Marketing email also needs the postal address of the brand.
    """
    if transport == "capture":
        return []
    problems = []
    domain = records.domain_of_address(address)
    if not config.current().email.allow_unverified_domains and not domains.is_verified(account.id, domain):
        text = gettext("%(domain)s is not verified as yours", domain=records.display_domain(domain))
        problems.append(("from_email", _describe_missing_domain() if domain == PLACEHOLDER_DOMAIN else text))
    if marketing and not (brands.get(account.id).physical_address or "").strip():
        problems.append(("base", gettext("a postal address is required by law: add it to the brand")))
    return problems


def find_email_advice(account_id: int, address: str, real: bool) -> list[tuple[str, str]]:
    """Return (code, text) of advice about a From address's domain that does not prevent sending.

    `real` means that the transport delivers email instead of capturing it.
    """
    name = records.domain_of_address(address)
    if not domains.is_verified(account_id, name):
        if real and not config.current().email.allow_unverified_domains:
            return []  # `find_email_problems` reports it
        if name == PLACEHOLDER_DOMAIN:
            text = _describe_missing_domain()
        elif real and mx_routes.is_mailbox_provider(name):
            text = gettext(
                "%(domain)s belongs to a mailbox provider: email sent from it through other servers "
                "is rejected or treated as spam",
                domain=name,
            )
        elif real:
            text = gettext(
                "%(domain)s is not verified as yours: receivers may treat the email as spam",
                domain=records.display_domain(name),
            )
        else:
            text = gettext(
                "%(domain)s is not verified: verify it before you send real emails", domain=records.display_domain(name)
            )
        return [("domain_unverified", text)]
    attention = domains.get_attention(account_id, name)
    if not attention:
        return []
    text = gettext(
        "DNS of %(domain)s: %(problem)s",
        domain=records.display_domain(name),
        problem=domains.describe_attention(attention),
    )
    return [("domain_attention", text)]


def _describe_missing_domain() -> str:
    return gettext("add a sending domain, or enter a From address of a verified domain")


def has_domain_failed(account_id: int, address: str) -> bool:
    """Return whether email from an address must stop because the DNS records of its domain are missing.

    The result is False with the capture transport or `email.allow_unverified_domains`.
    """
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return False
    return domains.has_failed(account_id, records.domain_of_address(address))


def is_domain_unverified(account_id: int, address: str) -> bool:
    """Return whether email from an address must not be sent because its domain is not verified.

    The result is False with the capture transport or `email.allow_unverified_domains`.
    """
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return False
    return not domains.is_verified(account_id, records.domain_of_address(address))


def _get_default_address(account_id: int) -> str:
    return f"hello@{domains.find_default_domain(account_id) or PLACEHOLDER_DOMAIN}"


# The sender of an SMS depends on the country of the recipient.

# Countries whose networks accept no names as senders. All of them except Canada share the numbers and the rules of the
# United States.
US_COUNTRIES = frozenset({"US", "PR", "VI", "GU", "AS", "MP"})
_NUMBER_ONLY_COUNTRIES = US_COUNTRIES | {"CA"}
# What captured SMS have as their sender if none is configured; pages say that none is set.
CAPTURE_SENDER = "Campanero"
_LACKS_SENDER = gettext_noop("the SMS has no sender: set a number or name in the account (sms_from)")
_PROVIDER_CHOOSES = gettext_noop("no sender is set (sms_from of the account): the provider has to use its own")
_NUMBER_REQUIRED = gettext_noop(
    "recipients cannot reply to a sender name: %(country)s needs a number (sms.country_senders)"
)

# Finds an SMS delivered to the United States. The index contains little else than SMS, so the query reads no email.
_DELIVERED_TO_US = (
    "SELECT 1 FROM message INDEXED BY message_provider_id WHERE provider_id IS NOT NULL AND channel = 'sms' "
    "AND account_id = ? AND status = 'delivered' AND test = 0 AND recipient_key LIKE '+1%' LIMIT 1"
)


def resolve_sms(account: Account, number: str, transport: str | None = None) -> str:
    """Return the sender of an SMS to a number: the sender for its country, else the account's, else Twilio's setting.

    Names are left out where networks accept only numbers. An empty sender means that the SMS is not sent
    (`find_sms_fault`), or that the provider chooses the sender. `transport` replaces the configured transport.
    """
    return pick_sms_sender(account.sms_from, addresses.inspect_number(number).country, transport)


def pick_sms_sender(own: str | None, country: str | None, transport: str | None = None) -> str:
    """Return the sender of an SMS to a country, by the rules of `resolve_sms`.

    `own` is the sender of the account. `country` is a two-letter code, or None if it is unknown.
    """
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
        return senders[0] if senders else CAPTURE_SENDER
    return next(
        (sender for sender in senders if country not in _NUMBER_ONLY_COUNTRIES or not addresses.is_sender_name(sender)),
        "",
    )


def find_default_sms(account: Account, transport: str | None = None) -> str | None:
    """Return the sender of an account's SMS where no country has its own, or None if none is set.

    `CAPTURE_SENDER` is only a placeholder. `transport` replaces the configured transport.
    """
    sender = pick_sms_sender(account.sms_from, None, transport)
    return None if sender in ("", CAPTURE_SENDER) else sender


def allows_no_sender(transport: str) -> bool:
    """Return whether SMS may be sent without a sender, because the transport (an HTTP gateway) chooses it."""
    return PROVIDERS[transport].chooses_sender


def get_limit_name(sender: str) -> str:
    """Return the name of the rate limit that applies to a sender."""
    return f"from {sender.lower()}"


def list_limit_names(account_id: int, recipients: Iterable[str]) -> list[str]:
    """Return the names of the senders' rate limits that apply to an account's SMS to these numbers, without repeats."""
    row = fetch_one("SELECT sms_from FROM account WHERE id = ?", (account_id,))
    account_sender = row[0] if row is not None else None
    return [
        *dict.fromkeys(
            get_limit_name(pick_sms_sender(account_sender, addresses.inspect_number(number).country))
            for number in recipients
        )
    ]


def find_sms_problems(account: Account, transport: str) -> list[tuple[str, str]]:
    """Return a list with (field, text) if a missing sender prevents all SMS of an account, else an empty list."""
    settings = config.current().sms
    has_sender = account.sms_from or settings.twilio.from_ or settings.country_senders
    if transport == "capture" or has_sender or allows_no_sender(transport):
        return []
    return [("base", gettext(_LACKS_SENDER))]


def find_sms_fault(account: Account, number: str, transport: str) -> str | None:
    """Return why the account has no sender for SMS to a number, or None if it has one or needs none."""
    if transport == "capture" or resolve_sms(account, number):
        return None
    country = addresses.inspect_number(number).country
    if country in _NUMBER_ONLY_COUNTRIES and pick_sms_sender(account.sms_from, None, transport):
        return gettext(_NUMBER_REQUIRED, country=country)
    return None if allows_no_sender(transport) else gettext(_LACKS_SENDER)


def find_sms_advice(account: Account, countries: set[str], hint: str | None, real: bool) -> list[tuple[str, str]]:
    """Return (code, text) of advice about an account's senders of SMS to these countries.

    `hint` is the opt-out hint: a hint that asks for a reply needs a sender that can be replied to. `real` means that
    the transport delivers SMS instead of capturing them. Networks in the United States block unregistered senders.
    """
    advice: list[tuple[str, str]] = []
    senders = {country: pick_sms_sender(account.sms_from, country) for country in sorted(countries)}
    named = sorted(country for country, sender in senders.items() if sender and addresses.is_sender_name(sender))
    if named and hint and "://" not in hint:
        text = gettext(
            "the opt-out text asks for a reply, but recipients cannot reply to %(sender)s: %(countries)s",
            sender=senders[named[0]], countries=", ".join(named),
        )  # fmt: skip
        advice.append(("sms_sender_one_way", text))
    countries_without_sender = [country for country, sender in senders.items() if not sender]
    if real and countries_without_sender and not pick_sms_sender(account.sms_from, None):
        advice.append(
            (
                "sms_sender_missing",
                gettext(_PROVIDER_CHOOSES if allows_no_sender(config.current().sms.transport) else _LACKS_SENDER),
            )
        )
    elif real and countries_without_sender:
        advice.append(("sms_sender_missing", gettext(_NUMBER_REQUIRED, country=", ".join(countries_without_sender))))
    american = next((sender for country, sender in senders.items() if country in US_COUNTRIES and sender), None)
    if real and american and fetch_one(_DELIVERED_TO_US, (account.id,)) is None:
        advice.append(("sms_unregistered", _describe_registration(american)))
    return advice


def _describe_registration(sender: str) -> str:
    """Return a text that says how a sender must be registered before networks in the United States deliver its SMS."""
    if sender.startswith("+") and addresses.inspect_number(sender).type == "toll_free":
        text = gettext_noop("networks in the US block SMS of unknown senders: verify %(sender)s as a toll-free number")
    elif sender.startswith("+"):
        text = gettext_noop(
            "networks in the US block SMS of unknown senders: register %(sender)s (10DLC: brand and campaign)"
        )
    else:
        text = gettext_noop(
            "networks in the US block SMS of unknown senders: lease %(sender)s and have it approved as a short code"
        )
    return gettext(text, sender=sender)


@lru_cache(8)
def _parse_country_senders(lines: tuple[str, ...]) -> dict[str, str]:
    return {line[:2].upper(): line[3:].strip() for line in lines}


# Warm-up: in direct delivery a new domain sends few messages a day, and more after each successful day. Servers trust a
# domain that begins with little wanted mail and increases it slowly; they reject sudden large volumes (D22). Days begin
# at midnight UTC. A bounce counts on the day on which it arrives.

DAILY_CAPS = (50, 100, 200, 400, 700, 1_000, 1_500, 2_500, 4_000, 6_000, 9_000, 13_000, 20_000)
# Conditions for a larger quota the next day: the used share of the quota, and the shares of hard bounces, rejections
# and complaints.
_MIN_USED_SHARE, _MAX_HARD_SHARE, _MAX_REFUSED_SHARE, _MAX_COMPLAINT_SHARE = 0.6, 0.02, 0.05, 0.001
# After this many days without a message a domain starts the warm-up again, because servers forget its reputation.
_RESTART_AFTER_DAYS = 30


class WarmUpDay(NamedTuple):
    """One day in the warm-up of a domain, with the counts of that day."""

    domain: str
    day: int  # days since 1970 UTC
    step: int  # index of `DAILY_CAPS`; after the warm-up, the length of `DAILY_CAPS`
    cap: int  # the day's quota of messages; 0 is unlimited
    accepted: int
    hard: int = 0  # hard bounces
    refused: int = 0  # rejections for reasons of policy or reputation
    complaints: int = 0

    @property
    def ends_at(self) -> int:
        """Return the time at which the next day begins, in milliseconds since 1970 UTC."""
        return (self.day + 1) * clock.DAY_MS

    def was_successful(self) -> bool:
        """Return whether the next day may have a larger quota."""
        return (
            self.accepted >= _MIN_USED_SHARE * self.cap
            and self.hard < _MAX_HARD_SHARE * (self.accepted + self.hard)
            and self.refused < _MAX_REFUSED_SHARE * (self.accepted + self.refused)
            and self.complaints < max(_MAX_COMPLAINT_SHARE * self.accepted, 1)
        )


_DAY_COLUMNS = ", ".join(WarmUpDay._fields)


def get_day_number() -> int:
    """Return the number of days from 1970 to today (UTC)."""
    return clock.now_ms() // clock.DAY_MS


def get_or_create_today(domain: str) -> WarmUpDay:
    """Return today's warm-up day of a domain; the first call of a day creates it, with the step of `get_next_step`."""
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
    """Return the step of a domain on `day` (days since 1970 UTC), an index of `DAILY_CAPS`.

    Its length means no limit. `before` is the domain's latest day. The result is the step of that day, plus 1 if the
    day was successful, or 0 after a gap of more than `_RESTART_AFTER_DAYS` days.
    """
    if day - before.day > _RESTART_AFTER_DAYS:
        return 0
    if before.step >= len(DAILY_CAPS) or day <= before.day or not before.was_successful():
        return before.step
    return before.step + 1


def get_account_domains(account_id: int) -> set[str]:
    """Return the domains that an account sends from; an account may see the warm-up of these domains only."""
    sender_rows = rows(
        "SELECT '@' || name FROM sending_domain WHERE account_id = ?1 UNION SELECT email_from_email FROM account "
        "WHERE id = ?1 UNION SELECT json_extract(sender, '$.email') FROM campaign WHERE account_id = ?1",
        (account_id,),
    )
    return {domain_of(row[0]) for row in sender_rows if row[0]}


def list_warm_up_days(account_id: int) -> list[WarmUpDay]:
    """Return the last warm-up day of each domain of an account that is still warming up, in order of domain."""
    own_domains = get_account_domains(account_id)
    day_rows = rows(
        f"SELECT {_DAY_COLUMNS} FROM warm_up_day w WHERE step < ? AND day > ? "
        "AND day = (SELECT max(day) FROM warm_up_day WHERE domain = w.domain) ORDER BY domain",
        (len(DAILY_CAPS), get_day_number() - _RESTART_AFTER_DAYS),
    )
    return [WarmUpDay(*row) for row in day_rows if row[0] in own_domains]


def estimate_end(day: WarmUpDay, remaining: int) -> int | None:
    """Return the start of the day on which the last of `remaining` messages can be sent, or None if that is today.

    All days are assumed to be successful. The result is in milliseconds since 1970 UTC.
    """
    remaining -= max(0, day.cap - day.accepted) if day.cap else remaining
    day_number, step = day.day, day.step
    while remaining > 0:
        day_number, step = day_number + 1, step + 1
        remaining -= DAILY_CAPS[step] if step < len(DAILY_CAPS) else remaining
    return day_number * clock.DAY_MS if day_number > day.day else None


def describe_full_day(day: WarmUpDay) -> str:
    """Return a text: the domain has used up its quota of today, on this day of its warm-up."""
    return gettext(
        "today's %(cap)s messages from %(domain)s are sent (day %(day)s of %(days)s of its warm-up)",
        cap=day.cap, domain=day.domain, day=day.step + 1, days=len(DAILY_CAPS),
    )  # fmt: skip


def format_day(ms: int) -> str:
    """Return the UTC date of a time in milliseconds, such as `5 March`."""
    return i18n.format_date(datetime.fromtimestamp(ms / 1000, UTC), "MMMMd")


# The functions below are called in the transaction that records outcomes.


def get_warm_up_name(row: LedgerRow, sender: str) -> str | None:
    """Return the name of the warm-up that a message counts towards: its From domain, or `via` and its transport.

    The first is that of direct delivery, the second that of a further transport. None if it has no warm-up.
    """
    if row.test or row.channel != "email":
        return None
    if row.provider == DIRECT:
        return domain_of(sender)
    named = transports.find_named(row.provider, config.current().email)
    return get_transport_limit_name(row.provider) if named is not None and named.warm_up else None


def get_transport_limit_name(key: str) -> str:
    """Return the name of the limits and of the warm-up of a transport."""
    return f"via {key}"


def count_warm_up_sent(counts: Mapping[tuple[str, int], int]) -> None:
    """Add numbers of accepted messages by name (`get_warm_up_name`) and day (UTC, since 1970) to the warm-up rows.

    Names without a row for a day are not warming up; their numbers are left out.
    """
    require_write_transaction()
    for (domain, day), count in counts.items():
        run("UPDATE warm_up_day SET accepted = accepted + ? WHERE domain = ? AND day = ?", (count, domain, day))


def count_warm_up_failure(row: LedgerRow, column: str, sender: str | None = None) -> None:
    """Add one to a column of today's warm-up day of a message: `hard`, `refused` or `complaints`.

    Test messages and those without a warm-up do not count. `sender` defaults to the sender in the ledger.
    """
    require_write_transaction()
    if row.channel != "email" or row.test:
        return
    if row.provider == DIRECT and not sender:
        sender = scalar("SELECT sender FROM message WHERE id = ?", (row.id,))
    name = get_warm_up_name(row, sender or "")
    if name is not None:
        run(f"UPDATE warm_up_day SET {column} = {column} + 1 WHERE domain = ? AND day = ?", (name, get_day_number()))
