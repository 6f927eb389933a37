"""What the SMS of a campaign take: how many parts for whom, which character costs most, and to which countries."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from appliance import clock
from appliance.contacts.store import is_sendable
from appliance.messages import hints, texts, values
from appliance.messages.texts import Worded
from appliance.sms import gsm, numbers
from appliance.tables import Account, Campaign, Channel, Contact

# Up to so many people each text is made; of more, those of so many that stand evenly among them
MOST_MADE = 20_000
UNKNOWN = "unknown"
_MOST_NAMED = 10


class Forced(Struct):
    """A character that GSM-7 lacks, and how many people's SMS it makes longer."""

    character: str
    name: str
    count: int


class Texts(Struct):
    """What the SMS take that were made.

    `parts` is for everybody; where not everybody's was made (`is_exact` false) it follows from those that were. `ucs2`,
    `fixed_lines` and the sums by parts and country are numbers of people.
    """

    parts: int = 0
    is_exact: bool = True
    by_parts: dict[str, int] = field(default_factory=dict)
    ucs2: int = 0
    forcing: list[Forced] = field(default_factory=list)
    characters: int = 0
    countries: dict[str, int] = field(default_factory=dict)
    fixed_lines: int = 0


class Making:
    """Makes the SMS of a campaign for one person after another, and sums up what they take."""

    def __init__(self, campaign: Campaign, account: Account) -> None:
        body = campaign.template.body
        self._body = texts.compiled(body, [one.href for one in texts.links(body)] if campaign.tracking else None)
        self._hint = account.sms_opt_out_hint
        self._forcing: Counter[str] = Counter()
        self._by_parts: Counter[int] = Counter()
        self._countries: Counter[str] = Counter()
        self.found = Texts()

    def make(self, contact: Contact, filled_in: Mapping[str, Any]) -> str | None:
        """Make one; answers why it cannot be sent, if so. Raises MergeError."""
        phone = _phone(contact)
        number, hinted_at = (phone.value, phone.hinted_at) if phone is not None else (None, None)
        said = {**filled_in, **values.of_contact(contact, number, "phone"), **texts.tokens()}
        worded = texts.fill(self._body, said, self._hint, hints.is_over(hinted_at, clock.now_ms()))
        problem = worded.problem()
        if problem is None:
            self._count(worded)
            self._place(phone)
        return problem

    def sum_up(self, done: int, total: int) -> Texts:
        """Answer what was found with so many of all who get it."""
        found, made = self.found, sum(self._by_parts.values())
        parts = sum(count * people for count, people in self._by_parts.items())
        found.is_exact = done >= total
        found.parts = parts if found.is_exact or not done else round(parts * total / done)
        found.by_parts = {str(count): self._by_parts[count] for count in sorted(self._by_parts)}
        found.forcing = [Forced(one, gsm.named(one), count) for one, count in self._forcing.most_common(_MOST_NAMED)]
        found.countries = dict(self._countries.most_common())
        found.ucs2 = min(made, sum(self._forcing.values()))
        return found

    def _count(self, worded: Worded) -> None:
        counted = worded.counted
        self._by_parts[counted.parts] += 1
        self.found.characters = max(self.found.characters, counted.characters)
        if counted.forcing is not None:
            self._forcing[counted.forcing] += 1

    def _place(self, phone: Channel | None) -> None:
        if phone is None:
            return
        number = numbers.look(phone.key)
        self._countries[number.country or UNKNOWN] += 1
        self.found.fixed_lines += number.type == "fixed"


def spread(ids: list[int], most: int = MOST_MADE) -> list[int]:
    """Answer so many of the people at most, evenly from the first to the last."""
    return ids if len(ids) <= most else [ids[index * len(ids) // most] for index in range(most)]


def _phone(contact: Contact) -> Channel | None:
    """Answer the number that an SMS goes to: the first that may be written to, as the audience has it."""
    return next((one for one in contact.channels if one.kind == "phone" and is_sendable(one)), None)
