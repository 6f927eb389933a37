"""What the steps that send have in common: their words stand in a template of the flow, and in the step only its id."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct, convert

from appliance.content.templates import checks
from appliance.content.templates.requests import Content
from appliance.core.fields import given, read_sound
from appliance.flows import step_messages
from appliance.flows.steps.kind import Going, Here, Kind, Move, Node, Reading
from appliance.storage.models import Account, Template

# What stands in the template of a step, in the order in which it is shown
WORDS = ("subject", "preheader", "from_name", "from_email", "reply_to", "body", "design")
NO_SERVICE_MESSAGES = "service messages are switched off for this account"


class Writing(Kind):
    """A step that sends a message.

    Read, it holds under `content` the words that were sent with it (a key that was not sent keeps what the template
    says, as in every change); kept, only `template_id` and whether it is `transactional`.
    """

    says: ClassVar[type[Struct]] = Content

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read the words with all faults of templates, and whether they go to people who want no marketing."""
        content = self._content({name: raw[name] for name in WORDS if name in self.keys and name in raw}, reading)
        self.check(content, reading)
        transactional = raw.get("transactional")
        if transactional not in (None, True):
            reading.fault("transactional", "is invalid")
        if transactional and not _is_allowed(reading.account_id):
            reading.fault("transactional", NO_SERVICE_MESSAGES)
        template_id = raw.get("template_id")
        if template_id is not None and not _exists(reading.account_id, template_id):
            reading.fault("template_id", "must exist")
        return {"template_id": template_id, "transactional": transactional is True, "content": given(content)}

    def _content(self, raw: dict[str, Any], reading: Reading) -> Content:
        found = read_sound(self.says, raw, reading.path)
        reading.faults.merge(found.faults.fields)
        return convert(given(found.value), Content)

    def check(self, content: Content, reading: Reading) -> None:
        """Note what no message of this kind may say."""
        checks.check(reading.account_id, content, f"{reading.path}.", reading.faults)

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the words that are set beside the id of their template."""
        said = said_of(props)
        shown = {name: said[name] for name in WORDS if name in self.keys and said.get(name)}
        if not has_sections(said):
            shown.pop("design", None)
        if props.get("transactional"):
            shown["transactional"] = True
        return shown | {"template_id": props.get("template_id")}

    def lacks(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return what its words lack, and whether the account forbids what it is."""
        found = self.incomplete(said_of(props))
        if props.get("transactional") and not _is_allowed(account_id):
            found.append(("transactional", NO_SERVICE_MESSAGES))
        return found

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Put a message for each into the ledger, which sends it; whoever may not get it goes on without."""
        return step_messages.put(self.type, node, goings, here)

    @abstractmethod
    def incomplete(self, said: dict[str, Any]) -> list[tuple[str, str]]:
        """Return what keeps these words from being sent."""


def said_of(props: dict[str, Any]) -> dict[str, Any]:
    """Return the words of a step: those that stand with it, or those of its template."""
    if "content" in props:
        return dict(props["content"])
    template = Template.get_or_none(Template.id == props.get("template_id"))
    return {} if template is None else {name: getattr(template, name) for name in WORDS}


def has_sections(said: dict[str, Any]) -> bool:
    """Return whether the words have a design with anything in it."""
    design = said.get("design")
    return isinstance(design, dict) and bool(design.get("sections") or design.get("theme"))


def _is_allowed(account_id: int) -> bool:
    return bool(Account.get_by_id(account_id).transactional_allowed)


def _exists(account_id: int, template_id: Any) -> bool:
    if type(template_id) is not int or not 0 < template_id < 2**63:
        return False
    return bool(Template.select().where(Template.account == account_id, Template.id == template_id).exists())
