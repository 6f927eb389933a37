"""Queue the emails of the service itself: confirmations of an address, password resets, and invitations of users.

They have the look of the brand and contain no text that a stranger entered (docs/threats.md, T36). They are not
marketing: they have no list headers and no tracking, and need no consent.
"""

from typing import Any, NamedTuple

from appliance.accounts import audit, invitations, members, passwords, users
from appliance.accounts.audit import Actor
from appliance.core import addresses, clock, signals
from appliance.core.addresses import Address
from appliance.core.i18n import format_number, get_language_tag, gettext, ngettext, use_language
from appliance.sending.messages import ledger, senders
from appliance.sending.messages.ledger import DUE_NOW
from appliance.settings import config
from appliance.storage.models import Account, ApiKey, Invitation, Message, MessageContent, User
from appliance.storage.transactions import after_commit, require_write_transaction

RESET_PURPOSE, RESET_LINK_MS = "reset", 30 * 60 * 1000
# Headers against automatic replies (RFC 3834, section 5).
_HEADERS = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
_SIGNATURE = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"


class SystemEmail(NamedTuple):
    """The content of a system email, which may have merge tags for `data`; `link` is the URL of the button.

    `language` is the tag of its language, None for the account's.
    """

    subject: str
    heading: str
    text: str
    button: str
    link: str
    note: str
    language: str | None = None


def queue_system_email(
    account: Account, address: Address, contact_id: int | None, content: SystemEmail, data: dict[str, Any]
) -> Message:
    """Queue a system email and return its message, which is `skipped` if the account's sender is not ready.

    `data` are the values for merge tags.
    """
    require_write_transaction()
    now, transport = clock.now_ms(), config.current().email.transport
    sender = senders.resolve_email(account, None)
    is_ready = not senders.find_email_problems(account, sender, transport, marketing=False)
    message = Message.create(
        account=account, contact=contact_id, channel="email", recipient=address.value, recipient_key=address.key,
        sender=sender, subject=None, status="queued" if is_ready else "skipped",
        skip_reason=None if is_ready else "sender_not_ready",
        source_type="system", transactional=True, provider=transport,
        due_at=DUE_NOW if is_ready else None, created_at=now, updated_at=now,
    )  # fmt: skip
    MessageContent.create(
        message=message,
        subject=content.subject,
        headers=_HEADERS,
        data=data,
        design=_build_design(content),
        language=content.language,
    )
    after_commit(lambda: signals.wake("outbox"))
    return message


def _build_design(content: SystemEmail) -> dict[str, Any]:
    sections: list[tuple[str, dict[str, Any]]] = [
        ("header", {}),
        ("heading", {"text": content.heading, "level": 1}),
        ("text", {"content": f"<p>{content.text}</p>"}),
        ("button", {"text": content.button, "href": content.link}),
        ("text", {"content": f"<p>{content.note}</p>", "size": 13}),
        ("text", {"content": f"<p>{_SIGNATURE}</p>", "size": 13}),
    ]
    return {"sections": [{"type": kind, "props": props} for kind, props in sections], "theme": {}}


# The link of a password reset works once, within half an hour. It is never stored: it is built when the email is sent
# (`fill_secrets`) and verified by its signature.
def _build_reset_email() -> SystemEmail:
    return SystemEmail(
        subject=gettext("Choose a new password"),
        heading=gettext("Choose a new password"),
        text=gettext(
            "A new password was requested for %(email)s. Your current password works until you choose another one.",
            email="{{ data.email }}",
        ),
        button=gettext("Choose a new password"),
        link="{{ data.link }}",
        note=ngettext(
            "The link works once, for %(num)s minute. If you did not request it, ignore this email.",
            "The link works once, for %(num)s minutes. If you did not request it, ignore this email.",
            RESET_LINK_MS // 60_000,
        ),
        language=get_language_tag(),
    )


def can_reset_password() -> bool:
    """Return whether passwords can be reset by email.

    The result is False with the capture transport, because all users can read captured emails.
    """
    return config.current().email.transport != "capture"


def request_password_reset(email: str, ip: str | None) -> None:
    """Queue the email for a password reset, in the user's language, and enter the request in the audit log.

    Do nothing if no enabled user has this address, or if passwords cannot be reset by email (`can_reset_password`).
    `ip` is the client's address for the audit log.
    """
    require_write_transaction()
    try:
        address = addresses.parse_email(email)
    except ValueError:
        return
    user = users.find_by_email(address.key)
    if user is None or user.member is None or not can_reset_password():
        return
    # The stored email links to the page where a reset is requested; the link to reset is filled in when it is sent.
    forgot_url = f"{config.base_url(config.current())}/forgot"
    with use_language(users.choose_language(user, user.account)):
        content = _build_reset_email()
    data = {ledger.RESET_USER_KEY: user.id, "email": user.email, "link": forgot_url}
    queue_system_email(user.account, addresses.parse_email(user.email), None, content, data)
    members.record_for_person(Actor(audit.SYSTEM, ip), user.id, "password_reset_asked")


# The owners are told about the limit of a key at most this often.
_NOTICE_INTERVAL_MS = clock.DAY_MS


def report_submission_limit(key_id: int, limit: int) -> None:
    """Queue an email to the owners of an account about an API key that reached its hourly limit of SMTP recipients.

    A key is reported once a day.
    """
    require_write_transaction()
    key, now = ApiKey.get_by_id(key_id), clock.now_ms()
    if key.smtp_limit_notice_at is not None and 0 <= now - key.smtp_limit_notice_at < _NOTICE_INTERVAL_MS:
        return
    ApiKey.update(smtp_limit_notice_at=now).where(ApiKey.id == key_id).execute()
    data = {"key": key.name, "link": f"{config.base_url(config.current())}/settings/keys"}
    for user in members.list_active(key.account_id, ("owner",)):
        with use_language(users.choose_language(user, user.account)):
            content = _build_limit_email(limit)
        queue_system_email(user.account, addresses.parse_email(user.email), None, content, data)


def _build_limit_email(limit: int) -> SystemEmail:
    return SystemEmail(
        subject=gettext("SMTP limit reached: %(name)s", name="{{ data.key }}"),
        heading=gettext("An app reached its sending limit"),
        text=gettext(
            "The app with the API key “%(name)s” sent to %(limit)s recipients by SMTP within an hour. Further emails "
            "are rejected until the hour is over.",
            name="{{ data.key }}",
            limit=format_number(limit),
        ),
        button=gettext("Open API keys"),
        link="{{ data.link }}",
        note=gettext(
            "If you did not expect this, the app may have been hacked: revoke the key. If the app needs to send more, "
            "create a key with a higher limit."
        ),
        language=get_language_tag(),
    )


def can_email_invitation(account: Account) -> bool:
    """Return whether an invitation by email would be delivered.

    The result is False with the capture transport, and if the account has no valid sender.
    """
    transport = config.current().email.transport
    sender = senders.resolve_email(account, None)
    return transport != "capture" and not senders.find_email_problems(account, sender, transport, marketing=False)


def _build_invitation_email(days: int) -> SystemEmail:
    return SystemEmail(
        subject=gettext("%(name)s invites you to %(account)s", name="{{ data.sender }}", account="{{ data.account }}"),
        heading=gettext("Join %(account)s on Campanero", account="{{ data.account }}"),
        text=gettext(
            "%(name)s (%(email)s) invites you to the team of %(account)s. Set your name and a password to sign in.",
            name="{{ data.sender }}",
            email="{{ data.sender_email }}",
            account="{{ data.account }}",
        ),
        button=gettext("Accept invitation"),
        link="{{ data.link }}",
        note=ngettext(
            "The link works once, for %(num)s day. If you did not expect this invitation, ignore this email.",
            "The link works once, for %(num)s days. If you did not expect this invitation, ignore this email.",
            days,
        ),
        language=get_language_tag(),
    )


def send_invitation(invitation: Invitation) -> bool:
    """Queue the email of an invitation in the account's language; return False if no email can be sent, else True."""
    require_write_transaction()
    account = Account.get_by_id(invitation.account_id)
    if not can_email_invitation(account):
        return False
    sender = User.get_by_id(invitation.invited_by_id)
    with use_language(users.choose_language(None, account)):
        content = _build_invitation_email(invitations.valid_days(invitation))
    # The stored email links to the sign-in page; the link to accept is filled in when it is sent.
    data = {
        ledger.INVITATION_KEY: invitation.id, "sender": sender.name, "sender_email": sender.email,
        "account": account.name, "link": f"{config.base_url(config.current())}/login",
    }  # fmt: skip
    queue_system_email(account, addresses.parse_email(invitation.email), None, content, data)
    return True


def find_reset_user(token: str) -> User | None:
    """Return the user of a reset link's token, or None if the token is invalid, expired or used."""
    return passwords.find_token_user(RESET_PURPOSE, token)


def reset_password(token: str, password_hash: str, ip: str | None) -> User | None:
    """Set the password of a reset link's user, and return the user, or None if the token is invalid, expired or used.

    This invalidates the link and ends all sessions of the user.
    """
    require_write_transaction()
    user = find_reset_user(token)
    if user is None:
        return None
    actor = Actor(f"user:{user.id}", ip, user.id)
    updated = users.reset_password(user.id, password_hash, actor)
    members.record_for_person(actor, user.id, "password_reset_done")
    return updated


# The link of a password reset or an invitation is inserted when the email is sent, and is never stored or shown.
# Otherwise anyone who may read the messages of an account could choose a new password for its owner, or join as admin.


def fill_secrets(message: Message, data: dict[str, Any]) -> dict[str, Any]:
    """Return the merge tag values `data` of a message, with the `link` of a password reset or an invitation added.

    The link is the same at every attempt. It is left out for a captured message, for a disabled or deleted user, and
    for an invitation that was revoked, accepted or has expired.
    """
    user_id, invitation_id = data.get(ledger.RESET_USER_KEY), data.get(ledger.INVITATION_KEY)
    if message.source_type != "system" or message.provider == "capture":
        return data
    if invitation_id is not None:
        invitation = invitations.find_by_id(invitation_id)
        return data if invitation is None else {**data, "link": invitations.build_link(invitation)}
    if user_id is None:
        return data
    user = User.get_or_none(User.id == user_id)
    if user is None or not members.list_of(user.id):
        return data
    secret = passwords.create_token(RESET_PURPOSE, user, message.created_at + RESET_LINK_MS)
    return {**data, "link": f"{config.base_url(config.current())}/reset/{secret}"}
