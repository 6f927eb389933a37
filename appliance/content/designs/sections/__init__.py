"""All kinds of sections, in the order in which their `matches` are tested for a section without a type.

The order is that of docs/decisions.md#11.
"""

from appliance.content.designs.kind import Kind
from appliance.content.designs.sections import (
    button,
    columns,
    coupon,
    divider,
    footer,
    gallery,
    header,
    heading,
    hero,
    html,
    image,
    list,
    product,
    product_grid,
    quote,
    social,
    spacer,
    split,
    text,
    video,  # fmt: skip
)

KINDS: tuple[Kind, ...] = (
    columns.KIND,
    footer.KIND,
    header.KIND,
    product_grid.KIND,
    gallery.KIND,
    list.KIND,
    coupon.KIND,
    product.KIND,
    text.KIND,
    split.KIND,
    hero.KIND,
    social.KIND,
    image.KIND,
    button.KIND,
    heading.KIND,
    quote.KIND,
    divider.KIND,
    spacer.KIND,
    video.KIND,
    html.KIND,
)
BY_NAME = {kind.name: kind for kind in KINDS}
