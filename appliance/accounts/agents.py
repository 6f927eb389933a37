"""Agents: API keys of AI assistants, which read, draft and propose, and whose acts users decide (docs/decisions.md#25).

What the key of an agent may be is decided in `access.py`, which endpoints it reaches by their declarations
(`agent_scope`), and what it may change here and in the modules that change it. Proposals are in `appliance/agents/`.
"""

from collections import deque
from typing import Any, NamedTuple

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import NotAllowed, RateLimitExceeded
from appliance.core.i18n import gettext, gettext_noop
from appliance.settings import config
from appliance.storage.database import rows, scalar
from appliance.storage.models import Account, ApiKey
from appliance.storage.transactions import require_write_transaction

DRAFTS_ONLY = gettext_noop("An agent changes drafts only. Propose the change, so that a user can decide.")
NO_STATUS = gettext_noop("An agent cannot change the status. Propose it, so that a user can decide.")


def require_draft(row: Any, by: Actor, is_draft: bool) -> None:
    """Raise NotAllowed if an agent would change a campaign or flow that is not a draft, or was or is to be approved.

    `is_draft` is whether the status of the row is `draft`. Other actors are not restricted.
    """
    if not by.is_agent:
        return
    is_approved = row.account.approval_required and row.approval_state == "approved"
    if not is_draft or is_approved or row.asked_at is not None:
        raise refuse_change()


def refuse_change() -> NotAllowed:
    """Return the error for an agent that would change what is live, scheduled or in use."""
    return NotAllowed(gettext(DRAFTS_ONLY), reason="agent_drafts_only")


# The switch that stops all agents of an account. It is read with every request.


def is_stopped(account_id: int) -> bool:
    """Return whether the agents of an account are stopped."""
    return bool(scalar("SELECT agents_stopped_at IS NOT NULL FROM account WHERE id = ?", (account_id,)))


def set_stopped(account_id: int, is_stopped: bool, by: Actor) -> Account:
    """Stop all agents of an account, or resume them; it takes effect with the next request of each agent.

    Does nothing if they are in that state already.
    """
    require_write_transaction()
    account = Account.get_by_id(account_id)
    if (account.agents_stopped_at is not None) != is_stopped:
        account.agents_stopped_at = clock.now_ms() if is_stopped else None
        account.save(only=[Account.agents_stopped_at])
        audit.record(by, account_id, "agents_stop" if is_stopped else "agents_resume", f"account:{account_id}")
    return account


# The limit of acts: writes of one agent within an hour. The acts of a process are counted in memory, together with
# those that the audit log has from before its start.

HOUR_MS = 3_600_000
_MAX_COUNTED_AGENTS = 10_000
_acts: dict[str, deque[int]] = {}


def take_act(account_id: int, actor: str) -> None:
    """Count an act of an agent (`key:3`); raises RateLimitExceeded above `limits.agent_acts_per_hour`.

    Call it on the event loop only, because there is no lock. An act that fails counts too.
    """
    acts, limit, now = _get_acts(account_id, actor), config.current().limits.agent_acts_per_hour, clock.now_ms()
    if len(acts) >= limit:
        seconds = max(1, -(-(acts[-limit] + HOUR_MS - now) // 1000))
        raise RateLimitExceeded(
            gettext("An agent may make %(limit)s changes an hour.", limit=limit), seconds, reason="agent_acts",
            limit=limit,
        )  # fmt: skip
    acts.append(now)


def _get_acts(account_id: int, actor: str) -> deque[int]:
    now = clock.now_ms()
    acts = _acts.get(actor)
    if acts is None:
        if len(_acts) >= _MAX_COUNTED_AGENTS:
            _acts.clear()
        sql = "SELECT created_at FROM audit WHERE account_id = ? AND created_at > ? AND actor = ? ORDER BY created_at"
        acts = _acts[actor] = deque(row[0] for row in rows(sql, (account_id, now - HOUR_MS, actor)))
    while acts and not now - HOUR_MS < acts[0] <= now:
        acts.popleft()
    return acts


class AgentState(NamedTuple):
    """The API key of an agent, and the number of its acts (writes) in the last hour."""

    key: ApiKey
    acts: int


def list_agents(account_id: int) -> list[AgentState]:
    """Return the agents of an account whose keys are not revoked, newest first."""
    keys = ApiKey.select().where(ApiKey.account == account_id, ApiKey.agent, ApiKey.revoked_at.is_null())
    sql = "SELECT count(*) FROM audit WHERE account_id = ? AND created_at > ? AND actor = ?"
    since = clock.now_ms() - HOUR_MS
    return [
        AgentState(key, int(scalar(sql, (account_id, since, f"key:{key.id}"))))
        for key in keys.order_by(ApiKey.id.desc())
    ]
