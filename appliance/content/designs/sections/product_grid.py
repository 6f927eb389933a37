"""The products section: up to six products, two in a row."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, Kind, View, items
from appliance.content.designs.sections import product
from appliance.core.i18n import gettext_noop

GAP = 24


def text(view: View) -> str:
    """Return the products as plain text, separated by blank lines."""
    return "\n\n".join(product.to_text(view, entry) for entry in view.props.items)


def advise(view: View) -> Iterator[Finding]:
    """Advise about missing pictures and links of each product."""
    for product_item in view.props.items:
        yield from product.advise_product(product_item)


KIND = Kind(
    "product_grid", gettext_noop("Product grid"), "layout-grid",
    (items("items", gettext_noop("Products"), product.FIELDS, maximum=6, minimum=2),),
    text, is_whole=True, padding=(20, 32, 8, 32), advise=advise,
    matches=lambda props: isinstance(products := props.get("items"), list)
    and any(isinstance(entry, dict) and "price" in entry for entry in products),
    initial_props={"items": [
        {"name": gettext_noop("First product"), "price": gettext_noop("€20")},
        {"name": gettext_noop("Second product"), "price": gettext_noop("€30")},
    ]},
)  # fmt: skip
