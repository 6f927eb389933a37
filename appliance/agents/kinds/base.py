"""What all kinds of proposals have in common, and the version of a campaign or flow that a decision holds to."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from appliance.accounts.audit import Actor
from appliance.agents.differences import Difference
from appliance.audience.segments import store as segments
from appliance.audience.segments.references import find_campaign_references
from appliance.flows import drafts, versions
from appliance.storage.models import Flow


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


def describe_version(row: Any) -> str:
    """Return a text that changes with the content and audience of a campaign or flow, for a hidden field.

    Unpublished changes of a flow and the filters of segments are part of it.
    """
    if isinstance(row, Flow):
        draft = drafts.build_draft(row)
        revisions = [template.revision for template in versions.list_step_templates(draft.steps)]
        content: list[Any] = [row.updated_at, row.draft, revisions]
        chosen = drafts.find_references(draft)
    else:
        content = [row.template.revision, row.trigger.updated_at]
        if row.setup is not None:
            revisions = [variant.template.revision for variant in row.setup.variants]
            content += [row.setup.experiment.updated_at, revisions]
        chosen = find_campaign_references(row)
    audience = segments.describe_audience(row.account_id, chosen)
    return hash_version([content, audience])


def hash_version(content: Any) -> str:
    """Return a short hash of JSON values."""
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:20]
