"""Where mail of a From domain comes back to."""

from appliance.sending.domains import keys, look
from appliance.storage.models import SendingDomain


def bounce_host(domain_name: str) -> str:
    """Return the host of a domain that takes what comes back."""
    return f"bounce.{domain_name}"


def host(account_id: int, domain_name: str) -> str | None:
    """Return the host that takes returned mail for a From domain of an account, if its MX record was there when last
    looked for: the domain's own, else that of a domain above it, which SPF is aligned with too."""
    names = keys.with_parents(domain_name)
    found = SendingDomain.select(SendingDomain.name, SendingDomain.dns_records).where(
        SendingDomain.account == account_id, SendingDomain.enabled, SendingDomain.name.in_(names)
    )
    hosts = [bounce_host(one.name) for one in found if _is_seen(one)]
    return max(hosts, key=len, default=None)


def _is_seen(domain: SendingDomain) -> bool:
    """Return whether the record is there; while DNS cannot be asked that is so if it was there before."""
    wanted = ("MX", bounce_host(domain.name))
    seen = [one for one in domain.dns_records or [] if (one.get("record_type"), one.get("name")) == wanted]
    return any(
        one.get("valid") == "valid"
        or (one.get("valid") == "unknown" and look.leads_only_to(one.get("value", ""), one.get("found") or []))
        for one in seen
    )
