"""The POST requests that the service carries out once for an Idempotency-Key.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

import re

IDEMPOTENT_POSTS = re.compile(
    r"/v1/my/messages"
    r"|/v1/my/messages/batch"
    r"|/v1/my/campaigns/[^/]+/send"
    r"|/v1/my/events"
)
