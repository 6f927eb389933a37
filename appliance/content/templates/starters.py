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
from appliance.core.i18n import gettext, gettext_noop

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
_REGARDS = "Kind regards"
_PREFERENCES = (
    "<strong>Too many emails, or too few?</strong><br>You can choose what you get from us at any time: "
    '<a href="{{ preferences_url }}">update your preferences</a>.'
)
# Texts, headings and subjects of starters that fit every sender. They may be sent unchanged and are no placeholders.
_WELCOME_HEADING = 'Good to have you here, {{ contact.first_name | default: "friend" }}'
SENDABLE_TEXTS = (
    GREETING, _REGARDS, _PREFERENCES, _WELCOME_HEADING, "Good to have you here", "You are invited", "When", "Where",
)  # fmt: skip


def _newsletter(home: str) -> Sections:
    return [
        _section("heading", text="Three things worth your time", level=1),
        _text(GREETING, "It has been a busy month. Here is what we launched, what we learned along the way, and one "
                      "idea you can try this week."),
        _section("divider"),
        _section("heading", text="What we launched", level=2),
        _text("It was your most requested feature, so we took the time to get it right. It’s ready now, and early "
              "testers say they wouldn’t go back."),
        _section("button", text="See what’s new", href=home),
        _section("divider"),
        _section("columns", preset="1:1", gap=32, columns=[
            _story("What we learned", "Small steps beat big plans. Four lessons from a year of changing one thing a "
                   "week and keeping only what worked.", "Read more", home),
            _story("Try this week", "Pick the task you keep putting off and give it twenty minutes before you open "
                   "your inbox. That’s it.", "How it works", home),
        ]),
        _section("quote", {"padding": "24px 32px"}, text="I look forward to this newsletter. It’s short, and "
                 "there’s always something I can use the same day.", author="A reader",
                 role="subscriber for five years"),
    ]  # fmt: skip


def _announcement(home: str) -> Sections:
    return [
        _section("hero", {"background_color": "theme:brand"}, title="Something new is here",
                 subtitle="Simpler, faster and built on your feedback.", cta_text="Take a look",
                 cta_url=home, height=320),
        _text(GREETING, "You kept asking us the same question: could this be easier? Today the answer is yes. Here is "
                      "what changes for you.", styles=_BELOW_HERO),
        _section("list", style="check", items=[
            {"title": "Done in one step", "text": "What used to take four screens now fits on one."},
            {"title": "Everything stays where it was", "text": "None of your work is lost or moved."},
            {"title": "Nothing to set up", "text": "It’s already turned on for you."},
        ]),
        _section("button", text="Try it now", href=home, align="left"),
        _text("If something doesn’t work the way you expect, just reply to this email. We read every reply."),
    ]  # fmt: skip


def _offer(home: str) -> Sections:
    return [
        _section("heading", {"padding": "28px 32px 4px"}, text="20% off until Sunday", level=1,
                 align="center"),
        _text("A thank-you to everyone who reads our emails. Pick what you like, enter the code at checkout and "
              "save 20%.", align="center"),
        _section("coupon", {"padding": "16px 32px 28px"}, code="THANKYOU20", text="20% off your whole order",
                 button={"text": "Use the code", "href": home}, border="dashed"),
        _section("divider"),
        _section("heading", text="Our top picks", level=2, align="center"),
        _section("product_grid", items=[
            {"name": "The classic", "price": "€24", "old_price": "€30", "href": home,
             "description": "Our first product, and still our bestseller.", "button": "View"},
            {"name": "The new one", "price": "€36", "old_price": "€45", "href": home,
             "description": "A little larger, and built to last.", "button": "View"},
        ]),
        _text("One code per order. Cannot be combined with other offers. Prices include tax.", size=13, align="center"),
    ]  # fmt: skip


def _invitation(home: str) -> Sections:
    return [
        _section("hero", {"background_color": "theme:brand"}, title="You are invited",
                 subtitle="An evening of short talks, dinner and good company.", cta_text="Save my seat",
                 cta_url=home, height=300),
        _text(GREETING, "Once a year we open our doors and show what we’ve been working on. We’d love to have you with "
                      "us.", styles=_BELOW_HERO),
        _section("columns", {"padding": "8px 32px"}, preset="1:1", gap=32, columns=[
            {"sections": [_section("heading", text="When", level=3),
                          _text("Thursday, 14 May<br>18:30 to 21:00")]},
            {"sections": [_section("heading", text="Where", level=3),
                          _text("The old print works<br>12 Harbour Street")]},
        ]),
        _section("divider"),
        _section("heading", text="What to expect", level=2),
        _section("list", style="bullet", items=[
            {"title": "18:30 – Doors open", "text": "Drinks and time to say hello."},
            {"title": "19:15 – Three short talks", "text": "Fifteen minutes each, with time for questions."},
            {"title": "20:15 – Dinner", "text": "One long table. Let us know about any dietary requirements."},
        ]),
        _section("button", text="Save my seat", href=home, note="Free of charge. Limited to 60 seats."),
    ]  # fmt: skip


def _letter(home: str) -> Sections:
    return [
        _text(GREETING, "I’m writing to you personally, because this is easier to say in a short email than in a "
              "brochure.",
              "We’ve known each other for some time now. You’ve seen what we do well, and where we could do better. "
              "I’d like to hear about both: what is the one thing we should change first?",
              "Just reply to this email. It comes straight to me, and I read every reply.",
              styles={"padding": "36px 32px 8px"}),
        _text(_REGARDS, '<strong>Your name</strong><br>{{ brand.company_name | default: account.name }}',
              styles={"padding": "8px 32px 36px"}),
    ]  # fmt: skip


def _welcome(home: str) -> Sections:
    return [
        _section("heading", {"padding": "28px 32px 4px"}, level=1,
                 text=_WELCOME_HEADING),
        _text("Thank you for joining us. You’ll hear from us about twice a month with news, useful tips and the "
              "occasional offer just for subscribers."),
        _section("heading", text="Three good places to start", level=2),
        _section("list", style="number", items=[
            {"title": "See what we make", "text": "The tour takes three minutes."},
            {"title": "Read the FAQ", "text": "Ten questions, ten short answers."},
            {"title": "Tell us what you’re looking for", "text": "Reply to this email and we’ll get back to you."},
        ]),
        _section("button", text="Take the tour", href=home),
        _section("divider"),
        _text(_PREFERENCES, styles={"padding": "4px 32px 20px"}, align="center"),
    ]  # fmt: skip


_STARTERS: tuple[tuple[str, str, str, str, str, Callable[[str], Sections]], ...] = (
    ("newsletter", gettext_noop("Newsletter"), gettext_noop("One main story, two short ones and a quote."),
     "Three things worth your time", "What we launched, what we learned and one idea to try this week.", _newsletter),
    ("announcement", gettext_noop("Announcement"), gettext_noop("What is new and why it matters."),
     "Something new is here", "Simpler, faster and built on your feedback.", _announcement),
    ("offer", gettext_noop("Offer"), gettext_noop("A coupon with an end date, and two products."),
     "20% off until Sunday", "A thank-you to everyone who reads our emails.", _offer),
    ("invitation", gettext_noop("Invitation"), gettext_noop("What, when, where, and one button."), "You are invited",
     "An evening of short talks, dinner and good company.", _invitation),
    ("letter", gettext_noop("Plain email"), gettext_noop("Text only, like a personal email."),
     "A quick question for you", "It’s easier to say in a short email than in a brochure.", _letter),
    ("welcome", gettext_noop("Welcome"), gettext_noop("The first email a new subscriber gets."),
     "Good to have you here", "Three good places to start.", _welcome),
)  # fmt: skip


# Emails of the ready-made flows in `appliance.flows.starters`.


def build_flow_emails(home: str) -> dict[str, dict[str, Any]]:
    """Return the emails of ready-made flows by name, each with `subject`, `preheader` and `design`.

    Buttons link to `home`.
    """
    return {
        "welcome_clicked": _build_flow_email(
            "What to read next", "Three things other readers found useful.", "What to read next",
            "You’ve had a first look around. These are the three things most people read next.",
            "Show me", home,
        ),
        "welcome_not_clicked": _build_flow_email(
            "Did we catch you at a bad time?", "One link, for whenever you have a minute.",
            "Whenever you have a minute",
            "A few days ago we sent you our first email. If you didn’t have time to read it, here is the one page "
            "worth keeping.",
            "Take a look", home,
        ),
        "win_back": _build_flow_email(
            "Should we stay in touch?", "One click is all it takes.", "Should we stay in touch?",
            "It’s been a while since you opened one of our emails. If you still want them, click the button. If not, "
            "you don’t need to do anything: we’ll email you less.",
            "Yes, keep me subscribed", home,
        ),
        "birthday": _build_flow_email(
            "Happy birthday{% if contact.first_name %}, {{ contact.first_name }}{% endif %}!",
            "A little something for you.", "Happy birthday!",
            "Today is your day. We wish you a great year, and we have a small gift for you.",
            "See your gift", home,
        ),
        "after_event": _build_flow_email(
            "How is your order?", "We’d love to hear from you.", "How is your order?",
            "You ordered from us a week ago. Is everything as you hoped? Reply to this email and we’ll get back to "
            "you.",
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
        placeholders.append(_text_placeholder(subject, "subject"))
    preheader = document.get("preheader") or ""
    if not _starter_texts().isdisjoint(_split_paragraphs(preheader)):
        placeholders.append(_text_placeholder(preheader, "preheader"))
    body = document.get("body") or ""
    if _LOREM.search(body):
        placeholders.append(_text_placeholder("Lorem ipsum", "body"))
    if markup.is_html(body):
        placeholders += _find_link_placeholder((link.href for link in links.find_links(body)), "body")
    for entry in designs.list_entries(document.get("design")):
        kind = entry.section.kind
        if kind is None:
            continue
        path = f"design.{entry.section.path}"
        texts = list(_iterate_texts(kind.props, entry.section.props))
        placeholder_text = next(
            (paragraph for text in texts for paragraph in _find_text_placeholders(kind.name, text)), None
        )
        if placeholder_text is not None:
            placeholders.append(_text_placeholder(placeholder_text, path, entry.label))
        placeholders += _find_link_placeholder(_iterate_addresses(kind.props, entry.section.props), path, entry.label)
    return placeholders


def has_placeholder_text(kind: str, text: str) -> bool:
    """Return whether any paragraph of a text in a section of a kind is a placeholder; labels may be, too."""
    known_texts = _initial_texts(kind) | _starter_texts()
    return any(paragraph in known_texts or _LOREM.search(paragraph) for paragraph in _split_paragraphs(text))


def has_placeholder_link(text: str) -> bool:
    """Return whether an address, or any link of an HTML, is a placeholder."""
    addresses = (link.href for link in links.find_links(text)) if markup.is_html(text) else (text,)
    return any(_is_placeholder_link(address) for address in addresses)


# The messages about placeholder texts by path; those in sections have a message of their own.
_TEXT_MESSAGES = {
    "subject": gettext_noop("“%(text)s” in the subject is still placeholder text"),
    "preheader": gettext_noop("“%(text)s” in the preview text is still placeholder text"),
    "body": gettext_noop("“%(text)s” in the message is still placeholder text"),
}
_SECTION_MESSAGE = gettext_noop("“%(text)s” in the section “%(section)s” is still placeholder text")


def _text_placeholder(text: str, path: str, section: str = "") -> Placeholder:
    quoted = text if len(text) <= MAX_QUOTED_CHARACTERS else text[:MAX_QUOTED_CHARACTERS].rstrip() + "…"
    message = gettext(_TEXT_MESSAGES.get(path, _SECTION_MESSAGE), text=quoted, section=section)
    return Placeholder("placeholder_content", message, path)


def _find_link_placeholder(addresses: Iterable[str], path: str, section: str = "") -> Iterator[Placeholder]:
    """Yield a finding for the first address that is `#` or a link to an example domain, if there is one."""
    address = next((address for address in addresses if _is_placeholder_link(address)), None)
    if address is None:
        return
    if address == "#" and section:
        message = gettext("A link in the section “%(section)s” has no address, only #", section=section)
    elif address == "#":
        message = gettext("A link in the message has no address, only #")
    elif section:
        message = gettext(
            "%(address)s in the section “%(section)s” is still a placeholder link",
            address=address[:MAX_QUOTED_CHARACTERS], section=section,
        )  # fmt: skip
    else:
        message = gettext(
            "%(address)s in the message is still a placeholder link", address=address[:MAX_QUOTED_CHARACTERS]
        )
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
