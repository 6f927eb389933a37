"""What domains said about encryption of their mail, kept for as long as they said, over restarts too."""

from appliance.core import clock
from appliance.sending.delivery.mta_sts import Policy
from appliance.storage.models import MailPolicy
from appliance.storage.work import writing


def load(domain: str) -> Policy | None:
    """Return the policy of a domain that holds yet; its `max_age` is what is left of it."""
    row = MailPolicy.get_or_none(MailPolicy.domain == domain, MailPolicy.expires_at > clock.now_ms())
    if row is None:
        return None
    return Policy(row.policy_id, row.mode, tuple(row.hosts), (row.expires_at - clock.now_ms()) // 1000)


def keep(domain: str, policy: Policy) -> None:
    """Keep a policy in place of the one before, and drop those whose time is over."""
    writing()
    now = clock.now_ms()
    MailPolicy.delete().where(MailPolicy.expires_at <= now).execute()
    MailPolicy.delete().where(MailPolicy.domain == domain).execute()
    MailPolicy.create(
        domain=domain, policy_id=policy.id, mode=policy.mode, hosts=list(policy.hosts), fetched_at=now,
        expires_at=now + policy.max_age * 1000,
    )  # fmt: skip
