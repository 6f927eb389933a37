"""Designs to begin from: six letters with real words, in the colours of whoever opens them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.content.designs.theme import Look
from appliance.content.templates.checks import named

# Where a button leads while the brand has no web address
HOME = "https://example.com"
Sections = list[dict[str, Any]]


class Starter(NamedTuple):
    """A design to begin from, with the words around it."""

    key: str
    label: str
    description: str
    subject: str
    preheader: str
    design: dict[str, Any]


def made(look: Look) -> tuple[Starter, ...]:
    """Return the six, their buttons leading to the brand's first web address."""
    home = home_of(look)
    return tuple(
        Starter(key, label, description, subject, preheader,
                named({"sections": _whole(sections(home), look, bare=key == "letter"), "theme": {}}))
        for key, label, description, subject, preheader, sections in _ALL
    )  # fmt: skip


def home_of(look: Look) -> str:
    """Return the brand's first web address, else `HOME`."""
    return next((url for _, url in look.links if url.startswith(("https://", "http://"))), HOME)


def find(look: Look, key: str) -> Starter | None:
    """Return one of the six by its key."""
    return next((one for one in made(look) if one.key == key), None)


def _whole(inner: Sections, look: Look, bare: bool) -> Sections:
    """Put header, links and footer around what a letter says; a bare one reads as if one person wrote it to another."""
    links = [{"platform": name, "url": url} for name, url in look.links if url.startswith("http")][:6]
    before = [] if bare else [_section("header", layout="left")]
    after = [_section("social", links=links, align="center", style="ink")] if links and not bare else []
    found = [*before, *inner, *after, _section("footer", view_in_browser=not bare)]
    return [{"id": f"s{number}", **one} for number, one in enumerate(found, 1)]


def _section(kind: str, styles: dict[str, str] | None = None, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "styles": styles or {}}


def _text(*paragraphs: str, styles: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return _section("text", styles, content="".join(f"<p>{one}</p>" for one in paragraphs), **more)


def _story(title: str, words: str, link: str, href: str) -> dict[str, Any]:
    return {"sections": [
        _section("heading", text=title, level=3),
        _text(words),
        _section("button", text=link, href=href, style="link"),
    ]}  # fmt: skip


# The space under a coloured head
_BELOW = {"padding": "32px 32px 12px"}
HELLO = 'Hello {{ contact.first_name | default: "there" }},'
_REGARDS = "With kind regards"
_PREFERENCES = (
    "<strong>Too much, or too little?</strong><br>You choose what you get from us, at any time: "
    '<a href="{{ preferences_url }}">set your preferences</a>.'
)
# Paragraphs of starters that are true of every sender, so that they may be sent as they are
FIT_TO_SEND = (HELLO, _REGARDS, _PREFERENCES)


def _newsletter(home: str) -> Sections:
    return [
        _section("heading", text="Three things worth your time", level=1),
        _text(HELLO, "This month was a busy one. Here is what we finished, what we learned on the way, and one idea "
                      "you can try before the week is over."),
        _section("divider"),
        _section("heading", text="What we finished", level=2),
        _text("You asked for it more than for anything else, so we took the time to do it well. It is ready now, and "
              "the people who tried it first tell us they would not go back."),
        _section("button", text="See what is new", href=home),
        _section("divider"),
        _section("columns", preset="1:1", gap=32, columns=[
            _story("What we learned", "Small steps beat big plans. Four notes from a year of changing one thing a "
                   "week, and keeping only what helped.", "Read the notes", home),
            _story("Try this week", "Choose the task you put off most and give it twenty minutes before you open "
                   "your mail. That is the whole idea.", "How it works", home),
        ]),
        _section("quote", {"padding": "24px 32px"}, text="I look forward to this letter. It is short, and there is "
                 "always something I can use on the same day.", author="A reader", role="for five years"),
    ]  # fmt: skip


def _announcement(home: str) -> Sections:
    return [
        _section("hero", {"background_color": "theme:brand"}, title="Something new is here",
                 subtitle="It is simpler, quicker, and made from what you told us.", cta_text="Have a look",
                 cta_url=home, height=320),
        _text(HELLO, "For a long time one question came up again and again: could this not be easier? Today we can "
                      "say yes. Here is what changes for you, in short.", styles=_BELOW),
        _section("list", style="check", items=[
            {"title": "Done in one step", "text": "What took four screens fits on one now."},
            {"title": "Everything stays where it was", "text": "Nothing you have made is lost or moved."},
            {"title": "Nothing to set up", "text": "It is switched on for you already."},
        ]),
        _section("button", text="Try it now", href=home, align="left"),
        _text("If something does not work the way you expect, just answer this email. A person reads every reply."),
    ]  # fmt: skip


def _offer(home: str) -> Sections:
    return [
        _section("heading", {"padding": "28px 32px 4px"}, text="20 % off until Sunday", level=1,
                 align="center"),
        _text("A thank-you to everyone who reads our letters. Choose what you like, write the code at the checkout, "
              "and the price falls by a fifth.", align="center"),
        _section("coupon", {"padding": "16px 32px 28px"}, code="THANKYOU20", text="20 % off everything you order",
                 button={"text": "Use the code", "href": home}, border="dashed"),
        _section("divider"),
        _section("heading", text="Two to begin with", level=2, align="center"),
        _section("product_grid", items=[
            {"name": "The classic", "price": "€ 24", "old_price": "€ 30", "href": home,
             "description": "Our first, and still the one we sell most.", "button": "View"},
            {"name": "The new one", "price": "€ 36", "old_price": "€ 45", "href": home,
             "description": "A little larger, and made to last longer.", "button": "View"},
        ]),
        _text("One code for each order, not to be combined with others. Prices include tax.", size=13, align="center"),
    ]  # fmt: skip


def _invitation(home: str) -> Sections:
    return [
        _section("hero", {"background_color": "theme:brand"}, title="You are invited",
                 subtitle="An evening of good people, short talks and dinner.", cta_text="Save my seat",
                 cta_url=home, height=300),
        _text(HELLO, "Once a year we open our doors and show what we have been working on. We would be glad to have "
                      "you with us.", styles=_BELOW),
        _section("columns", {"padding": "8px 32px"}, preset="1:1", gap=32, columns=[
            {"sections": [_section("heading", text="When", level=3),
                          _text("Thursday, 14 May<br>from 18:30 to about 21:00")]},
            {"sections": [_section("heading", text="Where", level=3),
                          _text("The old print works<br>12 Harbour Street")]},
        ]),
        _section("divider"),
        _section("heading", text="The evening", level=2),
        _section("list", style="bullet", items=[
            {"title": "18:30 – Doors open", "text": "Something to drink, and time to say hello."},
            {"title": "19:15 – Three short talks", "text": "Fifteen minutes each, and room for questions."},
            {"title": "20:15 – Dinner", "text": "One long table. Tell us what you do not eat."},
        ]),
        _section("button", text="Save my seat", href=home, note="Free of charge. There are sixty seats."),
    ]  # fmt: skip


def _letter(home: str) -> Sections:
    return [
        _text(HELLO, "I am writing to you myself, because this is easier said in a letter than in a brochure.",
              "We have known each other for some time now. You have seen what we do well, and where we could do "
              "better. I should like to hear about both: which one thing should we change first?",
              "Just answer this email. It reaches me directly, and I read every line.",
              styles={"padding": "36px 32px 8px"}),
        _text(_REGARDS, '<strong>Your name</strong><br>{{ brand.company_name | default: account.name }}',
              styles={"padding": "8px 32px 36px"}),
    ]  # fmt: skip


def _welcome(home: str) -> Sections:
    return [
        _section("heading", {"padding": "28px 32px 4px"}, level=1,
                 text='Good to have you here, {{ contact.first_name | default: "friend" }}'),
        _text("Thank you for joining us. You will hear from us about twice a month: what is new, what is useful, and "
              "now and then something just for the people on this list."),
        _section("heading", text="Three good places to begin", level=2),
        _section("list", style="number", items=[
            {"title": "See what we make", "text": "The short tour takes three minutes."},
            {"title": "Read what others ask first", "text": "Ten questions, ten plain answers."},
            {"title": "Tell us what you are looking for", "text": "Answer this email and a person writes back."},
        ]),
        _section("button", text="Take the short tour", href=home),
        _section("divider"),
        _text(_PREFERENCES, styles={"padding": "4px 32px 20px"}, align="center"),
    ]  # fmt: skip


_ALL: tuple[tuple[str, str, str, str, str, Callable[[str], Sections]], ...] = (
    ("newsletter", "Newsletter", "One main story, two short ones and a voice.", "Three things worth your time",
     "What we finished, what we learned, and one idea to try this week.", _newsletter),
    ("announcement", "Announcement", "One thing that is new, and what it means.", "Something new is here",
     "Simpler, quicker, and made from what you told us.", _announcement),
    ("offer", "Offer", "A code, a date, and two things to use it on.", "20 % off until Sunday",
     "A thank-you to everyone who reads our letters.", _offer),
    ("invitation", "Invitation", "What, when, where, and one button.", "You are invited",
     "An evening of good people, short talks and dinner.", _invitation),
    ("letter", "Plain letter", "Words only, as from one person to another.", "A question, in my own words",
     "It is easier said in a letter than in a brochure.", _letter),
    ("welcome", "Welcome", "The first email somebody gets from you.", "Good to have you here",
     "Three good places to begin.", _welcome),
)  # fmt: skip
