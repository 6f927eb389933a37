"""Several pictures, two or three beside each other; two on a phone."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, image, items, line, url

GAP = 8


def text(view: View) -> str:
    """Write what each picture shows, and where it leads."""
    lines = [" ".join(part for part in (f"[{one.alt}]" if one.alt else "", one.href) if part) for one in view.p.items]
    return "\n".join(line for line in lines if line)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about pictures that are not there or that nobody can hear."""
    if not any(one.src for one in view.p.items):
        yield "image_missing", "a picture is not chosen yet"
    if any(one.src and not one.alt for one in view.p.items):
        yield "alt_missing", "a picture has no words for those who do not see it"


KIND = Kind(
    "gallery", "Gallery", "gallery",
    (
        items("items", "Pictures", (
            image("src", "Picture", aliases=("image_url", "url")),
            line("alt", "Words for those who do not see it"),
            url("href", "Link"),
        ), most=6, least=2),
        choice("columns", "Beside each other", "2", "3"),
    ),
    text, in_columns=True, padding=(12, 28, 12, 28), advise=advise,
    inferred=lambda props: isinstance(found := props.get("items"), list)
    and any(isinstance(one, dict) and {"src", "url"} & one.keys() for one in found),
)  # fmt: skip
