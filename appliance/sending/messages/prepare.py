"""Render messages: turn ledger rows into bytes with an envelope, and cache compiled content between rows."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from cachetools import LRUCache

from appliance.accounts.public_urls import base_url_of
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import links as designs_links
from appliance.content.designs import merge_limits
from appliance.core import addresses, clock
from appliance.core.errors import SenderRejected
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.sending.delivery import dkim, mime
from appliance.sending.delivery.dkim import Signer
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.domains import keys, records, store
from appliance.sending.domains.keys import KeyRing
from appliance.sending.messages import (
    attachments,
    compose,
    languages,
    ledger,
    links,
    merge_tags,
    section_conditions,
    senders,
    shared_content,
    single_email,
    sms_rules,
    submitted,
    system_emails,
    utm_links,
)
from appliance.sending.messages.compose import FilledMessage, SmsText
from appliance.sending.messages.encoded_email import EncodedMessage
from appliance.sending.messages.languages import MessageLanguage
from appliance.sending.messages.ledger import LedgerRow, OutgoingMessage
from appliance.sending.messages.links import build_provider_headers
from appliance.sending.messages.shared_content import (
    RunStart,
    SharedContent,
    SourceId,
    SourceLanguages,
    StepSource,
    build_stored_source,
)
from appliance.sending.messages.single_email import (
    BulkRow,
    CompiledEmail,
    SingleEmail,
    build_recipient_headers,
    build_sender,
    build_shared,
)
from appliance.sending.messages.submitted import StoredEmail
from appliance.settings import config
from appliance.storage.models import Account, Contact, Message, MessageContent
from appliance.storage.models.account import ACCOUNTS
from appliance.storage.models.message import NO_CONTACT_ID

# Errors that are stored with the message, in English
_NOT_VERIFIED = gettext_stored("%(domain)s is no longer verified: check its DNS records")
_TOO_MANY_LINES = gettext_stored("it has more than %(limit)s lines")

log = logging.getLogger("campanero.sender")
# The maximum number of lines of an email. An email of the largest text and HTML has fewer, because its lines are folded
# at 76 characters; one with more consists of empty lines, which take servers and mail programs seconds to parse.
MAX_MAIL_LINES = 250_000
# The total size of the compiled messages that a `MessagePreparer` caches, one for each language of a campaign or step.
# A limit on their number would not bound the memory: an ordinary one takes 0.2 MB, one of 190 sections 7 MB, and the
# largest 50 MB.
_MAX_CACHED_BYTES = merge_limits.MAX_CACHED_BYTES
# The maximum number of cached choices of a translation, one for each campaign or step and language of contacts.
_MAX_CACHED_CHOICES = 2_000


# The maximum number of cached emails to many recipients, of up to 4 MB each.
_MAX_BULK_CONTENTS = 8


def _get_size(shared: SharedContent) -> int:
    """Return the approximate memory of content in bytes.

    It is at most `_MAX_CACHED_BYTES`, so that the largest content can be cached, too.
    """
    content = shared.content
    size = sum(part.size for part in (content.subject, content.html, content.text, content.from_name))
    return min(size * (1 if shared.encoded_tracked is None else 2), _MAX_CACHED_BYTES)


class _SenderDomain(NamedTuple):
    """The DKIM keys and hosts of a From domain of an account."""

    keys: KeyRing
    return_host: str | None  # receives bounces
    unsubscribe_host: str | None  # `return_host` if this installation receives email, else None
    is_unverified: bool  # the domain or its DNS records are gone, so no message may be sent from it


class UnsignedMessage(NamedTuple):
    """A rendered message that is not signed with DKIM yet.

    Signing takes longer than rendering and needs only the keys, so it may happen on another thread. `is_single_spaced`
    means that the body is in relaxed form already (`mime.is_single_spaced`), which makes signing faster.
    """

    prepared: OutgoingMessage
    signers: tuple[Signer, ...] = ()
    is_single_spaced: bool = False

    def sign(self) -> OutgoingMessage:
        """Return the signed message; it may be called from any thread."""
        if not self.signers:
            return self.prepared
        envelope = self.prepared.envelope
        signed = dkim.sign(envelope.content, self.signers, self.is_single_spaced)
        return self.prepared._replace(envelope=envelope._replace(content=signed))


class MessagePreparer:
    """A renderer of messages with a cache of the content that they share.

    It is not thread-safe, so each sending thread has its own.
    """

    def __init__(self) -> None:
        # By source and language of the contact; contacts of several languages may get the same content.
        self._choices: dict[tuple[SourceId, str | None], MessageLanguage] = {}
        # By source, language and base URL of the account, which an operator may change.
        self._contents: LRUCache[tuple[SourceId, MessageLanguage, str], SharedContent] = LRUCache(
            _MAX_CACHED_BYTES, getsizeof=_get_size
        )
        # The contents used since the last `prefetch`, by source and language of the contact, to find them faster.
        self._recent: dict[tuple[SourceId, str | None], SharedContent] = {}
        # By the id of a `BulkContent`, the language of the contact and the base URL of the account. Its size is not
        # known exactly, so it has few.
        self._bulk_contents: LRUCache[tuple[int, str | None, str], CompiledEmail] = LRUCache(_MAX_BULK_CONTENTS)
        self._source_languages: dict[SourceId, SourceLanguages] = {}
        # The contacts that were read together, until the first message in their language is rendered.
        self._expected: dict[tuple[SourceId, MessageLanguage], set[int]] = {}
        self._sender_domains: dict[tuple[int, str], _SenderDomain] = {}
        # By source and contact, because each source needs other values of a contact.
        self._contact_values: dict[tuple[SourceId | None, int | None], dict[str, Any]] = {}
        self._run_starts: dict[int, RunStart] = {}
        self._accounts: dict[int, Account] = {}

    def clear_cache(self) -> None:
        """Clear the cached contacts, sender domains, accounts and run starts, which may have changed.

        Compiled content stays, because the content of a live campaign or flow step does not change.
        """
        self._contact_values = {}
        self._expected = {}
        self._sender_domains = {}
        self._accounts = {}
        self._run_starts = {}

    def prefetch(self, ledger_rows: Sequence[LedgerRow]) -> None:
        """Read the contacts and run starts of the next messages together, which is faster than one by one.

        If reading the contacts of a source fails, this is only logged, and `prepare` reads them one by one.
        """
        self._recent = {}
        runs = {row.run_id for row in ledger_rows if row.run_id is not None}
        if runs:
            self._run_starts |= shared_content.fetch_run_starts(runs)
        ids: dict[SourceId, set[int]] = {}
        for row in ledger_rows:
            # A message whose run was deleted is left out here; only this message fails when it is prepared.
            source = self._get_source(row) if row.run_id is None or row.run_id in self._run_starts else None
            if source is not None and row.contact_id is not None:
                ids.setdefault(source, set()).add(row.contact_id)
        for source, contact_ids in ids.items():
            try:
                self._read_contacts(source, contact_ids)
            except Exception as error:
                # `prepare` raises the error again for each message that it affects; other messages are sent.
                log.debug("prepare: reading the contacts of %s together failed: %s", source, error)

    def _read_contacts(self, source: SourceId, contact_ids: set[int]) -> None:
        """Read the contacts of the next messages of a source.

        Nothing is compiled here, because the content of a source in all of its languages would delay other accounts.
        """
        for contact_id, values in merge_tags.fetch_contact_values(contact_ids).items():
            self._contact_values[source, contact_id] = values
            language = self._choose_language(source, values["language"])
            self._expected.setdefault((source, language), set()).add(contact_id)

    def _expect_contacts(self, source: SourceId, shared: SharedContent, contact_ids: set[int]) -> None:
        """Evaluate the conditions of contacts together, and read the addresses that the content may show."""
        if shared.conditions is not None:
            shared.conditions.set_expected_contacts(contact_ids)
        if shared.address_kinds:
            for contact_id, values in merge_tags.fetch_contact_values(contact_ids, shared.address_kinds).items():
                self._contact_values[source, contact_id] = values

    def prepare(self, row: LedgerRow) -> OutgoingMessage:
        """Return the rendered and signed message of a ledger row. Raises the errors of `build`."""
        return self.build(row).sign()

    def build(self, row: LedgerRow) -> UnsignedMessage:
        """Render the message of a ledger row without signing it.

        Raises MergeError or ValueError if the message cannot be rendered, and SenderRejected if it may not be sent from
        its sender.
        """
        if not row.recipient:
            raise ValueError(gettext_noop("its recipient was erased"))
        if row.channel == "sms":
            return UnsignedMessage(self._build_sms(row))
        if row.is_single and (stored := submitted.fetch(row.id)) is not None:
            return self._build_submitted(row, stored)
        headers: tuple[tuple[str, str], ...] = ()
        files: tuple[mime.Part, ...] = ()
        recipient = to = addresses.to_ascii(row.recipient) or row.recipient
        source, named, tracks_unknown = self._get_source(row), row, False
        if source is None:
            single = self._compile_single(row, with_secrets=True)
            shared, headers, files = single.shared, single.headers, single.attachments
            tracks_unknown = single.tracks_unknown
            if single.to is not None:
                to, named = single.to, row._replace(recipient=single.first_recipient or row.recipient)
        else:
            shared = self._get_shared(source, row)
        values, parts = self._get_values(shared, named, source, shared.conditions), shared.encoded
        if source is not None and shared.is_marketing:
            host = self._get_sender_domain(row.account_id, shared.sender.email).unsubscribe_host
            unsubscribe_url = values.get("unsubscribe_url") or links.build_unsubscribe_url(shared.base_url, row.id)
            headers = (compose.build_unsubscribe_header(unsubscribe_url, row.id, host),)
        headers += build_provider_headers(row.id, row.provider)
        attempted_at = row.first_attempt_at or clock.now_ms()
        # Recipients without a contact, and contacts who declined tracking, get untracked links and no tracking pixel.
        unknown_choice = "full" if tracks_unknown and row.contact_id is None else "none"
        if shared.encoded_tracked is not None and values["contact"].get("tracking", unknown_choice) != "none":
            parts, values[designs_links.TRACK_ROOT] = shared.encoded_tracked, links.build_tracking_tokens(row.id)
        mail = parts.build_mail(values, shared.sender, row.id, to, attempted_at / 1000, headers, shared.headers)
        sender = mail.sender[1]
        sender_domain = self._require_sender_domain(row, sender)
        content = mime.write(mail._replace(attachments=files) if files else mail)
        if len(content) > MAX_MAIL_LINES and _count_lines(content, files) > MAX_MAIL_LINES:
            raise ValueError(_TOO_MANY_LINES % {"limit": MAX_MAIL_LINES})
        # `is_stuffed`: our quoted-printable encoding never produces a line that begins with a dot.
        return_path = _get_return_path(row, sender, sender_domain)
        is_ascii = not files and mime.is_ascii(content)
        envelope = Envelope(return_path, recipient, content, is_stuffed=True, is_ascii=is_ascii)
        prepared = OutgoingMessage(envelope, mail.subject, sender, mail.message_id)
        return UnsignedMessage(prepared, sender_domain.keys.get_signers_at(attempted_at), mail.is_single_spaced)

    def _build_submitted(self, row: LedgerRow, stored: StoredEmail) -> UnsignedMessage:
        """Return an email that a program submitted, with its own bytes. Raises the errors of `build`."""
        sender_domain = self._require_sender_domain(row, stored.sender)
        headers: tuple[tuple[str, str], ...] = build_provider_headers(row.id, row.provider)
        if not row.transactional:
            account, domain = self._get_account(row.account_id), shared_content.get_ascii_domain(stored.sender)
            list_id, host = f"account-{row.account_id}", sender_domain.unsubscribe_host
            headers += compose.build_marketing_headers(
                base_url_of(account), row.id, None, account.name, list_id, domain, account.id, host
            )
        content, message_id = submitted.complete(stored, row.created_at, headers)
        return_path = _get_return_path(row, stored.sender, sender_domain)
        recipient = addresses.to_ascii(row.recipient) or row.recipient
        envelope = Envelope(return_path, recipient, content)
        prepared = OutgoingMessage(envelope, stored.subject, stored.sender, message_id)
        attempted_at = row.first_attempt_at or clock.now_ms()
        return UnsignedMessage(prepared, sender_domain.keys.get_signers_at(attempted_at))

    def _require_sender_domain(self, row: LedgerRow, sender: str) -> _SenderDomain:
        """Return the domain of a From address. Raises SenderRejected if it is not verified."""
        sender_domain = self._get_sender_domain(row.account_id, sender)
        if sender_domain.is_unverified and row.provider != "capture":
            domain_name = records.display_domain(records.domain_of_address(sender))
            raise SenderRejected(_NOT_VERIFIED % {"domain": domain_name})
        return sender_domain

    def fill_again(self, message: Message) -> FilledMessage:
        """Return a message rendered again for reading in the browser, with the contact's present values.

        The links of an email are not tracked. An SMS is rendered as a page, with its links as they were sent. Raise
        MergeError, or ValueError if the flow run that sent the message was deleted.
        """
        row = LedgerRow._make(getattr(message, name) for name in LedgerRow._fields)
        if row.channel == "sms":
            text = self._fill_sms(row, message.sent_at).body
            return FilledMessage("", compose.render_sms_page(text), text, None)
        source = self._get_source(row)
        if source is None and (stored := submitted.fetch(row.id)) is not None:
            return submitted.show(stored)
        if source is None:
            single = self._compile_single(row)
            shared, row = single.shared, row._replace(recipient=single.first_recipient or row.recipient)
        else:
            shared = self._get_shared(source, row)
        values = self._get_values(shared, row, source)
        return compose.fill(shared.content, values, merge_limits.render_deadline(merge_limits.MAX_VIEW_SECONDS))

    def _build_sms(self, row: LedgerRow) -> OutgoingMessage:
        """Render the SMS of a ledger row.

        Raises MergeError or ValueError if its text cannot be sent, SenderRejected if a required sender is missing.
        """
        sms = self._fill_sms(row)
        problem = sms.find_problem()
        if problem is not None:
            raise ValueError(problem)
        sender = self._get_sms_sender(row)
        if not sender and not senders.allows_no_sender(row.provider):
            raise SenderRejected(gettext_noop("no sender number or name is set"))
        envelope = Envelope(sender, row.recipient, sms.body.encode())
        return OutgoingMessage(envelope, "", sender, "", sms.size.parts, sms.has_opt_out_hint)

    def _get_sms_sender(self, row: LedgerRow) -> str:
        """Return the sender of an SMS, or an empty string if there is none.

        An SMS of a campaign has the sender that the account had when the campaign went live. A single SMS may have a
        sender of its own.
        """
        source = self._get_source(row)
        settings = None
        if source is not None:
            settings = self._get_shared(source, row).sms_settings
        if settings is not None:
            return senders.pick_sms_sender(
                settings.sender, addresses.inspect_number(row.recipient).country, row.provider
            )
        own_sender = Message.get_by_id(row.id).sender if source is None else None
        return own_sender or senders.resolve_sms(self._get_account(row.account_id), row.recipient, row.provider)

    def _fill_sms(self, row: LedgerRow, sent_at: int | None = None) -> SmsText:
        """Render the text of an SMS, with its opt-out hint if it is marketing and the hint is due.

        `sent_at` is when the SMS was sent, or None if it was not sent yet. Raises MergeError if a value cannot be
        filled in.
        """
        source = self._get_source(row)
        shared = self._compile_single_sms(row) if source is None else self._get_shared(source, row)
        values = self._get_values(shared, row, source, shared.conditions) | compose.build_link_tokens(row.id)
        if not shared.is_marketing:
            return compose.fill_sms(shared.content.text, values)
        settings = shared.sms_settings or shared_content.get_sms_settings(self._get_account(row.account_id))
        hint = languages.choose_opt_out_hint(
            settings.opt_out_hint, settings.opt_out_hints, self._get_language(source, row), settings.locale
        )
        return compose.fill_sms(shared.content.text, values, hint, sms_rules.is_hint_due(row, sent_at))

    def _get_account(self, account_id: int) -> Account:
        account = self._accounts.get(account_id)
        if account is None:
            account = self._accounts[account_id] = ACCOUNTS.find("id = ?", (account_id,))[0]
        return account

    def _get_sender_domain(self, account_id: int, sender: str) -> _SenderDomain:
        sender_domain = self._sender_domains.get((account_id, sender))
        if sender_domain is None:
            domain = records.domain_of_address(sender)
            host = store.find_return_path_host(account_id, domain)
            unsubscribe_host = host if config.current().inbound.listen else None
            sender_domain = _SenderDomain(
                keys.fetch_key_ring(account_id, domain),
                host,
                unsubscribe_host,
                senders.is_domain_unverified(account_id, sender),
            )
            self._sender_domains[account_id, sender] = sender_domain
        return sender_domain

    def _get_values(
        self,
        shared: SharedContent,
        row: LedgerRow,
        source: SourceId | None,
        conditions: section_conditions.ConditionCache | None = None,
    ) -> dict[str, Any]:
        """Return the values of the merge tags of one message, whose source is that of `_get_source`.

        `conditions` is a cache that evaluates the conditions of sections for many recipients at a time. Without it,
        they are evaluated for this recipient alone.
        """
        contact_id = shared.sample_contact_id if shared.sample_contact_id is not None else row.contact_id
        contact_id = None if contact_id == NO_CONTACT_ID else contact_id
        contact_values = self._contact_values.get((source, row.contact_id))
        if contact_values is not None:
            recipient_values = merge_tags.get_recipient_values(contact_values, row.recipient, row.address_kind)
        else:
            recipient_values = self._get_contact_values(
                contact_id, shared, row, is_own_address=shared.sample_contact_id is None
            )
        if conditions is not None:
            show_values = conditions.get_values(row.contact_id)
        else:
            show_values = section_conditions.get_show_values(row.account_id, contact_id, shared.content.conditions)
        values = {
            **shared.values,
            **recipient_values,
            **links.get_link_values(shared.base_url, row.id, shared.link_names),
            **show_values,
        }
        if row.run_id is not None:
            values["event"] = self._get_run_start(row.run_id).event
        return values

    @staticmethod
    def _get_contact_values(
        contact_id: int | None, shared: SharedContent, row: LedgerRow, is_own_address: bool
    ) -> dict[str, Any]:
        """Return the merge tag values of a contact.

        `is_own_address` is false for a test message that shows the values of a sample contact: the values then contain
        the address of that contact instead of the recipient's.
        """
        contact = Contact.get_or_none(Contact.id == contact_id) if contact_id is not None else None
        if contact is not None and shared.address_kinds:
            contacts.load_relations([contact])
        return merge_tags.get_contact_values(
            contact, row.recipient if is_own_address or contact is None else None, row.address_kind
        )

    def _get_source(self, row: LedgerRow) -> SourceId | None:
        """Return the campaign or flow step that a message shares content with, or None for a single message.

        Raises ValueError if the run that sent the message was deleted.
        """
        if row.campaign_id is not None:
            return shared_content.get_campaign_source(row.campaign_id, row.variant)
        if row.run_id is None or row.flow_id is None or row.step_id is None:
            return None
        return StepSource(row.flow_id, self._get_run_start(row.run_id).version, row.step_id)

    def _get_run_start(self, run_id: int) -> RunStart:
        run_start = self._run_starts.get(run_id)
        if run_start is None:
            run_start = shared_content.fetch_run_starts([run_id]).get(run_id)
            if run_start is None:
                raise ValueError(gettext_noop("the flow run that sent it was deleted"))
            self._run_starts[run_id] = run_start
        return run_start

    def _get_language(self, source: SourceId | None, row: LedgerRow) -> str | None:
        """Return the language of a message's contact, or None if it is unknown."""
        if row.contact_id is None:
            return None
        values = self._contact_values.get((source, row.contact_id))
        if values is not None:
            language: str | None = values["language"]
            return language
        return merge_tags.fetch_languages([row.contact_id]).get(row.contact_id)

    def _get_shared(self, source: SourceId, row: LedgerRow) -> SharedContent:
        """Return the content of a message; languages whose messages are equal share it."""
        contact_language = self._get_language(source, row)
        recent = self._recent.get((source, contact_language))
        if recent is not None:
            return recent
        language = self._choose_language(source, contact_language)
        base_url = base_url_of(self._get_account(row.account_id))
        shared = self._contents.get((source, language, base_url))
        if shared is None:
            shared = shared_content.compile_shared(source, base_url, language)
            self._contents[source, language, base_url] = shared
            self._recent = {}  # it may hold content for which there is no room in `_contents` any more
        expected = self._expected.pop((source, language), None)
        if expected is not None:
            self._expect_contacts(source, shared, expected)
        self._recent[source, contact_language] = shared
        return shared

    def _choose_language(self, source: SourceId, contact_language: str | None) -> MessageLanguage:
        choice = self._choices.get((source, contact_language))
        if choice is None:
            if len(self._choices) >= _MAX_CACHED_CHOICES:
                self._choices.clear()
                self._source_languages.clear()
            available = self._source_languages.get(source)
            if available is None:
                available = self._source_languages[source] = shared_content.fetch_source_languages(source)
            choice = self._choices[source, contact_language] = available.choose(contact_language)
        return choice

    def _compile_single(self, row: LedgerRow, with_secrets: bool = False) -> SingleEmail:
        """Return a single email; `with_secrets` adds links that only the recipient may see (`fill_secrets`)."""
        if (bulk := single_email.fetch_bulk_row(row.id)) is not None:
            return self._compile_bulk(row, bulk, with_secrets)
        message = Message.get_by_id(row.id)
        stored = MessageContent.get(MessageContent.message == row.id)
        if with_secrets and not (stored.body or stored.text or stored.design):
            raise ValueError(submitted.NOT_STORED)
        account = Account.get_by_id(row.account_id)
        marketing = not row.transactional
        email = self._compile_email(row, message, stored, account)
        data = system_emails.fill_secrets(message, stored.data) if with_secrets else stored.data
        sender = build_sender(account, message.sender, message.reply_to)
        compiled = build_shared(email, sender, data, stored.shown_as)
        headers = tuple(stored.headers.items())
        if marketing:
            list_id, domain = f"account-{account.id}", shared_content.get_ascii_domain(sender.email)
            host = self._get_sender_domain(account.id, sender.email).unsubscribe_host
            headers += compose.build_marketing_headers(
                base_url_of(account), row.id, None, account.name, list_id, domain, account.id, host
            )
        # A message that is only shown (`with_secrets` is false) needs no files.
        is_captured = row.provider == "capture"
        files = attachments.build_parts(row.id, is_captured) if stored.has_attachments and with_secrets else ()
        if stored.first_message_id is None:
            return SingleEmail(compiled, headers, attachments=files, tracks_unknown=stored.tracks_opens)
        to, cc = build_recipient_headers(copies := ledger.list_copies(message))
        return SingleEmail(compiled, headers + cc, to, copies[0].recipient, files, stored.tracks_opens)

    def _compile_email(
        self, row: LedgerRow, message: Message, stored: MessageContent, account: Account
    ) -> CompiledEmail:
        """Return the compiled content of a single email."""
        contact_id = stored.shown_as if stored.shown_as is not None else row.contact_id
        contact_language = merge_tags.fetch_languages([contact_id]).get(contact_id) if contact_id is not None else None
        ledger.add_bulk_texts([stored])
        # A test email is rendered as marketing, so that it shows the whole email, but without the headers for
        # unsubscribing, which mail programs act on.
        is_marketing = not row.transactional or message.source_type == "test"
        brand, base_url = brands.get(account.id), base_url_of(account)
        look = brands.build_look(brand)
        content = compose.compile_message(build_stored_source(stored, account, look, is_marketing, contact_language))
        if message.source_type == "test":
            content = compose.tag_links(content, utm_links.find_template_tagger(message.template))
        tracked = None
        if not row.transactional and stored.links is not None:
            tracked = shared_content.encode_tracked(account.id, content, stored.links, base_url)
        elif stored.tracks_opens:
            tracked = shared_content.encode_tracked(account.id, content, [], base_url)  # the pixel alone
        content = shared_content.move_pictures(account.id, content, base_url)
        values = merge_tags.move_logo(account.id, merge_tags.get_account_values(account, brand), base_url)
        return CompiledEmail(content, EncodedMessage(content), tracked, values, base_url)

    def _compile_bulk(self, row: LedgerRow, stored: BulkRow, with_secrets: bool) -> SingleEmail:
        """Return one email of a bulk email, whose compiled content is cached."""
        language = self._get_language(None, row)
        account = self._get_account(row.account_id)
        key = (stored.bulk_id, language, base_url_of(account))
        email = self._bulk_contents.get(key)
        if email is None:
            message = Message.get_by_id(row.id)
            content = MessageContent.get(MessageContent.message == row.id)
            email = self._bulk_contents[key] = self._compile_email(row, message, content, account)
        sender = build_sender(account, stored.sender, stored.reply_to)
        compiled = build_shared(email, sender, msgspec.json.decode(stored.data), None)
        files: tuple[mime.Part, ...] = ()
        if stored.has_attachments and with_secrets:
            files = attachments.build_parts(row.id, row.provider == "capture")
        headers = tuple(msgspec.json.decode(stored.headers).items())
        return SingleEmail(compiled, headers, attachments=files, tracks_unknown=bool(stored.tracks_opens))

    def _compile_single_sms(self, row: LedgerRow) -> SharedContent:
        stored = MessageContent.get(MessageContent.message == row.id)
        account = self._get_account(row.account_id)
        shared = merge_tags.get_account_values(account, brands.get(account.id)) | {"data": stored.data}
        compiled = shared_content.compile_shared_sms(
            account.id, stored.body, stored.links, shared, account.locale, base_url_of(account)
        )
        # A test SMS is rendered as marketing, so that it shows the opt-out hint too.
        is_marketing = not row.transactional or row.source_type == "test"
        return compiled._replace(conditions=None, sample_contact_id=stored.shown_as, is_marketing=is_marketing)


def _count_lines(content: bytes, files: Sequence[mime.Part]) -> int:
    """Return the number of lines of an email, without those of attached files, which no program parses one by one."""
    return content.count(b"\n") - sum(part.content.count(b"\n") for part in files)


def _get_return_path(row: LedgerRow, sender: str, sender_domain: _SenderDomain) -> str:
    """Return the return path of a message: a signed address if this installation receives bounces, else the sender.

    The capture transport always receives bounces.
    """
    host = (
        store.get_bounce_host(records.domain_of_address(sender))
        if row.provider == "capture"
        else sender_domain.return_host
    )
    return links.build_return_path(row.id, host) if host is not None else sender
