"""Plays the recipient, or the server of the recipient, of a captured message: by the same ways as the real ones.

So whoever builds on what comes back can see it come without waiting for the world: counters, suppressions, opt-outs
and events follow as they would, of a test's message marked as tests are.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance import addresses, clock, tokens
from appliance.contacts import suppress
from appliance.contacts.consent import Evidence
from appliance.contacts.suppress import Case
from appliance.db.work import commit, writing
from appliance.engagement import hits, replies, robots, unsubscribes
from appliance.engagement.hits import Asked, Hit
from appliance.errors import Invalid, Unavailable
from appliance.feedback import record
from appliance.feedback.facts import Fact, Kind
from appliance.messages import captured, links
from appliance.messages.targets import Targets, Wanted
from appliance.tables import Message

SOURCE = "capture"
# A message is captured a moment before its row says that it was sent
_TRIES, _PAUSE = 40, 0.05
Action = Literal["open", "click", "bounce", "soft_bounce", "complain", "unsubscribe", "reply", "stop"]
# A reader's program: what machines do is another matter
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_FACTS: dict[str, tuple[Kind, int | None, str | None, str]] = {
    "bounce": ("bounced", 550, "5.1.1", "550 5.1.1 there is no such recipient (simulated)"),
    "soft_bounce": ("soft_bounced", 452, "4.2.2", "452 4.2.2 the mailbox is full (simulated)"),
    "complain": ("complained", None, None, "simulated"),
}


class Simulate(Struct):
    """What happens to a captured message; `link` is the number of the link that is clicked, the first one being 1."""

    action: Action
    link: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class Play(NamedTuple):
    """An act that is ready to be written."""

    message: Message
    write: Callable[[], Any]


def plan(account_id: int, captured_id: int, request: Simulate) -> Play:
    """Read what an act needs; raises NotFound, or Invalid where the message cannot have that happen to it."""
    row = captured.get(account_id, captured_id)
    message = Message.get_or_none(Message.account == account_id, Message.id == row.message_id)
    if message is None or message.recipient_key is None:
        raise Invalid({"base": ["its message or its recipient is gone"]})
    action = request.action
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
    if action == "reply":
        return Play(message, lambda: replies.record(message.id, SOURCE))
    if message.channel != "sms":
        raise Invalid({"action": ["only an SMS is answered with STOP"]})
    return Play(message, lambda: _stop(message))


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


def _hit(message: Message, request: Simulate) -> Hit:
    number = None
    if request.action == "click":
        number = request.link if isinstance(request.link, int) else 1
    wanted = Wanted(message.id, number)
    found = Targets().find([wanted]).get(wanted)
    if found is None or (number is not None and found.url is None):
        raise Invalid({"link": ["must exist"]})
    # Nobody reads so soon as a simulation comes
    soon = (found.handed_over_at or 0) + robots.SOON_MS
    return Hit(Asked(number, "GET", None, _AGENT, None, max(clock.now_ms(), soon)), found)


def _stop(message: Message) -> None:
    writing()
    assert message.recipient is not None
    suppress.add(
        message.account_id, addresses.read("phone", message.recipient), Case("stop_keyword", SOURCE),
        Evidence(source=SOURCE, actor="recipient", message_id=message.id, test=message.test),
    )  # fmt: skip
