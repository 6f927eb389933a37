"""Simulate actions on a captured message: by its recipient, the recipient's mail server, or the phone network.

So integrations and flows can be tried without real recipients. Counts, suppressions, opt-outs and events change as they
do for a real message; events of a test message are marked as tests.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.core import clock, crypto
from appliance.core.errors import Invalid, Unavailable
from appliance.core.i18n import gettext
from appliance.inbound import delivery_reports, incoming_sms
from appliance.inbound.delivery_reports import DeliveryReport, MessageInFlight, ReportKind
from appliance.sending.messages import capture_inbox, links
from appliance.sending.messages.links import LinkRequest, LinkResolver
from appliance.sending.sms.error_codes import IncomingSms, Receipt
from appliance.storage.database import rows, scalar
from appliance.storage.models import CapturedMessage, Message
from appliance.storage.transactions import commit, require_write_transaction
from appliance.tracking import bot_detection, engagement, hits, unsubscribes
from appliance.tracking.hits import Hit, HitRequest

# Actions on a captured SMS, by its recipient or the phone network. They call the same functions as real SMS and
# receipts.

# The delivery receipts by action: the status, the error code of Twilio, which most providers use, and the text.
_RECEIPTS = {
    "deliver": ("delivered", None, ""),
    "fail": ("undelivered", "30008", "Unknown error (simulated)"),
    "bounce": ("undelivered", "30005", "Unknown destination handset (simulated)"),
    "soft_bounce": ("undelivered", "30003", "Unreachable destination handset (simulated)"),
}
_SMS_TEXTS = {"stop": "STOP", "start": "START", "help": "HELP", "reply": "Thank you!"}
SMS_ACTIONS = (*_RECEIPTS, *_SMS_TEXTS)
# The maximum number of sent messages on the phone's screen before the selected one, and after it.
_MAX_SHOWN = 12
_SELECT_CAPTURED = (
    "SELECT received_at, source, id FROM captured_message WHERE account_id = ? AND channel = 'sms' AND rcpt_to = ?"
)
_FROM_SENDER = "AND mail_from = ? AND id"
_SELECT_INCOMING = (
    "SELECT created_at, body, NULL FROM incoming WHERE account_id = ? AND sender = ? AND recipient = ? "
    "AND body IS NOT NULL AND created_at >= ? AND created_at < ? ORDER BY id LIMIT ?"
)
_NO_LIMIT_MS = 2**62


class ThreadMessage(NamedTuple):
    """A message on a simulated phone: its time in Unix milliseconds, and its text.

    `captured_id` is the id of a captured message that we sent; it is None for a message that the owner of the phone
    sent.
    """

    at: int
    text: str
    captured_id: int | None


def get_thread(captured: CapturedMessage) -> list[ThreadMessage]:
    """Return the messages that a phone shows around a captured SMS, sent and received, oldest first.

    The thread has only messages to and from the same sender: at most `_MAX_SHOWN` sent ones before the captured SMS and
    as many after it, and at most `2 * _MAX_SHOWN` received ones.
    """
    thread_key = (captured.account_id, captured.rcpt_to, captured.mail_from, captured.id)
    since = capture_inbox.get_cleared_id(captured.account_id)
    earlier = rows(
        f"{_SELECT_CAPTURED} {_FROM_SENDER} < ? AND id > ? ORDER BY id DESC LIMIT ?", (*thread_key, since, _MAX_SHOWN)
    )
    following = rows(f"{_SELECT_CAPTURED} {_FROM_SENDER} >= ? ORDER BY id LIMIT ?", (*thread_key, _MAX_SHOWN + 1))
    sent = [
        ThreadMessage(at, bytes(source).decode(), captured_id)
        for at, source, captured_id in (*reversed(earlier), *following)
    ]
    first = sent[0].at if len(earlier) == _MAX_SHOWN else 0
    last = sent[-1].at if len(following) > _MAX_SHOWN else _NO_LIMIT_MS
    received = rows(_SELECT_INCOMING, (*thread_key[:-1], first, last, 2 * _MAX_SHOWN))
    messages = [*sent, *map(ThreadMessage._make, received)]
    return sorted(messages, key=lambda message: (message.at, message.captured_id is None))


def simulate_sms(message: Message, action: str, reply: str | None) -> Callable[[], Any]:
    """Return a function that applies an action of `SMS_ACTIONS`, to be called in a write transaction.

    `reply` is the text of the action `reply`; None sends a default text. Raises Invalid for an empty reply.
    """
    if action in _RECEIPTS:
        return lambda: _apply_receipt(message, Receipt(message.provider_id or "", *_receipt_fields(message, action)))
    text = _SMS_TEXTS[action] if reply is None or action != "reply" else reply
    if not text.strip():
        raise Invalid({"text": [gettext("can't be blank")]})
    incoming = IncomingSms(None, message.recipient or "", message.sender or "", text)
    return lambda: incoming_sms.receive_sms(
        message.provider, incoming, test=message.test, account_id=message.account_id
    )


def _receipt_fields(message: Message, action: str) -> tuple[str, int, str | None, str]:
    status, code, text = _RECEIPTS[action]
    return status, message.id, code, text


def _apply_receipt(message: Message, receipt: Receipt) -> None:
    require_write_transaction()
    if scalar("SELECT status FROM message WHERE id = ?", (message.id,)) == "sending":
        # An SMS is captured shortly before its row is updated; the caller retries until it is.
        raise MessageInFlight
    delivery_reports.apply_receipt(message.provider, receipt)


SIMULATION_SOURCE = "capture"
_MAX_LINKS = 60
# While the row of a captured message does not yet say that it was sent: the number of retries, and the pause between
# them.
_MAX_TRIES, _PAUSE_SECONDS = 40, 0.05
# The maximum time until the row of a captured message says that it was sent.
_MAX_STORE_DELAY_MS = 10_000
Action = Literal[
    "open", "click", "deliver", "bounce", "soft_bounce", "fail", "complain", "unsubscribe", "reply", "stop", "start",
    "help",
]  # fmt: skip
_EMAIL_ACTIONS, _SMS_ONLY_ACTIONS = ("open", "complain"), ("fail", "stop", "start", "help")
# A user agent that bot detection recognises as a person's.
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_REPORTS: dict[str, tuple[ReportKind, int | None, str | None, str]] = {
    "deliver": ("delivered", None, None, ""),
    "bounce": ("bounced", 550, "5.1.1", "550 5.1.1 there is no such recipient (simulated)"),
    "soft_bounce": ("soft_bounced", 452, "4.2.2", "452 4.2.2 the mailbox is full (simulated)"),
    "complain": ("complained", None, None, "simulated"),
}


class SimulateEventRequest(Struct):
    """An event to simulate for a captured message; `link` is the number of the clicked link, from 1.

    `text` is the reply to an SMS. `open` and `complain` are for email only; `fail`, `stop`, `start` and `help` are for
    SMS only.
    """

    action: Annotated[Action, Meta(description="event to simulate")]
    link: Annotated[int, Meta(ge=1), Meta(description="number of the link to click, starting at 1")] | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=1600), Meta(description="text of the reply")] | UnsetType = UNSET


class SimulatedAction(NamedTuple):
    """A validated action; `write` applies it, and must be called in a write transaction."""

    message: Message
    write: Callable[[], Any]


def prepare_action(account_id: int, captured_id: int, request: SimulateEventRequest) -> SimulatedAction:
    """Validate an action for a captured message.

    Raises NotFound, or Invalid if the message does not allow the action or has no such link.
    """
    row = capture_inbox.get(account_id, captured_id)
    message = Message.get_or_none(Message.account == account_id, Message.id == row.message_id)
    if message is None or message.recipient_key is None:
        raise Invalid({"base": [gettext("its message or its recipient is gone")]})
    action = request.action
    if message.channel == "sms" and action in SMS_ACTIONS:
        return SimulatedAction(
            message, simulate_sms(message, action, request.text if isinstance(request.text, str) else None)
        )
    if action in (_EMAIL_ACTIONS if message.channel == "sms" else _SMS_ONLY_ACTIONS):
        raise Invalid(
            {
                "action": [
                    gettext("does not happen to an SMS")
                    if message.channel == "sms"
                    else gettext("does not happen to an email")
                ]
            }
        )
    if action in _REPORTS:
        kind, smtp, enhanced, words = _REPORTS[action]
        report = DeliveryReport(message.id, kind, SIMULATION_SOURCE, words, smtp, enhanced, message.recipient)
        return SimulatedAction(message, lambda: delivery_reports.record_report(report))
    if action in ("open", "click"):
        hit = _build_hit(message, request)
        return SimulatedAction(message, lambda: hits.record_hits([hit] if hits.is_tracked(hit.message) else []))
    if action == "unsubscribe":
        token = crypto.sign_token(links.UNSUBSCRIBE, message.id)
        return SimulatedAction(message, lambda: unsubscribes.opt_out(token, SIMULATION_SOURCE, None, None))
    return SimulatedAction(message, lambda: engagement.record_reply(message.id, SIMULATION_SOURCE))


async def perform_action(action: SimulatedAction) -> None:
    """Apply an action, and retry it up to `_MAX_TRIES` times until the captured message is recorded as sent.

    Raises Unavailable if the message is not recorded as sent by then, or if the database is unavailable.
    """
    for tries_left in range(_MAX_TRIES, -1, -1):
        try:
            await commit(action.write)
            return
        except Unavailable as error:
            if error.code != "unavailable" or not tries_left:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)


def list_links(message: Message) -> list[tuple[int, str]]:
    """Return the number and URL of each tracked link of a message, at most `_MAX_LINKS`, by number."""
    targets = LinkResolver()
    first_link = targets.resolve([LinkRequest(message.id, 1)]).get(LinkRequest(message.id, 1))
    if first_link is None:
        return []
    links_by_request = targets.resolve(
        [LinkRequest(message.id, number) for number in range(1, min(first_link.links, _MAX_LINKS) + 1)]
    )
    return sorted(
        (request.number, link.url)
        for request, link in links_by_request.items()
        if request.number is not None and link.url is not None
    )


def _build_hit(message: Message, request: SimulateEventRequest) -> Hit:
    number = None
    if request.action == "click":
        number = request.link if isinstance(request.link, int) else 1
    link_request = LinkRequest(message.id, number)
    message_link = LinkResolver().resolve([link_request]).get(link_request)
    if message_link is None or (number is not None and message_link.url is None):
        raise Invalid({"link": [gettext("must exist")]})
    # The hit gets a later time, because a hit right after sending would be taken for a machine's.
    earliest = (message_link.accepted_at or 0) + bot_detection.TOO_SOON_MS
    if message_link.sent_at is None:
        earliest += _MAX_STORE_DELAY_MS
    return Hit(HitRequest(number, "GET", None, _AGENT, None, max(clock.now_ms(), earliest)), message_link)
