"""Emails to a user about their own access: a sign-in on a new device, and passkeys that were added or removed.

They are sent only if email leaves the installation: all users can read what the test inbox captures. The receivers of
the signals run in the transaction of the change.
"""

import re
from datetime import UTC, datetime
from typing import Any

from appliance.accounts import devices, users
from appliance.core import addresses, clock
from appliance.core.i18n import format_clock, format_full_date, get_language_tag, gettext, name_zone, use_language
from appliance.events import user_agents
from appliance.sending.messages import senders
from appliance.sending.messages.system_emails import SystemEmail, queue_system_email
from appliance.settings import config
from appliance.storage.models import Account, Session, User

# What a User-Agent header may put into an email; other characters are left out (T36 in docs/threats.md).
_UNSAFE = re.compile(r"[^A-Za-z0-9 .+-]")


def report_new_device(user: User, session: Session) -> None:
    """Queue an email to a user who signed in on a new device, unless the user has turned these emails off."""
    if (user.preferences or {}).get(users.NEW_DEVICE_EMAIL_PREFERENCE) == "off":
        return
    account = user.account
    if not _leaves(account):
        return
    with use_language(users.choose_language(user, account)):
        if session.kind == "token":
            device = gettext("an app that uses the API")
        else:
            user_agents.parse_device(session.user_agent)
            device = _UNSAFE.sub("", devices.describe_program(session.user_agent))
        content = SystemEmail(
            subject=gettext("New sign-in: %(device)s", device="{{ data.device }}"),
            heading=gettext("New sign-in to your account"),
            text=gettext(
                "%(email)s signed in on %(time)s with %(device)s, from the IP address %(ip)s. This device was not used "
                "before.",
                email="{{ data.email }}", time="{{ data.time }}", device="{{ data.device }}", ip="{{ data.ip }}",
            ),
            button=gettext("Check your devices"),
            link="{{ data.link }}",
            note=gettext(
                "If it was you, there is nothing to do. If not, sign the device out and change your password. You can "
                "turn off this email in your profile."
            ),
            language=get_language_tag(),
        )  # fmt: skip
        data = {"device": device, "ip": session.ip or "?", "time": _format_time(account, session.created_at)}
        _queue(user, account, content, data)


def report_passkey(user: User, name: str, is_added: bool) -> None:
    """Queue an email to a user whose passkey was added or removed; it cannot be turned off."""
    account = Account.get_by_id(user.last_account_id)
    if not _leaves(account):
        return
    with use_language(users.choose_language(user, account)):
        if is_added:
            heading = gettext("A passkey was added")
            text = gettext(
                "The passkey “%(name)s” was added to %(email)s on %(time)s. It signs in without the password.",
                name="{{ data.name }}", email="{{ data.email }}", time="{{ data.time }}",
            )  # fmt: skip
        else:
            heading = gettext("A passkey was removed")
            text = gettext(
                "The passkey “%(name)s” was removed from %(email)s on %(time)s. It no longer signs in.",
                name="{{ data.name }}", email="{{ data.email }}", time="{{ data.time }}",
            )  # fmt: skip
        content = SystemEmail(
            subject=heading, heading=heading, text=text, button=gettext("Open your profile"), link="{{ data.link }}",
            note=gettext(
                "If it was you, there is nothing to do. If not, change your password, sign out all devices, and tell "
                "the owner of your account."
            ),
            language=get_language_tag(),
        )  # fmt: skip
        _queue(user, account, content, {"name": name, "time": _format_time(account, clock.now_ms())})


def _leaves(account: Account) -> bool:
    """Return whether an email to a user would leave the installation."""
    transport = config.current().email.transport
    sender = senders.resolve_email(account, None)
    return transport != "capture" and not senders.find_email_problems(account, sender, transport, marketing=False)


def _queue(user: User, account: Account, content: SystemEmail, data: dict[str, Any]) -> None:
    values = {"email": user.email, "link": f"{config.base_url(config.current())}/settings/you", **data}
    queue_system_email(account, addresses.parse_email(user.email), None, content, values)


def _format_time(account: Account, ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, clock.find_time_zone(account.time_zone) or UTC)
    return f"{format_full_date(moment)}, {format_clock(moment)} {name_zone(moment)}"
