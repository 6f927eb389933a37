"""Says filters as a person would: "People in Newsletter who clicked at least once in the last 30 days"."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from appliance.audience.filters.history import History
from appliance.audience.filters.read import Group, Leaf, Lived, Node
from appliance.audience.filters.scope import Scope
from appliance.audience.filters.values import Span

Names = Callable[[str, int], str]
_JOINED_BEFORE = "whose "
_VERBS = {
    "email_sent": "were sent an email", "email_delivered": "got an email", "email_opened": "opened an email",
    "email_clicked": "clicked", "email_replied": "replied", "email_bounced": "had an email bounce",
    "email_complained": "complained", "sms_sent": "were sent an SMS", "sms_clicked": "clicked in an SMS",
    "form_submitted": "filled in a form",
    "list_add": "joined a list", "list_remove": "left a list", "opt_in": "opted in", "opt_out": "opted out",
    "contact_add": "were added", "flow_enter": "entered a flow", "message": "wrote an SMS",
}  # fmt: skip
# How each kind of id reads: in the positive, and in the opposite
_IDS = {
    "contact_list": ("in {}", "not in {}", "in any list", "in no list"),
    "contact_segment": ("in {}", "not in {}", "", ""),
    "contact_flow": ("now in the flow {}", "not now in the flow {}", "now in a flow", "now in no flow"),
    "campaign_sent": ("who got {}", "who did not get {}", "who got a campaign", "who got no campaign"),
    "campaign_opened": ("who opened {}", "who did not open {}", "who opened a campaign", "who opened no campaign"),
    "campaign_clicked": ("who clicked in {}", "who did not click in {}", "who clicked in a campaign",
                         "who clicked in no campaign"),
}  # fmt: skip


def sentence(nodes: Sequence[Node], scope: Scope, names: Names) -> str:
    """Return who is meant, as one sentence without a full stop; `names(kind, id)` answers what things are called."""
    if not nodes:
        return "Everybody"
    places = [one for one in (clause(node, scope, names) for node in nodes) if one.startswith(("in ", "not in "))]
    others = [one for one in (clause(node, scope, names) for node in nodes) if one not in places]
    return " ".join(["People", *(_listed(some, "and") for some in (places, others) if some)])


def clause(node: Node, scope: Scope, names: Names) -> str:
    """Say one filter, as it stands after "People"."""
    if isinstance(node, Group):
        parts = [clause(part, scope, names) for part in node.parts]
        if node.mode == "none":
            return f"who are none of these: {_listed(parts, 'or')}"
        return f"({_listed(parts, 'or' if node.mode == 'any' else 'and')})"
    if isinstance(node, Lived):
        return _lived(node, scope)
    if node.field.type == "id":
        return _identity(node, names)
    if node.field.type == "boolean":
        wanted = (node.value is True) != node.negative
        return f"who are {'' if wanted else 'not '}{node.field.label}"
    pattern = node.test.opposite_words if node.negative else node.test.words
    if node.field.type == "tags":
        return f"with {_tags(pattern, node)}"
    return f"whose {node.field.label} {pattern.format(_value(node.value, scope)) if '{}' in pattern else pattern}"


def _tags(pattern: str, node: Leaf) -> str:
    verb = pattern.split("{}")[0].strip()
    how = {"has": "the tag", "does not have": "no tag", "has one of": "one of the tags",
           "has none of": "none of the tags", "has any": "any tag", "has none": "no tag at all"}[verb]  # fmt: skip
    return f"{how} {_plain(node.value)}" if "{}" in pattern else how


def _identity(node: Leaf, names: Names) -> str:
    shape = _IDS[node.field.name]
    if node.test.key == "present":
        return shape[3 if node.negative else 2]
    wanted = node.value if isinstance(node.value, list) else [node.value]
    return shape[1 if node.negative else 0].format(_listed([names(node.field.of, number) for number in wanted], "or"))


def _lived(node: Lived, scope: Scope) -> str:
    asked = node.history
    did = _VERBS.get(asked.event, "did “" + asked.event.replace("_", " ") + "”")
    verb = f"did not do this: {did}" if node.negative else did
    return f"who {verb} {_often(asked)}{_when(asked, scope)}{' with matching data' if asked.where else ''}"


def _often(asked: History) -> str:
    def times(number: int) -> str:
        return {1: "once", 2: "twice"}.get(number, f"{number} times")

    if asked.at_most is None:
        return f"at least {times(asked.at_least)}"
    if asked.at_least in (0, asked.at_most):
        return f"{'at most' if asked.at_least != asked.at_most else 'exactly'} {times(asked.at_most)}"
    return f"{asked.at_least} to {asked.at_most} times"


def _when(asked: History, scope: Scope) -> str:
    found = ""
    if asked.within_days is not None:
        found += f" in the last {asked.within_days} days" if asked.within_days > 1 else " in the last day"
    if asked.since is not None:
        found += " since they entered" if isinstance(asked.since, str) else f" since {_moment(asked.since, scope)}"
    return found


def _moment(ms: int, scope: Scope, last: bool = False) -> str:
    moment = datetime.fromtimestamp(ms / 1000, ZoneInfo(scope.zone))
    if last and (moment.hour, moment.minute) == (0, 0):
        # The end of a day is the beginning of the next one
        moment -= timedelta(days=1)
    return f"{moment.day} {moment:%B %Y}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%d %B %Y, %H:%M}"


def _value(value: Any, scope: Scope) -> str:
    if isinstance(value, Span):
        return _moment(value.start, scope)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], Span):
        return f"{_moment(value[0].start, scope)} and {_moment(value[1].end, scope, last=True)}"
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return _listed([_plain(one) for one in value], "or")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"“{value}”" if isinstance(value, str) else str(value)


def _listed(parts: list[str], word: str) -> str:
    if len(parts) > 6:
        parts = [*parts[:5], f"{len(parts) - 5} more"]
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"
