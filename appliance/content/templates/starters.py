"""Ready-made emails for campaigns and flows, and the search for placeholder texts that an author has not replaced."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from appliance.content.designs import document as designs
from appliance.content.designs import links, markup
from appliance.content.designs.kind import Prop
from appliance.content.designs.sections import BY_NAME, KINDS
from appliance.content.designs.theme import Look
from appliance.content.templates.validation import set_ids

# The link of buttons if the brand has no website.
FALLBACK_URL = "https://example.com"
Sections = list[dict[str, Any]]


class Starter(NamedTuple):
    """A ready-made email that users choose by its label; `key` identifies it in URLs."""

    key: str
    label: str
    description: str
    subject: str
    preheader: str
    design: dict[str, Any]


def build_starters(look: Look) -> tuple[Starter, ...]:
    """Return the starters with the header, social links and footer of a brand; buttons link to the brand's website."""
    home = get_home_url(look)
    return tuple(
        Starter(key, label, description, subject, preheader,
                set_ids({"sections": _add_frame(sections(home), look, bare=key == "letter"), "theme": {}}))
        for key, label, description, subject, preheader, sections in _STARTERS
    )  # fmt: skip


def get_home_url(look: Look) -> str:
    """Return the first http or https link of a brand, else `FALLBACK_URL`."""
    return next((url for _, url in look.links if url.startswith(("https://", "http://"))), FALLBACK_URL)


def find_starter(look: Look, key: str) -> Starter | None:
    """Return a starter by its key in the look of a brand, or None."""
    return next((starter for starter in build_starters(look) if starter.key == key), None)


def _add_frame(inner: Sections, look: Look, bare: bool) -> Sections:
    """Add header, social links and footer around the sections of an email.

    With `bare` only a footer is added, without a link to view the email in the browser.
    """
    links = [{"platform": name, "url": url} for name, url in look.links if url.startswith("http")][:6]
    header = [] if bare else [_section("header", layout="left")]
    social = [_section("social", links=links, align="center", style="ink")] if links and not bare else []
    framed = [*header, *inner, *social, _section("footer", view_in_browser=not bare)]
    return [{"id": f"s{number}", **section} for number, section in enumerate(framed, 1)]


def _section(kind: str, styles: dict[str, str] | None = None, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "styles": styles or {}}


def _text(*paragraphs: str, styles: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return _section("text", styles, content="".join(f"<p>{paragraph}</p>" for paragraph in paragraphs), **more)


def _story(title: str, text: str, link: str, href: str) -> dict[str, Any]:
    return {"sections": [
        _section("heading", text=title, level=3),
        _text(text),
        _section("button", text=link, href=href, style="link"),
    ]}  # fmt: skip


# The padding of a text below a coloured hero.
_BELOW_HERO = {"padding": "32px 32px 12px"}
GREETING = 'Hello {{ contact.first_name | default: "there" }},'
_REGARDS = "With kind regards"
_PREFERENCES = (
    "<strong>Too much, or too little?</strong><br>You choose what you get from us, at any time: "
    '<a href="{{ preferences_url }}">set your preferences</a>.'
)
# Texts, headings and subjects of starters that fit every sender. They may be sent unchanged and are no placeholders.
_WELCOME_HEADING = 'Good to have you here, {{ contact.first_name | default: "friend" }}'
SENDABLE_TEXTS = (
    GREETING, _REGARDS, _PREFERENCES, _WELCOME_HEADING, "Good to have you here", "You are invited", "When", "Where",
)  # fmt: skip


def _newsletter(home: str) -> Sections:
    return [
        _section("heading", text="Three things worth your time", level=1),
        _text(GREETING, "This month was a busy one. Here is what we finished, what we learned on the way, and one idea "
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
        _text(GREETING, "For a long time one question came up again and again: could this not be easier? Today we can "
                      "say yes. Here is what changes for you, in short.", styles=_BELOW_HERO),
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
        _text(GREETING, "Once a year we open our doors and show what we have been working on. We would be glad to have "
                      "you with us.", styles=_BELOW_HERO),
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
        _text(GREETING, "I am writing to you myself, because this is easier said in a letter than in a brochure.",
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
                 text=_WELCOME_HEADING),
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


_STARTERS: tuple[tuple[str, str, str, str, str, Callable[[str], Sections]], ...] = (
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


# Emails of the ready-made flows in `appliance.flows.starters`.


def build_flow_emails(home: str) -> dict[str, dict[str, Any]]:
    """Return the emails of ready-made flows by name, each with `subject`, `preheader` and `design`.

    Buttons link to `home`.
    """
    return {
        "welcome_clicked": _build_flow_email(
            "What people read next", "Three things that others found useful.", "What people read next",
            "You have had a first look around. These three are what most people open next.",
            "Show me", home,
        ),
        "welcome_not_clicked": _build_flow_email(
            "Did this find you at a bad time?", "One link, whenever it suits you.", "Whenever it suits you",
            "A few days ago we sent you a first letter. If there was no time, here is the one page worth keeping.",
            "Have a look", home,
        ),
        "win_back": _build_flow_email(
            "Shall we stay in touch?", "One click is all it takes.", "Shall we stay in touch?",
            "It has been a while since you opened one of our letters. If you still want them, click once. If not, you "
            "need do nothing: we will write less.",
            "Yes, keep writing", home,
        ),
        "birthday": _build_flow_email(
            "Happy birthday{% if contact.first_name %}, {{ contact.first_name }}{% endif %}!",
            "A little something for you.", "Happy birthday!",
            "Today is yours. We wish you a good year, and have put something small aside for you.",
            "See what it is", home,
        ),
        "after_event": _build_flow_email(
            "How is it?", "We'd love to hear from you.", "How is it?",
            "A week ago you ordered from us. Is everything as you hoped? Answer this email, and a person writes back.",
            "Write a review", home,
        ),
    }  # fmt: skip


def _build_flow_email(subject: str, preheader: str, heading: str, text: str, button: str, home: str) -> dict[str, Any]:
    sections = [
        _flow_section("header", layout="left"),
        _flow_section("heading", text=heading, level=1),
        _flow_section("text", content=f"<p>{GREETING}</p><p>{text}</p>"),
        _flow_section("button", text=button, href=home),
        _flow_section("footer", view_in_browser=True),
    ]
    design = {"sections": [{"id": f"s{number}", **section} for number, section in enumerate(sections, 1)], "theme": {}}
    return {"subject": subject, "preheader": preheader, "design": design}


def _flow_section(kind: str, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "styles": {}}


# Placeholders are default texts and links that an author has not replaced.
#
# They are derived from section kinds (`Prop.default`), from new sections (`Kind.initial_props`) and from the
# starters, so that no separate list has to be maintained.

MAX_QUOTED_CHARACTERS = 60
# The preflight codes of unfinished content. An email with one of these findings is not shown as ready.
UNFINISHED_CODES = frozenset({"placeholder_content", "placeholder_link", "link_missing", "image_missing"})
# Domains for documentation (RFC 2606, section 3).
_EXAMPLE_HOSTS = ("example.com", "example.net", "example.org")
_LOREM = re.compile(r"\blorem\s+ipsum\b", re.IGNORECASE)
_TEXT_KINDS = ("line", "text", "rich")


class Placeholder(NamedTuple):
    """A placeholder: its preflight code, a message for the author, and the path of its section or field."""

    code: str
    message: str
    path: str


class _PlaceholderText(NamedTuple):
    prop: Prop
    text: str


def find_placeholders(document: Mapping[str, Any]) -> list[Placeholder]:
    """Return the placeholders of an email template's fields; of each section at most one text and one link.

    `document` has the keys of `revisions.CONTENT_FIELDS`. Paths are `design.sections[2]`, `subject`, `preheader` or
    `body`.
    """
    placeholders: list[Placeholder] = []
    subject = document.get("subject") or ""
    if subject in _starter_subjects():
        placeholders.append(_text_placeholder("the subject", subject, "subject"))
    preheader = document.get("preheader") or ""
    if not _starter_texts().isdisjoint(_split_paragraphs(preheader)):
        placeholders.append(_text_placeholder("the preview text", preheader, "preheader"))
    body = document.get("body") or ""
    if _LOREM.search(body):
        placeholders.append(_text_placeholder("the message", "Lorem ipsum", "body"))
    if markup.is_html(body):
        placeholders += _find_link_placeholder("the message", (link.href for link in links.find_links(body)), "body")
    for entry in designs.list_entries(document.get("design")):
        kind = entry.section.kind
        if kind is None:
            continue
        place, path = f"the section “{entry.label}”", f"design.{entry.section.path}"
        texts = list(_iterate_texts(kind.props, entry.section.props))
        placeholder_text = next(
            (paragraph for text in texts for paragraph in _find_text_placeholders(kind.name, text)), None
        )
        if placeholder_text is not None:
            placeholders.append(_text_placeholder(place, placeholder_text, path))
        placeholders += _find_link_placeholder(place, _iterate_addresses(kind.props, entry.section.props), path)
    return placeholders


def has_placeholder_text(kind: str, text: str) -> bool:
    """Return whether any paragraph of a text in a section of a kind is a placeholder; labels may be, too."""
    known_texts = _initial_texts(kind) | _starter_texts()
    return any(paragraph in known_texts or _LOREM.search(paragraph) for paragraph in _split_paragraphs(text))


def has_placeholder_link(text: str) -> bool:
    """Return whether an address, or any link of an HTML, is a placeholder."""
    addresses = (link.href for link in links.find_links(text)) if markup.is_html(text) else (text,)
    return any(_is_placeholder_link(address) for address in addresses)


def _text_placeholder(place: str, text: str, path: str) -> Placeholder:
    quoted = text if len(text) <= MAX_QUOTED_CHARACTERS else text[:MAX_QUOTED_CHARACTERS].rstrip() + "…"
    return Placeholder("placeholder_content", f"“{quoted}” in {place} is still placeholder text", path)


def _find_link_placeholder(place: str, addresses: Iterable[str], path: str) -> Iterator[Placeholder]:
    """Yield a finding for the first address that is `#` or a link to an example domain, if there is one."""
    address = next((address for address in addresses if _is_placeholder_link(address)), None)
    if address is not None:
        is_example = f"{address[:MAX_QUOTED_CHARACTERS]} in {place} is still a placeholder link"
        message = f"a link in {place} leads nowhere: its address is only #" if address == "#" else is_example
        yield Placeholder("placeholder_link", message, path)


def _is_placeholder_link(address: str) -> bool:
    if address.strip() == "#":
        return True
    try:
        host = (urlsplit(address if "//" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return host.removeprefix("www.") in _EXAMPLE_HOSTS


def _find_text_placeholders(kind: str, text: _PlaceholderText) -> Iterator[str]:
    """Yield the paragraphs of a section's text that are placeholders; `kind` is the name of the section's kind."""
    for paragraph in _split_paragraphs(text.text):
        is_sample = text.prop.wording != "label" and paragraph in _initial_texts(kind)
        is_starter = text.prop.wording != "label" and paragraph in _starter_texts()
        if is_sample or is_starter or _LOREM.search(paragraph):
            yield paragraph


def _split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text or HTML, without markup and with single spaces; merge tags are unchanged."""
    plain = markup.html_template_to_text(text) if markup.is_html(text) else text
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", plain) if part.strip()]


def _iterate_texts(props: Iterable[Prop], values: Any) -> Iterator[_PlaceholderText]:
    """Yield the texts of a section's properties, with the default of the property where none is set."""
    for prop, value in _iterate_values(props, values):
        if prop.kind in _TEXT_KINDS and isinstance(property_text := value or prop.default, str):
            yield _PlaceholderText(prop, property_text)


def _iterate_addresses(props: Iterable[Prop], values: Any) -> Iterator[str]:
    """Yield the addresses that a section's properties link to, including links inside of rich text and HTML."""
    for prop, value in _iterate_values(props, values):
        if not isinstance(value, str):
            continue
        if prop.kind == "url":
            yield value.strip()
        elif prop.kind in ("rich", "html"):
            yield from (link.href for link in links.find_links(value))


def _iterate_values(props: Iterable[Prop], values: Any) -> Iterator[tuple[Prop, Any]]:
    """Yield each property with its value; for lists and groups, the properties inside of them."""
    for prop in props:
        value = prop.get_value(values)
        if prop.kind == "items":
            for entry in value if isinstance(value, list) else []:
                yield from _iterate_values(prop.fields, entry)
        elif prop.kind == "group":
            yield from _iterate_values(prop.fields, value) if isinstance(value, dict) else ()
        else:
            yield prop, value


@cache
def _initial_texts(kind: str) -> frozenset[str]:
    """Return the paragraphs that a new section of a kind contains, and the default texts of the kind."""
    begun = [{"type": known.name, "props": known.initial_props} for known in KINDS if known.initial_props]
    section_texts: list[_PlaceholderText] = list(_iterate_texts(BY_NAME[kind].props, {}))
    for section in designs.walk_sections({"sections": begun}):
        if section.kind is not None and section.kind.name == kind:
            section_texts += _iterate_texts(section.kind.props, section.props)
    return _to_paragraphs(text.text for text in section_texts)


@cache
def _starter_texts() -> frozenset[str]:
    """Return the paragraphs that authors are expected to replace; titles only of starters, not of flow emails."""
    campaign_emails = [starter._asdict() for starter in build_starters(Look())]
    flow_emails = list(build_flow_emails(FALLBACK_URL).values())
    texts = [email["preheader"] for email in campaign_emails + flow_emails]
    for emails, wordings in ((campaign_emails, ("own", "title")), (flow_emails, ("own",))):
        for section in (section for email in emails for section in designs.walk_sections(email["design"])):
            if section.kind is not None:
                values = _iterate_texts(section.kind.props, section.props)
                texts += [text.text for text in values if text.prop.wording in wordings]
    return _to_paragraphs(texts) - _to_paragraphs(SENDABLE_TEXTS)


@cache
def _starter_subjects() -> frozenset[str]:
    """Return the subjects of starters that authors are expected to replace."""
    return frozenset(starter.subject for starter in build_starters(Look())) - frozenset(SENDABLE_TEXTS)


def _to_paragraphs(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(paragraph for text in texts for paragraph in _split_paragraphs(text))
