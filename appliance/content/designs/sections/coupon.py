"""The coupon section: a code with a description, the day on which it expires, and a button."""

from collections.abc import Iterator
from datetime import date, datetime

from appliance.content.designs.kind import Finding, Kind, View, choice, group, line, rich, url
from appliance.core import recipient_texts
from appliance.core.i18n import gettext_noop


def last_day(view: View) -> str:
    """Return the coupon's last day in the language of the email, such as "31 December 2026"; other texts unchanged."""
    date_text = (view.props.expires_at or "").strip()
    try:
        # Of a date with a time, the date is shown as written; the time zone is ignored.
        day = datetime.fromisoformat(date_text).date() if len(date_text) > 10 else date.fromisoformat(date_text)
    except ValueError:
        return date_text
    return recipient_texts.format_day(day, view.locale)


def expiry_line(view: View) -> str:
    """Return the line about the last day, such as "Valid until 31 December 2026", or an empty string."""
    return " ".join(part for part in (view.props.expires_text, last_day(view)) if part) if view.props.expires_at else ""


def text(view: View) -> str:
    """Return the section as plain text: the description, the code on a separate line, the last day, and the button."""
    parts = [view.plain_text(view.props.text), f"    {view.props.code}" if view.props.code else "", expiry_line(view)]
    if view.props.button and view.props.button.text:
        parts.append(f"{view.props.button.text}:\n{view.props.button.href or '#'}")
    return "\n\n".join(part for part in parts if part)


def advise(view: View) -> Iterator[Finding]:
    """Advise about a missing code and a button without a link."""
    if not view.props.code:
        yield Finding("section", gettext_noop("A coupon has no code"))
    if view.props.button and view.props.button.text and not view.props.button.href:
        yield Finding("link_missing", gettext_noop("A button has no link"))


KIND = Kind(
    "coupon", gettext_noop("Coupon"), "ticket",
    (
        line("code", gettext_noop("Code"), is_translatable=False),
        rich("text", gettext_noop("Offer"), aliases=("content", "title")),
        line(
            "expires_at", gettext_noop("Expiry date"),
            help=gettext_noop("Shown as entered. A date such as 2026-12-31 is shown in the language of the email."),
        ),
        line("expires_text", gettext_noop("Expiry label"), gettext_noop("Valid until"), wording="label"),
        group("button", gettext_noop("Button"), (
            line("text", gettext_noop("Text"), aliases=("label",), wording="label"),
            url("href", gettext_noop("Link"), aliases=("url",)),
        )),
        choice("border", gettext_noop("Border"), "dashed", "solid", "none"),
    ),
    text, is_in_columns=True, padding=(20, 32, 20, 32), advise=advise,
    matches=lambda props: "code" in props,
    initial_props={"code": "WELCOME10", "text": gettext_noop("<p>10%% off your next order</p>").replace("%%", "%")},
)  # fmt: skip
