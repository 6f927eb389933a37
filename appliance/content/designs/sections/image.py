"""The picture section: a picture with an optional link and an optional variant for dark mode."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, Kind, View, flag, image, line, number, url
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the section as plain text: the alternative text, unless the picture is decorative, and the link."""
    alt_text = "" if view.props.decorative else f"[{view.props.alt}]" if view.props.alt else ""
    return f"{alt_text}\n{view.props.href}".strip() if view.props.href else alt_text


def advise(view: View) -> Iterator[Finding]:
    """Advise if no picture is chosen, or the picture has no alternative text and is not decorative."""
    if not view.props.src:
        yield Finding("image_missing", gettext_noop("No image selected"))
    elif not view.props.alt and not view.props.decorative:
        yield Finding("alt_missing", gettext_noop("An image has no alt text"))


KIND = Kind(
    "image", gettext_noop("Image"), "image",
    (
        image("src", gettext_noop("Image"), aliases=("image_url", "url")),
        line("alt", gettext_noop("Alt text")),
        flag("decorative", gettext_noop("Decorative image"), help=gettext_noop("Screen readers skip it.")),
        url("href", gettext_noop("Link")),
        number("width", gettext_noop("Width"), 100, 5, 100, unit="%"),
        number("border_radius", gettext_noop("Corner radius"), 0, 0, 60),
        image("dark_src", gettext_noop("Dark mode image")),
    ),
    text, is_in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    matches=lambda props: "src" in props, matches_loosely=lambda props: "image_url" in props,
)  # fmt: skip
