"""Refusals of a change of state, alike for everything that has states (docs/decisions.md#3, `invalid_transition`)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from appliance.core.errors import Invalid


class Action(NamedTuple):
    """Something that can be done to a thing by its own path: in words, the status that it leads to, and from which."""

    done: str
    to: str
    needs: tuple[str, ...]


class Standing(NamedTuple):
    """Where a thing stands: its status, the statuses that it may get from there, and the actions that it takes now.

    `state` is a finer word for the status where there is one.
    """

    status: str
    allowed: list[str]
    actions: list[str]
    state: str = ""


def taken(actions: Mapping[str, Action], status: str) -> list[str]:
    """Return the names of the actions that are possible from a status."""
    return [name for name, one in actions.items() if status in one.needs]


def refusal(thing: str, standing: Standing, name: str, asked: Action, instead: str = "") -> Invalid:
    """Return the refusal of an action, in terms of what was asked; `instead` is a sentence that says what to do."""
    word = standing.state or standing.status
    article = "An" if word[0] in "aeiou" else "A"
    more = {
        "from": standing.status, "to": asked.to, "allowed": standing.allowed, "action": name,
        "allowed_actions": standing.actions,
    }  # fmt: skip
    return Invalid(
        {"status": [f"must be {' or '.join(asked.needs)}"]}, reason="invalid_transition",
        message=f"{article} {word} {thing} cannot be {asked.done}. {instead}".strip(), **cast(Any, more),
    )  # fmt: skip
