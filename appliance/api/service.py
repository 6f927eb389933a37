"""The service itself: whether it lives, whether it is ready, and its numbers; below no account's paths."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sanic import Blueprint, HTTPResponse, Request

from appliance.accounts import accounts, heartbeat
from appliance.api import reply
from appliance.api.declare import Answer, Call, Routes
from appliance.core.errors import Unavailable
from appliance.ops.metrics import scrape as metrics_scrape
from appliance.ops.metrics.scrape import scrape
from appliance.storage import disk_guard, work
from appliance.storage.open import close_database, scalar
from appliance.storage.work import call

# For who has a credential, declared as all such endpoints are
ROUTES = Routes()
_BEAT_SECONDS = 1.0
_beating = asyncio.Lock()
_beaten: float | None = None
# A thread of its own: counting a long queue takes a reader's place for a third of a second, and pages would wait
_scraping = ThreadPoolExecutor(1, thread_name_prefix="metrics")


def mount(blueprint: Blueprint) -> None:
    """Add what wants no credential; HEAD answers wherever GET does."""
    blueprint.add_route(_healthz, "/healthz", methods=["GET", "HEAD"], error_format="text")
    blueprint.add_route(_readyz, "/readyz", methods=["GET", "HEAD"], error_format="text")


async def _healthz(request: Request) -> HTTPResponse:
    """Return whether rows can be read and written and nothing of the database is known to be damaged.

    Anybody may ask, so it writes at most once in a second.
    """
    global _beaten
    await call(scalar, "SELECT 1")
    disk_guard.must_be_whole()
    disk_guard.must_write()
    async with _beating:
        now = asyncio.get_running_loop().time()
        if _beaten is None or now - _beaten >= _BEAT_SECONDS:
            # Writing a row, for a disk that is full still takes a transaction with nothing in it
            await work.commit(heartbeat.beat)
            _beaten = now
    return reply.json({"status": "ok"})


async def _readyz(request: Request) -> HTTPResponse:
    """Return whether requests are answered and messages sent; one word why not, and nothing of anybody."""
    missing = _missing(request.app.ctx)
    if missing is not None:
        raise Unavailable(f"the service is not ready: {missing}", "unavailable")
    await call(scalar, "SELECT 1")
    return reply.json({"status": "ready"})


def _missing(here: Any) -> str | None:
    """Return what the service lacks; that it ends is said before, to every request."""
    if not getattr(here, "ready", False):
        return "starting"
    if disk_guard.trouble() is not None:
        return "storage"
    return None if here.works.is_running() else "queue"


def _scraped(account_id: int | None) -> str:
    try:
        return scrape(account_id)
    except Exception as error:
        raise disk_guard.storage_error(error) or error from error
    finally:
        close_database()


@ROUTES.add("GET", "/metrics", scope="account:read", media="text/plain")
async def metrics(request: Call) -> Answer:
    """Get the service's numbers, as Prometheus reads them.

    A credential of the first account gets those of the whole installation. Any other gets what is its own account's:
    its queue, sends, bounces, complaints, imports, flows and webhooks. Counters begin anew with each start.
    """
    whose = None if request.account_id == accounts.FIRST else request.account_id
    found = await asyncio.get_running_loop().run_in_executor(_scraping, _scraped, whose)
    return Answer(found, media=metrics_scrape.KIND, headers={"Cache-Control": "no-store"})
