"""From whom a message is, and what stands in the way of that (docs/decisions.md#6, Sender)."""

from typing import NamedTuple

from appliance.content import brand as brands
from appliance.sending.delivery import groups
from appliance.sending.domains import records
from appliance.sending.domains import store as domains
from appliance.settings import config
from appliance.storage.models import Account
from appliance.storage.open import rows


def resolve(account: Account, chosen: str | None) -> str:
    """Return the From address: the chosen one, the account's, or hello@ of the first verified domain."""
    return chosen or account.email_from_email or _hello(account.id)


class Offered(NamedTuple):
    """An address that mail may come from, and whether its domain is verified."""

    address: str
    is_verified: bool


def offered(account: Account) -> list[Offered]:
    """Return the addresses to choose from: of verified domains first, then what was used last."""
    used = [
        row[0]
        for row in rows(
            "SELECT from_email FROM template WHERE account_id = ? AND from_email IS NOT NULL "
            "GROUP BY lower(from_email) ORDER BY max(updated_at) DESC LIMIT 8",
            (account.id,),
        )
    ]
    found = dict.fromkeys(one for one in (resolve(account, None), *used) if not one.endswith("@campanero.invalid"))
    known = [Offered(one, domains.is_verified(account.id, records.of_address(one))) for one in found]
    return sorted(known, key=lambda one: not one.is_verified)


def problems(account: Account, address: str, transport: str, marketing: bool) -> list[tuple[str, str]]:
    """Return (field, words) for everything that forbids this sender on a transport that leaves the machine."""
    if transport == "capture":
        return []
    found = []
    domain = records.of_address(address)
    if not config.current().email.allow_unverified_domains and not domains.is_verified(account.id, domain):
        found.append(("from_email", f"{records.show_domain(domain)} is not verified as yours"))
    if marketing and not (brands.get(account.id).physical_address or "").strip():
        found.append(("base", "the law wants a postal address: add it to the brand"))
    return found


def advice(account_id: int, address: str, real: bool) -> list[tuple[str, str]]:
    """Return (code, words) of what is not right with the domain of a sender that may be used all the same."""
    name = records.of_address(address)
    if not domains.is_verified(account_id, name):
        if real and not config.current().email.allow_unverified_domains:
            return []  # which is a problem
        if real and groups.is_shared(name):
            who = f"{name} belongs to its provider"
            return [("domain_unverified", f"{who}: mail in its name is refused, or taken for spam, from other servers")]
        why = "receivers may take it for spam" if real else "mail that leaves needs that"
        return [("domain_unverified", f"{records.show_domain(name)} is not verified as yours: {why}")]
    attention = domains.attention(account_id, name)
    return [("domain_attention", f"DNS of {records.show_domain(name)}: {attention}")] if attention else []


def is_lost(account_id: int, address: str) -> bool:
    """Return whether mail from an address has to stop because its domain failed, on a real transport."""
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return False
    return domains.has_failed(account_id, records.of_address(address))


def may_not_leave(account_id: int, address: str) -> bool:
    """Return whether mail from an address has to wait on a real transport: its domain failed, or was deleted since."""
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return False
    return not domains.is_verified(account_id, records.of_address(address))


def _hello(account_id: int) -> str:
    return f"hello@{domains.first_verified(account_id) or 'campanero.invalid'}"
