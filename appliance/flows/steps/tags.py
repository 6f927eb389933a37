"""The steps that add a tag to the contact, or remove one, and keep all other tags."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from appliance.audience.consent import Evidence
from appliance.audience.contacts import store, write
from appliance.audience.contacts.store import ContactPatch
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import (
    CONTINUE,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    skip,
)
from appliance.storage.database import fold_case


class _TagStep(StepKind):
    """Base class of steps that change a tag; `summary` inserts the tag into `pattern`, marked for translation."""

    icon = "tag"
    batch_size = 10
    keys = frozenset({"tag"})
    fields = (StepField("tag", gettext_noop("Tag"), "tag", required=True),)
    pattern: ClassVar[str]

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `tag`, a text of up to `write.MAX_TAG_CHARACTERS` characters, without spaces around it."""
        tag = raw.get("tag")
        error = gettext("can't be blank") if tag is None else write.find_tag_error(tag)
        if error:
            context.add_fault("tag", error)
            return {"tag": ""}
        return {"tag": str(tag).strip()}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Change the tag of each contact as the API does; a contact that needs no change is not updated.

        The step is skipped for a deleted contact, and for one that already has too many tags.
        """
        evidence = Evidence("flow", f"flow:{context.flow_id}")
        return [self._change(run, node.props["tag"], evidence) for run in runs]

    @abstractmethod
    def change_tags(self, tags: list[str], tag: str) -> list[str]:
        """Return the tags of a contact after the step; upper and lower case do not matter."""

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the tag."""
        return gettext(self.pattern, tag=props["tag"])

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the text of `summary`, which already has quotation marks."""
        return self.summary(props, account_id)

    def _change(self, run: ActiveRun, tag: str, evidence: Evidence) -> StepResult:
        if run.contact_id is None:
            return skip("contact_deleted")
        tags = write.tags_of(store.get(run.account_id, run.contact_id).data)
        changed = self.change_tags(tags, tag)
        if changed == tags:
            return CONTINUE
        try:
            # Without tags the key itself is removed.
            patch = ContactPatch(data_merge={"tags": changed or None})
            write.update(run.account_id, run.contact_id, patch, evidence)
        except Invalid:
            return skip("invalid_data")
        return CONTINUE


class TagAdd(_TagStep):
    """A step that adds a tag to the contact."""

    type = "tag_add"
    label = gettext_noop("Add tag")
    pattern = gettext_noop("Add the tag “%(tag)s”")

    def change_tags(self, tags: list[str], tag: str) -> list[str]:
        """Return the tags with `tag` at the end, unless it is among them."""
        return tags if fold_case(tag) in {fold_case(other) for other in tags} else [*tags, tag]


class TagRemove(_TagStep):
    """A step that removes a tag from the contact."""

    type = "tag_remove"
    label = gettext_noop("Remove tag")
    pattern = gettext_noop("Remove the tag “%(tag)s”")

    def change_tags(self, tags: list[str], tag: str) -> list[str]:
        """Return the tags without `tag`."""
        return [other for other in tags if fold_case(other) != fold_case(tag)]
