"""A message read in the browser."""

from appliance import tokens
from appliance.messages import links
from appliance.messages.prepare import Workshop
from appliance.tables import Message


def html(token: str) -> str | None:
    """Answer the HTML of a message as its recipient got it, or None for a link that is not ours.

    Whose contact is gone has nothing left to be shown. Raises MergeError for one that never rendered.
    """
    number = tokens.read(links.VIEW, token)
    message = Message.get_or_none(Message.id == number) if number is not None else None
    if message is None or ((message.campaign_id or message.run_id) is not None and message.contact_id is None):
        return None
    return Workshop().view(message).html
