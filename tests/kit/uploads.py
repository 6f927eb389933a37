"""Upload files as multipart forms, as a browser does."""

import json
import uuid
from typing import Any

from tests.kit.client import Client, Response


def multipart_form(file: bytes | None, name: str = "people.csv", /, **texts: str) -> tuple[bytes, str]:
    """Return the body and the Content-Type of a multipart form."""
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in texts.items()
    ]
    if file is not None:
        head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
        parts.append(f"--{boundary}\r\n{head}".encode() + file + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def upload(
    api: Client, file: bytes | str, name: str = "people.csv", resource: str = "contacts", dry_run: bool = False,
    **options: Any,
) -> Response:  # fmt: skip
    """Upload a file as an import and return the response."""
    content = file.encode() if isinstance(file, str) else file
    body, kind = multipart_form(content, name, resource=resource, options=json.dumps(options))
    path = "/v1/my/imports" + ("?dry_run=true" if dry_run else "")
    return api.request("POST", path, body, {"Authorization": f"Bearer {api.key}", "Content-Type": kind})


def upload_image(api: Client, file: bytes | None, name: str = "picture.png", **texts: str) -> Response:
    """Upload a file as an image and return the response."""
    body, kind = multipart_form(file, name, **texts)
    return api.request("POST", "/v1/my/uploads", body, {"Authorization": f"Bearer {api.key}", "Content-Type": kind})


def wait_for_import(api: Client, response: Response, timeout: float = 60) -> Any:
    """Wait until the import of an upload response has ended, and return it."""
    number = response.expect(201)["id"]
    return api.wait(f"/imports/{number}", lambda import_: import_["status"] not in ("pending", "processing"), timeout)


def import_results(api: Client, number: int) -> list[dict[str, str]]:
    """Return the results file of an import as rows, one for each line of the import file."""
    import csv
    import io

    response = api.get(f"/imports/{number}/results.csv")
    assert response.status == 200, response.text
    return list(csv.DictReader(io.StringIO(response.text, newline="")))
