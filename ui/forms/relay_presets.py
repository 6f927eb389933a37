"""The settings of well-known relays, as their providers document them."""

from typing import NamedTuple

from appliance.core.i18n import gettext_noop


class RelayPreset(NamedTuple):
    """The settings of a well-known relay; the user fills in an empty setting.

    `other_port` is a port with the same encryption for networks that block the usual ones, 0 if there is none.
    """

    label: str
    host: str
    port: int
    tls: str
    username: str
    note: str = ""
    other_port: int = 0
    login: str = "password"


RELAY_PRESETS = {
    "ses": RelayPreset(
        "Amazon SES",
        "email-smtp.eu-west-1.amazonaws.com",
        587,
        "starttls",
        "",
        gettext_noop("The host names the region. Use SMTP credentials, not those of the console."),
        2587,
    ),
    "brevo": RelayPreset(
        "Brevo",
        "smtp-relay.brevo.com",
        587,
        "starttls",
        "",
        gettext_noop("The password is an SMTP key."),
        2525,
    ),
    "fastmail": RelayPreset(
        "Fastmail", "smtp.fastmail.com", 465, "tls", "", gettext_noop("The password is an app password.")
    ),
    "gmail": RelayPreset(
        "Gmail, Google Workspace",
        "smtp.gmail.com",
        587,
        "starttls",
        "",
        gettext_noop("The password is an app password. Google allows 500 to 2,000 messages a day."),
    ),
    "mailgun": RelayPreset(
        "Mailgun",
        "smtp.eu.mailgun.org",
        587,
        "starttls",
        "",
        gettext_noop("Outside Europe, the host is smtp.mailgun.org."),
        2525,
    ),
    "mailjet": RelayPreset(
        "Mailjet",
        "in-v3.mailjet.com",
        587,
        "starttls",
        "",
        gettext_noop("The username is the API key, the password is the secret key."),
        2525,
    ),
    "microsoft": RelayPreset(
        "Microsoft 365",
        "smtp.office365.com",
        587,
        "starttls",
        "",
        gettext_noop("Authenticated SMTP must be allowed for the mailbox. Microsoft ends the login with a password."),
        login="microsoft",
    ),
    "postmark": RelayPreset(
        "Postmark",
        "smtp.postmarkapp.com",
        587,
        "starttls",
        "",
        gettext_noop("Username and password are both the server token. Use a broadcast stream for campaigns."),
        2525,
    ),
    "resend": RelayPreset(
        "Resend", "smtp.resend.com", 587, "starttls", "resend", gettext_noop("The password is an API key."), 2587
    ),
    "sendgrid": RelayPreset(
        "SendGrid",
        "smtp.sendgrid.net",
        587,
        "starttls",
        "apikey",
        gettext_noop("The password is an API key."),
        2525,
    ),
}
