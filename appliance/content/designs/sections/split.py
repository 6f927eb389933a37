"""A picture and words side by side; on a phone the picture comes first."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, group, image, line, rich, url

_SHARES = {"1:1": (50, 50), "1:2": (36, 64), "2:1": (60, 40)}
GAP = 24


def shares(view: View) -> tuple[int, int]:
    """Return how much of the width picture and words have, in percent."""
    return _SHARES[view.p.ratio]


def text(view: View) -> str:
    """Write title and words, and where the button leads."""
    picture = f"[{view.p.alt}]" if view.p.alt else ""
    parts = [picture, (view.p.title or "").strip(), view.plain(view.p.text)]
    if view.p.button and view.p.button.text:
        parts.append(f"{view.p.button.text}:\n{view.p.button.href or '#'}")
    return "\n\n".join(part for part in parts if part)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a picture that is not there or that nobody can hear, and a button that leads nowhere."""
    if not view.p.src:
        yield "image_missing", "a picture is not chosen yet"
    elif not view.p.alt:
        yield "alt_missing", "a picture has no words for those who do not see it"
    if view.p.button and view.p.button.text and not view.p.button.href:
        yield "link_missing", "a button leads nowhere"


KIND = Kind(
    "split", "Picture and words", "split",
    (
        image("src", "Picture", aliases=("image_url",)),
        line("alt", "Words for those who do not see it"),
        choice("side", "Picture on the", "left", "right"),
        choice("ratio", "Widths", "1:1", "1:2", "2:1", help="picture to words"),
        line("title", "Title", aliases=("heading",), wording="title"),
        rich("text", "Text", aliases=("content", "description")),
        group("button", "Button", (
            line("text", "Text", aliases=("label",), wording="label"), url("href", "Link", aliases=("url",)),
        )),
    ),
    text, whole=True, padding=(20, 32, 20, 32), advise=advise,
    inferred=lambda props: bool({"side", "ratio"} & props.keys()),
)  # fmt: skip
