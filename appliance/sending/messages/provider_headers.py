"""The headers by which mail services know a message again in their webhooks."""

from appliance.core import crypto
from appliance.sending.messages import links
from appliance.settings import config, transports

# The mail services that report outcomes by a webhook (`email.hooks`): the header by which each knows a message, its
# text, and the kinds of transports for which it is written.
_HOOK_HEADERS = (
    ("postmark", "X-PM-Metadata-campanero", "{}", ("relay", "postmark")),
    ("sendgrid", "X-SMTPAPI", '{{"unique_args": {{"campanero": "{}"}}}}', ("relay", "sendgrid")),
    ("brevo", "X-Mailin-custom", "{}", ("relay",)),
    ("mailjet", "X-MJ-CustomID", "{}", ("relay",)),
)


def build_provider_headers(message_id: int, provider: str) -> tuple[tuple[str, str], ...]:
    """Return headers with a signed message id for the mail services whose webhook is enabled (`email.hooks`).

    The webhooks identify a message by this id, because the services replace its Message-ID; the services remove the
    headers. The result is empty unless the kind of `provider` is `relay` or the service itself. The HTTP APIs of Brevo
    and Mailjet get the id in a field of their own.
    """
    email = config.current().email
    enabled = [header for header in _HOOK_HEADERS if getattr(email.hooks, header[0])]
    if not enabled:
        return ()
    kind = transports.get_kind(provider, email)
    headers = [(name, text) for _, name, text, kinds in enabled if kind in kinds]
    token = crypto.sign_token(links.MESSAGE_ID, message_id, 8) if headers else ""
    return tuple((name, text.format(token)) for name, text in headers)
