"""Requests to the public addresses of accounts: only pages, links and pictures of that account are served there.

Everything else is "not found" at such an address: the interface, the API, and the objects of other accounts. So no
session cookie is ever set for it, and it reveals nothing about links and keys of other accounts. The Host header only
decides what may be seen; no URL is built from it (docs/decisions.md#38). A host that no account has is treated as an
address of the installation, because a proxy may use any name for it.
"""

import asyncio
import logging
import re
from typing import Any

from sanic import HTTPResponse, Request, Sanic

from appliance import public
from appliance.accounts import public_urls
from appliance.certificates.challenges import HTTP_PATH
from appliance.core import logs
from appliance.core.errors import Unavailable
from appliance.http.protocol import path_of
from appliance.public import pages
from appliance.storage.transactions import fetch, fetch_public

log = logging.getLogger("campanero")
# A change by a command in another process has an effect after this time at the latest.
_REFRESH_SECONDS = 2.0
_PROOF = re.compile(re.escape(public_urls.PROOF_PATH) + "([0-9]{1,14})")


async def check_host(request: Request) -> HTTPResponse | None:
    """Return the page "not found" for a request to an account's host for anything but that account's pages, else None.

    `request.ctx.public_host` is set to the entry of the host, or to None for a host that no account has.
    """
    host = request.ctx.public_host = request.app.ctx.hosts.find(request.headers.get("host"))
    if host is None:
        return None
    path = path_of(request)
    if path.startswith(HTTP_PATH):
        return None
    if proof := _PROOF.fullmatch(path):
        return HTTPResponse(public_urls.prove(int(proof[1])), content_type="text/plain")
    try:
        if await _is_own(request, host.account_id):
            return None
    except Unavailable:
        return pages.unavailable_page(pages.detect_language(request))
    return pages.not_found_page(language=pages.detect_language(request))


async def _is_own(request: Request, account_id: int) -> bool:
    """Return whether the route is for recipients, and the object in its path, if it has one, belongs to the account.

    The owner of a tracked link is not checked here, but where the link is looked up (`public/clicks.py`).
    """
    find_owner: public.FindOwner | None = getattr(request.route.ctx, "find_owner", None) if request.route else None
    if find_owner is None:
        return False
    if find_owner is public.has_no_owner:
        return True
    return await fetch_public(find_owner, *request.match_info.values()) == account_id


def is_account_host(request: Request) -> bool:
    """Return whether a request names the host of an account; false if it was rejected before its head was read."""
    return getattr(request.ctx, "public_host", None) is not None


async def keep_fresh(app: "Sanic[Any, Any]") -> None:
    """Read the hosts again every few seconds until shutdown, because commands in other processes change them."""
    errors = logs.RepeatedErrors(log, "server: reading the hosts of accounts failed")
    while not app.ctx.stopping:
        await asyncio.sleep(_REFRESH_SECONDS)
        try:
            await fetch(app.ctx.hosts.refresh)
        except Exception as error:
            # Without this loop, an address that an operator sets would have no effect until the next start.
            errors.log(error)
