"""Whether the links of a draft answer: asked in the background, and only where the operator wants it; advice at most.

Each address is asked once, the head of its page first. What was found is kept in memory for the state of the draft; an
address that stands in the next state too is not asked again for a while. What is no address of the open web, or has a
merge tag in it, is not asked and said to be unchecked.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from typing import Any, Literal

import msgspec
from msgspec import Struct

from appliance.campaigns.findings import Case, Finding
from appliance.content.designs import document
from appliance.core import wake_ups
from appliance.sending.delivery import safe_http
from appliance.sending.delivery.safe_http import Unreached
from appliance.settings import config

log = logging.getLogger("campanero.links")
_AT_ONCE, _MOST, _SECONDS, _ALL_SECONDS = 4, 100, 5.0, 60.0
# How long an answer is believed, over all states of a draft
FRESH_SECONDS = 600.0
_KEPT, _BYTES, _NAMED = 200, 4096, 10
# They answer, but not to a machine
_CLOSED = frozenset({401, 403, 405, 406, 407, 429, 451, 999})
_TAGS = ("{{", "{%")


class Answer(Struct):
    """What became of an address; `words` say what is wrong, or why it was not asked."""

    href: str
    state: Literal["waiting", "fine", "broken", "unchecked"] = "waiting"
    words: str = ""
    at: float = 0.0


class Check(Struct):
    """The links of one state of a draft."""

    revision: int
    answers: dict[str, Answer]
    status: Literal["waiting", "running", "complete"] = "waiting"


_lock = threading.Lock()
_known: "OrderedDict[int, Check]" = OrderedDict()


def of(case: Case) -> Check | None:
    """Return what is known of the links of a draft as it stands now; asks for what is not. None where it is off."""
    if not config.current().network.check_links or case.content is None:
        return None
    template, now = case.campaign.template, time.monotonic()
    hrefs = dict.fromkeys(link.href for link in case.content.links if link.href.lower().startswith(("http:", "https:")))
    with _lock:
        found = _known.get(template.id)
        if found is None or found.revision != template.revision or _is_old(found, now):
            old = found.answers if found is not None else {}
            fresh = {href: one for href, one in old.items() if one.at and one.at > now - FRESH_SECONDS}
            found = Check(template.revision, {href: fresh.get(href) or _begun(href) for href in list(hrefs)[:_MOST]})
            _known[template.id] = found
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        _known.move_to_end(template.id)
    if found.status == "waiting":
        wake_ups.ring("links")
    return found


def _is_old(found: Check, now: float) -> bool:
    return found.status == "complete" and any(one.at and one.at < now - FRESH_SECONDS for one in found.answers.values())


def _begun(href: str) -> Answer:
    if any(tag in href for tag in _TAGS):
        return Answer(href, "unchecked", "it has a merge tag in it")
    fault = safe_http.fault(href)
    return Answer(href, "unchecked", fault) if fault else Answer(href)


def tend(stopping: threading.Event) -> None:
    """Ask what waits, the newest wish first."""
    while not stopping.is_set():
        with _lock:
            found = next((one for one in reversed(_known.values()) if one.status == "waiting"), None)
            if found is None:
                return
            found.status = "running"
        try:
            asyncio.run(_ask(found, stopping))
        finally:
            found.status = "complete"


async def _ask(check: Check, stopping: threading.Event) -> None:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(answer: Answer) -> None:
        async with room:
            if not stopping.is_set():
                answer.state, answer.words = await _asked(answer.href)
                answer.at = time.monotonic()

    waiting = [answer for answer in check.answers.values() if answer.state == "waiting"]
    try:
        async with asyncio.timeout(_ALL_SECONDS):
            await asyncio.gather(*map(one, waiting))
    except TimeoutError:
        log.info("not all links were asked in time")
    for answer in waiting:
        if answer.state == "waiting":
            answer.state, answer.words = "unchecked", "there was no time for it"


async def _asked(href: str) -> tuple[Literal["fine", "broken", "unchecked"], str]:
    """Ask for the head of a page, and for the page where that does not do."""
    address, status = href.partition("#")[0], 0
    for method in ("HEAD", "GET"):
        try:
            status = (await safe_http.ask(method, address, most=_BYTES, seconds=_SECONDS, cut=True)).status
        except Unreached:
            continue
        if status < 400:
            return "fine", ""
    if status in _CLOSED:
        return "unchecked", f"it answers {status} to a machine"
    return "broken", f"answers {status}" if status else "does not answer"


def facts(check: Check) -> dict[str, Any]:
    """Return what is known of the links as preflight shows it."""
    found = list(check.answers.values())
    told = {
        state: [{"href": one.href, "why": one.words} for one in found if one.state == state]
        for state in ("broken", "unchecked")
    }
    return {"status": check.status, "fine": sum(one.state == "fine" for one in found), **msgspec.to_builtins(told)}


def findings(case: Case, check: Check) -> list[Finding]:
    """Name what does not answer, each with its section, and what was not asked."""
    found = check.answers.values()
    broken, unchecked = ([one for one in found if one.state == state] for state in ("broken", "unchecked"))
    made = [
        Finding(
            "link_broken", f"a link {one.words}: {one.href[:200]}", section(case.campaign.template.design, one.href)
        )
        for one in broken[:_NAMED]
    ]
    if unchecked:
        more = f" and {len(unchecked) - 1} more" if len(unchecked) > 1 else ""
        words = f"a link was not checked, for {unchecked[0].words}: {unchecked[0].href[:200]}{more}"
        made.append(Finding("link_unchecked", words, section(case.campaign.template.design, unchecked[0].href)))
    return made


def section(design: Any, href: str) -> str:
    """Return the field that holds a link: the innermost section with it, else the body."""
    for entry in reversed(document.entries(design)):
        own = {**entry.section.props, "columns": None}
        if any(href in text or href.replace("&", "&amp;") in text for text in document.strings(own)):
            return f"template_attributes.design.{entry.section.path}"
    return "template_attributes.body"
