"""The HTTP APIs that email can be sent over; each is one module."""

from appliance.sending.transports.base import Transport
from appliance.sending.transports.brevo import Brevo
from appliance.sending.transports.google import Google
from appliance.sending.transports.mailgun import Mailgun
from appliance.sending.transports.mailjet import Mailjet
from appliance.sending.transports.microsoft import Microsoft
from appliance.sending.transports.postmark import Postmark
from appliance.sending.transports.resend import Resend
from appliance.sending.transports.sendgrid import SendGrid
from appliance.sending.transports.ses import Ses

# A new transport needs a module, an entry here, and its settings in `settings/schema.py`.
TRANSPORTS: dict[str, Transport] = {
    transport.name: transport
    for transport in (Ses(), Mailgun(), Postmark(), SendGrid(), Resend(), Brevo(), Mailjet(), Google(), Microsoft())
}
