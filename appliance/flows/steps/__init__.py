"""The kinds of steps, in the order of the palette; a new one is a file and a line here."""

from appliance.flows.steps.kind import Kind
from appliance.flows.steps.leave import Exit
from appliance.flows.steps.wait import Wait

KINDS: tuple[Kind, ...] = (
    Wait(),
    Exit(),
)

BY_TYPE: dict[str, Kind] = {kind.type: kind for kind in KINDS}
