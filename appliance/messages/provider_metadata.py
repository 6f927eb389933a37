"""What mail services are given to name a message by, when they tell what became of it: some replace the Message-ID."""

from appliance import config, tokens
from appliance.messages import links


def headers(message_id: int, provider: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a message for those services whose hook is open; they take them off again."""
    hooks = config.current().email.hooks
    if provider != "relay" or not (hooks.postmark or hooks.sendgrid):
        return ()
    token = tokens.sign(links.MESSAGE_ID, message_id, 8)
    found = []
    if hooks.postmark:
        found.append(("X-PM-Metadata-campanero", token))
    if hooks.sendgrid:
        found.append(("X-SMTPAPI", f'{{"unique_args": {{"campanero": "{token}"}}}}'))
    return tuple(found)
