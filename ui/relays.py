"""Mail servers that people often send through, as each documents its own: name, host, port, encryption, user name."""

from typing import NamedTuple


class Relay(NamedTuple):
    """What to fill in for one of them; an empty text is for the person to know."""

    label: str
    host: str
    port: int
    tls: str
    username: str
    note: str = ""


# A further one is one line here
RELAYS = {
    "ses": Relay("Amazon SES", "email-smtp.eu-west-1.amazonaws.com", 587, "starttls", "",
                 "The host names the region. User name and password are SMTP credentials, not those of the console."),
    "brevo": Relay("Brevo", "smtp-relay.brevo.com", 587, "starttls", "", "The password is an SMTP key."),
    "fastmail": Relay("Fastmail", "smtp.fastmail.com", 465, "tls", "", "The password is an app password."),
    "gmail": Relay("Gmail, Google Workspace", "smtp.gmail.com", 587, "starttls", "",
                   "The password is an app password. Google takes 500 to 2,000 messages a day."),
    "mailgun": Relay("Mailgun", "smtp.eu.mailgun.org", 587, "starttls", "",
                     "Outside Europe the host is smtp.mailgun.org."),
    "mailjet": Relay("Mailjet", "in-v3.mailjet.com", 587, "starttls", "",
                     "User name and password are the halves of the API key."),
    "microsoft": Relay("Microsoft 365", "smtp.office365.com", 587, "starttls", "",
                       "SMTP sign-in must be allowed for the mailbox."),
    "postmark": Relay("Postmark", "smtp.postmarkapp.com", 587, "starttls", "",
                      "User name and password are both the server token. Campaigns belong on a broadcast stream."),
    "sendgrid": Relay("SendGrid", "smtp.sendgrid.net", 587, "starttls", "apikey", "The password is an API key."),
}  # fmt: skip
