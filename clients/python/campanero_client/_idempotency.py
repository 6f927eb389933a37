"""The POST requests that the service carries out once for an Idempotency-Key."""

import re

IDEMPOTENT_POSTS = re.compile(r"/v1/my/messages|/v1/my/messages/batch|/v1/my/campaigns/[^/]+/send|/v1/my/events")
