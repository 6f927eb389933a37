"""How a new sending domain begins where we deliver ourselves: few messages a day, more after each day that went well.

Servers trust an address that sends little that is wanted, then more of it; a sudden crowd they turn away (D22). A day
is one of UTC. What came back counts for the day on which it was heard.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from appliance.core import clock
from appliance.sending.delivery.groups import domain_of
from appliance.sending.delivery.routing import DIRECT
from appliance.sending.messages.ledger import Claim
from appliance.settings import config
from appliance.storage.open import fetch_one, rows, run, scalar
from appliance.storage.work import writing

DAY_MS = 24 * 3600 * 1000
CAPS = (50, 100, 200, 400, 700, 1_000, 1_500, 2_500, 4_000, 6_000, 9_000, 13_000, 20_000)
# What a day needs to be followed by a larger one: used enough, and so little of it in vain, refused, complained about
_USED, _HARD, _REFUSED, _COMPLAINTS = 0.6, 0.02, 0.05, 0.001
# Nobody remembers who was silent for so long: it begins anew
_FORGOTTEN_DAYS = 30


class Day(NamedTuple):
    """A day of a domain: which step of the plan it is, how many may go (0: as many as there are), how many did."""

    domain: str
    day: int
    step: int
    cap: int
    accepted: int
    hard: int = 0
    refused: int = 0
    complaints: int = 0

    @property
    def over_at(self) -> int:
        """The moment the next day begins, in milliseconds."""
        return (self.day + 1) * DAY_MS

    def went_well(self) -> bool:
        """Return whether a larger day may follow."""
        return (
            self.accepted >= _USED * self.cap
            and self.hard < _HARD * (self.accepted + self.hard)
            and self.refused < _REFUSED * (self.accepted + self.refused)
            and self.complaints < max(_COMPLAINTS * self.accepted, 1)
        )


_COLUMNS = ", ".join(Day._fields)


def applies() -> bool:
    """Return whether sending domains begin slowly here."""
    email = config.current().email
    return email.transport == DIRECT and email.direct.warm_up


def number_of_today() -> int:
    """Return the number of this day."""
    return clock.now_ms() // DAY_MS


def today(domain: str) -> Day:
    """Return a domain's day, which begins with the first that asks: as large as the day before allows."""
    writing()
    day = number_of_today()
    known = fetch_one(f"SELECT {_COLUMNS} FROM warm_up_day WHERE domain = ? AND day = ?", (domain, day))
    if known is not None:
        return Day(*known)
    before = fetch_one(f"SELECT {_COLUMNS} FROM warm_up_day WHERE domain = ? ORDER BY day DESC LIMIT 1", (domain,))
    step = 0 if before is None else following(Day(*before), day)
    fresh = Day(domain, day, step, CAPS[step] if step < len(CAPS) else 0, 0)
    marks = ", ".join("?" * len(fresh))
    run(f"INSERT INTO warm_up_day ({_COLUMNS}) VALUES ({marks})", fresh)
    return fresh


def following(before: Day, day: int) -> int:
    """Return the step of a day, after the last one on which something was sent."""
    if day - before.day > _FORGOTTEN_DAYS:
        return 0
    if before.step >= len(CAPS) or day <= before.day or not before.went_well():
        return before.step
    return before.step + 1


def domains_of(account_id: int) -> set[str]:
    """Return the domains an account sends from; whose else there are here is none of its business."""
    found = rows(
        "SELECT '@' || name FROM sending_domain WHERE account_id = ?1 UNION SELECT email_from_email FROM account "
        "WHERE id = ?1 UNION SELECT json_extract(sender, '$.email') FROM campaign WHERE account_id = ?1",
        (account_id,),
    )
    return {domain_of(row[0]) for row in found if row[0]}


def days(account_id: int) -> list[Day]:
    """Return how an account's domains stand that are not through yet: the last day of each."""
    own = domains_of(account_id)
    found = rows(
        f"SELECT {_COLUMNS} FROM warm_up_day w WHERE step < ? AND day > ? "
        "AND day = (SELECT max(day) FROM warm_up_day WHERE domain = w.domain) ORDER BY domain",
        (len(CAPS), number_of_today() - _FORGOTTEN_DAYS),
    )
    return [Day(*row) for row in found if row[0] in own]


def ends_on(day: Day, left: int) -> int | None:
    """Return when so many more will have gone if all goes well, as the beginning of that day; None if that is today."""
    left -= max(0, day.cap - day.accepted) if day.cap else left
    at, step = day.day, day.step
    while left > 0:
        at, step = at + 1, step + 1
        left -= CAPS[step] if step < len(CAPS) else left
    return at * DAY_MS if at > day.day else None


def words(day: Day) -> str:
    """Say for people that a domain has sent what it may today."""
    return f"today's {day.cap} messages from {day.domain} have gone, day {day.step + 1} of {len(CAPS)} of a new domain"


def shown_day(ms: int) -> str:
    """Write a day for people."""
    then = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{then.day} {then.strftime('%B')}"


# -- what is counted, in the transaction that writes down what became of a message ------------------------------------


def accepted(counts: Mapping[str, int]) -> None:
    """Count messages that were taken, by the domain they are from."""
    writing()
    day = number_of_today()
    for domain, count in counts.items():
        run("UPDATE warm_up_day SET accepted = accepted + ? WHERE domain = ? AND day = ?", (count, domain, day))


def came_back(row: Claim, column: str, sender: str | None = None) -> None:
    """Count something that speaks against a domain's beginning: `hard`, `refused` or `complaints`."""
    writing()
    if row.provider != DIRECT or row.test:
        return
    domain = domain_of(sender or scalar("SELECT sender FROM message WHERE id = ?", (row.id,)) or "")
    run(f"UPDATE warm_up_day SET {column} = {column} + 1 WHERE domain = ? AND day = ?", (domain, number_of_today()))
