"""Puts the parts of the program together: which part listens to which signal of another."""

from appliance.content.templates import store as templates
from appliance.flows import store as flows
from appliance.flows import version_snapshot
from appliance.inbound.feedback import receipts
from appliance.sending.messages import hot


def connect_signals() -> None:
    """Connect the receivers of all signals; called once before the first request, command or test of a process."""
    templates.step_template_changed.connect(flows.publish_changed_template)
    templates.step_template_changing.connect(version_snapshot.compile_changed_step)
    hot.sms_accepted.connect(receipts.apply_early)
