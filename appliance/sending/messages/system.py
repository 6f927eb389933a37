"""Mail that the service itself writes to somebody: questions that only the owner of an address can answer.

It is in the brand's look and holds nothing that a stranger typed (trust, T36). It is no marketing: no list headers, no
tracking, no consent needed.
"""

from typing import Any, NamedTuple

from appliance.core import clock, wake_ups
from appliance.core.addresses import Address
from appliance.sending.messages import senders
from appliance.sending.messages.ledger import AT_ONCE
from appliance.settings import config
from appliance.storage.models import Account, Message, MessageContent
from appliance.storage.work import after_commit, writing

# Nobody's machine shall answer (RFC 3834, section 5)
_HEADERS = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
_SIGNED = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"


class Letter(NamedTuple):
    """What a mail says, in our words; `{{ company }}` and such stand in them as merge tags of `data`."""

    subject: str
    heading: str
    text: str
    button: str
    link: str
    note: str


def put(account: Account, address: Address, contact_id: int | None, letter: Letter, data: dict[str, Any]) -> Message:
    """Queue a mail to an address; on a transport where its sender may not be used its row is kept as skipped."""
    writing()
    now, transport = clock.now_ms(), config.current().email.transport
    sender = senders.resolve(account, None)
    ready = not senders.problems(account, sender, transport, marketing=False)
    message = Message.create(
        account=account, contact=contact_id, channel="email", recipient=address.value, recipient_key=address.key,
        sender=sender, subject=None, status="queued" if ready else "skipped",
        skip_reason=None if ready else "sender_not_ready", source_type="system", transactional=True, provider=transport,
        due_at=AT_ONCE if ready else None, created_at=now, updated_at=now,
    )  # fmt: skip
    MessageContent.create(message=message, subject=letter.subject, headers=_HEADERS, data=data, design=_design(letter))
    after_commit(lambda: wake_ups.ring("outbox"))
    return message


def _design(letter: Letter) -> dict[str, Any]:
    sections: list[tuple[str, dict[str, Any]]] = [
        ("header", {}),
        ("heading", {"text": letter.heading, "level": 1}),
        ("text", {"content": f"<p>{letter.text}</p>"}),
        ("button", {"text": letter.button, "href": letter.link}),
        ("text", {"content": f"<p>{letter.note}</p>", "size": 13}),
        ("text", {"content": f"<p>{_SIGNED}</p>", "size": 13}),
    ]
    return {"sections": [{"type": kind, "props": props} for kind, props in sections], "theme": {}}
