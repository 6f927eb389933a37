"""The endpoints of OAuth 2.1 for connected apps: metadata, registration, tokens and revocation.

The consent page is `ui/pages/apps.py`. Errors have the form of RFC 6749, section 5.2, and not that of the API.

RFC 9728 (protected resource metadata), RFC 8414 (authorization server metadata), RFC 7591 (registration), RFC 7009
(revocation); "Authorization" of the Model Context Protocol, revisions 2025-11-25 and 2026-07-28.
"""

import logging
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from sanic import Blueprint, HTTPResponse, Request

from appliance.accounts import access, app_clients, app_grants, request_limits
from appliance.accounts.app_clients import ClientRefused
from appliance.accounts.app_grants import IssuedTokens, Refusal
from appliance.core.errors import RateLimitExceeded, Unavailable
from appliance.forms import store
from appliance.settings import config
from appliance.storage.transactions import commit, fetch

log = logging.getLogger("campanero.oauth")
TOKEN_PATH, REGISTRATION_PATH, REVOCATION_PATH = "/oauth/token", "/oauth/register", "/oauth/revoke"
AUTHORIZATION_PATH = "/oauth/authorize"
RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
# Clients look for the metadata of the server below these names, with and without the path of the resource.
_SERVER_METADATA_PATHS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_GUIDE_PATH = "/docs/guides/mcp"
MAX_FORM_BYTES = 16_384
_MAX_REGISTRATIONS_PER_HOUR = 20  # by one client address
_FORM_TYPE = "application/x-www-form-urlencoded"


def owns_path(path: str) -> bool:
    """Return whether a path belongs to these endpoints, whose errors are JSON."""
    return path in (TOKEN_PATH, REGISTRATION_PATH, REVOCATION_PATH) or path.startswith(
        (RESOURCE_METADATA_PATH, *_SERVER_METADATA_PATHS)
    )


def mount(blueprint: Blueprint) -> None:
    """Add the endpoints to the blueprint of the API."""
    for suffix in ("", app_grants.MCP_PATH):
        name = suffix.strip("/") or "base"
        blueprint.add_route(
            _describe_resource, RESOURCE_METADATA_PATH + suffix, ["GET", "HEAD"], name=f"oauth_resource_{name}",
            error_format="json", ctx_resource=suffix,
        )  # fmt: skip
        for number, path in enumerate(_SERVER_METADATA_PATHS):
            blueprint.add_route(
                _describe_server, path + suffix, ["GET", "HEAD"], name=f"oauth_server_{name}_{number}",
                error_format="json",
            )  # fmt: skip
    for path, handler in ((TOKEN_PATH, _issue), (REGISTRATION_PATH, _register), (REVOCATION_PATH, _revoke)):
        blueprint.add_route(handler, path, ["POST"], name=f"oauth{path.replace('/', '_')}", error_format="json")


def challenge(resource: str, scopes: list[str], has_token: bool) -> str:
    """Return the WWW-Authenticate header for a request without a valid token (RFC 9728, section 5.1).

    `resource` is the path of the resource, and `has_token` whether the request has a token, which is invalid.
    """
    settings = config.current()
    if not app_grants.is_available(settings):
        return "Bearer"
    metadata_url = f"{config.base_url(settings)}{RESOURCE_METADATA_PATH}{resource}"
    error = 'error="invalid_token", ' if has_token else ""
    return f'Bearer {error}resource_metadata="{metadata_url}", scope="{" ".join(scopes)}"'


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HTTPResponse:
    return HTTPResponse(msgspec.json.encode(value), status, headers, content_type="application/json")


def _error(error: str, description: str, status: int = 400, headers: dict[str, str] | None = None) -> HTTPResponse:
    return _json({"error": error, "error_description": description}, status, headers)


def _unavailable(error: RateLimitExceeded | Unavailable) -> HTTPResponse:
    status = 429 if isinstance(error, RateLimitExceeded) else 503
    return _error("temporarily_unavailable", error.message, status, {"Retry-After": str(error.retry_after)})


def _not_available() -> HTTPResponse | None:
    """Return a 404 response if programs cannot be connected because the base URL is not https, else None."""
    if app_grants.is_available(config.current()):
        return None
    return _error("invalid_request", "OAuth needs a base URL with https. Use an API key of an agent.", 404)


async def _describe_resource(request: Request) -> HTTPResponse:
    """Return the metadata of a protected resource (RFC 9728, section 2)."""
    if (response := _not_available()) is not None:
        return response
    base = config.base_url(config.current())
    return _cacheable({
        "resource": base + request.route.ctx.resource,  # type: ignore[union-attr]  # a handler has a route
        "authorization_servers": [base],
        "scopes_supported": sorted(access.AGENT_SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_name": "Campanero",
        "resource_documentation": base + _GUIDE_PATH,
    })  # fmt: skip


async def _describe_server(_: Request) -> HTTPResponse:
    """Return the metadata of the authorization server (RFC 8414, section 2)."""
    if (response := _not_available()) is not None:
        return response
    base = config.base_url(config.current())
    return _cacheable({
        "issuer": app_grants.issuer(config.current()),
        "authorization_endpoint": base + AUTHORIZATION_PATH,
        "token_endpoint": base + TOKEN_PATH,
        "registration_endpoint": base + REGISTRATION_PATH,
        "revocation_endpoint": base + REVOCATION_PATH,
        "scopes_supported": sorted(access.AGENT_SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
        "service_documentation": base + _GUIDE_PATH,
    })  # fmt: skip


def _cacheable(value: Any) -> HTTPResponse:
    return _json(value, 200, {"Cache-Control": "max-age=300"})


def _media_type(request: Request) -> str:
    return (request.headers.get("content-type") or "").partition(";")[0].strip().lower()


def _read_form(request: Request) -> dict[str, str] | HTTPResponse:
    """Return the parameters of a token request, or the response to a request that cannot be read.

    Parameters must not be repeated, and those without a value count as missing (draft-ietf-oauth-v2-1, section 3.2).
    A request with parameters in the query, where they would be logged, is rejected.
    """
    if request.query_string:
        return _error("invalid_request", "Send all parameters in the body.")
    if _media_type(request) != _FORM_TYPE or len(request.body) > MAX_FORM_BYTES:
        return _error("invalid_request", f"Send {_FORM_TYPE} of at most {MAX_FORM_BYTES} bytes.")
    try:
        pairs = parse_qsl(request.body.decode("utf-8"), max_num_fields=30, errors="strict")
    except ValueError:
        return _error("invalid_request", "The body cannot be parsed.")
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        return _error("invalid_request", "A parameter is repeated.")
    if not parameters.get("client_id") and "token" not in parameters:
        return _error("invalid_client", "client_id is required.", 401)
    return parameters


async def _issue(request: Request) -> HTTPResponse:
    """Handle a token request: exchange an authorization code or a refresh token."""
    if (response := _not_available()) is not None:
        return response
    parameters = _read_form(request)
    if isinstance(parameters, HTTPResponse):
        return parameters
    grants = {"authorization_code": app_grants.exchange_code, "refresh_token": app_grants.refresh}
    function = grants.get(parameters.get("grant_type", ""))
    if function is None:
        return _error("unsupported_grant_type", "grant_type must be authorization_code or refresh_token.")
    secret = parameters.get("code") or parameters.get("refresh_token") or ""
    result: IssuedTokens | Refusal = app_grants.INVALID_GRANT
    try:
        if await fetch(app_grants.is_known, secret):
            result = await commit(function, parameters, request.ctx.client, config.current())
    except Unavailable as error:
        return _unavailable(error)
    if isinstance(result, Refusal):
        log.info("oauth: token request rejected error=%s client=%s", result.error, request.ctx.client)
        return _error(result.error, result.description)
    return _json({
        "access_token": result.access_token,
        "token_type": "Bearer",
        "expires_in": result.expires_in,
        "refresh_token": result.refresh_token,
        "scope": result.scope,
    })  # fmt: skip


async def _register(request: Request) -> HTTPResponse:
    """Handle a registration (RFC 7591): store a program that may then ask a user to be connected."""
    if (response := _not_available()) is not None:
        return response
    try:
        if _media_type(request) != "application/json":
            return _error("invalid_client_metadata", "Send the metadata as application/json.")
        metadata = app_clients.parse_registration(request.body)
        key = f"oauth-registration:{request_limits.client_key(request.ctx.client)}"
        store.check_rate(key, _MAX_REGISTRATIONS_PER_HOUR, store.HOUR_MS)
        client = await commit(app_clients.register, metadata)
    except (RateLimitExceeded, Unavailable) as error:
        return _unavailable(error)
    except ClientRefused as error:
        return _error(error.error, error.description)
    return _json({
        "client_id": client.client_id,
        "client_name": client.name,
        "redirect_uris": list(client.redirect_uris),
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    }, 201)  # fmt: skip


async def _revoke(request: Request) -> HTTPResponse:
    """Handle a revocation (RFC 7009): end the app of a token; an unknown token is not an error."""
    if (response := _not_available()) is not None:
        return response
    parameters = _read_form(request)
    if isinstance(parameters, HTTPResponse):
        return parameters
    if not parameters.get("token"):
        return _error("invalid_request", "token is required.")
    token, client_id = parameters["token"], parameters.get("client_id")
    try:
        if await fetch(app_grants.is_known, token):
            await commit(app_grants.revoke_token, token, client_id, request.ctx.client)
    except Unavailable as error:
        return _unavailable(error)
    return HTTPResponse(b"", 200)
