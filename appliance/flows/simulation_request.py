"""What a rehearsal is asked: by a request, or by a script that is kept with the flow."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.contacts.requests import ContactWrite
from appliance.core.errors import Faults
from appliance.core.fields import Data, Id, Name, Short, When, read_sound
from appliance.flows import simulated_events
from appliance.flows.requests import Steps
from appliance.flows.simulated_events import Assumed

SCRIPTS = "scripts"
MAX_SCRIPTS, MAX_EXPECTED = 20, 50
Outcome = Literal["on", "yes", "no", "skipped", "exited", "waits", "not_reached"]


class Asked(Struct):
    """What is assumed of a rehearsal: who enters when, with which event, and what they do then.

    Without `contact_id` somebody is made up, with the fields of `contact`. `event` is the data of the event that starts
    the flow.
    """

    contact_id: Id | None | UnsetType = UNSET
    contact: ContactWrite | None | UnsetType = UNSET
    start_at: When | None | UnsetType = UNSET
    event: Data | None | UnsetType = UNSET
    events: Annotated[list[Assumed], Meta(max_length=simulated_events.MAX_ASSUMPTIONS)] | None | UnsetType = UNSET
    until: When | None | UnsetType = UNSET


class SimulateRequest(Asked):
    """A rehearsal; `steps` are rehearsed instead of those that are stored."""

    steps: Steps | UnsetType = UNSET


class Expect(Struct):
    """Something that a script wants to see: of a step how it was left or what it sent, or how the rehearsal ends.

    `subject` and `text` are contained in the message of the step, whatever their case.
    """

    step: Id | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    reason: Short | UnsetType = UNSET
    subject: Short | UnsetType = UNSET
    text: Short | UnsetType = UNSET
    end: Literal["completed", "exited", "live"] | UnsetType = UNSET


class Script(Asked):
    """A rehearsal with a name, and what it shall come to."""

    name: Name | UnsetType = UNSET
    expect: Annotated[list[Expect], Meta(max_length=MAX_EXPECTED)] | UnsetType = UNSET


def check_scripts(data: Any, faults: Faults, path: str = "data") -> None:
    """Note what is wrong with the scripts in a flow's data."""
    raw = data.get(SCRIPTS) if isinstance(data, dict) else None
    if raw is None:
        return
    where = f"{path}.{SCRIPTS}"
    if not isinstance(raw, list):
        faults.add(where, "is invalid")
    elif len(raw) > MAX_SCRIPTS:
        faults.add(where, f"is too long (maximum is {MAX_SCRIPTS} entries)")
    else:
        for index, one in enumerate(raw):
            script(one, faults, f"{where}[{index}]")


def script(raw: Any, faults: Faults, path: str) -> Script | None:
    """Read a script; notes every fault at its path."""
    read = read_sound(Script, raw, path)
    faults.merge(read.faults.fields)
    found: Script = read.value
    if read.value is UNSET:
        return None
    if found.name is UNSET and f"{path}.name" not in faults.fields:
        faults.add(f"{path}.name", "can't be blank")
    for index, one in enumerate(found.expect or []):
        here = f"{path}.expect[{index}]"
        if (one.step is UNSET) == (one.end is UNSET):
            faults.add(here, "names a step, or how it ends")
        elif one.end is not UNSET and (one.outcome, one.subject, one.text) != (UNSET, UNSET, UNSET):
            faults.add(here, "is about the end, which has no outcome and no message")
    return found
