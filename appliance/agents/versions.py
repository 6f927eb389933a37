"""The version of a campaign or flow as a page shows it, so that a decision about a changed one is refused."""

import hashlib
from typing import Any

import msgspec

from appliance.audience.segments import store as segments
from appliance.audience.segments.references import find_campaign_references
from appliance.flows import drafts, versions
from appliance.storage.models import Flow


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
