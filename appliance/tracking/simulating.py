"""Plays the recipient, or the server of the recipient, of a captured message: by the same ways as the real ones.

So whoever builds on what comes back can see it come without waiting for the world: counters, suppressions, opt-outs
and events follow as they would, of a test's message marked as tests are.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core import clock, tokens
from appliance.core.errors import Invalid, Unavailable
from appliance.inbound.feedback import record
from appliance.inbound.feedback.record import Fact, Kind
from appliance.sending.messages import capture_inbox, links
from appliance.sending.messages.link_targets import Targets, Wanted
from appliance.storage.models import Message
from appliance.storage.work import commit
from appliance.tracking import bot_detection, hits, phones, replies, unsubscribes
from appliance.tracking.hits import Asked, Hit

SOURCE = "capture"
_MAX_LINKS = 60
# A message is captured a moment before its row says that it was sent
_TRIES, _PAUSE = 40, 0.05
# What is captured may be looked at before it is written that it left; by then it is
_STORED_MS = 10_000
Action = Literal[
    "open", "click", "deliver", "bounce", "soft_bounce", "fail", "complain", "unsubscribe", "reply", "stop", "start",
    "help",
]  # fmt: skip
_OF_MAIL, _OF_SMS = ("open", "complain"), ("fail", "stop", "start", "help")
# A reader's program: what machines do is another matter
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_FACTS: dict[str, tuple[Kind, int | None, str | None, str]] = {
    "deliver": ("delivered", None, None, ""),
    "bounce": ("bounced", 550, "5.1.1", "550 5.1.1 there is no such recipient (simulated)"),
    "soft_bounce": ("soft_bounced", 452, "4.2.2", "452 4.2.2 the mailbox is full (simulated)"),
    "complain": ("complained", None, None, "simulated"),
}


class Simulate(Struct):
    """What happens to a captured message; `link` is the number of the link that is clicked, the first one being 1.

    `text` is what is written in reply to an SMS. An SMS is not opened nor called spam; `fail`, `stop`, `start` and
    `help` are for SMS alone.
    """

    action: Action
    link: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=1600)] | UnsetType = UNSET


class Play(NamedTuple):
    """An act that is ready to be written."""

    message: Message
    write: Callable[[], Any]


def plan(account_id: int, captured_id: int, request: Simulate) -> Play:
    """Read what an act needs; raises NotFound, or Invalid where the message cannot have that happen to it."""
    row = capture_inbox.get(account_id, captured_id)
    message = Message.get_or_none(Message.account == account_id, Message.id == row.message_id)
    if message is None or message.recipient_key is None:
        raise Invalid({"base": ["its message or its recipient is gone"]})
    action = request.action
    if message.channel == "sms" and action in phones.ACTIONS:
        return Play(message, phones.play(message, action, request.text if isinstance(request.text, str) else None))
    if action in (_OF_MAIL if message.channel == "sms" else _OF_SMS):
        raise Invalid({"action": [f"does not happen to {'an SMS' if message.channel == 'sms' else 'mail'}"]})
    if action in _FACTS:
        kind, smtp, enhanced, words = _FACTS[action]
        fact = Fact(message.id, kind, SOURCE, words, smtp, enhanced, message.recipient)
        return Play(message, lambda: record.apply(fact))
    if action in ("open", "click"):
        hit = _hit(message, request)
        return Play(message, lambda: hits.record([hit] if hits.is_kept(hit.found) else []))
    if action == "unsubscribe":
        token = tokens.sign(links.UNSUBSCRIBE, message.id)
        return Play(message, lambda: unsubscribes.opt_out(token, SOURCE, None, None))
    return Play(message, lambda: replies.record(message.id, SOURCE))


async def perform(play: Play) -> None:
    """Write an act; raises Unavailable if that cannot be done now."""
    for left in range(_TRIES, -1, -1):
        try:
            await commit(play.write)
            return
        except Unavailable as busy:
            if busy.code != "unavailable" or not left:
                raise
            await asyncio.sleep(_PAUSE)


def clickable(message: Message) -> list[tuple[int, str]]:
    """Return the links of a message that lead through us, by number, with where each leads."""
    targets = Targets()
    first = targets.find([Wanted(message.id, 1)]).get(Wanted(message.id, 1))
    if first is None:
        return []
    found = targets.find([Wanted(message.id, number) for number in range(1, min(first.links, _MAX_LINKS) + 1)])
    return sorted((one.number, led.url) for one, led in found.items() if one.number is not None and led.url is not None)


def _hit(message: Message, request: Simulate) -> Hit:
    number = None
    if request.action == "click":
        number = request.link if isinstance(request.link, int) else 1
    wanted = Wanted(message.id, number)
    found = Targets().find([wanted]).get(wanted)
    if found is None or (number is not None and found.url is None):
        raise Invalid({"link": ["must exist"]})
    # Nobody reads so soon as a simulation comes
    soon = (found.handed_over_at or 0) + bot_detection.SOON_MS
    if found.sent_at is None:
        soon += _STORED_MS
    return Hit(Asked(number, "GET", None, _AGENT, None, max(clock.now_ms(), soon)), found)
