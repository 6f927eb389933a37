"""Flows to begin from: four ways that pay for themselves almost everywhere, with real words, in one's own colours."""

from typing import Any, NamedTuple

from appliance import brand as brands
from appliance.designs.theme import Look
from appliance.templates import starters as letters

_HOME = "https://example.com"
_HELLO = 'Hello {{ contact.first_name | default: "there" }},'
_DAY = 86_400

Steps = list[dict[str, Any]]


class Starter(NamedTuple):
    """A flow to begin from: what `POST /flows` would be sent."""

    key: str
    label: str
    description: str
    name: str
    trigger: dict[str, Any]
    steps: Steps


def made(look: Look) -> tuple[Starter, ...]:
    """Answer the four, their buttons leading to the brand's first web address."""
    home = next((url for _, url in look.links if url.startswith(("https://", "http://"))), _HOME)
    return (
        Starter(
            "welcome", "Welcome", "Two letters for everyone who joins a list, the second for those who read the first.",
            "Welcome", {"event": "list_add"}, _welcome(look, home),
        ),
        Starter(
            "win_back", "Win back", "Asks people who have gone quiet whether they want to stay. Choose their segment.",
            "Win back", {"event": "segment_enter"}, _win_back(home),
        ),
        Starter(
            "birthday", "Birthday", "A greeting on the day that stands in a contact's data as `birthday`.",
            "Birthday", {"event": "date_reached", "data": {"path": "data.birthday", "yearly": True, "at": "09:00"}},
            _birthday(home),
        ),
        Starter(
            "after_event", "After an event", "Some days after an order: a word of thanks, and a question.",
            "After an order", {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 30 * _DAY}}},
            _after_event(home),
        ),
    )  # fmt: skip


def of(account_id: int) -> tuple[Starter, ...]:
    """Answer the four in the colours of an account."""
    return made(Look(*brands.look(brands.get(account_id))))


def find(account_id: int, key: str) -> Starter | None:
    """Answer one of the four by its key, in the colours of an account."""
    return next((one for one in of(account_id) if one.key == key), None)


def _welcome(look: Look, home: str) -> Steps:
    letter = letters.find(look, "welcome")
    assert letter is not None  # it is one of the six
    return [
        {"subject": letter.subject, "preheader": letter.preheader, "design": letter.design},
        {"duration": 3 * _DAY},
        {
            "filters": [{"name": "event", "predicate": "performed",
                         "value": {"event": "email_clicked", "since": "flow_start"}}],
            "yes": [_email(
                "What people read next", "Three things that others found useful.", "What people read next",
                "You have had a first look around. These three are what most people open next.",
                "Show me", home,
            )],
            "no": [_email(
                "Did this find you at a bad time?", "One link, whenever it suits you.", "Whenever it suits you",
                "A few days ago we sent you a first letter. If there was no time, here is the one page worth keeping.",
                "Have a look", home,
            )],
        },
    ]  # fmt: skip


def _win_back(home: str) -> Steps:
    return [
        _email(
            "Shall we stay in touch?", "One click is enough.", "Shall we stay in touch?",
            "It has been a while since you opened one of our letters. If you still want them, click once. If not, you "
            "need do nothing: we will write less.",
            "Yes, keep writing", home,
        ),
        {"duration": 7 * _DAY},
        {
            "filters": [{"name": "event", "predicate": "performed",
                         "value": {"event": "email_clicked", "since": "flow_start"}}],
            "yes": [{"type": "contact_update", "data_merge": {"quiet": None}}],
            "no": [{"type": "contact_update", "data_merge": {"quiet": True}}],
        },
    ]  # fmt: skip


def _birthday(home: str) -> Steps:
    return [
        _email(
            'Happy birthday{% if contact.first_name %}, {{ contact.first_name }}{% endif %}!', "A small something.",
            "Happy birthday!", "Today is yours. We wish you a good year, and have put something small aside for you.",
            "See what it is", home,
        ),
    ]  # fmt: skip


def _after_event(home: str) -> Steps:
    return [
        {"duration": 7 * _DAY},
        _email(
            "How is it?", "We should like to know.", "How is it?",
            "A week ago you ordered from us. Is everything as you hoped? Answer this email, and a person writes back.",
            "Write a review", home,
        ),
    ]  # fmt: skip


def _email(subject: str, preheader: str, heading: str, words: str, button: str, home: str) -> dict[str, Any]:
    sections = [
        _section("header", layout="left"),
        _section("heading", text=heading, level=1),
        _section("text", content=f"<p>{_HELLO}</p><p>{words}</p>"),
        _section("button", text=button, href=home),
        _section("footer", view_in_browser=True),
    ]
    design = {"sections": [{"id": f"s{number}", **one} for number, one in enumerate(sections, 1)], "theme": {}}
    return {"subject": subject, "preheader": preheader, "design": design}


def _section(kind: str, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "styles": {}}
