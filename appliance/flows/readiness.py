"""What stands between a flow and its going live: told all at once, each where it can be mended."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from appliance import config
from appliance.account import approving
from appliance.account.acting import By
from appliance.errors import Invalid
from appliance.flows import contents, document, triggers
from appliance.flows.document import Step, walk
from appliance.flows.steps import BY_TYPE
from appliance.messages import sample_render, senders, sms_senders
from appliance.messages.sample_render import PreviewWarning
from appliance.tables import Account, Flow, Trigger

# In the order of docs/decisions.md#3: the first one's code is the reason of a refusal
_CODES = ("content_required", "sender_not_ready", "approval_required", "preflight_failed")
_CONTENT = frozenset({"subject", "body"})


class Blocker(Struct):
    """One thing that is not in order: a reason of docs/decisions.md#3, its words, and the field to go to."""

    code: str
    message: str
    field: str


def blockers(flow: Flow, trigger: Trigger, by: By) -> list[Blocker]:
    """Return everything that keeps a flow from going live by the hand of somebody."""
    found = [*_steps(flow), *_senders(flow), *_approval(flow, by), *_trigger(flow, trigger)]
    return sorted(found, key=lambda one: _CODES.index(one.code))


def refuse(found: list[Blocker]) -> None:
    """Raise Invalid with every blocker, if there is any; the first one's code is the reason."""
    if not found:
        return
    fields: dict[str, list[str]] = {}
    for one in found:
        fields.setdefault(one.field, []).append(one.message)
    raise Invalid(
        fields,
        reason=found[0].code,
        blockers=[{"code": one.code, "message": one.message, "field": one.field} for one in found],
    )


def unfinished(account_id: int, said: Sequence[Step]) -> Iterator[tuple[str, Step, PreviewWarning]]:
    """Yield what is unfinished in the emails of steps that have their words beside them: path, step, warning."""
    for path, step in walk(said):
        if step["type"] == "email":
            for one in sample_render.unfinished(account_id, step.get("content") or {}):
                yield path, step, one


def _steps(flow: Flow) -> Iterator[Blocker]:
    if not flow.steps:
        yield Blocker("content_required", "can't be blank", "steps")
    said = contents.words(contents.of_steps(flow.steps))
    for path, step in walk(flow.steps):
        props = document.kept(step)
        if "template_id" in props:
            props["content"] = said.get(props["template_id"], {})
        for key, words in BY_TYPE[step["type"]].lacks(props, flow.account_id):
            code = "content_required" if key in _CONTENT else "preflight_failed"
            yield Blocker(code, words, f"{path}.{key}" if key else path)


def _senders(flow: Flow) -> Iterator[Blocker]:
    account, here = Account.get_by_id(flow.account_id), config.current()
    templates = {row.id: row for row in contents.of_steps(flow.steps)}
    told = set()
    for path, step in walk(flow.steps):
        if step["type"] == "sms":
            found = sms_senders.problems(account, "capture" if flow.test else here.sms.transport)
        elif step["type"] == "email":
            sender = senders.resolve(account, templates[step["template_id"]].from_email)
            transport = "capture" if flow.test else here.email.transport
            found = senders.problems(account, sender, transport, marketing=not step["transactional"])
        else:
            continue
        for key, words in found:
            field = key if key == "base" else f"{path}.{key}"
            if (field, words) not in told:
                told.add((field, words))
                yield Blocker("sender_not_ready", words, field)


def _approval(flow: Flow, by: By) -> Iterator[Blocker]:
    if words := approving.lacks(flow, by):
        yield Blocker("approval_required", words, "base")


def _trigger(flow: Flow, trigger: Trigger) -> Iterator[Blocker]:
    start = triggers.of(trigger)
    for key, words in (*triggers.lacks(start), *triggers.faults_of(flow.account_id, start)):
        yield Blocker("preflight_failed", words, f"trigger.{key}")
