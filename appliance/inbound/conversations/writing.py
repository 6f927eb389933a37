"""What somebody of the account writes to one person by SMS, as one does in a conversation."""

from appliance.accounts import idempotency
from appliance.audience.contacts import store
from appliance.core.errors import Invalid
from appliance.sending.messages import sample_render, single, texts
from appliance.sending.messages.single import MessageWrite
from appliance.sending.messages.texts import Shown
from appliance.storage.models import Channel, Contact, Message
from appliance.storage.work import writing


def number_of(contact: Contact) -> Channel | None:
    """Return the phone channel that a person is written to, or None if there is none."""
    return next((channel for channel in contact.channels if channel.kind == "phone"), None)


# As a value, which is never read as merge language
_BODY = "{{ data.said }}"


def weigh(account_id: int, text: str) -> Shown:
    """Return what words take as an SMS to one person: parts, alphabet, and which character forces that."""
    return texts.shown(sample_render.text(account_id, _BODY, {"data": {"said": text}}, marketing=False))


def say(account_id: int, contact_id: int, text: str, once: str | None = None) -> Message:
    """Queue an SMS to a person, in exactly these words; raises NotFound, or Invalid with what stands in the way.

    It answers somebody, so it needs no consent; a STOP or another suppression of the number refuses it. With the same
    `once` the same words are sent once.
    """
    writing()
    channel = number_of(store.get(account_id, contact_id))
    if channel is None:
        raise Invalid({"text": ["there is no number to write to"]})
    if not text.strip():
        raise Invalid({"text": ["can't be blank"]})
    request = MessageWrite(to=channel.value, channel="sms", body=_BODY, data={"said": text})
    key = f"{once}:{idempotency.payload_digest(text)}" if once else None
    done = idempotency.once(
        account_id, f"/contacts/{contact_id}/conversation", key, text, lambda: _put(account_id, request)
    )
    return Message.get_by_id(done.resource_id)


def _put(account_id: int, request: MessageWrite) -> int:
    try:
        made = single.put(account_id, request)
    except Invalid as refused:
        # Of this request only the words are anybody's: what is wrong with the rest is wrong with sending at all
        found = [message for messages in refused.fields.values() for message in messages]
        name = "text" if "body" in refused.fields else "base"
        raise Invalid({name: found}, refused.reason) from None
    if (refusal := single.refusal(made)) is not None:
        raise Invalid({"base": ["may not be written to"]}, refusal.reason)
    return int(made.id)
