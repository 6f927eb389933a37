"""Opt-outs by the recipient's own act, from the links in a message."""

from typing import NamedTuple

from appliance import clock, tokens
from appliance.contacts import consent
from appliance.contacts.consent import Evidence
from appliance.db.work import writing
from appliance.messages import links
from appliance.tables import Account, Brand, Channel, Message, OptOut


class Door(NamedTuple):
    """What an unsubscribe page may show: nothing that names the person in full."""

    message_id: int
    masked: str
    company: str
    locale: str
    subscribed: bool


def find(token: str) -> Message | None:
    """Answer the message of an unsubscribe token, or None if it is not ours."""
    number = tokens.read(links.UNSUBSCRIBE, token)
    return Message.get_or_none(Message.id == number) if number is not None else None


def door(token: str) -> Door | None:
    """Answer what the page of a token shows, or None; reading changes nothing."""
    message = find(token)
    if message is None or message.recipient is None:
        return None
    account = Account.get_by_id(message.account_id)
    brand = Brand.get_or_none(Brand.account == account.id)
    channel = _channel(message)
    return Door(
        message.id,
        mask(message.recipient),
        (brand.company_name if brand else None) or account.name,
        account.locale,
        channel.subscribed if channel else False,
    )


def mask(address: str) -> str:
    """Show enough of an address to recognise one's own: `a…a@e…e.org`."""
    if "@" not in address:
        return f"{address[:3]}…{address[-2:]}"
    local, _, domain = address.partition("@")
    name, dot, rest = domain.rpartition(".")
    return f"{_short(local)}@{_short(name)}{dot}{rest}"


def _short(word: str) -> str:
    return f"{word[0]}…{word[-1]}" if len(word) > 2 else f"{word[:1]}…"


def opt_out(token: str, source: str, ip: str | None, user_agent: str | None) -> bool:
    """Opt the address of a message out of all marketing, for good; repeating it changes nothing. False: not ours."""
    writing()
    message = find(token)
    if message is None or message.recipient_key is None:
        return False
    evidence = Evidence(
        source=source, actor="recipient", ip=ip, user_agent=(user_agent or "")[:400] or None, message_id=message.id,
        test=message.test,
    )  # fmt: skip
    channel = _channel(message)
    if channel is None:
        _remember(message)
    else:
        consent.opt_out(channel, "recipient", evidence)
    return True


def _channel(message: Message) -> Channel | None:
    kind = "phone" if message.channel == "sms" else "email"
    return Channel.get_or_none(
        Channel.account == message.account_id, Channel.kind == kind, Channel.key == message.recipient_key
    )


def _remember(message: Message) -> None:
    """Keep the opt-out of somebody whose contact is gone, in case the address comes back."""
    assert message.recipient_key is not None
    kind = "phone" if message.channel == "sms" else "email"
    OptOut.insert(
        account=message.account_id, kind=kind, address_hash=tokens.address_hash(kind, message.recipient_key),
        by="recipient", created_at=clock.now_ms(),
    ).on_conflict_replace().execute()  # fmt: skip
