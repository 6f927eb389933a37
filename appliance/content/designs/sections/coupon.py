"""A code to cut out: what it gives, until when, and where to use it."""

from collections.abc import Iterator
from datetime import date, datetime

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, group, line, rich, url

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip


def until(view: View) -> str:
    """Return the last day as people write it; what is no date stands as it was written."""
    words = (view.p.expires_at or "").strip()
    try:
        # A moment is shown as the day its author named, whatever zone it is in
        day = datetime.fromisoformat(words).date() if len(words) > 10 else date.fromisoformat(words)
    except ValueError:
        return words
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def expiry(view: View) -> str:
    """Return the line about the last day, or nothing."""
    return " ".join(part for part in (view.p.expires_text, until(view)) if part) if view.p.expires_at else ""


def text(view: View) -> str:
    """Write the code on a line of its own, as it must be typed."""
    parts = [view.plain(view.p.text), f"    {view.p.code}" if view.p.code else "", expiry(view)]
    if view.p.button and view.p.button.text:
        parts.append(f"{view.p.button.text}:\n{view.p.button.href or '#'}")
    return "\n\n".join(part for part in parts if part)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a coupon without a code, and a button that leads nowhere."""
    if not view.p.code:
        yield "section", "a coupon has no code"
    if view.p.button and view.p.button.text and not view.p.button.href:
        yield "link_missing", "a button leads nowhere"


KIND = Kind(
    "coupon", "Coupon", "coupon",
    (
        line("code", "Code"),
        rich("text", "What it gives", aliases=("content", "title")),
        line("expires_at", "Last day", help="a date, such as 2026-12-31"),
        line("expires_text", "Words before the last day", "Valid until", wording="label"),
        group("button", "Button", (
            line("text", "Text", aliases=("label",), wording="label"), url("href", "Link", aliases=("url",)),
        )),
        choice("border", "Border", "dashed", "solid", "none"),
    ),
    text, in_columns=True, padding=(20, 32, 20, 32), advise=advise,
    inferred=lambda props: "code" in props,
)  # fmt: skip
