"""All endpoints in the order of the OpenAPI document, and the endpoints for health, readiness and metrics."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sanic import Blueprint, HTTPResponse, Request

from appliance.accounts import accounts, settings
from appliance.api import (
    account,
    backups,
    campaigns,
    contacts,
    delivery,
    events,
    flow_replays,
    flow_runs,
    flows,
    forms,
    http,
    imports_exports,
    messages,
    passkeys,
    proposals,
    roles,
    segments,
    sign_in,
    team,
    templates,
    webhooks,
)
from appliance.api.endpoints import ApiRequest, ApiResponse, Route, Routes
from appliance.core.errors import Unavailable
from appliance.ops import metrics as metrics_scrape
from appliance.ops.metrics import render_metrics
from appliance.storage import disk_guard, send_lease, transactions
from appliance.storage.database import close_database, scalar
from appliance.storage.transactions import fetch_public

ROUTES: tuple[Route, ...] = (
    *messages.ROUTES,
    *campaigns.ROUTES,
    *contacts.ROUTES,
    *segments.ROUTES,
    *imports_exports.ROUTES,
    *forms.ROUTES,
    *templates.ROUTES,
    *flows.ROUTES,
    *flow_runs.ROUTES,
    *flow_replays.ROUTES,
    *account.ROUTES,
    *backups.ROUTES,
    *delivery.ROUTES,
    *team.ROUTES,
    *passkeys.ROUTES,
    *sign_in.ROUTES,
    *roles.ROUTES,
    *proposals.ROUTES,
    *events.ROUTES,
    *webhooks.ROUTES,
)
# Endpoints outside of the API's base path.
SERVICE_ROUTES = Routes()
_HEARTBEAT_SECONDS = 1.0
_heartbeat_lock = asyncio.Lock()
_last_heartbeat: float | None = None
# Metrics have their own thread, because counting a long queue takes a third of a second. On the reader pool it would
# delay pages for that time.
_metrics_thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")


def add_health_routes(blueprint: Blueprint) -> None:
    """Add `/healthz` and `/readyz`, which need no credential."""
    blueprint.add_route(_get_health, "/healthz", methods=["GET", "HEAD"], error_format="text")
    blueprint.add_route(_get_readiness, "/readyz", methods=["GET", "HEAD"], error_format="text")


async def _get_health(request: Request) -> HTTPResponse:
    """Return 200 if the database can be read and written and is not known to be damaged, else raise a 503 error.

    The endpoint is public, so it writes to the database at most once per `_HEARTBEAT_SECONDS`.
    """
    global _last_heartbeat
    # The guard says what is wrong with the files, which an error of reading would not.
    disk_guard.require_undamaged()
    disk_guard.require_writable()
    await fetch_public(scalar, "SELECT 1")
    async with _heartbeat_lock:
        now = asyncio.get_running_loop().time()
        if _last_heartbeat is None or now - _last_heartbeat >= _HEARTBEAT_SECONDS:
            # The check writes a row, because an empty transaction would succeed on a full disk.
            await transactions.commit(settings.write_heartbeat)
            _last_heartbeat = now
    return http.json_response({"status": "ok"})


async def _get_readiness(request: Request) -> HTTPResponse:
    """Return 200 if requests are served and messages are sent, else raise Unavailable.

    The error names the part that is not ready in one word, which `_find_missing_part` returns.
    """
    missing = _find_missing_part(request.app.ctx)
    if missing is not None:
        raise Unavailable(f"The service is not ready: {missing}", "unavailable")
    await fetch_public(scalar, "SELECT 1")
    return http.json_response({"status": "ready"})


def _find_missing_part(context: Any) -> str | None:
    """Return `starting`, `storage`, `lease` or `queue` for the part of the service that is not ready, or None.

    A service that is shutting down rejects every request before this function is called.
    """
    if not getattr(context, "ready", False):
        return "starting"
    if disk_guard.send_blocker() is not None:
        return "storage"
    if not send_lease.is_held():
        return "lease"
    return None if context.works.is_running() else "queue"


def _collect_metrics(account_id: int | None) -> str:
    try:
        return render_metrics(account_id)
    except Exception as error:
        raise disk_guard.to_storage_error(error) or error from error
    finally:
        close_database()


METRICS_PATH = "/metrics"


@SERVICE_ROUTES.add("GET", METRICS_PATH, scope="account:read", media="text/plain")
async def get_metrics(request: ApiRequest) -> ApiResponse:
    """Get metrics in the Prometheus text format.

    A credential of the first account gets the metrics of the whole installation. Any other credential gets the metrics
    of its account: queue, sends, bounces, complaints, imports, flows and webhooks. Counters start at zero when the
    service starts.
    """
    account_id = None if request.account_id == accounts.FIRST_ACCOUNT_ID else request.account_id
    text = await asyncio.get_running_loop().run_in_executor(_metrics_thread, _collect_metrics, account_id)
    return ApiResponse(text, media=metrics_scrape.CONTENT_TYPE, headers={"Cache-Control": "no-store"})
