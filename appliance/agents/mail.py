"""The email that tells users about new proposals. It contains no text of the agent."""

from appliance.accounts import access, members, users
from appliance.core import addresses, clock
from appliance.core.i18n import get_language_tag, gettext, use_language
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage.database import scalar
from appliance.storage.models import Proposal
from appliance.storage.transactions import require_write_transaction

# Proposals that follow sooner are not announced one by one: the page and the navigation show them.
MAIL_INTERVAL_MS = 15 * 60_000


def tell_deciders(row: Proposal) -> None:
    """Queue the email to the users who may decide about a proposal, at most one for the account in a while."""
    require_write_transaction()
    now, account = clock.now_ms(), row.account
    last = scalar("SELECT max(mailed_at) FROM proposal WHERE account_id = ?", (account.id,))
    if last is not None and 0 <= now - last < MAIL_INTERVAL_MS:
        return
    row.mailed_at = now
    row.save(only=[Proposal.mailed_at])
    needed = "campaigns:approve" if account.approval_required else "campaigns:send"
    roles = access.list_roles_with(account.id, needed)
    data = {"agent": row.key.name, "link": f"{config.base_url(config.current())}/proposals/{row.id}"}
    for user in members.list_active(account.id, roles):
        with use_language(users.choose_language(user, account)):
            content = _build_email()
        system_emails.queue_system_email(account, addresses.parse_email(user.email), None, content, data)


def _build_email() -> SystemEmail:
    return SystemEmail(
        subject=gettext("%(name)s has a proposal for you", name="{{ data.agent }}"),
        heading=gettext("A proposal is waiting for you"),
        text=gettext(
            "The agent “%(name)s” proposes a change. Nothing is sent or changed until a user approves it.",
            name="{{ data.agent }}",
        ),
        button=gettext("Review proposal"),
        link="{{ data.link }}",
        note=gettext("If you did not expect this, stop all agents on the page “Proposals”."),
        language=get_language_tag(),
    )
