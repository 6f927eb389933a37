"""Our own answers to STOP, START and HELP: one each, soon or never, and to nobody more than some in a day."""

from appliance import brand as brands
from appliance import clock, config
from appliance.addresses import Address
from appliance.conversations import words
from appliance.db.dialect.documents import among, field_of
from appliance.db.open import one, run, scalar
from appliance.db.work import after_commit, writing
from appliance.messages.ledger import AT_ONCE
from appliance.sms import gsm
from appliance.tables import Account, Message, MessageContent
from appliance.work import wake_ups

_HOUR_MS = 3_600_000
# Two machines that answer each other come to an end
_MAX_IN_A_DAY = 20
_MAX_NAME_CHARACTERS = 60
_LATELY = (
    "SELECT count(*) FROM incoming WHERE account_id = ? AND sender = ? AND reply_id IS NOT NULL AND created_at > ? "
    f"AND kind {among('?')}"
)


def answer(
    account_id: int, incoming_id: int, meaning: str, contact_id: int | None, address: Address, sender: str, test: bool
) -> None:
    """Queue the answer to a message: from the number that it came to, whatever their consent is."""
    writing()
    kind = "stop" if meaning == "refusal" else meaning
    now = clock.now_ms()
    if kind == "help" and _lately(account_id, address, now - _HOUR_MS, '["help"]'):
        return
    if _lately(account_id, address, now - 24 * _HOUR_MS, '["stop","refusal","start","help"]') >= _MAX_IN_A_DAY:
        return
    account = Account.get_by_id(account_id)
    text = words.say(kind, account.locale, _company(account), account.email_reply_to or account.email_from_email)
    message = Message.create(
        account=account, contact=contact_id, channel="sms", recipient=address.value, recipient_key=address.key,
        sender=sender or None, segments=gsm.count(text).parts,
        status="queued", source_type="system", transactional=True, test=test,
        provider="capture" if test else config.current().sms.transport, due_at=AT_ONCE, created_at=now, updated_at=now,
    )  # fmt: skip
    # As a value, which is never read as merge language
    MessageContent.create(message=message, body="{{ data.answer }}", data={"answer": text})
    run("UPDATE incoming SET reply_id = ? WHERE id = ?", (message.id, incoming_id))
    after_commit(lambda: wake_ups.ring("outbox"))


def _lately(account_id: int, address: Address, since: int, kinds: str) -> int:
    return int(scalar(_LATELY, (account_id, address.key, since, kinds)))


def _company(account: Account) -> str:
    name = brands.get(account.id).company_name or account.name
    return " ".join(name.split())[:_MAX_NAME_CHARACTERS]


def text_of(message_id: int) -> str | None:
    """Return what one of our own answers says, or None if it is none."""
    found = one(f"SELECT {field_of('data', 'answer')} FROM message_content WHERE message_id = ?", (message_id,))
    return found[0] if found else None
