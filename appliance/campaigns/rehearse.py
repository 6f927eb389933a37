"""Renders a campaign for each of its recipients and tells what would not do; in a child process, for it takes a while.

It reads the same functions that send, so that what renders here renders there.
"""

import os
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import is_sendable
from appliance.campaigns import audience
from appliance.content import brand as brands
from appliance.content.designs import links as designs_links
from appliance.content.designs import merge, variables
from appliance.content.designs.merge import MergeError
from appliance.content.templates.store import document
from appliance.core import clock, tokens
from appliance.core.subprocesses import Teller
from appliance.sending.messages import compose, links, quiet, sms_rules, texts, values
from appliance.sending.messages.texts import Worded
from appliance.sending.sms import gsm, numbers
from appliance.settings import config
from appliance.storage import sql
from appliance.storage.models import Account, Campaign, Channel, Contact
from appliance.storage.open import open_database

# What the SMS of a campaign take: how many parts for whom, which character costs most, and to which countries.

# Up to so many people each text is made; of more, those of so many that stand evenly among them
MAX_MADE = 20_000
UNKNOWN = "unknown"
_MAX_NAMED = 10


class Forced(Struct):
    """A character that GSM-7 lacks, and how many people's SMS it makes longer."""

    character: str
    name: str
    count: int


class Texts(Struct):
    """What the SMS take that were made.

    `parts` is for everybody; where not everybody's was made (`is_exact` false) it follows from those that were. All
    others are numbers of people: those whom it does not go to by reason, those in whose night it starts.
    """

    parts: int = 0
    is_exact: bool = True
    by_parts: dict[str, int] = field(default_factory=dict)
    ucs2: int = 0
    forcing: list[Forced] = field(default_factory=list)
    characters: int = 0
    countries: dict[str, int] = field(default_factory=dict)
    fixed_lines: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    resting: int = 0


class Making:
    """Makes the SMS of a campaign for one person after another, and sums up what they take."""

    def __init__(self, campaign: Campaign, account: Account, starts_at: int | None) -> None:
        body = campaign.template.body
        self._body = texts.compiled(body, [one.href for one in texts.links(body)] if campaign.tracking else None)
        self._hint = account.sms_opt_out_hint
        self._forcing: Counter[str] = Counter()
        self._by_parts: Counter[int] = Counter()
        self._countries: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._quiet_hours, self._time_zone, self._start = account.sms_quiet_hours, account.time_zone, starts_at
        self.found = Texts()

    def make(self, contact: Contact, filled_in: Mapping[str, Any]) -> str | None:
        """Make one; answers why it cannot be sent, if so. Raises MergeError."""
        phone = _phone(contact)
        if phone is None:
            return None  # they have just left
        reason = _refused(contact, phone.key)
        if reason is not None:
            self._refused[reason] += 1
            return None
        said = {**filled_in, **values.of_contact(contact, phone.value, "phone"), **texts.tokens()}
        worded = texts.fill(self._body, said, self._hint, texts.is_over(phone.hinted_at, clock.now_ms()))
        problem = worded.problem()
        if problem is None:
            self._count(worded)
            self._place(contact, phone.key)
        return problem

    def sum_up(self, done: int, total: int) -> Texts:
        """Return what was found with so many of all who get it."""
        found, made = self.found, sum(self._by_parts.values())
        parts = sum(count * people for count, people in self._by_parts.items())
        found.is_exact = done >= total
        found.parts = parts if found.is_exact or not done else round(parts * total / done)
        found.by_parts = {str(count): self._by_parts[count] for count in sorted(self._by_parts)}
        found.forcing = [Forced(one, gsm.named(one), count) for one, count in self._forcing.most_common(_MAX_NAMED)]
        found.refused = dict(self._refused.most_common())
        found.countries = dict(self._countries.most_common())
        found.ucs2 = min(made, sum(self._forcing.values()))
        return found

    def _count(self, worded: Worded) -> None:
        counted = worded.counted
        self._by_parts[counted.parts] += 1
        self.found.characters = max(self.found.characters, counted.characters)
        if counted.forcing is not None:
            self._forcing[counted.forcing] += 1

    def _place(self, contact: Contact, key: str) -> None:
        number = numbers.look(key)
        self._countries[number.country or UNKNOWN] += 1
        self.found.fixed_lines += number.type == "fixed"
        if self._quiet_hours is not None and self._start is not None:
            said = (contact.data or {}).get("time_zone")
            clocks = sms_rules.clocks_of(said, contact.country_code, key, self._time_zone)
            self.found.resting += quiet.until_all(self._quiet_hours, clocks, self._start) is not None


def _refused(contact: Contact, key: str) -> str | None:
    """Return why no SMS of a campaign goes to a number, as it is asked again right before one would."""
    found = sms_rules.refused(key)
    if found is not None:
        return found[0]
    return None if sms_rules.has_evidence(contact.id) else "no_consent"


def spread_people(ids: list[int], most: int = MAX_MADE) -> list[int]:
    """Return so many of the people at most, evenly from the first to the last."""
    return ids if len(ids) <= most else [ids[index * len(ids) // most] for index in range(most)]


def _phone(contact: Contact) -> Channel | None:
    """Return the number that an SMS goes to: the first that may be written to, as the audience has it."""
    return next((one for one in contact.channels if one.kind == "phone" and is_sendable(one)), None)


_CHUNK = 500
_NAMED = 50
_TOLD_SECONDS = 0.3
# A message may take 50 ms; an audience of which each does would take hours, and others wait
MAX_SECONDS = 180.0


class Task(Struct):
    """What is asked for; `settings` are those of SMS that decide what they say and where they go.

    `starts_at` is when people would get them, where there is a night to be kept (ms).
    """

    campaign_id: int
    data_dir: str
    base_url: str
    settings: dict[str, Any] = field(default_factory=dict)
    starts_at: int | None = None
    key: bytes = b""  # of the installation


class Failure(Struct):
    """Somebody for whom the message cannot be made, and why."""

    contact_id: int
    error: str


class Lack(Struct):
    """A merge tag without a default, how many people lack its value, and the first of them."""

    name: str
    count: int = 0
    contact_ids: list[int] = field(default_factory=list)


class Outcome(Struct):
    """What a rehearsal found; `html_bytes` is the largest mail, `sms` what the texts take."""

    total: int = 0
    done: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    lacking: list[Lack] = field(default_factory=list)
    html_bytes: int = 0
    sms: Texts | None = None


class Rehearsing:
    """One pass over the people of a campaign."""

    def __init__(self, campaign: Campaign, starts_at: int | None = None) -> None:
        self.campaign = campaign
        account, brand = Account.get_by_id(campaign.account_id), brands.get(campaign.account_id)
        said = document(campaign.template)
        self.sms = Making(campaign, account, starts_at) if campaign.channel == "sms" else None
        self.content = None
        if self.sms is None:
            source = compose.source_of(said, brands.look(brand), account.locale, marketing=True)
            self.content = compose.compile_source(source)
            if campaign.tracking:
                self.content = compose.tracked_all(self.content)
        else:
            said = {"body": said["body"]}
        self.shared = {
            **values.of_account(account, brand), **values.of_message(0), "campaign": {"name": campaign.name},
            designs_links.ROOT: links.counting(0),
        }  # fmt: skip
        asked = variables.of(said)
        # What a campaign never has (`data`, `event`) everybody lacks; what nobody knows is told apart
        self.lacks = [Lack(name) for name, one in asked.items() if one["required"] and not merge.unknown([name])]
        self.outcome = Outcome(lacking=self.lacks)

    def run(self) -> Iterator[Outcome]:
        """Render for everybody, as far as there is time; yields what was found so far now and then, and at the end."""
        everybody = audience.sample(self.campaign, audience.ALL)
        self.outcome.total = len(everybody)
        ids = array("q", everybody if self.sms is None else spread_people(everybody))
        begun = told = time.monotonic()
        for start in range(0, len(ids), _CHUNK):
            self._chunk(ids[start : start + _CHUNK].tolist())
            if time.monotonic() - begun > MAX_SECONDS:
                break
            if time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                yield self._summed()
        yield self._summed()

    def _summed(self) -> Outcome:
        if self.sms is not None:
            self.outcome.sms = self.sms.sum_up(self.outcome.done, self.outcome.total)
        return self.outcome

    def _chunk(self, ids: list[int]) -> None:
        people = contacts.by_ids(ids)
        conditions = self.content.conditions if self.content is not None else {}
        shown = values.shown_to(self.campaign.account_id, ids, conditions)
        for contact in people:
            self.outcome.done += 1
            filled_in = {**self.shared, **values.of_contact(contact, None), "show": shown.get(contact.id, {})}
            try:
                problem = self._make(contact, filled_in)
            except MergeError as error:
                problem = error.words()
            if problem is not None:
                self._failed(contact.id, problem)
                continue
            for lack in self.lacks:
                if _value(filled_in, lack.name) in (None, ""):
                    lack.count += 1
                    if len(lack.contact_ids) < _NAMED:
                        lack.contact_ids.append(contact.id)

    def _make(self, contact: Contact, filled_in: Mapping[str, Any]) -> str | None:
        """Make the message of one person; answers why it cannot be sent, if so. Raises MergeError."""
        if self.content is None:
            return self.sms.make(contact, filled_in) if self.sms is not None else None
        filled = compose.fill(self.content, filled_in)
        self.outcome.html_bytes = max(self.outcome.html_bytes, len(filled.html.encode()))
        return None

    def _failed(self, contact_id: int, words: str) -> None:
        self.outcome.failed += 1
        if len(self.outcome.failures) < _NAMED:
            self.outcome.failures.append(Failure(contact_id, words))


def _value(filled_in: Mapping[str, Any], name: str) -> Any:
    found: Any = filled_in
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def main() -> int:
    """Do one task for the service (see `children`)."""
    os.nice(10)
    teller = Teller()
    task = teller.task(Task)
    options = {"data_dir": task.data_dir, "base_url": task.base_url, **task.settings}
    config.use(config.load(options, {}).config)
    tokens.use_key(task.key)
    open_database(Path(task.data_dir, "campanero.db"))
    sql.read_only()
    found = Outcome()
    for found in Rehearsing(Campaign.get_by_id(task.campaign_id), task.starts_at).run():
        teller.say({"found": found})
    teller.say({"done": found})
    return 0
