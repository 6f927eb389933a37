"""The rehearsal of a draft: its message is rendered for every recipient before the send, with progress.

A preflight starts the rehearsal, which runs in a child process. Of `MAX_CONCURRENT` at a time, each is of another
account, and the accounts take turns. The result is cached in memory for up to `FRESH_MS`, as long as the draft, its
lists and segments, the account and the brand do not change. The result is lost when the service stops; the next
preflight starts the rehearsal again. Messages are rendered by the functions that the
send uses, so that a message that renders here renders in the send.
"""

import hashlib
import logging
import os
import threading
import time
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from appliance.accounts.public_urls import base_url_of
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import is_sendable
from appliance.campaigns import audience, variants
from appliance.campaigns.findings import find_transport
from appliance.content import brand as brands
from appliance.content.designs import links as designs_links
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import translations
from appliance.content.templates.revisions import to_document
from appliance.core import addresses, clock, crypto, signals
from appliance.core.executable import read_task, run_child, send_to_parent
from appliance.core.limited_process import FairShares
from appliance.sending.messages import compose, languages, links, merge_tags, section_conditions, sms_rules
from appliance.sending.messages.compose import CompiledMessage, SmsText
from appliance.sending.messages.languages import MessageLanguage
from appliance.sending.sms import segments
from appliance.settings import config
from appliance.storage import database
from appliance.storage.database import fetch_one, open_database
from appliance.storage.models import Account, Campaign, Channel, Contact

if TYPE_CHECKING:
    from appliance.content.designs.compiled_template import CompiledTemplate

# The totals over a campaign's SMS: their parts, the characters that make them longer, and the countries of the phone
# numbers.

# With up to this many recipients every SMS is rendered; with more, the SMS of an evenly spaced sample of this size.
MAX_RENDERED = 20_000
UNKNOWN = "unknown"
_MAX_NAMED = 10


class UnicodeCharacter(Struct):
    """A character that is not in the GSM-7 alphabet, with its Unicode name and how many SMS it makes longer."""

    character: Annotated[str, Meta(description="character")]
    name: str
    count: Annotated[int, Meta(description="number of recipients whose SMS it makes longer")]


class SmsTotals(Struct):
    """The totals over the SMS of a campaign.

    `parts` is the number of SMS parts for all recipients; it is an estimate if not every SMS was rendered (`is_exact`
    is false). The other numbers count only recipients whose SMS were rendered.
    """

    parts: Annotated[int, Meta(description="total number of SMS parts")] = 0
    is_exact: Annotated[
        bool, Meta(description="whether every SMS was rendered; otherwise `parts` is an estimate from those that were")
    ] = True
    by_parts: Annotated[dict[str, int], Meta(description="number of recipients by number of parts")] = field(
        default_factory=dict
    )
    ucs2: Annotated[int, Meta(description="number of recipients whose SMS contains characters outside GSM-7")] = 0
    forcing: Annotated[list[UnicodeCharacter], Meta(description="characters outside GSM-7")] = field(
        default_factory=list
    )
    characters: Annotated[int, Meta(description="number of characters of the longest SMS")] = 0
    countries: Annotated[dict[str, int], Meta(description="number of recipients by country of their phone number")] = (
        field(default_factory=dict)
    )
    fixed_lines: Annotated[int, Meta(description="number of fixed-line numbers")] = 0
    refused: Annotated[
        dict[str, int],
        Meta(description="number of recipients that are skipped because of their number or consent, by reason"),
    ] = field(default_factory=dict)
    resting: Annotated[
        int, Meta(description="number of recipients in quiet hours at the start, whose SMS are sent when those end")
    ] = 0


class RecipientRenderer:
    """A renderer of a campaign's SMS for one recipient at a time, which adds up the totals.

    `starts_at` is the start of the send in Unix milliseconds, for quiet hours; with None, quiet hours are ignored.
    """

    def __init__(self, campaign: Campaign, account: Account, starts_at: int | None) -> None:
        bodies = dict(translations.list_messages(to_document(campaign.template), "sms"))
        self._bodies = {
            language: _compile_body(
                message["body"], campaign.tracking, language or account.locale, base_url_of(account)
            )
            for language, message in bodies.items()
        }
        self._account = account
        self._forcing: Counter[str] = Counter()
        self._by_parts: Counter[int] = Counter()
        self._countries: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._quiet_hours, self._time_zone, self._start = account.sms_quiet_hours, account.time_zone, starts_at
        self.totals = SmsTotals()

    def render(self, contact: Contact, filled_in: Mapping[str, Any], translation: str | None = None) -> str | None:
        """Render the SMS of one contact in a language and count it; return the problem of its text, or None.

        A contact whose number or consent rules out an SMS is counted as refused, without a problem. Raises MergeError
        if the SMS does not render.
        """
        phone = _find_phone(contact)
        if phone is None:
            return None  # The contact opted out, or its number was removed, since the recipients were listed.
        reason = _find_number_problem(contact, phone.key)
        if reason is not None:
            self._refused[reason] += 1
            return None
        values = {
            **filled_in,
            **merge_tags.get_contact_values(contact, phone.value, "phone"),
            **compose.build_link_tokens(),
        }
        text = compose.fill_sms(
            self._bodies[translation],
            values,
            languages.choose_opt_out_hint(
                self._account.sms_opt_out_hint, self._account.sms_opt_out_hints, contact.language, self._account.locale
            ),
            sms_rules.is_hint_interval_over(phone.opt_out_hint_sent_at, clock.now_ms()),
        )
        problem = text.find_problem()
        if problem is None:
            self._count(text)
            self._add_country(contact, phone.key)
        return problem

    def get_totals(self, done: int, total: int) -> SmsTotals:
        """Return the totals after `done` of `total` recipients; `parts` is extrapolated to all recipients."""
        totals, rendered = self.totals, sum(self._by_parts.values())
        parts = sum(count * recipient_count for count, recipient_count in self._by_parts.items())
        totals.is_exact = done >= total
        totals.parts = parts if totals.is_exact or not done else round(parts * total / done)
        totals.by_parts = {str(count): self._by_parts[count] for count in sorted(self._by_parts)}
        totals.forcing = [
            UnicodeCharacter(character, segments.character_name(character), count)
            for character, count in self._forcing.most_common(_MAX_NAMED)
        ]
        totals.refused = dict(self._refused.most_common())
        totals.countries = dict(self._countries.most_common())
        totals.ucs2 = min(rendered, sum(self._forcing.values()))
        return totals

    def _count(self, text: SmsText) -> None:
        size = text.size
        self._by_parts[size.parts] += 1
        self.totals.characters = max(self.totals.characters, size.characters)
        if size.forcing_character is not None:
            self._forcing[size.forcing_character] += 1

    def _add_country(self, contact: Contact, key: str) -> None:
        number = addresses.inspect_number(key)
        self._countries[number.country or UNKNOWN] += 1
        self.totals.fixed_lines += number.type == "fixed"
        if self._quiet_hours is not None and self._start is not None:
            time_zone = (contact.data or {}).get("time_zone")
            time_zones = sms_rules.get_number_time_zones(time_zone, contact.country_code, key, self._time_zone)
            self.totals.resting += (
                sms_rules.get_quiet_end_everywhere(self._quiet_hours, time_zones, self._start) is not None
            )


def _compile_body(body: str | None, is_tracked: bool, language: str, base_url: str) -> "CompiledTemplate":
    links = [link.href for link in compose.find_sms_links(body)] if is_tracked else None
    return compose.compile_sms(body, links, language, base_url)


def _find_number_problem(contact: Contact, key: str) -> str | None:
    """Return the reason code why a contact's number gets no marketing SMS, or None.

    The rules are those that are applied immediately before sending.
    """
    refusal = sms_rules.get_number_refusal(key)
    if refusal is not None:
        return refusal[0]
    return None if sms_rules.has_consent_evidence(contact.id) else "no_consent"


def sample_evenly(ids: list[int], limit: int = MAX_RENDERED) -> list[int]:
    """Return at most `limit` of the ids, evenly spaced, beginning with the first."""
    return ids if len(ids) <= limit else [ids[index * len(ids) // limit] for index in range(limit)]


def _find_phone(contact: Contact) -> Channel | None:
    """Return the phone channel that the audience chooses for a contact, the first sendable one, or None."""
    return next((channel for channel in contact.channels if channel.kind == "phone" and is_sendable(channel)), None)


_BATCH_SIZE = 500
_MAX_LISTED_CONTACTS = 50
_PROGRESS_SECONDS = 0.3
# The time limit of a rehearsal. A message may take 50 ms to render; at that rate a large audience would take hours
# while other rehearsals of the account wait, and those of other accounts if `MAX_CONCURRENT` of them are as slow.
MAX_SECONDS = 180.0


class RehearsalTask(Struct):
    """The input of the child process that runs a rehearsal.

    `settings` are the settings named in `_SETTINGS`, by their full names. `starts_at` is the start of the send in Unix
    milliseconds, for quiet hours, or None if quiet hours do not apply.
    """

    campaign_id: int
    data_dir: str
    base_url: str
    settings: dict[str, Any] = field(default_factory=dict)
    starts_at: int | None = None
    key: bytes = b""  # the installation's secret key


class RenderFailure(Struct):
    """A contact whose message cannot be rendered or sent, and why."""

    contact_id: Annotated[int, Meta(description="id of the contact")]
    error: Annotated[str, Meta(description="why rendering fails")]


class MissingValue(Struct):
    """A merge tag without a default, and the recipients who have no value for it."""

    name: Annotated[str, Meta(description="name of the merge tag")]
    count: Annotated[int, Meta(description="number of contacts without a value")] = 0
    contact_ids: Annotated[list[int], Meta(description="ids of the first of these contacts")] = field(
        default_factory=list
    )


class RehearsalResult(Struct):
    """The result of a rehearsal, complete or so far.

    `total`, `done` and `failed` count recipients. `failures` and `lacking` name the first recipients with a problem.
    `html_bytes` is the size of the largest email; `sms` is null for email.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    failures: list[RenderFailure] = field(default_factory=list)
    lacking: list[MissingValue] = field(default_factory=list)
    html_bytes: int = 0
    sms: SmsTotals | None = None


class RehearsalRun:
    """One pass over the recipients of a campaign, which renders its message for each of them in their language.

    With an A/B test, every variant is rendered for every recipient, because each recipient may get any of them. The
    figures are those of the worst variant, and a recipient fails if any variant fails. Variants that do not compile are
    left out, as preflight reports them. `starts_at` is the start of the send in Unix milliseconds, for the quiet hours
    of SMS. Raises MergeError if the message does not compile.
    """

    def __init__(self, campaign: Campaign, starts_at: int | None = None, whole: "RehearsalRun | None" = None) -> None:
        self.campaign = campaign
        self._whole = whole  # the run that a variant after the first belongs to
        self.others = [] if whole is not None else _start_variants(campaign, starts_at, self)
        self._until = time.monotonic() + MAX_SECONDS
        self._conditions: section_conditions.ConditionCache | None = None
        self._failed_ids: set[int] = set()
        account, brand = Account.get_by_id(campaign.account_id), brands.get(campaign.account_id)
        document = to_document(campaign.template)
        self.sms = RecipientRenderer(campaign, account, starts_at) if campaign.channel == "sms" else None
        self.base_url = base_url_of(account)
        self.document, self.look, self.locale = document, brands.build_look(brand), account.locale
        self.contents: dict[MessageLanguage, CompiledMessage] = {}
        self.get_language = cache(partial(languages.choose_for_document, document, locale=account.locale,
                                          channel=campaign.channel))  # fmt: skip
        self._get_content(self.get_language(None))
        self.shared = {
            **merge_tags.get_account_values(account, brand), **links.get_link_values(base_url_of(account), 0),
            "campaign": {"name": campaign.name},
            designs_links.TRACK_ROOT: links.build_tracking_tokens(0),
        }  # fmt: skip
        # Variables that a campaign never has (`data`, `event`) are missing for every recipient; unknown ones have their
        # own finding.
        self.required = {
            language: [
                name
                for name, variable in merge.find_variables(message, campaign.channel).items()
                if variable["required"] and not merge.find_unknown_variables([name])
            ]
            for language, message in translations.list_messages(document, campaign.channel)
        }
        names = sorted({name for required in self.required.values() for name in required})
        self.lacks = {name: MissingValue(name) for name in names}
        self.result = RehearsalResult(lacking=list(self.lacks.values()))

    def run(self) -> Iterator[RehearsalResult]:
        """Render the message for all recipients; SMS to more than `MAX_RENDERED` recipients only for a sample of them.

        Yields the result so far, the same object each time, at intervals of at least `_PROGRESS_SECONDS` and at the
        end. Stops `MAX_SECONDS` after the run was created.
        """
        contact_ids = audience.sample_recipients(self.campaign, audience.ALL)
        self.result.total = len(contact_ids)
        sample = array("q", contact_ids if self.sms is None else sample_evenly(contact_ids))
        reported = time.monotonic()
        for start in range(0, len(sample), _BATCH_SIZE):
            ids = sample[start : start + _BATCH_SIZE].tolist()
            self._render_batch(ids)
            for other in self.others:
                other._render_batch(ids)
                self._add_variant(other)
            if time.monotonic() > self._until:
                break
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                yield self._current_result()
        yield self._current_result()

    def _current_result(self) -> RehearsalResult:
        if self.sms is not None:
            done, total = self.result.done, self.result.total
            totals = [run.sms.get_totals(done, total) for run in (self, *self.others) if run.sms is not None]
            self.result.sms = max(totals, key=lambda sms: sms.parts)
        return self.result

    def _add_variant(self, other: "RehearsalRun") -> None:
        """Add the figures of a variant, after each batch, to those of the campaign."""
        self.result.html_bytes = max(self.result.html_bytes, other.result.html_bytes)
        for name, missing in other.lacks.items():
            if missing.count > self.lacks.setdefault(name, missing).count:
                self.lacks[name] = missing
        self.result.lacking = list(self.lacks.values())

    def _get_content(self, language: MessageLanguage) -> CompiledMessage | None:
        """Return the email in a language, with tracked links if the campaign tracks them; None for SMS."""
        if self.sms is not None:
            return None
        content = self.contents.get(language)
        if content is None:
            source = languages.build_source(self.document, self.look, self.locale, language)
            content = compose.compile_message(source)
            if self.campaign.tracking:
                content = compose.track_all_links(content, self.base_url)
            self.contents[language] = content
        return content

    def _render_batch(self, ids: list[int]) -> None:
        batch = contacts.fetch_by_ids(ids)
        # All languages have the same sections, so they have the same conditions too.
        conditions = next(iter(self.contents.values())).conditions if self.contents else {}
        if self._conditions is None:
            self._conditions = section_conditions.ConditionCache(self.campaign.account_id, conditions)
        self._conditions.set_expected_contacts(ids)
        for contact in batch:
            if time.monotonic() > self._until:
                return
            self.result.done += 1
            filled_in = self.shared | merge_tags.get_contact_values(contact, None)
            language = self.get_language(contact.language)
            try:
                filled_in |= self._conditions.get_values(contact.id)
                problem = self._render(contact, filled_in, language)
            except MergeError as error:
                problem = error.describe()
            if problem is not None:
                self._add_failure(contact.id, problem)
                continue
            for name in self.required[language.translation]:
                missing = self.lacks[name]
                if _get_value(filled_in, missing.name) in (None, ""):
                    missing.count += 1
                    if len(missing.contact_ids) < _MAX_LISTED_CONTACTS:
                        missing.contact_ids.append(contact.id)

    def _render(self, contact: Contact, filled_in: Mapping[str, Any], language: MessageLanguage) -> str | None:
        """Render the message of one contact; return why its text cannot be sent, or None.

        Raises MergeError if the message does not render.
        """
        content = self._get_content(language)
        if content is None:
            return self.sms.render(contact, filled_in, language.translation) if self.sms is not None else None
        filled = compose.fill(content, filled_in)
        self.result.html_bytes = max(self.result.html_bytes, len(filled.html.encode()))
        return None

    def _add_failure(self, contact_id: int, error: str) -> None:
        if self._whole is not None:
            self._whole._add_failure(contact_id, error)
            return
        if contact_id in self._failed_ids:
            return
        self._failed_ids.add(contact_id)
        self.result.failed += 1
        if len(self.result.failures) < _MAX_LISTED_CONTACTS:
            self.result.failures.append(RenderFailure(contact_id, error))


def _start_variants(campaign: Campaign, starts_at: int | None, whole: RehearsalRun) -> list[RehearsalRun]:
    runs = []
    for _, view in variants.list_views(campaign):
        try:
            runs.append(RehearsalRun(view, starts_at, whole))
        except MergeError as error:
            log.info("rehearsal: a variant does not compile campaign=%s: %s", campaign.id, error.describe())
    return runs


def _get_value(filled_in: Mapping[str, Any], name: str) -> Any:
    value: Any = filled_in
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def main() -> int:
    """Run one rehearsal (rendering a draft for every recipient) in this child process.

    The task is read from the parent process, and results are sent to the parent process.
    """
    os.nice(10)
    task = read_task(RehearsalTask)
    options = {"data_dir": task.data_dir, "base_url": task.base_url, **task.settings}
    config.set_current(config.load(options, {}).config)
    crypto.use_key(task.key)
    open_database(Path(task.data_dir, "campanero.db"))
    database.set_read_only()
    result = RehearsalResult()
    for result in RehearsalRun(Campaign.get_by_id(task.campaign_id), task.starts_at).run():
        send_to_parent({"found": result})
    send_to_parent({"done": result})
    return 0


log = logging.getLogger("campanero.rehearsal")
# The maximum age of a result, because contacts join and leave the audience.
FRESH_MS = 10 * 60 * 1000
_MAX_ACCOUNT_REHEARSALS = 50
# Each runs in a child process of its own, so more would take memory from the service, and processor time from sending.
MAX_CONCURRENT = 2
# The settings of the group `sms` that affect texts and destinations.
_SETTINGS = ("countries", "opt_out_hint", "plain_quotes", "require_evidence")


class Rehearsal(Struct):
    """A rehearsal and its result so far; `key` identifies the state of the account's campaign that is rehearsed.

    `completed_at` is in Unix milliseconds and is also set if the rehearsal failed.
    """

    key: str
    account_id: int
    status: Literal["waiting", "running", "complete", "failed"] = "waiting"
    result: RehearsalResult = msgspec.field(default_factory=RehearsalResult)
    completed_at: int | None = None


_lock = threading.Lock()
_rehearsals: "OrderedDict[int, Rehearsal]" = OrderedDict()
_running_accounts: set[int] = set()
_shares = FairShares()


def get_rehearsal(campaign: Campaign) -> Rehearsal:
    """Return the rehearsal of a campaign's current state; if it is missing or out of date, queue a new one."""
    key = _cache_key(campaign)
    with _lock:
        rehearsal = _rehearsals.get(campaign.id)
        is_expired = (
            rehearsal is not None
            and rehearsal.completed_at is not None
            and rehearsal.completed_at < clock.now_ms() - FRESH_MS
        )
        if rehearsal is None or rehearsal.key != key or is_expired:
            rehearsal = _rehearsals[campaign.id] = Rehearsal(key, campaign.account_id)
            own_ids = [number for number, other in _rehearsals.items() if other.account_id == campaign.account_id]
            for number in own_ids[:-_MAX_ACCOUNT_REHEARSALS]:
                del _rehearsals[number]
        _rehearsals.move_to_end(campaign.id)
    if rehearsal.status == "waiting":
        signals.wake("preflights")
    return rehearsal


def _cache_key(campaign: Campaign) -> str:
    """Return a key that changes with the content, account, brand, and chosen lists and segments of a campaign.

    The filters of a segment and the members of lists and segments do not affect the key.
    """
    brand, account = brands.get(campaign.account_id), Account.get_by_id(campaign.account_id)
    trigger = campaign.trigger
    parts: list[Any] = [
        campaign.name, campaign.template_id, campaign.template.revision, campaign.template.updated_at, brand.updated_at,
        account.updated_at, trigger.contact_list_id, trigger.segment_id, trigger.data, campaign.channel,
        campaign.tracking, (campaign.scheduled_at, campaign.local_time) if campaign.channel == "sms" else None,
        [(view.template.id, view.template.revision) for _, view in variants.list_views(campaign)],
    ]  # fmt: skip
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def run_pending(stopping: threading.Event) -> None:
    """Run waiting rehearsals until `stopping` is set or none is left of an account without a running one.

    Up to `MAX_CONCURRENT` threads call this. Of an account, the most recently requested rehearsal is the first. A
    running rehearsal ends early when its campaign has changed or is no longer a draft.
    """
    while not stopping.is_set() and (waiting := _take_next()) is not None:
        campaign_id, rehearsal = waiting
        started_at = time.monotonic()
        try:
            _run_rehearsal(campaign_id, rehearsal, stopping)
        except Exception:
            log.exception("rehearsal: failed campaign=%s", campaign_id)
            rehearsal.status, rehearsal.completed_at = "failed", clock.now_ms()
        finally:
            with _lock:
                _running_accounts.discard(rehearsal.account_id)
                _shares.charge(rehearsal.account_id, time.monotonic() - started_at)


def _take_next() -> tuple[int, Rehearsal] | None:
    """Mark a rehearsal as running and return it with the id of its campaign, or None."""
    with _lock:
        waiting = {
            rehearsal.account_id: (campaign_id, rehearsal)
            for campaign_id, rehearsal in _rehearsals.items()
            if rehearsal.status == "waiting" and rehearsal.account_id not in _running_accounts
        }
        if not waiting:
            return None
        account_id = _shares.next(waiting)
        _running_accounts.add(account_id)
        waiting[account_id][1].status = "running"
        return waiting[account_id]


def _run_rehearsal(campaign_id: int, rehearsal: Rehearsal, stopping: threading.Event) -> None:
    with run_child("rehearse", _build_task(campaign_id)) as lines:
        for message in lines:
            if message:
                rehearsal.result = msgspec.convert(message.get("found") or message["done"], RehearsalResult)
            if "done" in message:
                rehearsal.status, rehearsal.completed_at = "complete", clock.now_ms()
            elif stopping.is_set() or _rehearsals.get(campaign_id) is not rehearsal or not _is_draft(campaign_id):
                return


def _build_task(campaign_id: int) -> RehearsalTask:
    current_config, campaign = config.current(), Campaign.get_by_id(campaign_id)
    settings = {f"sms.{name}": getattr(current_config.sms, name) for name in _SETTINGS}
    # With a local time, all contacts get the SMS at the same hour of their day, which a warning is about.
    is_any_hour = find_transport(campaign) == "capture" or campaign.local_time is not None
    starts_at = None if is_any_hour else max(campaign.scheduled_at or 0, clock.now_ms())
    return RehearsalTask(
        campaign_id,
        str(current_config.data_dir),
        config.base_url(current_config),
        settings,
        starts_at,
        crypto.loaded_key(),
    )


def _is_draft(campaign_id: int) -> bool:
    """Return whether the campaign is still a draft or scheduled, so that its rehearsal is still useful."""
    sql = "SELECT 1 FROM campaign WHERE id = ? AND phase IN ('draft', 'scheduled') AND deleted_at IS NULL"
    return fetch_one(sql, (campaign_id,)) is not None


def describe_rehearsal(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the facts of a rehearsal for preflight: `status`, and the fields of `RehearsalResult`."""
    return {"status": rehearsal.status, **msgspec.to_builtins(rehearsal.result)}
