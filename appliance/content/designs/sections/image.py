"""A picture, with a link if it has one, and another one for dark mode."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import flag, image, line, number, url


def text(view: View) -> str:
    """Write what the picture shows, and where it leads."""
    words = "" if view.p.decorative else f"[{view.p.alt}]" if view.p.alt else ""
    return f"{words}\n{view.p.href}".strip() if view.p.href else words


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about pictures that nobody can hear, or that are not there."""
    if not view.p.src:
        yield "image_missing", "a picture is not chosen yet"
    elif not view.p.alt and not view.p.decorative:
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
    text, in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    inferred=lambda props: "src" in props, inferred_late=lambda props: "image_url" in props,
)  # fmt: skip
