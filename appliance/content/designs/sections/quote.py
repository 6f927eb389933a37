"""What somebody said, and who."""

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import image, line, rich


def text(view: View) -> str:
    """Write the words as mail quotes are written, and below them who said so."""
    lines = [f"> {one}".rstrip() for one in view.plain(view.p.text).splitlines()]
    who = ", ".join(part for part in (view.p.author, view.p.role) if part)
    return "\n".join(lines + ([f"-- {who}"] if who else []))


KIND = Kind(
    "quote", "Quote", "quote",
    (
        rich("text", "Words", aliases=("content", "quote")),
        line("author", "Who said it"),
        line("role", "What they are"),
        image("photo_url", "Their picture", aliases=("src", "image_url")),
    ),
    text, in_columns=True, padding=(20, 32, 20, 32),
    inferred=lambda props: "text" in props and "author" in props,
)  # fmt: skip
