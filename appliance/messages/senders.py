"""From whom a message is, and what stands in the way of that (decisions, section 6, Sender)."""

from appliance import brand as brands
from appliance import config
from appliance.tables import Account, SendingDomain


def resolve(account: Account, chosen: str | None) -> str:
    """Answer the From address: the chosen one, the account's, or hello@ of the first verified domain."""
    return chosen or account.email_from_email or _hello(account.id)


def problems(account: Account, address: str, transport: str, marketing: bool) -> list[tuple[str, str]]:
    """Answer (field, words) for everything that forbids this sender on a transport that leaves the machine."""
    if transport == "capture":
        return []
    found = []
    domain = address.rpartition("@")[2]
    if not config.current().email.allow_unverified_domains and not _verified(account.id, domain):
        found.append(("from_email", f"{domain} is not verified as yours"))
    if marketing and not (brands.get(account.id).physical_address or "").strip():
        found.append(("base", "the law wants a postal address: add it to the brand"))
    return found


def _hello(account_id: int) -> str:
    domain = (
        SendingDomain.select()
        .where(SendingDomain.account == account_id, SendingDomain.status == "verified")
        .order_by(SendingDomain.id)
        .first()
    )
    return f"hello@{domain.name}" if domain else "hello@campanero.invalid"


def _verified(account_id: int, name: str) -> bool:
    return bool(
        SendingDomain.select()
        .where(
            SendingDomain.account == account_id, SendingDomain.name == name.lower(),
            SendingDomain.status == "verified",
        )
        .exists()
    )  # fmt: skip
