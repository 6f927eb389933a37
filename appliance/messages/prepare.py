"""Turns a row in hand into bytes and an envelope; the compiled content of a campaign is kept between rows."""

from typing import Any, NamedTuple

from appliance import addresses, clock
from appliance import brand as brands
from appliance.contacts import store as contacts
from appliance.delivery import mime
from appliance.delivery.send import Envelope
from appliance.messages import compose, links, values
from appliance.messages.compose import Content, Filled, Sender
from appliance.messages.ledger import Claim
from appliance.messages.showing import Showing
from appliance.messages.single import said_source
from appliance.tables import Account, Campaign, Contact, Message, MessageContent, TemplateRevision

# Compiled campaigns held at once
_MOST_KEPT = 32


class Prepared(NamedTuple):
    """A message ready to be handed over, and what its row shall say about it."""

    envelope: Envelope
    filled: Filled
    sender: str
    internet_message_id: str


class _Kept(NamedTuple):
    """What all messages of a campaign share."""

    content: Content
    sender: Sender
    shared: dict[str, Any]
    list_name: str
    list_id: str
    needs_phone: bool
    showing: Showing | None = None
    shown_as: int | None = None  # of a test: the contact whose values it shows


class Workshop:
    """Prepares messages; one for each thread that sends, so that nothing is shared while it is being changed."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def prepare(self, claim: Claim) -> Prepared:
        """Make a message; raises MergeError or ValueError if this one cannot be made."""
        if claim.campaign_id is not None:
            kept = self._campaign(claim.campaign_id)
            headers = compose.marketing_headers(
                claim.id, claim.campaign_id, kept.list_name, kept.list_id, _domain(kept.sender.email),
                claim.account_id,
            )  # fmt: skip
        else:
            kept, headers = self._single(claim)
        filled = self._fill(kept, claim, kept.showing)
        recipient = addresses.ascii_form(claim.recipient) or claim.recipient
        dated = (claim.dated_at or clock.now_ms()) / 1000
        mail = compose.mail(filled, kept.sender, claim.id, recipient, dated, headers)
        return Prepared(
            Envelope(self._mail_from(claim, mail.sender[1]), recipient, mime.write(mail)),
            filled, mail.sender[1], mail.message_id,
        )  # fmt: skip

    def view(self, message: Message) -> Filled:
        """Fill a message again as it was sent, for reading in the browser; raises MergeError."""
        claim = Claim._make(getattr(message, name) for name in Claim._fields)
        kept = self._campaign(claim.campaign_id) if claim.campaign_id else self._single(claim)[0]
        return self._fill(kept, claim)

    def _mail_from(self, claim: Claim, sender: str) -> str:
        # A return path of our own needs somebody who listens there; only the capture server always does
        return links.return_path(claim.id, _domain(sender)) if claim.provider == "capture" else sender

    def _fill(self, kept: _Kept, claim: Claim, showing: Showing | None = None) -> Filled:
        person = kept.shown_as if kept.shown_as is not None else claim.contact_id
        contact = Contact.get_or_none(Contact.id == person) if person is not None else None
        if contact is not None and kept.needs_phone:
            contacts.load([contact])
        if showing is not None:
            shown = showing.to(claim.contact_id)
        else:
            shown = values.shown(claim.account_id, person, kept.content.conditions)
        return compose.fill(
            kept.content,
            {
                **kept.shared,
                **values.of_contact(contact, None if kept.shown_as and contact else claim.recipient),
                **values.of_message(claim.id),
                **shown,
            },
        )

    def _campaign(self, campaign_id: int) -> _Kept:
        kept = self._kept.get(campaign_id)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[campaign_id] = _compile_campaign(campaign_id)
        return kept

    def _single(self, claim: Claim) -> tuple[_Kept, tuple[tuple[str, str], ...]]:
        message = Message.get_by_id(claim.id)
        said = MessageContent.get(MessageContent.message == claim.id)
        account = Account.get_by_id(claim.account_id)
        marketing = not claim.transactional
        brand = brands.get(account.id)
        # A test shows all that the mail will have; only what mail programs act on is left out of its headers
        whole = marketing or message.source_type == "test"
        content = compose.compile_source(said_source(said, account, brands.look(brand), whole))
        name = account.email_from_name or account.name
        sender = Sender(message.sender or "", name, message.reply_to or account.email_reply_to)
        shared = values.of_account(account, brand) | {"data": said.data}
        kept = _Kept(content, sender, shared, account.name, f"account-{account.id}", True, None, said.shown_as)
        headers = tuple(said.headers.items())
        if marketing:
            domain = _domain(sender.email)
            headers += compose.marketing_headers(claim.id, None, account.name, kept.list_id, domain, account.id)
        return kept, headers


def _compile_campaign(campaign_id: int) -> _Kept:
    campaign = Campaign.get_by_id(campaign_id)
    account = Account.get_by_id(campaign.account_id)
    document = TemplateRevision.get_by_id(campaign.content_id).document
    brand = brands.get(account.id)
    content = compose.compile_source(compose.source_of(document, brands.look(brand), account.locale, marketing=True))
    contact_list = campaign.trigger.contact_list
    sender = Sender(campaign.sender["email"], campaign.sender["name"], campaign.sender["reply_to"])
    shared = values.of_account(account, brand) | {"campaign": {"name": campaign.name}}
    return _Kept(
        content, sender, shared, contact_list.name if contact_list else account.name,
        f"list-{contact_list.id}" if contact_list else f"account-{account.id}",
        "contact.phone" in content.variables() or "contact" in content.variables(),
        Showing(account.id, campaign_id, content.conditions),
    )  # fmt: skip


def _domain(address: str) -> str:
    ascii_form = addresses.ascii_form(address) or address
    return ascii_form.rpartition("@")[2]
