"""Turns a row in hand into bytes and an envelope; the compiled content of a campaign is kept between rows."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import links as designs_links
from appliance.core import addresses, clock, tokens
from appliance.core.errors import SenderRefused
from appliance.sending.delivery import dkim, mime
from appliance.sending.delivery.dkim import Signer
from appliance.sending.delivery.send import Envelope
from appliance.sending.domains import keys, records, returns
from appliance.sending.domains.keys import Ring
from appliance.sending.messages import compose, links, secret_values, senders, sms_senders, sources, texts, values
from appliance.sending.messages.compose import Filled, Parts, Sender
from appliance.sending.messages.ledger import Claim, Prepared
from appliance.sending.messages.single import said_source
from appliance.sending.messages.sources import Kept, OfStep, Showing, SourceId, Started
from appliance.sending.messages.texts import Worded
from appliance.sending.sms import numbers
from appliance.settings import config
from appliance.storage.models import Account, Campaign, Contact, Message, MessageContent

# What mail services are given to name a message by, when they tell what became of it: some replace the Message-ID.


def metadata_headers(message_id: int, provider: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a message for those services whose hook is open; they take them off again."""
    hooks = config.current().email.hooks
    if provider != "relay" or not (hooks.postmark or hooks.sendgrid):
        return ()
    token = tokens.sign(links.MESSAGE_ID, message_id, 8)
    found = []
    if hooks.postmark:
        found.append(("X-PM-Metadata-campanero", token))
    if hooks.sendgrid:
        found.append(("X-SMTPAPI", f'{{"unique_args": {{"campanero": "{token}"}}}}'))
    return tuple(found)


log = logging.getLogger("campanero.sender")
# Compiled campaigns and steps held at once
_MAX_KEPT = 64


class _Origin(NamedTuple):
    """What a From domain is on the wire: who signs for it, and which host takes what comes back."""

    ring: Ring
    returns: str | None
    leaving: str | None  # that host, where we listen ourselves
    is_lost: bool  # its records or itself went, and nothing may leave in its name


class Draft(NamedTuple):
    """A message before it is signed, which takes longer than all the rest and needs nothing but the keys."""

    prepared: Prepared
    signers: tuple[Signer, ...] = ()
    is_single_spaced: bool = False

    def signed(self) -> Prepared:
        """Return the message as it leaves; from any thread."""
        envelope = self.prepared.envelope
        signed = dkim.sign(envelope.content, self.signers, self.is_single_spaced)
        return self.prepared._replace(envelope=envelope._replace(content=signed))


class Workshop:
    """Prepares messages; one for each thread that sends, so that nothing is shared while it is being changed."""

    def __init__(self) -> None:
        self._kept: dict[SourceId, Kept] = {}
        self._origins: dict[tuple[int, str], _Origin] = {}
        # By source and contact, for not every campaign says the same of somebody
        self._people: dict[tuple[SourceId | None, int | None], dict[str, Any]] = {}
        self._runs: dict[int, Started] = {}
        self._accounts: dict[int, Account] = {}

    def begin(self) -> None:
        """Forget what was read for the messages before: it may have changed since."""
        self._people = {}
        self._origins = {}  # a key may have followed another since
        self._accounts = {}
        self._runs = {}

    def fetch(self, claims: Sequence[Claim]) -> None:
        """Read whom the next messages are for, all together; whoever is not read here is read alone."""
        runs = {one.run_id for one in claims if one.run_id is not None}
        if runs:
            self._runs |= sources.started(runs)
        ids: dict[SourceId, set[int]] = {}
        for claim in claims:
            # Whose run is gone is told so alone
            source = self._source(claim) if claim.run_id is None or claim.run_id in self._runs else None
            if source is not None and claim.contact_id is not None:
                ids.setdefault(source, set()).add(claim.contact_id)
        for source, people in ids.items():
            try:
                kept = self._shared(source)
                if kept.showing is not None:
                    kept.showing.expect(people)
                found = values.of_contacts(people, kept.needs)
            except Exception as error:
                # `prepare` says so of each message that cannot be made; all others go out
                log.debug("the people of %s cannot be read together: %s", source, error)
                continue
            for number, person in found.items():
                self._people[source, number] = person

    def prepare(self, claim: Claim) -> Prepared:
        """Make a message as it leaves; raises as `draft` does."""
        return self.draft(claim).signed()

    def draft(self, claim: Claim) -> Draft:
        """Make a message; raises MergeError or ValueError if it cannot be, SenderRefused if none of its sender can."""
        if not claim.recipient:
            raise ValueError("its recipient was erased")
        if claim.channel == "sms":
            return Draft(self._text(claim))
        headers: tuple[tuple[str, str], ...]
        source = self._source(claim)
        if source is None:
            (kept, headers), stop = self._single(claim, leaves=True), None
        elif (kept := self._shared(source)).is_marketing:
            stop, host = links.unsubscribe(claim.id), self._origin(claim.account_id, kept.sender.email).leaving
            headers = (compose.unsubscribe_header(stop, claim.id, host),)
        else:
            headers, stop = (), None
        headers += metadata_headers(claim.id, claim.provider)
        recipient = addresses.ascii_form(claim.recipient) or claim.recipient
        dated = claim.dated_at or clock.now_ms()
        said, parts = self._values(kept, claim, kept.showing, stop), kept.parts
        # Who is nobody we know, or wants not to be counted, gets the links as they were written and no picture
        if kept.tracked is not None and said["contact"].get("tracking", "none") != "none":
            parts, said[designs_links.ROOT] = kept.tracked, links.counting(claim.id)
        mail = parts.mail(said, kept.sender, claim.id, recipient, dated / 1000, headers, kept.headers)
        sender = mail.sender[1]
        origin = self._origin(claim.account_id, sender)
        if origin.is_lost and claim.provider != "capture":
            shown = records.show_domain(records.of_address(sender))
            raise SenderRefused(f"{shown} is not verified as yours any more: look at its DNS records")
        # Quoted-printable as it is written here has no line that begins with a dot
        envelope = Envelope(_mail_from(claim, sender, origin), recipient, mime.write(mail), is_stuffed=True)
        prepared = Prepared(envelope, mail.subject, sender, mail.message_id)
        return Draft(prepared, origin.ring.at(dated), mail.is_single_spaced)

    def view(self, message: Message) -> Filled:
        """Fill a message again as it was sent, for reading in the browser; raises MergeError."""
        claim = Claim._make(getattr(message, name) for name in Claim._fields)
        if claim.channel == "sms":
            said = self._worded(claim, message.sent_at).body
            return Filled("", texts.page(said), said, None)
        source = self._source(claim)
        kept = self._single(claim)[0] if source is None else self._shared(source)
        return compose.fill(kept.content, self._values(kept, claim))

    def _text(self, claim: Claim) -> Prepared:
        """Make an SMS: its text, and who it is from."""
        worded = self._worded(claim)
        problem = worded.problem()
        if problem is not None:
            raise ValueError(problem)
        sender = self._sender(claim)
        if not sender and not sms_senders.may_be_nobody(claim.provider):
            raise SenderRefused("no number or name is set that it could be from")
        envelope = Envelope(sender, claim.recipient, worded.body.encode())
        return Prepared(envelope, "", sender, "", worded.counted.parts, worded.hinted)

    def _sender(self, claim: Claim) -> str:
        """Return who an SMS is from; of a campaign whoever that was when it went live."""
        source = self._source(claim)
        own = self._shared(source).own if source is not None else None
        if own is not None:
            return sms_senders.sender_to(own.sender, numbers.look(claim.recipient).country, claim.provider)
        chosen = Message.get_by_id(claim.id).sender if source is None else None
        return chosen or sms_senders.resolve(self._account(claim.account_id), claim.recipient, claim.provider)

    def _worded(self, claim: Claim, sent_at: int | None = None) -> Worded:
        """Fill the text of an SMS; `sent_at` is when it left, where that is long known."""
        source = self._source(claim)
        kept = self._shared(source) if source is not None else self._single_text(claim)
        said = self._values(kept, claim, kept.showing) | texts.tokens(claim.id)
        if not kept.is_marketing:
            return texts.fill(kept.content.text, said)
        hint = kept.own.hint if kept.own is not None else self._account(claim.account_id).sms_opt_out_hint
        return texts.fill(kept.content.text, said, hint, texts.hint_is_due(claim, sent_at))

    def _account(self, account_id: int) -> Account:
        found = self._accounts.get(account_id)
        if found is None:
            found = self._accounts[account_id] = Account.get_by_id(account_id)
        return found

    def _origin(self, account_id: int, sender: str) -> _Origin:
        domain = records.of_address(sender)
        found = self._origins.get((account_id, domain))
        if found is None:
            host = returns.host(account_id, domain)
            leaving = host if config.current().inbound.listen else None
            found = _Origin(keys.ring(account_id, domain), host, leaving, senders.may_not_leave(account_id, sender))
            self._origins[account_id, domain] = found
        return found

    def _values(
        self, kept: Kept, claim: Claim, showing: Showing | None = None, stop: str | None = None
    ) -> dict[str, Any]:
        """Return what the merge tags of one message say."""
        person = kept.shown_as if kept.shown_as is not None else claim.contact_id
        found = self._people.get((self._source(claim), claim.contact_id))
        if found is not None:
            who = values.of_person(found, claim.recipient, claim.kind)
        else:
            who = self._person(person, kept, claim, own=kept.shown_as is None)
        if showing is not None:
            shown = showing.to(claim.contact_id)
        else:
            shown = values.shown(claim.account_id, person, kept.content.conditions)
        said = {**kept.shared, **who, **values.of_message(claim.id, stop), **shown}
        if claim.run_id is not None:
            said["event"] = self._started(claim.run_id).event
        return said

    @staticmethod
    def _person(contact_id: int | None, kept: Kept, claim: Claim, own: bool) -> dict[str, Any]:
        """Return what is said of a person; `own` says that the address is one of theirs."""
        contact = Contact.get_or_none(Contact.id == contact_id) if contact_id is not None else None
        if contact is not None and kept.needs:
            contacts.load([contact])
        return values.of_contact(contact, claim.recipient if own or contact is None else None, claim.kind)

    def _source(self, claim: Claim) -> SourceId | None:
        """Return what a message is one of many of; None for one that stands alone."""
        if claim.campaign_id is not None or claim.run_id is None or claim.flow_id is None or claim.step_id is None:
            return claim.campaign_id
        return OfStep(claim.flow_id, self._started(claim.run_id).version, claim.step_id)

    def _started(self, run_id: int) -> Started:
        found = self._runs.get(run_id)
        if found is None:
            found = sources.started([run_id]).get(run_id)
            if found is None:
                raise ValueError("the run that sent it is gone")
            self._runs[run_id] = found
        return found

    def _shared(self, source: SourceId) -> Kept:
        kept = self._kept.get(source)
        if kept is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[source] = sources.compile_source(source)
        return kept

    def _single(self, claim: Claim, leaves: bool = False) -> tuple[Kept, tuple[tuple[str, str], ...]]:
        """Read what one message says; `leaves` with what is for its recipient alone."""
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
        data = secret_values.data(message, said.data) if leaves else said.data
        shared = values.of_account(account, brand) | {"data": data}
        tracked = sources.tracked(content, said.links) if marketing and said.links is not None else None
        needs = frozenset({"phone"})
        kept = Kept(content, Parts(content), tracked, sender, shared, b"", needs, None, said.shown_as)
        headers = tuple(said.headers.items())
        if marketing:
            list_id, domain = f"account-{account.id}", sources.domain_of(sender.email)
            host = self._origin(account.id, sender.email).leaving
            headers += compose.marketing_headers(claim.id, None, account.name, list_id, domain, account.id, host)
        return kept, headers

    def _single_text(self, claim: Claim) -> Kept:
        said = MessageContent.get(MessageContent.message == claim.id)
        account = self._account(claim.account_id)
        shared = values.of_account(account, brands.get(account.id)) | {"data": said.data}
        kept = sources.text(account.id, said.body, said.links, shared)
        # A test shows all that the message will have
        is_marketing = not claim.transactional or claim.source_type == "test"
        return kept._replace(showing=None, shown_as=said.shown_as, is_marketing=is_marketing)


def pinned(campaign: Campaign) -> dict[str, Any]:
    """Return what a campaign says beside its template, as of now: kept with it, so that a repeat is the same bytes."""
    account = campaign.account
    brand = brands.get(account.id)
    contact_list = campaign.trigger.contact_list
    return {
        "look": brands.look(brand),
        "tracking": campaign.tracking,
        "sms": [account.sms_from, account.sms_opt_out_hint],
        "locale": account.locale,
        "values": values.of_account(account, brand) | {"campaign": {"name": campaign.name}},
        "list_name": contact_list.name if contact_list else account.name,
        "list_id": f"list-{contact_list.id}" if contact_list else f"account-{account.id}",
    }


def _mail_from(claim: Claim, sender: str, origin: _Origin) -> str:
    """Return the return path: one of our own needs somebody who listens there, as the capture server always does."""
    host = returns.bounce_host(records.of_address(sender)) if claim.provider == "capture" else origin.returns
    return links.return_path(claim.id, host) if host is not None else sender
