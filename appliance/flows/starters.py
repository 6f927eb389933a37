"""Flows to begin from: four ways that pay for themselves almost everywhere, with real words, in one's own colours."""

from typing import Any, NamedTuple

from appliance.content import brand as brands
from appliance.content.designs.theme import Look
from appliance.content.templates import flow_emails
from appliance.content.templates import starters as letters

_DAY = 86_400

Steps = list[dict[str, Any]]
Emails = dict[str, dict[str, Any]]


class Starter(NamedTuple):
    """A flow to begin from: what `POST /flows` would be sent."""

    key: str
    label: str
    description: str
    name: str
    trigger: dict[str, Any]
    steps: Steps


def made(look: Look) -> tuple[Starter, ...]:
    """Return the four, their buttons leading to the brand's first web address."""
    emails = flow_emails.made(letters.home_of(look))
    return (
        Starter(
            "welcome", "Welcome", "Two letters for everyone who joins a list, the second for those who read the first.",
            "Welcome", {"event": "list_add"}, _welcome(look, emails),
        ),
        Starter(
            "win_back", "Win back", "Asks people who have gone quiet whether they want to stay. Choose their segment.",
            "Win back", {"event": "segment_enter"}, _win_back(emails),
        ),
        Starter(
            "birthday", "Birthday", "A greeting on the day that stands in a contact's data as `birthday`.",
            "Birthday", {"event": "date_reached", "data": {"path": "data.birthday", "yearly": True, "at": "09:00"}},
            _birthday(emails),
        ),
        Starter(
            "after_event", "After an event", "Some days after an order: a word of thanks, and a question.",
            "After an order", {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 30 * _DAY}}},
            _after_event(emails),
        ),
    )  # fmt: skip


def of(account_id: int) -> tuple[Starter, ...]:
    """Return the four in the colours of an account."""
    return made(Look(*brands.look(brands.get(account_id))))


def find(account_id: int, key: str) -> Starter | None:
    """Return one of the four by its key, in the colours of an account."""
    return next((one for one in of(account_id) if one.key == key), None)


def _welcome(look: Look, emails: Emails) -> Steps:
    letter = letters.find(look, "welcome")
    assert letter is not None  # it is one of the six
    return [
        {"subject": letter.subject, "preheader": letter.preheader, "design": letter.design},
        {"duration": 3 * _DAY},
        {
            "filters": [{"name": "event", "predicate": "performed",
                         "value": {"event": "email_clicked", "since": "flow_start"}}],
            "yes": [emails["welcome_clicked"]],
            "no": [emails["welcome_not_clicked"]],
        },
    ]  # fmt: skip


def _win_back(emails: Emails) -> Steps:
    return [
        emails["win_back"],
        {"duration": 7 * _DAY},
        {
            "filters": [{"name": "event", "predicate": "performed",
                         "value": {"event": "email_clicked", "since": "flow_start"}}],
            "yes": [{"type": "contact_update", "data_merge": {"quiet": None}}],
            "no": [{"type": "contact_update", "data_merge": {"quiet": True}}],
        },
    ]  # fmt: skip


def _birthday(emails: Emails) -> Steps:
    return [emails["birthday"]]


def _after_event(emails: Emails) -> Steps:
    return [{"duration": 7 * _DAY}, emails["after_event"]]
