"""What all kinds of proposals have in common."""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.accounts.audit import Actor
from appliance.agents.differences import Difference


class NoChanges(Struct):
    """The changes of a proposal of a kind that has none."""


class Reach(NamedTuple):
    """Whom an act reaches: the contacts now and after it, and the SMS parts; None for what is not known."""

    people_before: int | None = None
    people: int | None = None
    sms_parts: int | None = None
    is_exact: bool = True


class ProposalKind(NamedTuple):
    """A kind of proposal: one act of a user on a campaign, flow, segment or template.

    `check`, `prepare` and `measure` run outside of the write transaction, and may render. All raise NotFound.
    """

    name: str
    label: str  # marked text: the act, as the title of the page says it
    noun: str  # campaign, flow, segment or template
    read_scopes: tuple[str, ...]  # to read such a proposal; it shows the subject, and whom the act reaches
    write_scopes: tuple[str, ...]  # to make one, besides these: what it asks about contacts and events
    changes_type: type[Struct]
    load: Callable[[int, int], Any]  # (account id, subject id): the row
    describe_version: Callable[[Any], str]  # of the row with everything that the act depends on
    check: Callable[[int, int, Any], None]  # (account id, subject id, changes): raises Invalid with all faults
    prepare: Callable[[int, int, Any], Any]  # (account id, subject id, changes): what `carry_out` needs
    carry_out: Callable[[int, int, Any, Actor, Any], None]  # (account id, subject id, changes, by, prepared)
    compare: Callable[[int, int, Any], list[Difference]]  # (account id, subject id, changes)
    measure: Callable[[int, int, Any], Reach]  # (account id, subject id, changes)
    path: str  # of the page of the subject, with a place for its id
