"""The hour of the day at which a contact clicks most, so that a campaign can be sent to each contact at that hour.

Clicks are counted by contact and hour on the contact's clock (`tracking/engagement.py`): the first click on each
message that was not by a machine. Days of the week are not distinguished: that would take seven times as many clicks.

A few clicks are weak evidence about a person, so the counts are shrunk towards those of all recipients of the campaign
(an empirical Bayes estimate). The share of each hour in the clicks of a person is taken as drawn from a Dirichlet
distribution around the shares of all, `p`, with a concentration `k`. After `n` clicks, `x` of them in an hour, the
expected share of this hour is `(x + k * p) / (n + k)`. The best hour of a person is the one with the highest `x + k *
p`, so without clicks of their own it is the best hour of all. `k` says how many clicks `p` is worth. It is large if
people differ little, and is estimated from their counts: it maximizes the likelihood of the Dirichlet-multinomial
distribution, with a weak prior that holds while few people have several clicks.

Clicks depend on when earlier messages were sent: an hour at which nothing was ever sent has few of them. So an hour can
be found to be the best only if earlier messages could be clicked at it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from appliance.storage.database import rows

# This number of clicks is added to each hour, so that no share is 0.
_EXTRA_CLICKS = 1.0
# Of hours that are equally good, the earliest is taken.
_TIE_BREAK = 1e-9
# The prior of the concentration: its logarithm is normal around that of `_TYPICAL_CONCENTRATION`.
_TYPICAL_CONCENTRATION, _CONCENTRATION_SPREAD = 20.0, 1.0
# With a larger concentration, no person's own clicks could change the hour.
_MIN_CONCENTRATION, _MAX_CONCENTRATION = 0.5, 10_000.0
_SEARCH_STEPS = 40
_COUNT_BY_HOUR = (
    "SELECT k.hour, k.clicks, count(*) FROM ({people}) p CROSS JOIN click_hour k ON k.contact_id = p.id "
    "WHERE k.hour >= :first_hour AND k.hour < :until_hour GROUP BY 1, 2"
)
_COUNT_BY_TOTAL = (
    "SELECT clicks, count(*) FROM (SELECT sum(k.clicks) AS clicks FROM ({people}) p CROSS JOIN click_hour k "
    "ON k.contact_id = p.id WHERE k.hour >= :first_hour AND k.hour < :until_hour GROUP BY k.contact_id) GROUP BY 1"
)


class HourCounts(NamedTuple):
    """The clicks of many people, as numbers of people.

    `by_hour` has the people by (hour, their clicks in it), `by_total` the people by their clicks in all hours together.
    People without clicks are in neither.
    """

    by_hour: Mapping[tuple[int, int], int]
    by_total: Mapping[int, int]


class HourWeights(NamedTuple):
    """The weight of each hour of a campaign, from the clicks of all recipients: `k * p`, in clicks of a person.

    `weights` has the hours from `first` on. `people` is the number of recipients who clicked at any of them.
    """

    first: int
    weights: tuple[float, ...]
    people: int

    @property
    def highest(self) -> float:
        """Return the highest weight, which is the score of the best hour of a person without clicks."""
        return max(self.weights)

    @property
    def best(self) -> int:
        """Return the best hour of a person without clicks."""
        return self.first + max(range(len(self.weights)), key=lambda index: self.weights[index])

    def choose(self, clicks: Mapping[int, int]) -> int:
        """Return the best hour of a person, given the person's clicks by hour."""
        scores = {self.first + index: weight for index, weight in enumerate(self.weights)}
        for hour in scores.keys() & clicks.keys():
            scores[hour] += clicks[hour]
        return max(scores, key=lambda hour: scores[hour])

    def build_score(self) -> str:
        """Return SQL for the score of an hour for a person: the clicks of a row `k` of `click_hour` plus the weight."""
        cases = " ".join(f"WHEN {self.first + index} THEN {weight!r}" for index, weight in enumerate(self.weights))
        return f"(k.clicks + CASE k.hour {cases} END)"

    def build_condition(self) -> str:
        """Return SQL for whether a row `k` of `click_hour` is for one of the hours to choose from."""
        return f"k.hour >= {self.first} AND k.hour < {self.first + len(self.weights)}"

    def build_sql(self, contact_id: str) -> str:
        """Return SQL for the best hour of a contact, by the same rule as `choose`; `contact_id` is SQL for the id."""
        score = self.build_score()
        return (
            f"coalesce((SELECT k.hour FROM click_hour k WHERE k.contact_id = {contact_id} AND {self.build_condition()} "
            f"AND {score} > {self.highest!r} ORDER BY {score} DESC LIMIT 1), {self.best})"
        )


def estimate(counts: HourCounts, first: int, until: int) -> HourWeights:
    """Return the weights of the hours from `first` to before `until`, from the counts of clicks in these hours."""
    clicks = Counter[int]()
    for (hour, number), people in counts.by_hour.items():
        clicks[hour] += number * people
    total = sum(clicks.values())
    shares = [
        (clicks[hour] + _EXTRA_CLICKS) / (total + _EXTRA_CLICKS * (until - first)) for hour in range(first, until)
    ]
    concentration = _find_concentration(counts, shares, first)
    weights = tuple(concentration * share - index * _TIE_BREAK for index, share in enumerate(shares))
    return HourWeights(first, weights, sum(counts.by_total.values()))


def _find_concentration(counts: HourCounts, shares: Sequence[float], first: int) -> float:
    """Return the most likely concentration, by golden section on its logarithm."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(_MIN_CONCENTRATION), math.log(_MAX_CONCENTRATION)
    for _ in range(_SEARCH_STEPS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if _measure(counts, shares, first, left) < _measure(counts, shares, first, right):
            low = left
        else:
            high = right
    return math.exp((low + high) / 2)


def _measure(counts: HourCounts, shares: Sequence[float], first: int, logarithm: float) -> float:
    """Return the log density of a concentration (given by its logarithm), given the counts, up to a constant."""
    concentration = math.exp(logarithm)
    start = math.lgamma(concentration)
    result = sum(people * (start - math.lgamma(concentration + number)) for number, people in counts.by_total.items())
    for (hour, number), people in counts.by_hour.items():
        weight = concentration * shares[hour - first]
        result += people * (math.lgamma(weight + number) - math.lgamma(weight))
    deviation = (logarithm - math.log(_TYPICAL_CONCENTRATION)) / _CONCENTRATION_SPREAD
    return result - deviation**2 / 2


def estimate_of(people: str, parameters: Mapping[str, Any], first: int, until: int) -> HourWeights:
    """Return the weights of hours by the clicks of contacts; `people` is SQL that selects the contacts' ids as `id`.

    For each contact, the query reads the few rows of `ClickHour` by its primary key.
    """
    values = {**parameters, "first_hour": first, "until_hour": until}
    by_hour = {(row[0], row[1]): row[2] for row in rows(_COUNT_BY_HOUR.format(people=people), values)}
    return estimate(HourCounts(by_hour, dict(rows(_COUNT_BY_TOTAL.format(people=people), values))), first, until)
