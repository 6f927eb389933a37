"""What the SMS of a campaign take: how many parts for whom, which character costs most, and to which countries."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from appliance import clock
from appliance.contacts.store import is_sendable
from appliance.messages import opt_out_hints, quiet, sms_rules, texts, values
from appliance.messages.texts import Worded
from appliance.sms import gsm, numbers
from appliance.tables import Account, Campaign, Channel, Contact

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
        worded = texts.fill(self._body, said, self._hint, opt_out_hints.is_over(phone.hinted_at, clock.now_ms()))
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


def spread(ids: list[int], most: int = MAX_MADE) -> list[int]:
    """Return so many of the people at most, evenly from the first to the last."""
    return ids if len(ids) <= most else [ids[index * len(ids) // most] for index in range(most)]


def _phone(contact: Contact) -> Channel | None:
    """Return the number that an SMS goes to: the first that may be written to, as the audience has it."""
    return next((one for one in contact.channels if one.kind == "phone" and is_sendable(one)), None)
