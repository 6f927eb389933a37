"""Ready-made emails for campaigns and flows, in the language of the account."""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.content.designs.theme import Look
from appliance.content.templates.validation import set_ids
from appliance.core import i18n
from appliance.core.i18n import DEFAULT_LANGUAGE, gettext, gettext_noop, pgettext
from appliance.core.recipient_texts import language_of_locale

# The link of buttons if the brand has no website.
FALLBACK_URL = "https://example.com"
Sections = list[dict[str, Any]]


class ReadyEmail(NamedTuple):
    """A ready-made email, with the fields of a template and of a step that sends an email."""

    subject: str
    preheader: str
    design: dict[str, Any]


class Starter(NamedTuple):
    """A ready-made email that users choose by its label; `key` identifies it in URLs."""

    key: str
    label: str
    description: str
    email: ReadyEmail


def build_starters(look: Look) -> tuple[Starter, ...]:
    """Return the starters with the header, social links and footer of a brand; buttons link to the brand's website.

    Labels and descriptions are English; the texts of the emails are in the language of the account.
    """
    home = get_home_url(look)
    with i18n.use_language(language_of_locale(look.locale)):
        return tuple(
            Starter(key, label, description, _build_email(
                gettext(subject), gettext(preheader), _add_frame(sections(home), look, bare=key == "letter")))
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
    return [*header, *inner, *social, _section("footer", view_in_browser=not bare)]


def _build_email(subject: str, preheader: str, sections: Sections) -> ReadyEmail:
    """Return an email with ids for its sections."""
    numbered = [{"id": f"s{number}", **section} for number, section in enumerate(sections, 1)]
    return ReadyEmail(subject, preheader, set_ids({"sections": numbered, "theme": {}}))


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
GREETING = gettext_noop('Hello {{ contact.first_name | default: "there" }},')
_REGARDS = gettext_noop("Kind regards")
_PREFERENCES = gettext_noop(
    "<strong>Too many emails, or too few?</strong><br>You can choose what you get from us at any time: "
    '<a href="{{ preferences_url }}">update your preferences</a>.'
)
# Texts, headings and subjects of starters that fit every sender. They may be sent unchanged and are not placeholders.
_WELCOME_HEADING = gettext_noop('Good to have you here, {{ contact.first_name | default: "friend" }}')
SENDABLE_TEXTS = (
    GREETING, _REGARDS, _PREFERENCES, _WELCOME_HEADING, "Good to have you here", "You are invited", "When", "Where",
)  # fmt: skip


def _newsletter(home: str) -> Sections:
    return [
        _section("heading", text=gettext("Three things worth your time"), level=1),
        _text(
            gettext(GREETING),
            gettext(
                "It has been a busy month. Here is what we launched, what we learned along the way, and one "
                "idea you can try this week."
            ),
        ),
        _section("divider"),
        _section("heading", text=gettext("What we launched"), level=2),
        _text(
            gettext(
                "It was your most requested feature, so we took the time to get it right. It’s ready now, and early "
                "testers say they wouldn’t go back."
            )
        ),
        _section("button", text=gettext("See what’s new"), href=home),
        _section("divider"),
        _section(
            "columns",
            preset="1:1",
            gap=32,
            columns=[
                _story(
                    gettext("What we learned"),
                    gettext(
                        "Small steps beat big plans. Four lessons from a year of changing one thing a "
                        "week and keeping only what worked."
                    ),
                    gettext("Read more"),
                    home,
                ),
                _story(
                    gettext("Try this week"),
                    gettext(
                        "Pick the task you keep putting off and give it twenty minutes before you open "
                        "your inbox. That’s it."
                    ),
                    gettext("How it works"),
                    home,
                ),
            ],
        ),
        _section(
            "quote",
            {"padding": "24px 32px"},
            text=gettext(
                "I look forward to this newsletter. It’s short, and there’s always something I can use the same day."
            ),
            author=gettext("A reader"),
            role=gettext("subscriber for five years"),
        ),
    ]


def _announcement(home: str) -> Sections:
    return [
        _section(
            "hero",
            {"background_color": "theme:brand"},
            title=gettext("Something new is here"),
            subtitle=gettext("Simpler, faster and built on your feedback."),
            cta_text=gettext("Take a look"),
            cta_url=home,
            height=320,
        ),
        _text(
            gettext(GREETING),
            gettext(
                "You kept asking us the same question: could this be easier? Today the answer is yes. Here is "
                "what changes for you."
            ),
            styles=_BELOW_HERO,
        ),
        _section(
            "list",
            style="check",
            items=[
                {
                    "title": gettext("Done in one step"),
                    "text": gettext("What used to take four screens now fits on one."),
                },
                {
                    "title": gettext("Everything stays where it was"),
                    "text": gettext("None of your work is lost or moved."),
                },
                {"title": gettext("Nothing to set up"), "text": gettext("It’s already turned on for you.")},
            ],
        ),
        _section("button", text=gettext("Try it now"), href=home, align="left"),
        _text(gettext("If something doesn’t work the way you expect, just reply to this email. We read every reply.")),
    ]


def _offer(home: str) -> Sections:
    return [
        _section(
            "heading", {"padding": "28px 32px 4px"}, text=gettext("20%% off until Sunday"), level=1, align="center"
        ),
        _text(
            gettext(
                "A thank-you to everyone who reads our emails. Pick what you like, enter the code at checkout and "
                "save 20%%."
            ),
            align="center",
        ),
        _section(
            "coupon",
            {"padding": "16px 32px 28px"},
            code=gettext("THANKYOU20"),
            text=gettext("20%% off your whole order"),
            button={"text": gettext("Use the code"), "href": home},
            border="dashed",
        ),
        _section("divider"),
        _section("heading", text=gettext("Our top picks"), level=2, align="center"),
        _section(
            "product_grid",
            items=[
                {
                    "name": gettext("The classic"),
                    "price": gettext("€24"),
                    "old_price": gettext("€30"),
                    "href": home,
                    "description": gettext("Our first product, and still our bestseller."),
                    "button": pgettext("verb", "View"),
                },
                {
                    "name": gettext("The new one"),
                    "price": gettext("€36"),
                    "old_price": gettext("€45"),
                    "href": home,
                    "description": gettext("A little larger, and built to last."),
                    "button": pgettext("verb", "View"),
                },
            ],
        ),
        _text(
            gettext("One code per order. Cannot be combined with other offers. Prices include tax."),
            size=13,
            align="center",
        ),
    ]


def _invitation(home: str) -> Sections:
    return [
        _section(
            "hero",
            {"background_color": "theme:brand"},
            title=gettext("You are invited"),
            subtitle=gettext("An evening of short talks, dinner and good company."),
            cta_text=gettext("Save my seat"),
            cta_url=home,
            height=300,
        ),
        _text(
            gettext(GREETING),
            gettext(
                "Once a year we open our doors and show what we’ve been working on. We’d love to have you with us."
            ),
            styles=_BELOW_HERO,
        ),
        _section(
            "columns",
            {"padding": "8px 32px"},
            preset="1:1",
            gap=32,
            columns=[
                {
                    "sections": [
                        _section("heading", text=gettext("When"), level=3),
                        _text(gettext("Thursday, 14 May<br>18:30 to 21:00")),
                    ]
                },
                {
                    "sections": [
                        _section("heading", text=gettext("Where"), level=3),
                        _text(gettext("The old print works<br>12 Harbour Street")),
                    ]
                },
            ],
        ),
        _section("divider"),
        _section("heading", text=gettext("What to expect"), level=2),
        _section(
            "list",
            style="bullet",
            items=[
                {"title": gettext("18:30 – Doors open"), "text": gettext("Drinks and time to say hello.")},
                {
                    "title": gettext("19:15 – Three short talks"),
                    "text": gettext("Fifteen minutes each, with time for questions."),
                },
                {
                    "title": gettext("20:15 – Dinner"),
                    "text": gettext("One long table. Let us know about any dietary requirements."),
                },
            ],
        ),
        _section(
            "button", text=gettext("Save my seat"), href=home, note=gettext("Free of charge. Limited to 60 seats.")
        ),
    ]


def _letter(home: str) -> Sections:
    return [
        _text(
            gettext(GREETING),
            gettext(
                "I’m writing to you personally, because this is easier to say in a short email than in a brochure."
            ),
            gettext(
                "We’ve known each other for some time now. You’ve seen what we do well, and where we could do better. "
                "I’d like to hear about both: what is the one thing we should change first?"
            ),
            gettext("Just reply to this email. It comes straight to me, and I read every reply."),
            styles={"padding": "36px 32px 8px"},
        ),
        _text(
            gettext(_REGARDS),
            gettext("<strong>Your name</strong><br>{{ brand.company_name | default: account.name }}"),
            styles={"padding": "8px 32px 36px"},
        ),
    ]


def _welcome(home: str) -> Sections:
    return [
        _section("heading", {"padding": "28px 32px 4px"}, level=1, text=gettext(_WELCOME_HEADING)),
        _text(
            gettext(
                "Thank you for joining us. You’ll hear from us about twice a month with news, useful tips and the "
                "occasional offer just for subscribers."
            )
        ),
        _section("heading", text=gettext("Three good places to start"), level=2),
        _section(
            "list",
            style="number",
            items=[
                {"title": gettext("See what we make"), "text": gettext("The tour takes three minutes.")},
                {"title": gettext("Read the FAQ"), "text": gettext("Ten questions, ten short answers.")},
                {
                    "title": gettext("Tell us what you’re looking for"),
                    "text": gettext("Reply to this email and we’ll get back to you."),
                },
            ],
        ),
        _section("button", text=gettext("Take the tour"), href=home),
        _section("divider"),
        _text(gettext(_PREFERENCES), styles={"padding": "4px 32px 20px"}, align="center"),
    ]


_STARTERS: tuple[tuple[str, str, str, str, str, Callable[[str], Sections]], ...] = (
    (
        "newsletter",
        gettext_noop("Newsletter"),
        gettext_noop("One main story, two short ones and a quote."),
        gettext_noop("Three things worth your time"),
        gettext_noop("What we launched, what we learned and one idea to try this week."),
        _newsletter,
    ),
    (
        "announcement",
        gettext_noop("Announcement"),
        gettext_noop("What is new and why it matters."),
        gettext_noop("Something new is here"),
        gettext_noop("Simpler, faster and built on your feedback."),
        _announcement,
    ),
    (
        "offer",
        gettext_noop("Offer"),
        gettext_noop("A coupon with an end date, and two products."),
        gettext_noop("20%% off until Sunday"),
        gettext_noop("A thank-you to everyone who reads our emails."),
        _offer,
    ),
    (
        "invitation",
        gettext_noop("Invitation"),
        gettext_noop("What, when, where, and one button."),
        gettext_noop("You are invited"),
        gettext_noop("An evening of short talks, dinner and good company."),
        _invitation,
    ),
    (
        "letter",
        gettext_noop("Plain email"),
        gettext_noop("Text only, like a personal email."),
        gettext_noop("A quick question for you"),
        gettext_noop("It’s easier to say in a short email than in a brochure."),
        _letter,
    ),
    (
        "welcome",
        gettext_noop("Welcome"),
        gettext_noop("The first email a new subscriber gets."),
        gettext_noop("Good to have you here"),
        gettext_noop("Three good places to start."),
        _welcome,
    ),
)


# Emails of the ready-made flows (`appliance/flows/starters`).


def build_flow_emails(home: str, locale: str = DEFAULT_LANGUAGE) -> dict[str, ReadyEmail]:
    """Return the emails of ready-made flows by name.

    Buttons link to `home`. The texts are in the language of `locale`, the account's locale.
    """
    with i18n.use_language(language_of_locale(locale)):
        return _build_flow_emails(home) | _build_reminders(home)


def _build_flow_emails(home: str) -> dict[str, ReadyEmail]:
    return {
        "welcome_clicked": build_flow_email(
            gettext("What to read next"),
            gettext("Three things other readers found useful."),
            gettext("What to read next"),
            gettext("You’ve had a first look around. These are the three things most people read next."),
            gettext("Show me"),
            home,
        ),
        "welcome_not_clicked": build_flow_email(
            gettext("Did we catch you at a bad time?"),
            gettext("One link, for whenever you have a minute."),
            gettext("Whenever you have a minute"),
            gettext(
                "A few days ago we sent you our first email. If you didn’t have time to read it, here is the one page "
                "worth keeping."
            ),
            gettext("Take a look"),
            home,
        ),
        "win_back": build_flow_email(
            gettext("Should we stay in touch?"),
            gettext("One click is all it takes."),
            gettext("Should we stay in touch?"),
            gettext(
                "It’s been a while since you opened one of our emails. If you still want them, click the button. If "
                "not, you don’t need to do anything: we’ll email you less."
            ),
            gettext("Yes, keep me subscribed"),
            home,
        ),
        "birthday": build_flow_email(
            gettext("Happy birthday{%% if contact.first_name %%}, {{ contact.first_name }}{%% endif %%}!"),
            gettext("A little something for you."),
            gettext("Happy birthday!"),
            gettext("Today is your day. We wish you a great year, and we have a small gift for you."),
            gettext("See your gift"),
            home,
        ),
        "after_event": build_flow_email(
            gettext("How is your order?"),
            gettext("We’d love to hear from you."),
            gettext("How is your order?"),
            gettext(
                "You ordered from us a week ago. Is everything as you hoped? Reply to this email and we’ll get back to "
                "you."
            ),
            gettext("Write a review"),
            home,
        ),
    }


def _build_reminders(home: str) -> dict[str, ReadyEmail]:
    return {
        "cart": build_flow_email(
            gettext("You left something in your cart"),
            gettext("It is still there."),
            gettext("Your cart is waiting"),
            gettext("You chose something and did not finish your order. We have kept your cart for you."),
            gettext("Back to your cart"),
            home,
        ),
        "cart_last": build_flow_email(
            gettext("Can we help with your order?"),
            gettext("Reply with your question, and we will answer it."),
            gettext("Is there anything we can help with?"),
            gettext(
                "Your cart is still there. If you have a question about delivery, size or payment, just reply to this "
                "email."
            ),
            gettext("Finish your order"),
            home,
        ),
        "sunset": build_flow_email(
            gettext("This is our last email to you"),
            gettext("Unless you would like to stay."),
            gettext("We will stop emailing you"),
            gettext(
                "You have not opened our emails for some time, so we will not send you any more. If you would like to "
                "keep getting them, click the button within a week."
            ),
            gettext("Keep sending me emails"),
            home,
        ),
    }


def build_flow_email(subject: str, preheader: str, heading: str, text: str, button: str, home: str) -> ReadyEmail:
    """Return an email of a ready-made flow: a heading, a greeting with a text, and a button that links to `home`."""
    sections = [
        _section("header", layout="left"),
        _section("heading", text=heading, level=1),
        _text(gettext(GREETING), text),
        _section("button", text=button, href=home),
        _section("footer", view_in_browser=True),
    ]
    return _build_email(subject, preheader, sections)
