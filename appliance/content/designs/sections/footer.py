"""The foot of a mail: who wrote, from where, and how to hear no more. Name and address are always the brand's."""

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import flag, items, line, rich, url

ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"


def text(view: View) -> str:
    """Write the words, the links, the address, and where to unsubscribe."""
    lines = [view.plain(view.p.text)]
    lines += [f"{one.text}: {one.href}" for one in view.p.links if one.href]
    lines.append(ADDRESS)
    if view.p.preferences:
        lines.append("Preferences: {{ preferences_url }}")
    if view.p.view_in_browser:
        lines.append("View in a browser: {{ view_url }}")
    lines.append(f"{view.p.unsubscribe_text}: {{{{ unsubscribe_url }}}}")
    return "-- \n" + "\n".join(part for part in lines if part)


KIND = Kind(
    "footer", "Footer", "footer",
    (
        line("unsubscribe_text", "Words of the unsubscribe link", "Unsubscribe", wording="label"),
        flag("preferences", "Link to preferences", True),
        flag("view_in_browser", "Link to the browser", True),
        rich("text", "Text"),
        items("links", "Links", (line("text", "Text", "Link"), url("href", "Link", aliases=("url",))), most=8),
    ),
    text, whole=True, on_page=True, padding=(28, 32, 36, 32),
    inferred=lambda props: bool({"unsubscribe_text", "company_name", "address"} & props.keys()),
)  # fmt: skip
