"""The footer section: company name, postal address, and links, such as the unsubscribe link.

Name and address always come from the brand.
"""

from appliance.content.designs.kind import Kind, View, flag, items, line, rich, url
from appliance.core.i18n import gettext_noop

ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"
# In HTML each line of the address is a line.
HTML_ADDRESS = ADDRESS.replace("physical_address }}", "physical_address | newline_to_br }}")


def text(view: View) -> str:
    """Return the footer as plain text: the author's text and links, name and address, and the links for recipients."""
    lines = [view.plain_text(view.props.text)]
    lines += [f"{link.text}: {link.href}" for link in view.props.links if link.href]
    lines.append(view.protect(ADDRESS))
    if view.props.preferences:
        lines.append(view.protect(f"{view.texts['mail_preferences']}: {{{{ preferences_url }}}}"))
    if view.props.view_in_browser:
        lines.append(view.protect(f"{view.texts['mail_view']}: {{{{ view_url }}}}"))
    lines.append(f"{view.props.unsubscribe_text}: {view.protect('{{ unsubscribe_url }}')}")
    return "-- \n" + "\n".join(part for part in lines if part)


KIND = Kind(
    "footer", gettext_noop("Footer"), "panel-bottom",
    (
        line("unsubscribe_text", gettext_noop("Unsubscribe link text"), "Unsubscribe", wording="label"),
        flag("preferences", gettext_noop("Preferences link"), True),
        flag("view_in_browser", gettext_noop("View-in-browser link"), True),
        rich("text", gettext_noop("Text")),
        items("links", gettext_noop("Links"), (
            line("text", gettext_noop("Text"), "Link"), url("href", gettext_noop("Link"), aliases=("url",)),
        ), maximum=8),
    ),
    text, is_whole=True, is_on_page=True, padding=(28, 32, 36, 32),
    matches=lambda props: bool({"unsubscribe_text", "company_name", "address"} & props.keys()),
)  # fmt: skip
