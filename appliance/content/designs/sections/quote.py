"""The quote section: a quotation, its author, and the author's role and picture."""

from appliance.content.designs.kind import Kind, View, image, line, rich


def text(view: View) -> str:
    """Return the section as plain text: the quotation with "> " before each line, then its author and their role."""
    lines = [f"> {line}".rstrip() for line in view.plain_text(view.props.text).splitlines()]
    attribution = ", ".join(part for part in (view.props.author, view.props.role) if part)
    return "\n".join(lines + ([f"-- {attribution}"] if attribution else []))


KIND = Kind(
    "quote", "Quote", "quote",
    (
        rich("text", "Words", aliases=("content", "quote")),
        line("author", "Who said it"),
        line("role", "What they are"),
        image("photo_url", "Their picture", aliases=("src", "image_url")),
    ),
    text, is_in_columns=True, padding=(20, 32, 20, 32),
    matches=lambda props: "text" in props and "author" in props,
    initial_props={"text": "What somebody said about you.", "author": "Their name"},
)  # fmt: skip
