"""Where a flow may go from where it is (docs/decisions.md#12), and what an edit does to one that is live."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from msgspec import Struct

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid, Unavailable
from appliance.core.transitions import Action, Standing, refusal, taken
from appliance.flows import document, triggers, version_snapshot
from appliance.flows.document import Step, walk
from appliance.flows.steps import BY_TYPE
from appliance.sending.messages import sample_render, senders, sms_senders
from appliance.sending.messages.sample_render import PreviewWarning
from appliance.settings import config
from appliance.storage.models import Account, Flow, Template, TemplateRevision, Trigger
from appliance.storage.models import Step as tables_Step
from appliance.storage.work import after_commit, writing

# What stands between a flow and its going live: told all at once, each where it can be mended.

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


def refuse_unready(found: list[Blocker]) -> None:
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
    said = version_snapshot.words_of(version_snapshot.of_steps(flow.steps))
    for path, step in walk(flow.steps):
        props = document.kept(step)
        if "template_id" in props:
            props["content"] = said.get(props["template_id"], {})
        for key, words in BY_TYPE[step["type"]].lacks(props, flow.account_id):
            code = "content_required" if key in _CONTENT else "preflight_failed"
            yield Blocker(code, words, f"{path}.{key}" if key else path)


def _senders(flow: Flow) -> Iterator[Blocker]:
    account, here = Account.get_by_id(flow.account_id), config.current()
    templates = {row.id: row for row in version_snapshot.of_steps(flow.steps)}
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


ALLOWED = {
    "draft": ("active", "archived"),
    "active": ("paused", "archived"),
    "paused": ("active", "archived"),
    "archived": ("draft",),
}
ACTIONS = {
    "activate": Action("activated", "active", ("draft", "paused")),
    "pause": Action("paused", "paused", ("active",)),
    "archive": Action("archived", "archived", ("draft", "active", "paused")),
}
# What to do instead, by action and status
_INSTEAD = {("activate", "archived"): "Make it a draft first: PATCH its `status`."}


def move(flow: Flow, to: str, by: By) -> None:
    """Move a flow to a status; raises Invalid (`invalid_transition`, or what is missing). The caller saves it."""
    if to == "active":
        activate(flow, by)
    elif to == "paused":
        pause(flow)
    elif to == "archived":
        archive(flow, take_out=False)
    else:
        revive(flow)


def revive(flow: Flow) -> None:
    """Make a flow that was put aside a draft again; the caller saves it."""
    writing()
    refuse(flow, "draft")
    flow.status, flow.paused_at = "draft", None


def put_back(flow: Flow, to: str, by: By) -> None:
    """Take back that a flow was paused, went on, or was put aside: it stands where it stood. The caller saves it.

    Raises Invalid where it has moved on since, was never live, or cannot be live any more.
    """
    writing()
    since = flow.paused_at
    if flow.status == "archived":
        revive(flow)
        if to == "paused" and flow.version:
            flow.status, flow.paused_at = "paused", since
            return
    if to != flow.status:
        move(flow, to, by)


def refuse(flow: Flow, to: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow may go there."""
    if to in ALLOWED[flow.status]:
        return
    raise Invalid(
        {"status": [f"cannot change from {flow.status} to {to}"]},
        reason="invalid_transition",
        **cast(Any, {"from": flow.status, "to": to, "allowed": list(ALLOWED[flow.status])}),
    )


def _require(flow: Flow, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow takes an action now."""
    if flow.status not in ACTIONS[action].needs:
        instead = _INSTEAD.get((action, flow.status), "")
        standing = Standing(flow.status, list(ALLOWED[flow.status]), taken(ACTIONS, flow.status))
        raise refusal("flow", standing, action, ACTIONS[action], instead)


def activate(flow: Flow, by: By, skip_overdue_seconds: int | None = None) -> None:
    """Let a flow take people in, and those who are inside go on; raises Invalid with all that is missing.

    Messages that were due longer ago than so many seconds are dropped. The caller saves the flow.
    """
    writing()
    _require(flow, "activate")
    if flow.closing is not None:
        raise Unavailable("those who were inside are still being taken out", "unavailable", retry_after=2)
    trigger = Trigger.get(Trigger.flow == flow.id)
    # With a test key nobody but tests can be taken in, whatever was live before
    flow.test = by.test
    refuse_unready(blockers(flow, trigger, by))
    now = clock.now_ms()
    flow.drop_before = None if skip_overdue_seconds is None else now - skip_overdue_seconds * 1000
    approving.passed(flow)
    flow.status, flow.paused_at = "active", None
    version_snapshot.publish(flow)
    triggers.opened(flow.id)
    after_commit(lambda: wake_ups.ring("flows"))


def pause(flow: Flow) -> None:
    """Let nobody in and keep everybody where they are; the caller saves the flow."""
    writing()
    _require(flow, "pause")
    flow.status, flow.paused_at = "paused", clock.now_ms()


def archive(flow: Flow, take_out: bool) -> None:
    """Put a flow aside; those inside stay where they are, or leave. The caller saves the flow."""
    writing()
    flow.status, flow.paused_at = "archived", flow.paused_at or clock.now_ms()
    if take_out:
        flow.closing = "flow_archived"


def ask(flow: Flow, by: By) -> None:
    """Let a flow wait for somebody to approve of it; raises Invalid with what is missing else. The caller saves it."""
    writing()
    trigger = Trigger.get(Trigger.flow == flow.id)
    refuse_unready(blockers(flow, trigger, By(approves=True)))
    approving.ask(flow, by)


def approve(flow: Flow, by: By) -> None:
    """Let a flow go live as it is; raises NotAllowed for who may not say so. The caller saves it."""
    writing()
    approving.approve(flow, by)


def reject(flow: Flow, note: str | None) -> None:
    """Keep a flow from going live as it is, and pause one that is live; the caller saves it."""
    writing()
    approving.reject(flow, note)
    if flow.status == "active":
        pause(flow)


def edited(flow: Flow, by: By) -> None:
    """Do what a change of content or audience means; the caller saves the flow.

    A live flow goes on with the new version for new runs. Where somebody has to approve of that first it is paused.
    """
    writing()
    if flow.status != "active":
        flow.approval_state = "pending_review"
        return
    if not approves(flow, by):
        flow.approval_state = "pending_review"
        pause(flow)
        return
    trigger = Trigger.get(Trigger.flow == flow.id)
    refuse_unready(blockers(flow, trigger, By(approves=True)))
    approving.passed(flow)
    version_snapshot.publish(flow)


def approves(flow: Flow, by: By) -> bool:
    """Return whether what somebody does needs nobody else's approval."""
    return not flow.account.approval_required or approving.allows(flow, by)


# Words that a person holds back beside a live flow: what programs publish meanwhile goes out without them.
#
# A template holds the words as people write them. While something of a flow is published that is not theirs, its
# templates say what is live; then they say again what people wrote, with what was published under it.

Words = dict[str, Any]


@contextmanager
def hold_apart(flow: Flow, changed: Template | None = None) -> Iterator[None]:
    """Publish without what people hold back; of a template that a program just `changed` with that change alone."""
    writing()
    kept = []
    for row, live in drifted(flow).values() if flow.draft is not None and flow.version else ():
        mine, author = templates.document(row), _author(row)
        out = live
        if changed is not None and row.id == changed.id:
            row, before = changed, revisions.get(row.account_id, row.id, row.revision - 1)
            author = before.user_id
            out = live | {name: value for name, value in mine.items() if value != before.document[name]}
        templates.quietly(row, out)
        held = {name: value for name, value in mine.items() if value != out[name]}
        kept.append((row.id, held, author))
    yield
    for number, held, author in kept:
        templates.quietly(Template.get_by_id(number), held, author)


def _author(row: Template) -> int | None:
    found = TemplateRevision.get(TemplateRevision.template == row.id, TemplateRevision.number == row.revision)
    author: int | None = found.user_id
    return author


def drifted(flow: Flow) -> dict[int, tuple[Template, Words]]:
    """Return by step the templates that differ from the live ones, each with the live one."""
    found = {}
    for action_id, number, pinned in live_words(flow):
        row = Template.get_by_id(number)
        if templates.document(row) != pinned:
            found[action_id] = (row, pinned)
    return found


def live_words(flow: Flow) -> list[tuple[int, int, Words]]:
    """Return of each step of the live version that sends: its id, its template, and what it says."""
    asked = (
        tables_Step.select(tables_Step.action_id, tables_Step.template, TemplateRevision.document)
        .join(TemplateRevision, on=(tables_Step.content == TemplateRevision.id))
        .where(tables_Step.flow == flow.id, tables_Step.version == flow.version, tables_Step.template.is_null(False))
    )
    return [tuple(row) for row in asked.tuples()]


def show_live(flow: Flow, rows: Sequence[Template]) -> None:
    """Let templates that were read say what is live, as programs see a flow; they are not to be saved."""
    if flow.draft is None or not flow.version:
        return
    live = {number: words for _, number, words in live_words(flow)}
    for row in rows:
        for name, value in live.get(row.id, {}).items():
            setattr(row, name, value)
