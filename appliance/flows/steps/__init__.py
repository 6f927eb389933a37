"""The registry of step kinds, in the order in which the editor offers them.

To add a kind, write a file for it and add it to `KINDS`.
"""

from appliance.flows.steps.base import StepKind
from appliance.flows.steps.contact_update import ContactUpdate
from appliance.flows.steps.email import Email
from appliance.flows.steps.emit_event import EmitEvent
from appliance.flows.steps.exit import Exit
from appliance.flows.steps.go_to import GoTo
from appliance.flows.steps.http_request import HttpRequest
from appliance.flows.steps.lists import ListAdd, ListRemove
from appliance.flows.steps.notify import Notify
from appliance.flows.steps.random_split import RandomSplit
from appliance.flows.steps.sms import Sms
from appliance.flows.steps.split import Split
from appliance.flows.steps.split_value import SplitValue
from appliance.flows.steps.tags import TagAdd, TagRemove
from appliance.flows.steps.unsubscribe import Unsubscribe
from appliance.flows.steps.wait import Wait
from appliance.flows.steps.wait_until import WaitUntil

KINDS: tuple[StepKind, ...] = (
    Email(),
    Sms(),
    Wait(),
    WaitUntil(),
    Split(),
    SplitValue(),
    RandomSplit(),
    EmitEvent(),
    ListAdd(),
    ListRemove(),
    TagAdd(),
    TagRemove(),
    ContactUpdate(),
    Unsubscribe(),
    Notify(),
    HttpRequest(),
    GoTo(),
    Exit(),
)

BY_TYPE: dict[str, StepKind] = {kind.type: kind for kind in KINDS}
