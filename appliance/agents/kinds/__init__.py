"""The kinds of proposals: one module for each object, and one line here for each kind."""

from appliance.agents.kinds.base import ProposalKind
from appliance.agents.kinds.campaigns import SEND_CAMPAIGN
from appliance.agents.kinds.flows import CHANGE_FLOW, START_FLOW
from appliance.agents.kinds.segments import CHANGE_SEGMENT
from appliance.agents.kinds.templates import CHANGE_TEMPLATE

KINDS: tuple[ProposalKind, ...] = (SEND_CAMPAIGN, START_FLOW, CHANGE_FLOW, CHANGE_SEGMENT, CHANGE_TEMPLATE)
BY_NAME = {kind.name: kind for kind in KINDS}
