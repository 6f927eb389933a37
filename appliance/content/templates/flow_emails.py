"""The emails that ready-made flows begin with; `appliance.flows.starters` puts them into steps."""

from typing import Any

from appliance.content.templates.starters import HELLO


def made(home: str) -> dict[str, dict[str, Any]]:
    """Return subject, preheader and design of each email by its name; buttons lead to `home`."""
    return {
        "welcome_clicked": _email(
            "What people read next", "Three things that others found useful.", "What people read next",
            "You have had a first look around. These three are what most people open next.",
            "Show me", home,
        ),
        "welcome_not_clicked": _email(
            "Did this find you at a bad time?", "One link, whenever it suits you.", "Whenever it suits you",
            "A few days ago we sent you a first letter. If there was no time, here is the one page worth keeping.",
            "Have a look", home,
        ),
        "win_back": _email(
            "Shall we stay in touch?", "One click is all it takes.", "Shall we stay in touch?",
            "It has been a while since you opened one of our letters. If you still want them, click once. If not, you "
            "need do nothing: we will write less.",
            "Yes, keep writing", home,
        ),
        "birthday": _email(
            "Happy birthday{% if contact.first_name %}, {{ contact.first_name }}{% endif %}!",
            "A little something for you.", "Happy birthday!",
            "Today is yours. We wish you a good year, and have put something small aside for you.",
            "See what it is", home,
        ),
        "after_event": _email(
            "How is it?", "We'd love to hear from you.", "How is it?",
            "A week ago you ordered from us. Is everything as you hoped? Answer this email, and a person writes back.",
            "Write a review", home,
        ),
    }  # fmt: skip


def _email(subject: str, preheader: str, heading: str, words: str, button: str, home: str) -> dict[str, Any]:
    sections = [
        _section("header", layout="left"),
        _section("heading", text=heading, level=1),
        _section("text", content=f"<p>{HELLO}</p><p>{words}</p>"),
        _section("button", text=button, href=home),
        _section("footer", view_in_browser=True),
    ]
    design = {"sections": [{"id": f"s{number}", **one} for number, one in enumerate(sections, 1)], "theme": {}}
    return {"subject": subject, "preheader": preheader, "design": design}


def _section(kind: str, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "styles": {}}
