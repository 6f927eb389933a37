"""The rate limits of API requests (docs/decisions.md#4), with the headers that responses show them in."""

import msgspec
from sanic import Request

from appliance.accounts import limits
from appliance.accounts.access import Credential
from appliance.accounts.request_limits import RequestClass, TokenBuckets
from appliance.core.errors import RateLimitExceeded
from appliance.settings import config
from appliance.storage.transactions import fetch_inline

_buckets = TokenBuckets()


def take(request: Request, credential: Credential, rate: RequestClass) -> None:
    """Count a request of a credential; the response gets the rate limit headers, even if it is an error.

    Raises RateLimitExceeded.
    """
    _take_of_account(credential.account_id)
    rate_level = _buckets.take(credential.actor, rate, config.current().limits)
    if rate_level is None:
        return
    request.ctx.level = rate_level
    if rate_level.retry_after:
        is_burst = rate_level.exceeded == "burst"
        limit = rate_level.burst if is_burst else rate_level.limit
        message = f"At most {limit} of these requests are allowed {'at once' if is_burst else 'per minute'}."
        raise RateLimitExceeded(message, rate_level.retry_after, reason=rate_level.exceeded, limit=limit)


def _take_of_account(account_id: int) -> None:
    """Count a request in the limit of its account, which all its keys and users share. Raises RateLimitExceeded."""
    minute = fetch_inline(limits.get, account_id).requests_per_minute
    if minute is None:
        return
    rates = msgspec.structs.replace(config.current().limits, requests_per_minute=max(1, minute))
    level = _buckets.take(f"account:{account_id}", "requests", rates)
    if level is not None and level.retry_after:
        message = f"This account may make at most {minute} API requests per minute."
        raise RateLimitExceeded(
            message, level.retry_after, reason=limits.ERROR_CODE, limit_name="requests_per_minute", limit=minute
        )


def charge(request: Request, credential: Credential, rate: RequestClass, count: int) -> None:
    """Count more requests in the rate limit for an admitted request that stands for several."""
    rate_level = _buckets.charge(credential.actor, rate, config.current().limits, count)
    if rate_level is not None:
        request.ctx.level = rate_level
