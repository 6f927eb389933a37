"""Renders a campaign for each of its recipients and tells what would not do; in a child process, for it takes a while.

It reads the same functions that send, so that what renders here renders there.
"""

import os
import time
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from appliance import brand as brands
from appliance import config, tokens
from appliance.campaigns import audience, rehearse_sms
from appliance.campaigns.rehearse_sms import Texts
from appliance.children import Teller
from appliance.contacts import store as contacts
from appliance.db.dialect import catalogue
from appliance.db.open import open_database
from appliance.designs import merge, rewriting, variables
from appliance.designs.merge import MergeError
from appliance.messages import compose, links, values
from appliance.tables import Account, Campaign, Contact
from appliance.templates.store import document

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
        self.sms = rehearse_sms.Making(campaign, account, starts_at) if campaign.channel == "sms" else None
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
            rewriting.ROOT: links.counting(0),
        }  # fmt: skip
        asked = variables.of(said)
        # What a campaign never has (`data`, `event`) everybody lacks; what nobody knows is told apart
        self.lacks = [Lack(name) for name, one in asked.items() if one["required"] and not merge.unknown([name])]
        self.outcome = Outcome(lacking=self.lacks)

    def run(self) -> Iterator[Outcome]:
        """Render for everybody, as far as there is time; yields what was found so far now and then, and at the end."""
        everybody = audience.sample(self.campaign, audience.ALL)
        self.outcome.total = len(everybody)
        ids = array("q", everybody if self.sms is None else rehearse_sms.spread(everybody))
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
    catalogue.read_only()
    found = Outcome()
    for found in Rehearsing(Campaign.get_by_id(task.campaign_id), task.starts_at).run():
        teller.say({"found": found})
    teller.say({"done": found})
    return 0
