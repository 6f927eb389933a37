"""Build the tree of a flow: a card for each step, with a description and figures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from appliance.audience.segments import explain
from appliance.content.designs.merge import make_readable
from appliance.core import i18n
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.events import log
from appliance.flows import branches, document, drafts, report, triggers, wait_times
from appliance.flows.drafts import FlowDraft
from appliance.flows.report import FlowReport, RunCount, StepFigures
from appliance.flows.request_template import describe_reason
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import format_duration
from appliance.flows.triggers import TriggerSpec
from appliance.webhooks import subscriptions
from ui import formats, labels
from ui.forms.flow_forms import TRIGGER_LABELS

# The colour class of each step icon.
TONES = {
    "mail": "info", "message-square": "info", "clock": "warn", "split": "hold", "zap": "good", "list": "good",
    "tag": "good", "pencil": "", "ban": "warn", "log-out": "", "refresh-cw": "hold", "bell-ring": "info",
    "webhook": "info", "list-filter": "hold",
}  # fmt: skip
_DAY_SECONDS = 86_400


class CardBranch(NamedTuple):
    """A branch of a step in the tree, with its cards; `share` is the share of the flow's entries that took it."""

    key: str
    label: str
    cards: "list[Card]"
    percent: str = ""
    share: float = 0.0


class Card(NamedTuple):
    """A step in the tree, with its branches.

    `number` is a count of contacts that `label` explains, or None. `continuing_share` is the share of the flow's
    entries that continued after the step, and `left_label` says how many contacts left the flow in the step. `change`
    marks an unpublished change.
    """

    id: int
    type: str
    kind: str
    icon: str
    tone: str
    title: str
    subtitle: str
    number: int | None
    label: str
    contacts_url: str
    continuing_share: float
    left_label: str
    faults: list[str]
    change: str
    branches: list[CardBranch]


class TreeFigures(NamedTuple):
    """The figures of a flow: the number of entries, and the figures of each step by id."""

    entered: int
    steps: Mapping[int, StepFigures]


def index_report(flow_report: FlowReport | None) -> TreeFigures:
    """Return the number of entries and the figures of each step; without a report, zero and no figures."""
    if flow_report is None:
        return TreeFigures(0, {})
    return TreeFigures(flow_report.runs.entered.count, {step.id: step for step in flow_report.steps})


# Why a run ended or a step was skipped, besides the reasons of messages.
_REASONS = {
    "goal": gettext_noop("Goal reached"),
    "exit_step": gettext_noop("Exit step reached"),
    "taken_out": gettext_noop("Removed manually"),
    "flow_archived": gettext_noop("The flow was archived"),
    "flow_deleted": gettext_noop("The flow was deleted"),
    "failed": gettext_noop("A step failed"),
    "left_list": gettext_noop("The contact left this list before"),
    "list_deleted": gettext_noop("The list was deleted"),
    "list_is_view": gettext_noop("The list follows a segment"),
    "no_date": gettext_noop("The contact has no date there"),
    "date_passed": gettext_noop("The date is past"),
    "timed_out": gettext_noop("The event did not come in time"),
    "no_colleague": gettext_noop("The colleague no longer has access"),
    "too_many_notices": gettext_noop("Too many notifications in an hour"),
    "test_run": gettext_noop("Nobody is notified of a test"),
    "test_request": gettext_noop("No request is made for a test"),
    "invalid_data": gettext_noop("The data would be invalid or too long"),
    "already_inside": gettext_noop("Already in the flow"),
    "held_out": gettext_noop("In the holdout group of the flow"),
    "control_group": gettext_noop("In the control group of the account"),
    "winner": gettext_noop("Took the winner of the test"),
    "depth": gettext_noop("Flows triggered each other too many times"),
    "frequency": gettext_noop("Re-entry not allowed yet"),
}


def reason_label(code: str | None) -> str:
    """Return the label of the reason why a run ended, a step was skipped or a message was not sent.

    An unknown code is labelled with its name, and None with a text that says that there is no reason.
    """
    if code not in _REASONS and (text := describe_reason(code)):
        return formats.sentence(text).removesuffix(".")
    return gettext(_REASONS[code]) if code in _REASONS else labels.reason_label(code)


def step_icons() -> dict[str, tuple[str, str]]:
    """Return the icon and the colour class of each step type."""
    return {kind.type: (kind.icon, TONES.get(kind.icon, "good")) for kind in BY_TYPE.values()}


def contacts_url(number: RunCount | Any) -> str:
    """Return the URL of the page with the contacts behind a number of a report."""
    return str(number.people).replace("/v1/my/flows/", "/flows/").replace("/runs?", "/people?")


def build_cards(
    draft: FlowDraft, steps: Sequence[dict[str, Any]], figures: TreeFigures, errors: Mapping[int, list[str]],
    change_kinds: Mapping[int, str], level: Sequence[dict[str, Any]] | None = None,
) -> list[Card]:  # fmt: skip
    """Return the cards of a flow's steps, with nested cards for branches.

    `steps` are the draft's steps with their contents. `errors` has the errors of each step and `change_kinds` the kind
    of its unpublished change, both by step id. `level` is the list of steps to build cards for, by default `steps`.
    """
    level_steps = list(steps if level is None else level)
    cards = [_build_card(draft, steps, step, figures, errors, change_kinds) for step in level_steps]
    for index, card in enumerate(cards):
        # All branches of a step join again, so the share that continues is the share that entered the next step.
        if card.branches:
            next_step = figures.steps.get(level_steps[index + 1]["id"]) if index + 1 < len(level_steps) else None
            share = next_step.entered.count / figures.entered if next_step is not None and figures.entered else 0.0
            cards[index] = card._replace(continuing_share=share)
    return cards


def _build_card(
    draft: FlowDraft, steps: Sequence[dict[str, Any]], step: dict[str, Any], figures: TreeFigures,
    errors: Mapping[int, list[str]], change_kinds: Mapping[int, str],
) -> Card:  # fmt: skip
    kind = BY_TYPE[step["type"]]
    number = step["id"]
    step_figures = figures.steps.get(number)
    title, subtitle = describe_step(draft.flow.account_id, step)
    count, label, url = _card_count(step["type"], step_figures)
    return Card(
        number, step["type"], gettext(kind.label), kind.icon, TONES.get(kind.icon, "good"), title,
        " · ".join(filter(None, (subtitle, _rate_label(step_figures), _time_label(draft.steps, number)))),
        count, label, url, _continuing_share(step_figures, figures.entered), _left_label(step_figures),
        list(errors.get(number, [])), change_kinds.get(number, ""),
        [
            CardBranch(
                key, label,
                build_cards(draft, steps, figures, errors, change_kinds, branches.get_branch(step, key) or []),
                *_branch_figures(key, step_figures, figures.entered),
            )
            for key, label in kind.list_branches(branches.get_props(step)).items()
        ],
    )  # fmt: skip


def describe_step(account_id: int, step: dict[str, Any]) -> tuple[str, str]:
    """Return the title and the subtitle of a step's card."""
    kind, content = step["type"], step.get("content") or {}
    label = gettext(BY_TYPE[kind].label)
    if kind == "email":
        service = gettext("transactional") if step.get("transactional") else ""
        subject = make_readable((content.get("subject") or "").strip())
        return subject or gettext("No subject yet"), " · ".join(filter(None, (label, service)))
    if kind == "sms":
        return make_readable(content.get("body") or "")[:90] or gettext("No text yet"), label
    if kind == "wait":
        return gettext("Wait %(duration)s", duration=format_duration(step["duration"])), ""
    if kind == "wait_until":
        return report.summarize_step(account_id, step), ""
    if kind == "split":
        return report.summarize_step(account_id, step), label
    if kind == "emit_event":
        forwards = gettext("includes the trigger’s data") if step.get("forward_event_data") else ""
        return gettext("Record “%(event)s”", event=log.name_event(step["event_name"])), forwards
    return report.summarize_step(account_id, step) or label, "" if kind == "exit" else label


def _card_count(kind: str, figures: StepFigures | None) -> tuple[int | None, str, str]:
    """Return the number that a card shows, its label, and the URL of its contacts; (None, "", "") without figures.

    The number counts contacts waiting, messages sent, or contacts who entered the step.
    """
    if figures is None:
        return None, "", ""
    waits = BY_TYPE[kind].waits
    number, label = (figures.waiting_now, gettext("waiting")) if waits else (figures.entered, gettext("entered"))
    if figures.messages is not None:
        number, label = figures.messages.accepted, gettext("sent")
    return number.count, label, contacts_url(number)


def _rate_label(figures: StepFigures | None) -> str:
    messages = figures.messages if figures is not None else None
    if messages is None or not messages.accepted.count:
        return ""
    opened, clicked = (
        formats.percent(number.count, messages.accepted.count) for number in (messages.opened, messages.clicked)
    )
    if messages.opened.count:
        return gettext("%(percentage)s opened", percentage=opened)
    return gettext("%(percentage)s clicked", percentage=clicked) if messages.clicked.count else ""


def _time_label(steps: Sequence[dict[str, Any]], number: int) -> str:
    """Return the time from entering the flow to a step, such as `day 3`, or `after 4 hours to 10 hours`.

    The text is empty if there is no wait before the step.
    """
    shortest, longest = wait_times.find_wait_before(list(steps), number)
    if not longest:
        return ""
    first_day, last_day = shortest // _DAY_SECONDS, longest // _DAY_SECONDS
    if first_day and first_day == last_day:
        return gettext("day %(day)s", day=first_day)
    if first_day:
        return gettext("day %(first)s to %(last)s", first=first_day, last=last_day)
    if not shortest:
        return gettext("after at most %(duration)s", duration=format_duration(longest))
    if shortest == longest:
        return gettext("after %(duration)s", duration=format_duration(longest))
    return gettext(
        "after %(shortest)s to %(longest)s", shortest=format_duration(shortest), longest=format_duration(longest)
    )


def _continuing_share(figures: StepFigures | None, entered: int) -> float:
    """Return the share of all entries that continued from a step, or 0 without figures."""
    return figures.went_on.count / entered if figures is not None and entered else 0.0


def _left_label(figures: StepFigures | None) -> str:
    if figures is None or not figures.left.count:
        return ""
    return ngettext("%(num)s exited here", "%(num)s exited here", figures.left.count)


def _branch_figures(key: str, figures: StepFigures | None, entered: int) -> tuple[str, float]:
    """Return the share of a branch among all branches as text, and among all entries of the flow as a number."""
    counts = {branch.key: branch.count for branch in figures.branches} if figures is not None else {}
    return fill_branch(counts.get(key, 0), sum(counts.values()), entered)


def fill_branch(count: int, total: int, entered: int) -> tuple[str, float]:
    """Return the `percent` and the `share` of a branch that `count` contacts took, of `total` in all branches."""
    return formats.percent(count, total) if total else "", count / entered if entered else 0.0


def describe_trigger(account_id: int, start: TriggerSpec) -> tuple[str, str]:
    """Return the trigger of a flow as text, and how often it can start the flow for one contact."""
    if start.event == "manual":
        return gettext("No trigger yet"), gettext("Select a trigger")
    names = []
    if start.contact_list_id is not None:
        names.append(explain.fetch_name(account_id, "list", start.contact_list_id))
    if start.segment_id is not None:
        names.append(explain.fetch_name(account_id, "segment", start.segment_id))
    if start.event == "date_reached":
        text = _describe_date(str(start.data.get("path") or "…"), int(start.data.get("offset_days") or 0))
    else:
        text = _describe_event(start, names)
    if names:
        return gettext("%(trigger)s, only contacts in %(names)s", trigger=text, names=formats.join_quoted(names)), (
            _frequency_label(start)
        )
    return text, _frequency_label(start)


def _describe_date(path: str, offset_days: int) -> str:
    """Return a date trigger in words, with the custom field and the days before or after its date."""
    field = path.removeprefix("data.")
    if not offset_days:
        return gettext("Date in “%(field)s”", field=field)
    if offset_days < 0:
        return ngettext(
            "%(num)s day before the date in “%(field)s”", "%(num)s days before the date in “%(field)s”",
            -offset_days, field=field,
        )  # fmt: skip
    return ngettext(
        "%(num)s day after the date in “%(field)s”", "%(num)s days after the date in “%(field)s”",
        offset_days, field=field,
    )  # fmt: skip


def _describe_event(start: TriggerSpec, names: list[str]) -> str:
    """Return the event of a trigger in words; the name of the list or segment that it is about is taken from `names`.

    `names` has the name of the trigger's list, then of its segment.
    """
    if start.event == "list_add" and start.contact_list_id is not None:
        return gettext("Joined “%(name)s”", name=names.pop(0))
    if start.event == "list_remove" and start.contact_list_id is not None:
        return gettext("Left “%(name)s”", name=names.pop(0))
    if start.event == "segment_enter" and start.segment_id is not None:
        return gettext("Entered “%(name)s”", name=names.pop())
    if start.event == "segment_exit" and start.segment_id is not None:
        return gettext("Left “%(name)s”", name=names.pop())
    if start.event in TRIGGER_LABELS:
        return gettext(TRIGGER_LABELS[start.event])
    if start.event in log.RESERVED_NAMES:
        return labels.event(start.event)[2]
    return gettext("Event “%(name)s”", name=start.event)


def _frequency_label(start: TriggerSpec) -> str:
    has_conditions = bool(start.data.get("where"))
    if start.event == "date_reached":
        time = start.data.get("at") or "09:00"
        if start.data.get("yearly"):
            label = gettext("Every year at %(time)s", time=time)
        else:
            label = gettext("Once at %(time)s", time=time)
    else:
        often = triggers.get_frequency(start)
        if isinstance(often, int):
            label = gettext("At most once every %(duration)s", duration=format_duration(often))
        else:
            label = gettext("Once per contact") if often == "once" else gettext("Every time")
    return gettext("%(frequency)s, with conditions", frequency=label) if has_conditions else label


def list_request_hosts(steps: list[Any]) -> str:
    """Return the hosts that the HTTP requests of a flow send data to, as a list in words; empty without any."""
    urls = [str(step.get("url") or "") for _, step in document.walk(steps) if step["type"] == "http_request"]
    return i18n.format_list(sorted({host for url in urls if (host := subscriptions.url_host(url))}))


def step_titles(draft: FlowDraft) -> dict[int, str]:
    """Return the titles of all published and unpublished steps by id."""
    titles = {}
    for steps in (draft.flow.steps, draft.steps):
        for step in drafts.add_contents(steps):
            for inner in (step, *document.list_descendants(step)):
                titles[inner["id"]] = describe_step(draft.flow.account_id, inner)[0]
    return titles


def list_request_steps(draft: FlowDraft) -> list[int]:
    """Return the ids of the published and unpublished steps that make HTTP requests."""
    tops = (*draft.flow.steps, *draft.steps)
    steps = [step for top in tops for step in (top, *document.list_descendants(top))]
    return list(dict.fromkeys(step["id"] for step in steps if step["type"] == "http_request"))


def build_position(draft: FlowDraft, steps: list[Any], step: Any) -> dict[str, Any]:
    """Return where a step is and can be moved, and how many contacts are in it and in the steps before it."""
    place = document.locate_step(draft.steps, step["id"])
    counts = drafts.count_inside(draft.flow.id)
    above = sum(counts.get(item["id"], 0) for item in document.list_predecessors(draft.steps, step["id"]))
    titles = {item["id"]: describe_step(draft.flow.account_id, item)[0] for _, item in document.walk(steps)}
    places = [
        (str(item.position), "\u2003" * item.depth + _move_target_label(item, titles))
        for item in document.list_move_targets(draft.steps, step["id"])
    ]
    below = [item["id"] for item in document.list_descendants(step)]
    return {
        "places": places, "below": len(below), "above": above,
        "waiting": sum(counts.get(item, 0) for item in (step["id"], *below)),
        "sibling": (place.at, len(place.siblings)) if place else (0, 0),
    }  # fmt: skip


def list_step_options(draft: FlowDraft, steps: list[Any], own: Any) -> list[tuple[str, str]]:
    """Return (id, title) of the steps that a step can lead to: all but itself, indented by their levels."""
    options = []
    for path, step in document.walk(steps):
        if own is None or step["id"] != own["id"]:
            title = _shorten(describe_step(draft.flow.account_id, step)[0])
            options.append((str(step["id"]), "\u2003" * path.count("].") + title))
    return options


def _shorten(title: str) -> str:
    return title if len(title) <= _MAX_TITLE_CHARACTERS else f"{title[: _MAX_TITLE_CHARACTERS - 1]}…"


# The longest title of a step in the options of a move.
_MAX_TITLE_CHARACTERS = 60


def _move_target_label(target: document.MoveTarget, titles: dict[int, str]) -> str:
    if target.step is None:
        return gettext("At the start")
    title = _shorten(titles[target.step["id"]])
    how = target.position.placement
    if how == document.AFTER:
        return gettext("After “%(step)s”", step=title)
    branch = BY_TYPE[target.step["type"]].list_branches(branches.get_props(target.step))[how]
    return gettext("First step of “%(branch)s” in “%(step)s”", branch=branch, step=title)
