"""The picture section: a picture with an optional link and an optional variant for dark mode."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View, flag, image, line, number, url


def text(view: View) -> str:
    """Return the section as plain text: the alternative text, unless the picture is decorative, and the link."""
    alt_text = "" if view.props.decorative else f"[{view.props.alt}]" if view.props.alt else ""
    return f"{alt_text}\n{view.props.href}".strip() if view.props.href else alt_text


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise if no picture is chosen, or the picture has no alternative text and is not decorative."""
    if not view.props.src:
        yield "image_missing", "a picture is not chosen yet"
    elif not view.props.alt and not view.props.decorative:
        yield "alt_missing", "a picture has no words for those who do not see it"


KIND = Kind(
    "image", "Picture", "image",
    (
        image("src", "Picture", aliases=("image_url", "url")),
        line("alt", "Words for those who do not see it"),
        flag("decorative", "Only decoration", help="nothing is lost by not seeing it"),
        url("href", "Link"),
        number("width", "Width", 100, 5, 100, unit="%"),
        number("border_radius", "Corners", 0, 0, 60),
        image("dark_src", "Picture for dark mode"),
    ),
    text, is_in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    matches=lambda props: "src" in props, matches_loosely=lambda props: "image_url" in props,
)  # fmt: skip
