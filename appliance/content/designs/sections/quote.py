"""The quote section: a quotation, its author, and the author's role and picture."""

from appliance.content.designs.kind import Kind, View, image, line, rich
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the section as plain text: the quotation with "> " before each line, then its author and their role."""
    lines = [f"> {line}".rstrip() for line in view.plain_text(view.props.text).splitlines()]
    attribution = ", ".join(part for part in (view.props.author, view.props.role) if part)
    return "\n".join(lines + ([f"-- {attribution}"] if attribution else []))


KIND = Kind(
    "quote", gettext_noop("Quote"), "quote",
    (
        rich("text", gettext_noop("Quote"), aliases=("content", "quote")),
        line("author", gettext_noop("Author name")),
        line("role", gettext_noop("Job title")),
        image("photo_url", gettext_noop("Photo"), aliases=("src", "image_url")),
    ),
    text, is_in_columns=True, padding=(20, 32, 20, 32),
    matches=lambda props: "text" in props and "author" in props,
    initial_props={"text": gettext_noop("Add a quote from a customer here."), "author": gettext_noop("Customer name")},
)  # fmt: skip
