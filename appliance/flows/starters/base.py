"""The building blocks of the ready-made flows: their parts, steps that several of them need, and simulations."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from appliance.content.designs.theme import Look
from appliance.content.templates import starters as letters
from appliance.content.templates.starters import ReadyEmail

Step = dict[str, Any]
HOUR, DAY = 3_600, 86_400


class StarterParts(NamedTuple):
    """The trigger and steps of a ready-made flow, as in `POST /flows`, and the simulations that demonstrate it.

    Simulations refer to steps by numbers from 1, in document order: a step comes before those of its branches.
    """

    trigger: dict[str, Any]
    steps: list[Step]
    scripts: list[dict[str, Any]]


class Kit(NamedTuple):
    """The material for the parts of a flow: the look of a brand, its website, and the starter emails (`letters`)."""

    look: Look
    home: str
    emails: Mapping[str, ReadyEmail]

    def get_email(self, name: str) -> Step:
        """Return a step that sends the starter email with the key `name`."""
        return self.emails[name]._asdict()

    def write_email(self, subject: str, preheader: str, text: str, button: str) -> Step:
        """Return a step that sends an email with a heading, which is its subject, a text and a button."""
        return letters.build_flow_email(subject, preheader, subject, text, button, self.home)._asdict()


class StarterKind(NamedTuple):
    """A ready-made flow; `label` is also its name. Label and description are marked for translation.

    `build` runs in the language of the account.
    """

    key: str
    label: str
    description: str
    build: Callable[[Kit], StarterParts]


def wait(days: int) -> Step:
    """Return a step that waits for a number of days."""
    return {"duration": days * DAY}


def split_on_event(event: str, yes: list[Step], no: list[Step]) -> Step:
    """Return a step that takes `yes` if the event happened since the contact entered the flow, else `no`."""
    happened = {"name": "event", "predicate": "performed", "value": {"event": event, "since": "flow_start"}}
    return {"filters": [happened], "yes": yes, "no": no}


def await_event(event: str, days: int, no: list[Step]) -> Step:
    """Return a step that waits for an event, and takes `no` if it does not come within `days`."""
    return {"type": "wait_until", "until": "event", "event_name": event, "timeout": days * DAY, "yes": [], "no": no}


def script(
    name: str, events: list[dict[str, Any]], outcomes: dict[int, str], more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a simulation with assumed events and the expected outcomes of steps by number.

    It also expects that the flow ends after its last step. `more` has other keys of the simulation, such as the
    contact.
    """
    expected: list[dict[str, Any]] = [{"step": step, "outcome": outcome} for step, outcome in outcomes.items()]
    return {"name": name, "events": events, "expect": [*expected, {"end": "completed"}], **(more or {})}
