"""Templates that agents wrote and no user has taken over: agents change them, and programs send none of them.

A user takes over a template as the page showed it, or by a change over the API (docs/decisions.md#25).
"""

from collections.abc import Callable
from typing import Any, TypeVar

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.content.templates import store
from appliance.core import clock
from appliance.storage.database import run, scalar
from appliance.storage.models import Template
from appliance.storage.transactions import require_write_transaction

Row = TypeVar("Row")
_WAS_SENT = "SELECT EXISTS (SELECT 1 FROM message WHERE template_id = ? AND test = 0)"
# Whether the campaign or flow of a template is a draft that no user has approved, sent or started.
_IS_DRAFT = (
    "SELECT EXISTS (SELECT 1 FROM flow f JOIN account a ON a.id = f.account_id "
    "LEFT JOIN campaign c ON c.flow_id = f.id WHERE f.id = ? "
    "AND CASE WHEN c.id IS NULL THEN f.status = 'draft' AND f.version = 0 ELSE c.phase = 'draft' END "
    "AND NOT (a.approval_required AND coalesce(c.approval_state, f.approval_state) = 'approved'))"
)
_MARK = "UPDATE template SET agent = ? WHERE flow_id = ? AND updated_at >= ?"


def was_sent(template_id: int) -> bool:
    """Return whether a message that is not a test was sent with a template, or is to be sent."""
    return bool(scalar(_WAS_SENT, (template_id,)))


def is_open_to_agents(template: Template) -> bool:
    """Return whether an agent wrote a template and may change it, so that no user has seen what it says now.

    A template of a campaign or flow counts as seen once a user has approved, sent or started it. Until then an agent
    may change it, even if a program has sent it before.
    """
    if not template.agent:
        return False
    return not was_sent(template.id) if template.flow_id is None else bool(scalar(_IS_DRAFT, (template.flow_id,)))


def take_over(account_id: int, template_id: int, revision: int | None = None) -> Template:
    """Hand an agent's template to the team, so that programs may send it; agents then propose its changes.

    In the draft of a campaign or flow, agents may change it still, and it is theirs again then. Raises NotFound, and
    Conflict if it is not at the `revision` that the user has seen.
    """
    require_write_transaction()
    template = store.get(account_id, template_id)
    store.require_unchanged(template, revision=revision)
    mark(template, False)
    return template


def mark(template: Template, is_of_agent: bool) -> None:
    """Store whether an agent wrote the content of a template."""
    require_write_transaction()
    template.agent = is_of_agent
    template.save(only=[Template.agent])


def run_and_mark(by: Actor, action: str, function: Callable[..., Row], *arguments: Any) -> Row:
    """Call a function that changes a campaign or flow as `audit.run_and_record_agent` does, and return its row.

    Store of each template that it has changed or created whether an agent did that.
    """
    require_write_transaction()
    began_at = clock.now_ms()
    row: Any = audit.run_and_record_agent(by, action, function, *arguments)
    flow_id = row.flow_id if action.startswith("campaign_") else row.id
    run(_MARK, (by.is_agent, flow_id, began_at))
    return row  # type: ignore[no-any-return]  # Row is what the function returned
