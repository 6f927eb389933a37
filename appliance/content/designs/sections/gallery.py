"""The gallery section: up to six pictures, two or three in a row, and two in a row on phones."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, Kind, View, choice, image, items, line, url
from appliance.core.i18n import gettext_noop

GAP = 8


def text(view: View) -> str:
    """Return the section as plain text: for each picture, a line with its alternative text and link."""
    lines = [
        " ".join(part for part in (f"[{picture.alt}]" if picture.alt else "", picture.href) if part)
        for picture in view.props.items
    ]
    return "\n".join(line for line in lines if line)


def advise(view: View) -> Iterator[Finding]:
    """Advise if no picture is chosen, or a chosen picture has no alternative text."""
    if not any(picture.src for picture in view.props.items):
        yield Finding("image_missing", gettext_noop("No image selected"))
    if any(picture.src and not picture.alt for picture in view.props.items):
        yield Finding("alt_missing", gettext_noop("An image has no alt text"))


KIND = Kind(
    "gallery", gettext_noop("Gallery"), "images",
    (
        items("items", gettext_noop("Images"), (
            image("src", gettext_noop("Image"), aliases=("image_url", "url")),
            line("alt", gettext_noop("Alt text")),
            url("href", gettext_noop("Link")),
        ), maximum=6, minimum=2),
        choice("columns", gettext_noop("Columns"), "2", "3"),
    ),
    text, is_in_columns=True, padding=(12, 28, 12, 28), advise=advise,
    matches=lambda props: isinstance(pictures := props.get("items"), list)
    and any(isinstance(picture, dict) and {"src", "url"} & picture.keys() for picture in pictures),
    initial_props={"items": [{}, {}]},
)  # fmt: skip
