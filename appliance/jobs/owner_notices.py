"""Emails to the owners of an account: a certificate could not be renewed, or a limit is nearly used up."""

from datetime import UTC, datetime

from appliance.accounts import audit, limits, members, users
from appliance.accounts.limits import LimitUse
from appliance.certificates import store
from appliance.certificates.store import State
from appliance.core import addresses, clock, i18n
from appliance.core.i18n import gettext
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account
from appliance.storage.transactions import require_write_transaction


def report_certificate(state: State) -> None:
    """Email each active owner of the first account that a certificate was not renewed, and write this to the audit log.

    The first account belongs to the operator. The emails are queued. Do nothing if there is no certificate or no
    account.
    """
    facts = store.read_facts(state)
    if facts is not None:
        transactions.write(_queue_certificate_emails, facts.not_after_ms, ", ".join(facts.host_names), state.error)


def _queue_certificate_emails(expires_at: int, names: str, reason: str) -> None:
    require_write_transaction()
    account = Account.select().order_by(Account.id).first()
    if account is None:
        return
    zone = clock.find_time_zone(account.time_zone) or UTC
    audit.insert_entry(account.id, audit.SYSTEM, "certificate_not_renewed", None, {"reason": reason})
    for owner in members.list_active(account.id, ("owner",)):
        with i18n.use_language(users.choose_language(owner, account)):
            day = i18n.format_full_date(datetime.fromtimestamp(expires_at / 1000, zone))
            email = _build_certificate_email()
        data = {"names": names, "date": day, "reason": reason}
        system_emails.queue_system_email(account, addresses.parse_email(owner.email), None, email, data)


def _build_certificate_email() -> SystemEmail:
    return SystemEmail(
        subject=gettext("The security certificate could not be renewed"),
        heading=gettext("The security certificate could not be renewed"),
        text=gettext(
            "The certificate for %(names)s expires on %(date)s. After that, browsers warn everybody who opens a page, "
            "a form or a link of an email. The certificate authority answered: %(reason)s",
            names="{{ data.names }}", date="{{ data.date }}", reason="{{ data.reason }}",
        ),
        button=gettext("Open health check"),
        link=f"{config.base_url(config.current())}/settings/doctor",
        note=gettext("Campanero keeps trying. The guide Set up HTTPS says what the certificate authority must reach."),
        language=i18n.get_language_tag(),
    )  # fmt: skip


def report_limits() -> None:
    """Queue the due emails about used limits: one to each owner of an account, about all its limits together."""
    for (account_id,) in rows("SELECT id FROM account WHERE limits NOT NULL AND closed_at IS NULL ORDER BY id"):
        if limits.list_notices(account_id):
            transactions.write(_queue_limit_emails, account_id)


def _queue_limit_emails(account_id: int) -> None:
    require_write_transaction()
    account, uses = Account.get_by_id(account_id), limits.list_notices(account_id)
    for owner in members.list_active(account_id, ("owner",)):
        with i18n.use_language(users.choose_language(owner, account)):
            email = _build_limit_email(uses)
        data = {"name": account.name}
        system_emails.queue_system_email(account, addresses.parse_email(owner.email), None, email, data)
    limits.mark_notified(account_id, uses)


def _build_limit_email(uses: list[LimitUse]) -> SystemEmail:
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
