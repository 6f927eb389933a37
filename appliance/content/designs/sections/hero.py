"""The hero section: a title and button with a picture above or behind; readable without the picture."""

from collections.abc import Iterator

from appliance.content.designs import theme
from appliance.content.designs.kind import Finding, Kind, View, image, line, number, url
from appliance.content.designs.kind import text as words
from appliance.core.i18n import gettext_noop

_UNSAFE = str.maketrans({"'": "%27", "(": "%28", ")": "%29", '"': "%22", "\\": "%5C", " ": "%20"})


def background_colour(view: View) -> str:
    """Return the colour behind the text while the picture is not shown: the section's background, else nearly black."""
    return view.background or "#1d2126"


def overlay_colour(view: View) -> str:
    """Return the translucent colour over the picture that makes the text readable, as CSS.

    The colour is dark under white text, otherwise white.
    """
    red, green, blue = theme.to_rgb("#0e1013" if text_colour(view) == "#ffffff" else "#ffffff")
    return f"rgba({red},{green},{blue},{view.props.overlay / 100:g})"


def text_colour(view: View) -> str:
    """Return the colour of the text over the picture, white or nearly black."""
    return theme.readable_colour(background_colour(view))


def background_url(view: View) -> str:
    """Return the address of the background picture, escaped for CSS; empty if it has merge tags."""
    url_text = view.props.background_url or ""
    return "" if view.has_tags(url_text) else url_text.translate(_UNSAFE)


def text(view: View) -> str:
    """Return the section as plain text: the title with an underline, the subtitle, and the button."""
    title = (view.props.title or "").strip()
    parts = [f"{title}\n{'=' * min(len(title), 40)}" if title else "", view.props.subtitle or ""]
    if view.props.cta_text:
        parts.append(f"{view.props.cta_text}:\n{view.props.cta_url or '#'}")
    return "\n\n".join(part for part in parts if part)


def advise(view: View) -> Iterator[Finding]:
    """Advise about a button without a link, and about a picture above the text without a title.

    Advise also if the address of the picture behind the text has merge tags; that picture is then left out.
    """
    if view.props.cta_text and not view.props.cta_url:
        yield Finding("link_missing", gettext_noop("A button has no link"))
    if view.props.background_url and not background_url(view):
        yield Finding("section", gettext_noop("The address of a background image cannot contain merge tags"))
    if view.props.image_url and not view.props.title:
        yield Finding("alt_missing", gettext_noop("A hero with an image has no title, which is also the alt text"))


KIND = Kind(
    "hero", gettext_noop("Hero"), "image-up",
    (
        image("image_url", gettext_noop("Image above the text"), aliases=("src",)),
        image("background_url", gettext_noop("Background image")),
        line("title", gettext_noop("Title"), aliases=("heading",), wording="title"),
        words("subtitle", gettext_noop("Subtitle")),
        line("cta_text", gettext_noop("Button text"), aliases=("button_text",), wording="label"),
        url("cta_url", gettext_noop("Button link"), aliases=("href", "button_url")),
        number("overlay", gettext_noop("Image overlay"), 40, 0, 80, unit="%"),
        number("height", gettext_noop("Height with a background image"), 320, 80, 800),
    ),
    text, is_whole=True, padding=(40, 32, 40, 32), advise=advise,
    matches=lambda props: bool({"title", "subtitle", "cta_text", "background_url"} & props.keys()),
    initial_props={
        "title": gettext_noop("Your headline here"),
        "subtitle": gettext_noop("Add a sentence about your offer and who it is for."),
        "cta_text": gettext_noop("Learn more"),
    },
)  # fmt: skip
