"""The prompts of the MCP server: usual jobs of a marketer, which people choose in their assistant."""

import re
from typing import Any, NamedTuple

from appliance.api.mcp.protocol import INVALID_PARAMS, RpcError
from appliance.core.hidden_characters import clean_text

Json = dict[str, Any]

_MAX_ARGUMENT_CHARACTERS = 20_000
_PLACE = re.compile(r"\{(\w+)\}")
_CLOSING = (
    "Do not send anything. When the drafts are ready and checked, say in a few sentences what you prepared and what a "
    "person has to decide."
)


class Argument(NamedTuple):
    """An argument of a prompt."""

    name: str
    description: str
    is_required: bool = False


class Prompt(NamedTuple):
    """A prompt; each `{name}` in its text is replaced by the argument, or by `default` without one."""

    name: str
    title: str
    description: str
    text: str
    arguments: tuple[Argument, ...] = ()
    default: str = "not given"


PROMPTS = (
    Prompt(
        "win_back",
        "Win back lapsed customers",
        "Find contacts who used to buy and do not any more, and draft a campaign for them.",
        "Win back contacts who have done nothing for {days} days. Offer: {offer}.\n"
        "1. Call status. Read campanero://spec/filters and count the audience with describe_audience; leave out "
        "everyone who "
        "got a campaign within the last seven days.\n2. Save the segment.\n3. Draft a short, honest email with "
        "draft_campaign "
        "for that segment.\n4. Run preflight and preview_as for one contact, and mend what they find.\n" + _CLOSING,
        (
            Argument("days", "days without activity, such as 90", True),
            Argument("offer", "what the email offers"),
        ),
        "none; write without an offer",
    ),
    Prompt(
        "newsletter_from_notes",
        "Newsletter from notes",
        "Turn notes into a draft of a newsletter.",
        "Write a newsletter from the notes below for {audience}.\n1. Call status, and list_campaigns for the tone and "
        "length of "
        "the last newsletters.\n2. Draft it with draft_campaign: subject line of at most 50 characters, preview text, "
        "clear "
        "headings, one main link.\n3. Run preflight and preview_as, and mend what they find.\n"
        + _CLOSING
        + "\n\nNotes:\n{notes}",
        (
            Argument("notes", "the notes", True),
            Argument("audience", "list or segment that gets it"),
        ),
        "the list that got the last newsletter",
    ),
    Prompt(
        "check_deliverability",
        "Check deliverability",
        "Find out whether email arrives, and what to do about it.",
        "Check whether our email arrives. Call deliverability, then campaign_report for the last three campaigns. "
        "Name the "
        "problems in the order of their weight: DNS records, mailbox providers that refuse, bounces above 2 %, spam "
        "complaints "
        "above 0.1 %. For each say what a person has to do, and quote campanero://guide/deliverability where it helps.",
    ),
    Prompt(
        "explain_drop",
        "Explain a drop",
        "Explain why a campaign did worse than those before.",
        "Campaign {campaign_id} did worse than usual. Compare it with the three campaigns before it (list_campaigns, "
        "compare), "
        "then look at audience, subject line, time, mailbox providers, bounces and links (campaign_report). Say which "
        "causes "
        "the figures support, which they rule out, and what they cannot show. Small differences may be chance: say so.",
        (Argument("campaign_id", "id of the campaign", True),),
    ),
    Prompt(
        "why_no_message",
        "Why did somebody get no message?",
        "Explain why a contact did not get a message.",
        "Find the contact {contact} (find_contacts), then call why_not, for the campaign or flow {message}. Explain "
        "the reason in "
        "words for a colleague who does not know the system, and say whether anything can be done about it.",
        (
            Argument("contact", "name or address of the contact", True),
            Argument("message", "campaign or flow"),
        ),
        "that it should have got last",
    ),
    Prompt(
        "welcome_flow",
        "Welcome series",
        "Draft a flow that welcomes new subscribers, and simulate it.",
        "Draft a welcome series for new subscribers of {list}. Read campanero://spec/flows and "
        "campanero://guide/automations. "
        "Draft the flow with draft_flow (three emails within ten days, none to people who bought meanwhile), simulate "
        "it for "
        "one contact and for the last 90 days with simulate_flow, and mend it.\n" + _CLOSING,
        (Argument("list", "list that people join"),),
        "the list with the most contacts",
    ),
)


def list_prompts() -> list[Json]:
    """Return all prompts as clients get them in `prompts/list`."""
    return [
        {
            "name": prompt.name,
            "title": prompt.title,
            "description": prompt.description,
            "arguments": [
                {"name": argument.name, "description": argument.description, "required": argument.is_required}
                for argument in prompt.arguments
            ],
        }
        for prompt in PROMPTS
    ]


def get_prompt(name: Any, arguments: Any) -> Json:
    """Return a prompt with its arguments. Raises RpcError for an unknown prompt and for invalid arguments."""
    prompt = next((prompt for prompt in PROMPTS if prompt.name == name), None)
    if prompt is None:
        raise RpcError(INVALID_PARAMS, "Unknown prompt")
    given = arguments if arguments is not None else {}
    names = {argument.name for argument in prompt.arguments}
    if (
        not isinstance(given, dict)
        or not all(isinstance(value, str) for value in given.values())
        or given.keys() - names
    ):
        raise RpcError(
            INVALID_PARAMS, f"arguments must be an object of the texts {', '.join(sorted(names)) or 'none'}."
        )
    missing = [argument.name for argument in prompt.arguments if argument.is_required and not given.get(argument.name)]
    if missing:
        raise RpcError(INVALID_PARAMS, f"These arguments are required: {', '.join(missing)}.")
    if any(len(value) > _MAX_ARGUMENT_CHARACTERS for value in given.values()):
        raise RpcError(INVALID_PARAMS, f"An argument may have at most {_MAX_ARGUMENT_CHARACTERS} characters.")
    values = {argument: clean_text(given.get(argument) or prompt.default) for argument in names}
    # One pass, so that braces in an argument stay as they are
    text = _PLACE.sub(lambda match: values[match[1]], prompt.text)
    return {
        "description": prompt.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }
