"""Every kind of section, in the order in which one without a type is recognised (decisions, section 11)."""

from appliance.designs.kind import Kind
from appliance.designs.sections import button, columns, divider, footer, header, heading, image, spacer, text

KINDS: tuple[Kind, ...] = (
    columns.KIND, footer.KIND, header.KIND, image.KIND, button.KIND, heading.KIND, text.KIND, divider.KIND, spacer.KIND,
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
