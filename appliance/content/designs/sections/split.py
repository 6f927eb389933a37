"""The split section: a picture and text side by side, and stacked on phones with the picture first."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, Kind, View, choice, group, image, line, rich, url
from appliance.core.i18n import gettext_noop

_SHARES = {"1:1": (50, 50), "1:2": (36, 64), "2:1": (60, 40)}
GAP = 24


def column_widths(view: View) -> tuple[int, int]:
    """Return the widths of the picture and of the text in percent."""
    return _SHARES[view.props.ratio]


def text(view: View) -> str:
    """Return the section as plain text: alternative text, title, text, and button."""
    picture = f"[{view.props.alt}]" if view.props.alt else ""
    parts = [picture, (view.props.title or "").strip(), view.plain_text(view.props.text)]
    if view.props.button and view.props.button.text:
        parts.append(f"{view.props.button.text}:\n{view.props.button.href or '#'}")
    return "\n\n".join(part for part in parts if part)


def advise(view: View) -> Iterator[Finding]:
    """Advise about a missing picture, a missing alternative text, and a button without a link."""
    if not view.props.src:
        yield Finding("image_missing", gettext_noop("No image selected"))
    elif not view.props.alt:
        yield Finding("alt_missing", gettext_noop("An image has no alt text"))
    if view.props.button and view.props.button.text and not view.props.button.href:
        yield Finding("link_missing", gettext_noop("A button has no link"))


KIND = Kind(
    "split", gettext_noop("Image + text"), "layout-list",
    (
        image("src", gettext_noop("Image"), aliases=("image_url",)),
        line("alt", gettext_noop("Alt text")),
        choice("side", gettext_noop("Image position"), "left", "right"),
        choice("ratio", gettext_noop("Widths"), "1:1", "1:2", "2:1", help=gettext_noop("Ratio of image to text.")),
        line("title", gettext_noop("Title"), aliases=("heading",), wording="title"),
        rich("text", gettext_noop("Text"), aliases=("content", "description")),
        group("button", gettext_noop("Button"), (
            line("text", gettext_noop("Text"), aliases=("label",), wording="label"),
            url("href", gettext_noop("Link"), aliases=("url",)),
        )),
    ),
    text, is_whole=True, padding=(20, 32, 20, 32), advise=advise,
    matches=lambda props: bool({"side", "ratio"} & props.keys()),
    initial_props={
        "title": gettext_noop("Your headline here"),
        "text": gettext_noop("<p>Add the text next to your image here.</p>"),
    },
)  # fmt: skip
