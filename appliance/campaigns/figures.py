"""The shape of a report: every number with the rows of the ledger that it counts."""

from msgspec import Struct


class Count(Struct):
    """A number of people, what share that is (null where there is no share), and the path that lists them."""

    count: int
    rate: float | None
    people: str


class Term(Struct):
    """One term of the ledger."""

    name: str
    count: int
    people: str


class Books(Struct):
    """The ledger's identity: everybody of the audience stands in one term. `delivered_to` is what rates refer to."""

    audience: Count
    accepted: Count
    delivered_to: int
    terms: list[Term]
    sum: int
    adds_up: bool


class Engaged(Struct):
    """Opens or clicks: people, those that only machines opened for, and how often in all, by whom as far as we know.

    `unnamed` came from people who want to be counted and not known; they stand in the totals alone.
    """

    people: Count
    machines: Count
    total: int
    total_human: int
    total_machine: int
    unnamed: int


class LinkFigures(Struct):
    """What became of one link, by its number; rates are of those who clicked anything.

    Those that are not `counted` lead where they say: ways out, mail and telephone, and what cannot be known in advance.
    """

    number: int
    url: str
    words: str
    counted: bool
    clicked: Count
    total: int
    total_human: int
    total_machine: int


class DomainFigures(Struct):
    """The mailboxes of one provider, or of all that are too few to be named (`name` null)."""

    name: str | None
    domains: list[str]
    people: str | None
    audience: int
    accepted: int
    bounced: int
    failed: int
    complained: int
    opened: int
    clicked: int


class CountryFigures(Struct):
    """What became of the SMS to one country (null: numbers of none), and the parts that were taken to it."""

    country: str | None
    people: str
    audience: int
    accepted: int
    delivered: int
    bounced: int
    failed: int
    skipped: int
    clicked: int
    parts: int


class SmsFigures(Struct):
    """What only SMS have: the parts that providers took, and the countries they went to."""

    parts: int
    countries: list[CountryFigures]


class Trouble(Struct, rename={"class_": "class"}):
    """A reason why messages did not arrive, in the server's own words less what they say to one recipient alone."""

    key: str
    status: str
    reason: str | None
    text: str | None
    class_: str | None
    meaning: str | None
    help: str | None
    count: int
    people: str


class Bucket(Struct, rename={"from_": "from"}):
    """People who opened and clicked for the first time in an hour (of the first two days) or a day."""

    from_: str
    until: str
    opened: int
    clicked: int


class Report(Struct):
    """What became of a campaign, all of one moment."""

    campaign_id: int
    tracking: bool
    ledger: Books
    opens: Engaged
    clicks: Engaged
    unsubscribes: Count
    complaints: Count
    bounces: Count
    links: list[LinkFigures]
    domains: list[DomainFigures]
    sms: SmsFigures | None
    problems: list[Trouble]
    over_time: list[Bucket]
