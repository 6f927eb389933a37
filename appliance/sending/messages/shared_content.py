"""Content that all messages of a campaign or flow step share: it is fixed when they go live, and compiled once."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from cachetools import LRUCache, cached

from appliance.content import brand as brands
from appliance.content import media
from appliance.content.designs import merge, merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.content.designs.theme import Look
from appliance.content.designs.utm import LinkTagger
from appliance.content.templates import revisions, translations
from appliance.content.templates.store import NO_STEP_MESSAGES, StepMessages
from appliance.core import addresses, recipient_texts
from appliance.core.i18n import gettext_noop
from appliance.sending.delivery import mime
from appliance.sending.messages import compose, languages, merge_tags, section_conditions, senders, utm_links
from appliance.sending.messages.compose import CompiledMessage, MessageSource, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from appliance.sending.messages.languages import MessageLanguage
from appliance.sending.messages.links import LINK_NAMES
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import (
    Account,
    Campaign,
    Experiment,
    Flow,
    MessageContent,
    Template,
    TemplateRevision,
    Trigger,
    Variant,
)


def build_campaign_snapshot(campaign: Campaign) -> dict[str, Any]:
    """Return the present values that a campaign's messages use besides the template: brand, account settings and list.

    Store them when the campaign goes live, so that a retry sends the same bytes.
    """
    account = campaign.account
    brand = brands.get(account.id)
    contact_list = campaign.trigger.contact_list
    return {
        "look": brands.build_look(brand),
        "tracking": campaign.tracking,
        "sms": list(get_sms_settings(account)),
        "locale": account.locale,
        "values": merge_tags.get_account_values(account, brand) | {"campaign": {"name": campaign.name}},
        "list_name": contact_list.name if contact_list else account.name,
        "list_id": f"list-{contact_list.id}" if contact_list else f"account-{account.id}",
        "utm": utm_links.build_campaign_utm(campaign),
    }


def build_stored_source(
    content: MessageContent, account: Account, look: Look, marketing: bool, contact_language: str | None = None
) -> MessageSource:
    """Return the source to compile for the stored content of a single message.

    `marketing` adds the compliance footer. `contact_language` is the language of the contact who gets the message, if
    known.
    """
    names = ("subject", "body", "text", "preheader", "from_name", "design")
    fields = {name: getattr(content, name) for name in names}
    source = compose.build_source(fields, look, content.language or account.locale, marketing, fields["text"])
    texts = recipient_texts.choose_language(content.language or contact_language, account.locale)
    return source._replace(texts=languages.get_other_texts(texts, source.locale))


_RUN_STARTS = "SELECT id, version, event_data FROM run WHERE id IN (SELECT value FROM json_each(?))"

_STEP_CONTENT = (
    "SELECT s.content_id, s.pinned, f.account_id, s.kind FROM step s JOIN flow f ON f.id = s.flow_id "
    "WHERE s.flow_id = ? AND s.version = ? AND s.action_id = ?"
)


class StepSource(NamedTuple):
    """A step in one version of a flow, whose messages share content."""

    flow_id: int
    version: int
    action_id: int


class VariantSource(NamedTuple):
    """A variant from 2 of a campaign with an A/B test; the first one has the content of the campaign."""

    campaign_id: int
    number: int


# A campaign by its id, one of its variants, or a step of a flow.
SourceId = int | VariantSource | StepSource


def get_campaign_source(campaign_id: int, variant: int | None) -> int | VariantSource:
    """Return the source of a campaign's message by its variant in the ledger, which is None without an A/B test."""
    return campaign_id if variant is None or variant < 2 else VariantSource(campaign_id, variant)


class SmsSettings(NamedTuple):
    """The sender of SMS and the opt-out hint of an account, each None if the account has not set it.

    `opt_out_hints` are the hints in languages other than the account's, by language tag.
    """

    sender: str | None
    opt_out_hint: str | None
    opt_out_hints: Mapping[str, str]
    locale: str


def get_sms_settings(account: Account) -> SmsSettings:
    """Return the current SMS settings of an account."""
    return SmsSettings(account.sms_from, account.sms_opt_out_hint, account.sms_opt_out_hints, account.locale)


class SharedContent(NamedTuple):
    """The content that all messages of a campaign or of a flow step share, or the content of a single message.

    Of an SMS, `content` has only a text, whose links are already tracked if clicks are counted.
    """

    content: CompiledMessage
    encoded: EncodedMessage
    encoded_tracked: EncodedMessage | None  # `content` with tracked links, or None if links are not tracked
    sender: Sender
    values: dict[str, Any]  # of the merge tags that do not depend on the recipient
    headers: bytes
    address_kinds: frozenset[str]  # kinds of addresses that the content may show, other than the recipient's own
    link_names: frozenset[str]  # the links of a message (`LINK_NAMES`) that the content may show
    conditions: section_conditions.ConditionCache | None = None
    sample_contact_id: int | None = None  # of a test message: the contact whose values it shows
    is_marketing: bool = True
    # The settings of an SMS campaign when it went live. All other SMS use the account's current settings (None).
    sms_settings: SmsSettings | None = None
    base_url: str = ""  # of the account, with which the links of its messages begin


class RunStart(NamedTuple):
    """The version of the flow that a run follows, and the data of the event that started the run."""

    version: int
    event: dict[str, Any]


def fetch_run_starts(run_ids: Iterable[int]) -> dict[int, RunStart]:
    """Return the start of each run by its id; unknown ids are left out."""
    run_rows = rows(_RUN_STARTS, (msgspec.json.encode(list(run_ids)).decode(),))
    return {run_id: RunStart(version, msgspec.json.decode(data or "{}")) for run_id, version, data in run_rows}


class SourceLanguages(NamedTuple):
    """The languages into which the template of a campaign or step is translated, and the locale of the account then."""

    languages: tuple[str, ...]
    locale: str
    channel: str

    def choose(self, contact_language: str | None) -> MessageLanguage:
        """Return the language of the messages to contacts with a language (None: unknown)."""
        language = languages.choose(self.languages, contact_language, self.locale)
        # An SMS has no texts of the product, so that contacts of many languages share its content.
        return language if self.channel == "email" else language._replace(texts="")


_CAMPAIGN_LANGUAGES = (
    "SELECT c.pinned ->> '$.locale', c.channel, r.document -> '$.translations' FROM campaign c "
    "JOIN template_revision r ON r.id = c.content_id WHERE c.id = ?"
)
_VARIANT_LANGUAGES = (
    "SELECT c.pinned ->> '$.locale', c.channel, v.document -> '$.translations' FROM campaign c "
    "JOIN experiment x ON x.campaign_id = c.id JOIN variant v ON v.experiment_id = x.id WHERE c.id = ? AND v.number = ?"
)
_STEP_LANGUAGES = (
    "SELECT s.pinned ->> '$.locale', s.kind, r.document -> '$.translations' FROM step s "
    "JOIN template_revision r ON r.id = s.content_id WHERE s.flow_id = ? AND s.version = ? AND s.action_id = ?"
)
_NO_CONTENT = gettext_noop("it has no content")


def fetch_source_languages(source: SourceId) -> SourceLanguages:
    """Return the languages of a campaign or a flow step; raises ValueError if it has no content."""
    if isinstance(source, StepSource):
        row = fetch_one(_STEP_LANGUAGES, source)
    elif isinstance(source, VariantSource):
        row = fetch_one(_VARIANT_LANGUAGES, source)
    else:
        row = fetch_one(_CAMPAIGN_LANGUAGES, (source,))
    if row is None:
        raise ValueError(_NO_CONTENT)
    chosen = translations.get_available_languages({"translations": msgspec.json.decode(row[2] or "{}")})
    return SourceLanguages(tuple(chosen), row[0], row[1])


def compile_shared(source: SourceId, base_url: str, language: MessageLanguage | None = None) -> SharedContent:
    """Compile the shared content of a campaign or a flow step in a language, by default the original.

    `base_url` is that of the account. It is not fixed when a campaign or flow goes live: links with the former one
    keep working. Raises MergeError if the template cannot be compiled, ValueError if a step has no content.
    """
    if isinstance(source, StepSource):
        return _compile_step(source, base_url, language)
    return _compile_campaign(source, base_url, language)


def _compile_campaign(source: int | VariantSource, base_url: str, language: MessageLanguage | None) -> SharedContent:
    campaign_id = source.campaign_id if isinstance(source, VariantSource) else source
    campaign = Campaign.get_by_id(campaign_id)
    snapshot, stored_sender = campaign.pinned, campaign.sender
    if isinstance(source, VariantSource):
        variant = _get_variant(source)
        document, stored_sender = variant.document, variant.sender
    else:
        document = TemplateRevision.get_by_id(campaign.content_id).document
    number = source.number if isinstance(source, VariantSource) else None
    tagger = utm_links.build_tagger(snapshot.get("utm"), number)
    if campaign.channel == "sms":
        body = tag_sms(_translate_body(document, language), tagger if snapshot["tracking"] else None)
        compiled = compile_shared_sms(
            campaign.account_id, body, _get_campaign_links(campaign), snapshot["values"],
            languages.get_content_language(language, snapshot["locale"]), base_url,
        )  # fmt: skip
        return compiled._replace(sms_settings=SmsSettings(*snapshot["sms"]))
    look = Look(*snapshot["look"])
    content = compose.tag_links(
        compose.compile_message(languages.build_source(document, look, snapshot["locale"], language)), tagger
    )
    sender = Sender(stored_sender["email"], stored_sender["name"], stored_sender["reply_to"])
    headers = compose.build_list_headers(
        campaign_id, snapshot["list_name"], snapshot["list_id"], get_ascii_domain(sender.email), campaign.account_id
    )
    return _build_shared(
        content,
        _get_campaign_links(campaign),
        sender,
        snapshot["values"],
        mime.write_headers(headers),
        campaign.account_id,
        base_url,
    )


def _get_variant(source: VariantSource) -> Variant:
    variant: Variant | None = Variant.select().join(Experiment).where(
        Experiment.campaign == source.campaign_id, Variant.number == source.number
    ).first()  # fmt: skip
    if variant is None or variant.document is None:
        raise ValueError(_NO_CONTENT)
    return variant


def _translate_body(document: dict[str, Any], language: MessageLanguage | None) -> str | None:
    body: str | None = translations.translate_document(document, language and language.translation, "sms")["body"]
    return body


def tag_sms(body: str | None, tagger: LinkTagger | None) -> str | None:
    """Return the text of an SMS whose links are tracked, with UTM parameters in them; the same text without a tagger.

    Raises MergeError if a merge tag is invalid.
    """
    if not body or tagger is None:
        return body
    merge_limits.scan_tags(body)
    return tagger.tag_sms(body)


def _get_campaign_links(campaign: Campaign) -> list[str] | None:
    """Return the links of a campaign in order of their numbers, or None if clicks are not tracked."""
    if not campaign.pinned["tracking"]:
        return None
    return [url for (url,) in rows("SELECT url FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))]


def _compile_step(step: StepSource, base_url: str, language: MessageLanguage | None) -> SharedContent:
    row = fetch_one(_STEP_CONTENT, step)
    if row is None or row[0] is None:
        raise ValueError(_NO_CONTENT)
    snapshot = msgspec.json.decode(row[1])
    links = [url for url, _ in snapshot["links"]] if snapshot["tracking"] else None
    account_id, is_marketing = int(row[2]), not snapshot["transactional"]
    tagger = utm_links.build_tagger(snapshot.get("utm"))
    if row[3] == "sms":
        body = tag_sms(_translate_body(TemplateRevision.get_by_id(row[0]).document, language), tagger)
        content_language = languages.get_content_language(language, snapshot["locale"])
        compiled = compile_shared_sms(account_id, body, links, snapshot["values"], content_language, base_url)
        return compiled._replace(is_marketing=is_marketing)
    document = TemplateRevision.get_by_id(row[0]).document
    content = compose.tag_links(compose.compile_message(_build_step_source(document, snapshot, language)), tagger)
    sender = Sender(snapshot["sender"]["email"], snapshot["sender"]["name"], snapshot["sender"]["reply_to"])
    headers: tuple[tuple[str, str], ...] = (("Auto-Submitted", "auto-generated"),)
    if is_marketing:
        headers = compose.build_list_headers(
            None, snapshot["list_name"], snapshot["list_id"], get_ascii_domain(sender.email), account_id
        )
    written = mime.write_headers(headers)
    compiled = _build_shared(content, links, sender, snapshot["values"], written, account_id, base_url)
    return compiled._replace(is_marketing=is_marketing)


def compile_shared_sms(
    account_id: int, body: str | None, links: list[str] | None, shared: dict[str, Any], language: str, base_url: str
) -> SharedContent:
    """Compile the shared content of SMS with the same text in `language`; raises MergeError for an invalid merge tag.

    `links` are the URLs to track, numbered by their position from 1; None tracks none. `shared` are the merge tag
    values that are the same for all recipients, and `base_url` is that of the account.
    """
    empty = merge.compile_template(None, "text")
    content = CompiledMessage(empty, empty, compose.compile_sms(body, links, language, base_url), empty)
    return SharedContent(
        content,
        EncodedMessage(content),
        None,
        Sender("", None, None),
        shared,
        b"",
        get_address_kinds(content, "email"),
        LINK_NAMES,  # the opt-out hint may show them too
        None,
        base_url=base_url,
    )


def get_address_kinds(content: CompiledMessage, kind: str) -> frozenset[str]:
    """Return {`kind`} if merge tags of the content may show an address of this kind, else an empty set."""
    names = {"contact", f"contact.{kind}"} | ({"email"} if kind == "email" else set())
    return frozenset() if names.isdisjoint(content.variables()) else frozenset({kind})


def get_link_names(content: CompiledMessage) -> frozenset[str]:
    """Return which links of a message (`LINK_NAMES`) the content may show."""
    return LINK_NAMES & {name.partition(".")[0] for name in content.variables()}


def _build_shared(
    content: CompiledMessage,
    links: list[str] | None,
    sender: Sender,
    shared: dict[str, Any],
    headers: bytes,
    account_id: int,
    base_url: str,
) -> SharedContent:
    moved = move_pictures(account_id, content, base_url)
    return SharedContent(
        moved,
        EncodedMessage(moved),
        None if links is None else encode_tracked(account_id, content, links, base_url),
        sender,
        merge_tags.move_logo(account_id, shared, base_url),
        headers,
        get_address_kinds(content, "phone"),
        get_link_names(content),
        section_conditions.ConditionCache(account_id, content.conditions),
        base_url=base_url,
    )


def encode_tracked(account_id: int, content: CompiledMessage, links: list[str], base_url: str) -> EncodedMessage:
    """Return an email with tracked links and a tracking pixel, whose bodies are encoded at its first use.

    `links` are the URLs to track, numbered by their position from 1, and `base_url` is that of the account. Pictures
    are moved after the links are found, because a link to a picture is numbered by its stored address.
    """
    tracked = compose.track_links(content, tuple(links), base_url)
    return EncodedMessage(move_pictures(account_id, tracked, base_url))


def move_pictures(account_id: int, content: CompiledMessage, base_url: str) -> CompiledMessage:
    """Return an email whose uploaded pictures are loaded from `base_url`, that of the account.

    Designs, brands and previews name them by the base URL of the installation, whatever the address of the account is.
    """
    html, text = (media.move_urls(account_id, part.source, base_url) for part in (content.html, content.text))
    if (html, text) == (content.html.source, content.text.source):
        return content
    return content._replace(
        html=merge.compile_template(html, "html", content.html.language),
        text=merge.compile_template(text, "text", content.text.language),
    )


def get_ascii_domain(address: str) -> str:
    """Return the domain of an email address in its ASCII form (IDNA)."""
    ascii_form = addresses.to_ascii(address) or address
    return ascii_form.rpartition("@")[2]


# The content of a step is fixed when its version of the flow goes live, so that a retry sends the same bytes. Stored
# with the step are the revision of its template, and a snapshot of everything else, with its numbered links.


class FlowDefaults(NamedTuple):
    """The default sender of a flow, and the part of a snapshot that is the same for all its steps (`content`)."""

    content: dict[str, Any]
    from_email: str
    from_name: str
    reply_to: str | None


def get_flow_defaults(flow: Flow) -> FlowDefaults:
    """Return the present default sender of a flow, and the part of a snapshot that is the same for all its steps."""
    account = Account.get_by_id(flow.account_id)
    brand = brands.get(account.id)
    trigger = Trigger.get_or_none(Trigger.flow == flow.id)
    contact_list = trigger.contact_list if trigger is not None else None
    content = {
        "look": brands.build_look(brand),
        "locale": account.locale,
        "double_opt_in": bool(contact_list is not None and contact_list.double_opt_in),
        "values": merge_tags.get_account_values(account, brand) | {"campaign": {"name": flow.name}},
        "list_name": contact_list.name if contact_list else account.name,
        "list_id": f"list-{contact_list.id}" if contact_list else f"account-{account.id}",
    }
    name = account.email_from_name or account.name
    return FlowDefaults(content, senders.resolve_email(account, None), name, account.email_reply_to)


def build_step_snapshot(
    defaults: FlowDefaults, template: Template, transactional: bool, utm: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the snapshot of a step, which is everything but the content of its template, with an empty list of links.

    Links are tracked unless the step is transactional. `utm` is from `utm_links.build_step_utm`.
    """
    return defaults.content | ({} if utm is None else {"utm": utm}) | {
        "transactional": transactional,
        "tracking": not transactional,
        "sender": {
            "email": template.from_email or defaults.from_email, "name": defaults.from_name,
            "reply_to": template.reply_to or defaults.reply_to,
        },
        "links": [],
    }  # fmt: skip


def add_step_links(
    template: Template, snapshot: dict[str, Any], is_email: bool, messages: StepMessages = NO_STEP_MESSAGES
) -> dict[str, Any]:
    """Return the snapshot with `links` set to the [URL, text] of each link of the step in all its languages.

    A transactional step gets no links. `messages` contains the links, or the MergeError, of sources that were compiled
    before. Raises MergeError if the message does not compile.
    """
    document, tagger = revisions.to_document(template), utm_links.build_tagger(snapshot.get("utm"))
    if is_email:
        step_links = [
            tuple((href if tagger is None else tagger.tag(href), words) for href, words in own_links)
            for own_links in (_find_step_links(source, messages) for source in build_step_sources(document, snapshot))
        ]
    else:
        step_links = [
            tuple((link.href, link.words) for link in compose.find_sms_links(tag_sms(translated["body"], tagger)))
            for _, translated in translations.list_messages(document, "sms")
        ]
    numbered = [] if snapshot["transactional"] else number_links(step_links)
    return snapshot | {"links": [[href, text] for href, text in numbered]}


def _find_step_links(source: MessageSource, messages: StepMessages) -> tuple[tuple[str, str], ...]:
    step_links = messages.get(source)
    if isinstance(step_links, MergeError):
        raise step_links.copy()
    return get_step_links(source) if step_links is None else step_links


def number_links(links_by_language: Iterable[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return (URL, text) of the links of a message in all its languages, in the order of their numbers.

    The links of the first language, the original, come first; URLs that only other languages have follow, each once.
    """
    numbered: list[tuple[str, str]] = []
    for language_links in links_by_language:
        known = {href for href, _ in numbered}
        is_first = not numbered
        for href, text in language_links:
            if is_first or href not in known:
                numbered.append((href, text))
                known.add(href)
    return numbered


def build_step_sources(document: dict[str, Any], snapshot: dict[str, Any]) -> list[MessageSource]:
    """Return the sources to compile for a step's message in each of its languages; the original comes first."""
    look, is_marketing = Look(*snapshot["look"]), not snapshot["transactional"]
    return list(languages.build_sources(document, look, snapshot["locale"], is_marketing).values())


def _build_step_source(
    document: dict[str, Any], snapshot: dict[str, Any], language: MessageLanguage | None
) -> MessageSource:
    look, is_marketing = Look(*snapshot["look"]), not snapshot["transactional"]
    return languages.build_source(document, look, snapshot["locale"], language, is_marketing)


# Links are cached by a hash of their source. They are small, so that those of all steps of many flows fit.
_MAX_CACHED_LINKS = 2_000


def _hash_source(source: MessageSource) -> bytes:
    return blake2b(msgspec.json.encode(source), digest_size=16).digest()


@cached(LRUCache(_MAX_CACHED_LINKS), key=_hash_source, lock=threading.Lock())
def get_step_links(source: MessageSource) -> tuple[tuple[str, str], ...]:
    """Return (URL, text) of each link of a message, from a cache; raises MergeError if the message does not compile."""
    return tuple((link.href, link.words) for link in compose.compile_message(source).links)
