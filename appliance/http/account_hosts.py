"""What is served at the public addresses of accounts: pages, links and pictures for the recipients of that account.

Everything else is not found there: the interface, the API and what belongs to other accounts. So no session cookie is
ever set for such a host, and a link or key of one account says nothing about another. The host of a request only
chooses what may be seen; no URL is made of it (docs/decisions.md#38). Hosts that no account has are served as the
installation's own, because a proxy may use any name for it.
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
    """Return the page "not found" if a host of an account is asked for anything but pages of that account, else None.

    `request.ctx.public_host` is set to the entry of the host, or to None for the installation's own.
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
    """Return whether the route of a request is one for recipients, and its object one of the account, if it has any.

    The owner of a tracked link is checked where the link is looked up.
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
    """Read the hosts again every few seconds, for the commands of operators, which run in another process."""
    errors = logs.RepeatedErrors(log, "server: reading the hosts of accounts failed")
    while not app.ctx.stopping:
        await asyncio.sleep(_REFRESH_SECONDS)
        try:
            await fetch(app.ctx.hosts.refresh)
        except Exception as error:
            # Without this loop, an address that an operator sets would have no effect until the next start.
            errors.log(error)
