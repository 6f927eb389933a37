"""The words of a template over the interface: of one by itself, of a campaign's, and of a step of a flow."""

from appliance.account.acting import By
from appliance.campaigns import edit_rights
from appliance.db.work import writing
from appliance.errors import NotAllowed
from appliance.tables import Flow, Template
from appliance.templates import store as templates
from appliance.templates.requests import TemplateWrite

_TEST = "a test key changes no flow that is live for real"
_LIVE = "the flow is live: what it says is changed by those who may send"


def update(account_id: int, template_id: int, request: TemplateWrite, by: By) -> Template:
    """Change a template by whoever asks; raises as `templates.update`, and NotAllowed for what is live or armed.

    A person is noted as who wrote it last, so that nobody approves of what they wrote a moment ago with a token.
    """
    writing()
    _refuse(account_id, template_id, by)
    row = templates.get(account_id, template_id)
    if row.action_id is None:
        return templates.update(account_id, template_id, request, by.user_id)
    before = row.revision
    # As a program's: what people write in a browser waits until they publish it
    done = templates.update(account_id, template_id, request)
    if by.user_id is not None and done.revision != before:
        Flow.update(edited_by=by.user_id).where(Flow.id == row.flow_id).execute()
    return done


def _refuse(account_id: int, template_id: int, by: By) -> None:
    """Raise NotAllowed for words that people get without anybody sending them, where `by` may not send."""
    if by.test or (by.user_id is not None and not by.sends):
        live = (Flow.account == account_id) & (Flow.status == "active") & ~Flow.hidden & Flow.deleted_at.is_null()
        live &= (Template.id == template_id) & (~Flow.test if by.test else True)
        if Flow.select().join(Template, on=(Template.flow == Flow.id)).where(live).exists():
            raise NotAllowed(_TEST) if by.test else NotAllowed(_LIVE, required_scope="campaigns:send")
    edit_rights.words(account_id, template_id, by)
