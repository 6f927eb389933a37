"""The split section: a picture and text side by side, and stacked on phones with the picture first."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View, choice, group, image, line, rich, url

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


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a missing picture, a missing alternative text, and a button without a link."""
    if not view.props.src:
        yield "image_missing", "a picture is not chosen yet"
    elif not view.props.alt:
        yield "alt_missing", "a picture has no words for those who do not see it"
    if view.props.button and view.props.button.text and not view.props.button.href:
        yield "link_missing", "a button leads nowhere"


KIND = Kind(
    "split", "Picture and words", "layout-list",
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
    text, is_whole=True, padding=(20, 32, 20, 32), advise=advise,
    matches=lambda props: bool({"side", "ratio"} & props.keys()),
    initial_props={"title": "A title", "text": "<p>A few words beside the picture.</p>"},
)  # fmt: skip
