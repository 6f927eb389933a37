"""What a message of a flow says in one version: fixed when that goes live, so that a repeat is the same bytes.

It stands with the step: the revision of its template, and what is said beside that. Its links are numbered there too,
once for all who get it.
"""

import threading
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from appliance.content import brand as brands
from appliance.content.designs.theme import Look
from appliance.content.templates import store as templates
from appliance.core import clock
from appliance.sending.messages import compose, senders, texts, values
from appliance.sending.messages.compose import Content, Source
from appliance.storage.models import Account, Flow, Template, Trigger
from appliance.storage.work import writing


class Common(NamedTuple):
    """What all steps of a flow say alike, and from whom they are where they name nobody themselves."""

    said: dict[str, Any]
    sender: str
    name: str
    reply_to: str | None


def pin(flow: Flow, template: Template, transactional: bool, is_email: bool = True) -> dict[str, Any]:
    """Fix what a step says, as of now: the columns of its row (`plan.write`); raises MergeError if it cannot be read.

    Whoever compiled the same source before (`source`) does not wait for that here.
    """
    writing()
    beside = numbered(template, pinned(common(flow), template, transactional), is_email)
    revision = templates.pin(template, f"Live {clock.iso(clock.now_ms())}")
    return {"template": template.id, "content": revision.id, "pinned": beside}


def common(flow: Flow) -> Common:
    """Return what the steps of a flow say alike, as of now."""
    account = Account.get_by_id(flow.account_id)
    brand = brands.get(account.id)
    trigger = Trigger.get_or_none(Trigger.flow == flow.id)
    contact_list = trigger.contact_list if trigger is not None else None
    said = {
        "look": brands.look(brand),
        "locale": account.locale,
        "double_opt_in": bool(contact_list is not None and contact_list.double_opt_in),
        "values": values.of_account(account, brand) | {"campaign": {"name": flow.name}},
        "list_name": contact_list.name if contact_list else account.name,
        "list_id": f"list-{contact_list.id}" if contact_list else f"account-{account.id}",
    }
    name = account.email_from_name or account.name
    return Common(said, senders.resolve(account, None), name, account.email_reply_to)


def pinned(alike: Common, template: Template, transactional: bool) -> dict[str, Any]:
    """Return what a step says beside its template; its links are still to be numbered."""
    return alike.said | {
        "transactional": transactional,
        "tracking": not transactional,
        "sender": {
            "email": template.from_email or alike.sender, "name": alike.name,
            "reply_to": template.reply_to or alike.reply_to,
        },
        "links": [],
    }  # fmt: skip


def numbered(template: Template, beside: dict[str, Any], is_email: bool) -> dict[str, Any]:
    """Return what a step says beside its template with the links of it; raises MergeError if it cannot be read."""
    if is_email:
        found = links(source(templates.document(template), beside))
    else:
        found = tuple((link.href, link.words) for link in texts.links(template.body))
    return beside | {"links": [] if beside["transactional"] else [[href, words] for href, words in found]}


def source(document: dict[str, Any], beside: dict[str, Any]) -> Source:
    """Return what the message of a step is made from: its template's fields, and what is said beside them."""
    look = Look(*beside["look"])
    return compose.source_of(document, look, beside["locale"], marketing=not beside["transactional"])


# What the links of messages are is kept by the digest of what they are made from: little, for all steps of many flows
_MAX_KEPT = 2_000
_links: "OrderedDict[bytes, tuple[tuple[str, str], ...]]" = OrderedDict()
_lock = threading.Lock()


def links(said: Source) -> tuple[tuple[str, str], ...]:
    """Return where the links of a message lead and what they say; the last ones are kept. Raises MergeError."""
    digest = blake2b(msgspec.json.encode(said), digest_size=16).digest()
    with _lock:
        if digest in _links:
            _links.move_to_end(digest)
            return _links[digest]
    found = tuple((link.href, link.words) for link in compose.compile_source(said).links)
    with _lock:
        _links[digest] = found
        while len(_links) > _MAX_KEPT:
            _links.popitem(last=False)
    return found


def compiled(document: dict[str, Any], beside: dict[str, Any]) -> Content:
    """Compile the message of a step; raises MergeError."""
    return compose.compile_source(source(document, beside))
