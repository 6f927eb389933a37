"""Client of the Campanero API: email and SMS marketing, self-hosted.

`Campanero` and `AsyncCampanero` have a property for each resource, such as `client.contacts`. `types` has the types of
requests and responses, `errors` the exceptions, `webhooks` the verification of webhook requests.
"""

from campanero_client import errors, webhooks
from campanero_client._client import AsyncCampanero, Campanero
from campanero_client._transport import AsyncDownload, AsyncPaginator, Download, Page, Paginator
from campanero_client._version import VERSION as __version__
from campanero_client.errors import ApiError, CampaneroError, ConnectionFailed

__all__ = [
    "ApiError",
    "AsyncCampanero",
    "AsyncDownload",
    "AsyncPaginator",
    "Campanero",
    "CampaneroError",
    "ConnectionFailed",
    "Download",
    "Page",
    "Paginator",
    "__version__",
    "errors",
    "webhooks",
]
