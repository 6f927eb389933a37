"""One message to one person, sent at a program's word: receipts, passwords, notices."""

import contextlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import idempotency
from appliance.audience.contacts import consent, store
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import merge
from appliance.content.designs.merge import MergeError
from appliance.content.designs.theme import Look
from appliance.core import addresses, clock, tokens, wake_ups
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import Data, EmailText, Id, Line, Short, Subject, Text, When
from appliance.core.validation import SEND_TIMES, RefusedKeys, unsupported, use_instead
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.messages import compose, senders, sms_rules, sms_senders, texts, values
from appliance.sending.messages.compose import Source
from appliance.sending.messages.ledger import AT_ONCE
from appliance.sending.messages.texts import Worded
from appliance.sending.sms import gsm
from appliance.settings import config
from appliance.storage.models import Account, Channel, Contact, Message, MessageContent, Template
from appliance.storage.open import fetch_one
from appliance.storage.work import after_commit, writing

# A single SMS before it is queued: what is wrong with it is told to whoever asks for it; nobody else will look.

# What only a mail has: not looked at in an SMS, and named to who sends it
OF_MAIL = ("subject", "text", "from_email", "from_name", "reply_to", "headers")


class Asked(NamedTuple):
    """What an SMS shall say, to whom, and what for."""

    to: str
    body: str | None
    data: Mapping[str, Any]
    marketing: bool


class Ready(NamedTuple):
    """An address as it is written to, where the links lead that are counted, and the parts an SMS takes as of now."""

    address: addresses.Address
    links: list[str] | None
    segments: int | None


def look_at_sms(account: Account, asked: Asked, faults: Faults) -> Ready:
    """Look at an SMS as it would be sent now; notes all that is wrong with it."""
    address = _address(asked.to, faults)
    links, segments = None, 0
    if not (asked.body or "").strip():
        faults.add("body", "can't be blank")
    elif fault := gsm.length_fault(asked.body):
        faults.add("body", fault)
    else:
        try:
            links = [link.href for link in texts.links(asked.body)] if asked.marketing else None
            said = _worded(account, asked, links, address)
        except MergeError as error:
            faults.add("body", error.words())
        else:
            segments = said.counted.parts
            if problem := said.problem():
                faults.add("body", problem)
    return Ready(address, links, segments)


def _address(text: str, faults: Faults) -> addresses.Address:
    try:
        address = addresses.phone(text)
    except ValueError:
        faults.add("to", "is invalid")
        return addresses.Address("phone", "", "")
    if refused := sms_rules.refused(address.key):
        faults.add("to", refused[1])
    return address


def _worded(account: Account, asked: Asked, links: list[str] | None, address: addresses.Address) -> Worded:
    """Fill an SMS for its recipient as they are known now; of the hint as if it were due."""
    channel = Channel.get_or_none(
        Channel.account == account.id, Channel.kind == address.kind, Channel.key == address.key
    )
    contact = Contact.get_by_id(channel.contact_id) if channel is not None else None
    if contact is not None:
        contacts.load([contact])
    said = values.of_account(account, brands.get(account.id)) | {"data": asked.data}
    said |= values.of_contact(contact, address.value, "phone") | values.of_message(0) | texts.tokens()
    return texts.fill(texts.compiled(asked.body, links), said, account.sms_opt_out_hint if asked.marketing else None)


_HEADER = re.compile(r"X-[A-Za-z0-9-]{1,60}")
_VALUE = re.compile(r"[\x20-\x7e]{0,900}")
_BLANK = "can't be blank"
_REFUSED: RefusedKeys = {
    **use_instead("`body` for the HTML", "html", "html_body", "body_html", "content"),
    **use_instead("`from_email` and `from_name`", "from", "from_address", "sender"),
    **use_instead("`text`", "plain_text", "text_body", "body_text"),
    **unsupported("send one message to each recipient", "cc", "bcc", "recipients", "emails"),
    **unsupported("put a link into the body", "attachments", "attachment", "files"),
    **unsupported("set it in a template", "design"),
    **use_instead("`send_at`", "scheduled_at", *SEND_TIMES),
    **unsupported("use `send_at`", "delay", "delay_seconds", "hold_seconds"),
    **use_instead("`template_id`", "template", "template_name"),
    **use_instead(
        "`data`", "variables", "merge_vars", "merge_tags", "substitutions", "template_data", "dynamic_template_data"
    ),
    **unsupported("send with a test key", "test_mode", "sandbox", "dry_run", neutral=False),
}
_TEMPLATED: dict[str, merge.Context] = {
    "subject": "header", "preheader": "header", "from_name": "header", "body": "html", "text": "text",
}  # fmt: skip


class MessageWrite(Struct):
    """A single message; `transactional` (the default) needs no consent and carries no footer.

    An SMS has `body` or a template of SMS, and nothing that only mail has.
    """

    REFUSED: ClassVar[RefusedKeys] = _REFUSED

    to: Annotated[
        str,
        Meta(
            max_length=254, description="an e-mail address; of an SMS a number with its country, +44 7700 900123",
            extra={"filled": True, "line": True},
        ),
    ]  # fmt: skip
    channel: Literal["email", "sms"] = "email"
    subject: Subject | None | UnsetType = UNSET
    body: Annotated[Text, Meta(description="HTML; of an SMS its text, up to 1,600 characters")] | None | UnsetType = (
        UNSET
    )
    text: Text | None | UnsetType = UNSET
    template_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    from_email: EmailText | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    reply_to: EmailText | None | UnsetType = UNSET
    tags: Data | None | UnsetType = UNSET
    headers: Annotated[dict[str, Short], Meta(max_length=20)] | None | UnsetType = UNSET
    send_at: When | None | UnsetType = UNSET
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=255, extra={"line": True})] | None | UnsetType = UNSET
    transactional: bool = True


class _Looked(NamedTuple):
    """A message that was looked over: its template, its words before they are filled in, what it is ready with."""

    template: Template | None
    said: dict[str, Any]
    ready: Ready


class Suppressed(Invalid):
    """The recipient may not get it; the row is kept as `skipped` (docs/decisions.md#3, `recipient_suppressed`)."""


def warm(account_id: int, request: MessageWrite) -> None:
    """Compile a message before the writer has to; what is wrong with it is said there."""
    template = None
    if isinstance(request.template_id, int):
        template = Template.get_or_none(Template.account == account_id, Template.id == request.template_id)
    account = Account.get_by_id(account_id)
    if request.channel == "sms":
        look_at_sms(account, _asked(request, _said(request, template)), Faults())
        return
    with contextlib.suppress(MergeError):
        compose.compile_source(_source(_said(request, template), account, not request.transactional))


def check(account_id: int, request: MessageWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a message beyond its types; writes nothing."""
    faults = Faults()
    _look_over(Account.get_by_id(account_id), request, faults)
    faults.check()


def put(account_id: int, request: MessageWrite, key: str | None = None, test: bool = False) -> Message:
    """Queue one message and answer its row; raises Invalid with all faults.

    A row that may not go out is kept as `skipped` and answered too: the door tells the caller why.
    """
    writing()
    account = Account.get_by_id(account_id)
    faults = Faults()
    template, said, ready = _look_over(account, request, faults)
    if not account.transactional_allowed and request.transactional:
        raise Invalid({"base": ["single messages are switched off"]}, reason="transactional_disabled")
    faults.check()
    if not test:
        _refuse_unready(account, request, template, ready.address)
    address, is_sms = ready.address, request.channel == "sms"
    now = clock.now_ms()
    held = isinstance(request.send_at, int) and request.send_at > now
    channel = Channel.get_or_none(
        Channel.account == account_id, Channel.kind == address.kind, Channel.key == address.key
    )
    reason = _refusal(account_id, address, channel, request.transactional)
    transport = _transport(request, test)
    if is_sms and reason is None and transport != "capture":
        sms_rules.admit(account_id, address.key)
    message = Message.create(
        account=account_id, contact=channel.contact_id if channel else None, template=template, channel=request.channel,
        recipient=address.value, recipient_key=address.key,
        sender=_sender(account, request, template, address, transport),
        reply_to=None if is_sms else _text(request.reply_to), subject=said["subject"], segments=ready.segments,
        status="skipped" if reason else "held" if held else "queued", skip_reason=reason,
        source_type="transactional", transactional=request.transactional, test=test,
        provider=transport, idempotency_key=key, tags=_value(request.tags),
        due_at=None if reason else (request.send_at if held else AT_ONCE), created_at=now, updated_at=now,
    )  # fmt: skip
    MessageContent.create(
        message=message, headers={} if is_sms else _value(request.headers) or {}, data=_value(request.data) or {},
        links=ready.links, **said,
    )  # fmt: skip
    if reason:
        data, event = {"message_id": message.id, "reason": reason}, f"{request.channel}_skipped"
        log.record(Happened(account_id, event, message.contact_id, data, f"message:{message.id}", test=test))
    else:
        after_commit(lambda: wake_ups.ring("outbox"))
    return message


def refusal(message: Message) -> Suppressed | None:
    """Return what to tell the caller about a message that was kept as skipped, or None."""
    if message.status != "skipped":
        return None
    return Suppressed(
        {"to": ["may not be written to"]}, reason="recipient_suppressed", message_id=message.id,
        skip_reason=message.skip_reason,
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value != "" else None


def _value(value: Any) -> Any:
    return None if value is UNSET else value


def _template(account_id: int, request: MessageWrite, faults: Faults) -> Template | None:
    if not isinstance(request.template_id, int):
        return None
    found: Template | None = Template.get_or_none(Template.account == account_id, Template.id == request.template_id)
    if found is None:
        faults.add("template_id", "must exist")
    elif found.channel != request.channel:
        faults.add("template_id", f"is for {found.channel}")
        return None
    return found


def ignored(request: MessageWrite) -> list[str]:
    """Return the keys of a request that its channel has no use for."""
    if request.channel == "email":
        return []
    return [name for name in OF_MAIL if getattr(request, name) not in (UNSET, None)]


def _transport(request: MessageWrite, test: bool) -> str:
    here = config.current()
    return "capture" if test else here.sms.transport if request.channel == "sms" else here.email.transport


def _sender(
    account: Account, request: MessageWrite, template: Template | None, to: addresses.Address, transport: str
) -> str:
    if request.channel == "sms":
        return sms_senders.resolve(account, to.key, transport)
    return senders.resolve(account, _text(request.from_email) or (template.from_email if template else None))


def _look_over(account: Account, request: MessageWrite, faults: Faults) -> _Looked:
    """Note all that is wrong with a message beyond its types; returns what was looked at."""
    template = _template(account.id, request, faults)
    is_lost = isinstance(request.template_id, int) and template is None
    said, noted = _said(request, template), Faults()
    if request.channel == "sms":
        ready = look_at_sms(account, _asked(request, said), noted)
    else:
        ready = _look(account, request, said, noted)
    # The words of a template that is not there are not missing
    faults.merge({path: told for path, told in noted.fields.items() if not (is_lost and told == [_BLANK])})
    if isinstance(request.idempotency_key, str):
        faults.of(idempotency.check_key, request.idempotency_key, "idempotency_key")
    return _Looked(template, said, ready)


def _asked(request: MessageWrite, said: dict[str, Any]) -> Asked:
    return Asked(_text(request.to) or "", said["body"], _value(request.data) or {}, not request.transactional)


def _look(account: Account, request: MessageWrite, said: dict[str, Any], faults: Faults) -> Ready:
    """Note what is wrong with a mail."""
    if not said["subject"]:
        faults.add("subject", _BLANK)
    if not (said["body"] or said["design"]):
        faults.add("body", _BLANK)
    for name, value in (_value(request.headers) or {}).items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            faults.add(f"headers.{name}", "is invalid")
    try:
        address = addresses.email(_text(request.to) or "")
    except ValueError:
        faults.add("to", "is invalid")
        address = addresses.Address("email", "", "")
    links = None
    broken = {name: words for name, context in _TEMPLATED.items() if (words := merge.fault(said[name], context))}
    try:
        content = compose.compile_source(_source(said, account, not request.transactional))
        links = None if request.transactional else [found.href for found in content.links]
    except MergeError as error:
        broken = broken or {"body": error.words()}
    for name, words in broken.items():
        # What was not sent is the template's
        faults.add(name if _text(getattr(request, name, None)) else "template_id", words)
    return Ready(address, links, None)


def _refuse_unready(account: Account, request: MessageWrite, template: Template | None, to: addresses.Address) -> None:
    """Raise Invalid where the sender of a message that really leaves may not be used, as a campaign's send would."""
    transport = _transport(request, test=False)
    if request.channel == "sms":
        fault = sms_senders.fault(account, to.key, transport)
        found = [("base", fault)] if fault else []
    else:
        chosen = _sender(account, request, template, to, transport)
        found = senders.problems(account, chosen, transport, marketing=not request.transactional)
    if found:
        raise Invalid(
            {field: [words] for field, words in found}, reason="sender_not_ready",
            blockers=[{"code": "sender_not_ready", "message": words, "field": field} for field, words in found],
        )  # fmt: skip


def _said(request: MessageWrite, template: Template | None) -> dict[str, Any]:
    """Return what a message says, its own words before its template's; the template may change later.

    Who brings a body of their own does not want the template's sections around it. Of an SMS there is only the body.
    """
    if request.channel == "sms":
        body = _text(request.body) or (template.body if template else None)
        return {"body": body, **dict.fromkeys(("subject", "text", "preheader", "from_name", "design"))}
    said: dict[str, Any] = {"text": _text(request.text)}
    for name in ("subject", "body", "preheader", "from_name"):
        said[name] = _text(getattr(request, name, None)) or (getattr(template, name) if template else None)
    sections = designs.sections(template.design) if template and not _text(request.body) else []
    return said | {"design": template.design if template and sections else None}


def _source(said: dict[str, Any], account: Account, marketing: bool) -> Source:
    look = brands.look(brands.get(account.id))
    return compose.source_of(said, look, account.locale, marketing, said["text"])


def said_source(kept: MessageContent, account: Account, look: Look, marketing: bool) -> Source:
    """Return what a stored single message is made from."""
    names = ("subject", "body", "text", "preheader", "from_name", "design")
    said = {name: getattr(kept, name) for name in names}
    return compose.source_of(said, look, account.locale, marketing, said["text"])


def _refusal(account_id: int, address: addresses.Address, channel: Channel | None, transactional: bool) -> str | None:
    hashed = tokens.address_hash(address.kind, address.key)
    reason = consent.suppression(account_id, address.kind, hashed)
    if reason:
        return f"suppressed_{reason}"
    if transactional:
        return None
    if channel is None:
        kept = fetch_one("SELECT 1 FROM opt_out WHERE account_id = ? AND address_hash = ?", (account_id, hashed))
        return "unsubscribed" if kept else "no_consent"
    if not store.is_sendable(channel):
        return "unsubscribed" if channel.opt_out_at else "no_consent"
    if address.kind == "phone" and not sms_rules.has_evidence(channel.contact_id):
        return "no_consent"
    return None
