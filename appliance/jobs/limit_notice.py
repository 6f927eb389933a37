"""Email the owners of an account that 80 % or 100 % of a limit of the account is used."""

from appliance.accounts import limits, members, users
from appliance.accounts.limits import LimitUse
from appliance.core import addresses, i18n
from appliance.core.i18n import gettext
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account
from appliance.storage.transactions import require_write_transaction


def notify_owners() -> None:
    """Queue the emails that are due: one for each account and owner, about all limits of the account together."""
    for (account_id,) in rows("SELECT id FROM account WHERE limits NOT NULL AND closed_at IS NULL ORDER BY id"):
        if limits.list_notices(account_id):
            transactions.write(_queue_emails, account_id)


def _queue_emails(account_id: int) -> None:
    require_write_transaction()
    account, uses = Account.get_by_id(account_id), limits.list_notices(account_id)
    for owner in members.list_active(account_id, ("owner",)):
        with i18n.use_language(users.choose_language(owner, account)):
            email = _build_email(uses)
        data = {"name": account.name}
        system_emails.queue_system_email(account, addresses.parse_email(owner.email), None, email, data)
    limits.mark_told(account_id, uses)


def _build_email(uses: list[LimitUse]) -> SystemEmail:
    is_reached = any(use.share >= 1 for use in uses)
    heading = (
        gettext("A limit of your account is reached") if is_reached else gettext("A limit of your account is near")
    )
    return SystemEmail(
        subject=f"{heading}: {{{{ data.name }}}}",
        heading=heading,
        text=" ".join(limits.describe(use) for use in uses),
        button=gettext("Open Campanero"),
        link=config.base_url(config.current()),
        note=gettext("The operator of this installation set the limit and can raise it."),
        language=i18n.get_language_tag(),
    )
