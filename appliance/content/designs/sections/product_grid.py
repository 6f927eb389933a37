"""Several things for sale, two beside each other."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import items
from appliance.content.designs.sections import product

GAP = 24


def text(view: View) -> str:
    """Write each product on a few lines."""
    return "\n\n".join(product.lines(view, one) for one in view.p.items)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about what a product lacks."""
    for one in view.p.items:
        yield from product.faults(one)


KIND = Kind(
    "product_grid", "Products", "grid", (items("items", "Products", product.FIELDS, most=6, least=2),), text,
    whole=True, padding=(20, 32, 8, 32), advise=advise,
    inferred=lambda props: isinstance(found := props.get("items"), list)
    and any(isinstance(one, dict) and "price" in one for one in found),
)  # fmt: skip
