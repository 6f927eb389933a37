"""The declaration of a kind of proposal, and the version of a campaign or flow that a user approves."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from appliance.accounts.audit import Actor
from appliance.agents.differences import Difference
from appliance.audience.segments import store as segments
from appliance.audience.segments.references import find_campaign_references
from appliance.flows import drafts, versions
from appliance.storage.models import Flow

References = set[tuple[str, int | None]]


class NoChanges(Struct):
    """The changes of a proposal of a kind that has none."""


class EmailChange(NamedTuple):
    """An email that an act sends or changes: its place, and its fields before (None: there is none) and after."""

    name: str  # of the variant or step; empty for the only email
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


class Reach(NamedTuple):
    """How many contacts an act reaches: before and after it, with the SMS parts; None for what is not known."""

    people_before: int | None = None
    people: int | None = None
    sms_parts: int | None = None
    is_exact: bool = True


class ProposalKind(NamedTuple):
    """A kind of proposal: one act of a user on a campaign, flow, segment or template.

    `check`, `prepare` and `measure` run outside of the write transaction, and may render. All raise NotFound.
    """

    name: str
    label: str  # the act, as the title of the page says it; text marked for translation
    noun: str  # campaign, flow, segment or template
    # Needed to read such a proposal, which shows the subject and how many contacts the act reaches.
    read_scopes: tuple[str, ...]
    # Needed besides `read_scopes` to make one, because its conditions query contacts and events.
    write_scopes: tuple[str, ...]
    changes_type: type[Struct]
    load: Callable[[int, int], Any]  # (account id, subject id): the row
    describe_version: Callable[[Any], str]  # (row): a hash of the row and everything that the act depends on
    check: Callable[[int, int, Any], None]  # (account id, subject id, changes): raises Invalid with all faults
    prepare: Callable[[int, int, Any], Any]  # (account id, subject id, changes): what `carry_out` needs
    carry_out: Callable[[int, int, Any, Actor, Any], None]  # (account id, subject id, changes, by, prepared)
    compare: Callable[[int, int, Any], list[Difference]]  # (account id, subject id, changes)
    measure: Callable[[int, int, Any], Reach]  # (account id, subject id, changes)
    list_emails: Callable[[int, int, Any], list[EmailChange]]  # (account id, subject id, changes)
    # (account id, subject id, changes): (kind, id) of the segments and lists that decide whom the act reaches
    find_references: Callable[[int, int, Any], References]
    path: str  # the path of the page of the subject, with a placeholder for its id


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
