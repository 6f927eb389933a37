"""Parse posted forms within limits, so that no form holds up the event loop (docs/threats.md#t22).

Sanic 25.12 parses forms without limits and decodes texts in any charset that a part names.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from sanic.exceptions import BadRequest, PayloadTooLarge
from sanic.headers import parse_content_header
from sanic.request import File

# A table of contacts with all rows selected submits a few hundred fields.
_MAX_FIELDS = 5_000
# Only forms with a file are sent as multipart, and they have few fields.
MAX_PARTS = 100
_MAX_PART_HEAD_BYTES = 4_096
_URLENCODED, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")  # RFC 2046, 5.1.1
_DISPOSITION = re.compile(r"^content-disposition:(.*)", re.IGNORECASE | re.MULTILINE)
_TYPE = re.compile(r"^content-type:([^;\r\n]*)", re.IGNORECASE | re.MULTILINE)


class PostedForm(NamedTuple):
    """The fields and files of a form by name, in the order of the body."""

    fields: dict[str, list[str]]
    files: dict[str, list[File]]


def parse_form(content_type: str, body: bytes, max_parts: int = MAX_PARTS) -> PostedForm:
    """Return the fields and files of a body; both are empty unless it is a complete form in UTF-8.

    A form in multipart may have `max_parts` parts. Raises PayloadTooLarge for too many fields or parts, and BadRequest
    for an invalid boundary.
    """
    kind, parameters = parse_content_header(content_type)
    try:
        if kind == _URLENCODED:
            if body.count(b"&") >= _MAX_FIELDS:
                raise PayloadTooLarge("the form has too many fields")
            return PostedForm(parse_qs(body.decode("utf-8"), keep_blank_values=True), {})
        if kind == _MULTIPART:
            return _parse_multipart(body, str(parameters.get("boundary", "")), max_parts)
    except UnicodeDecodeError:
        pass
    return PostedForm({}, {})


def _parse_multipart(body: bytes, boundary: str, max_parts: int) -> PostedForm:
    """Return the fields and files of a multipart form (RFC 7578), both empty if it is not complete.

    Raises UnicodeDecodeError for a text not in UTF-8, BadRequest for an invalid boundary, and PayloadTooLarge for too
    many parts.
    """
    if not boundary:
        return PostedForm({}, {})
    if not _BOUNDARY.fullmatch(boundary):
        raise BadRequest("the boundary of the form is invalid")
    body, delimiter = b"\r\n" + body, b"\r\n--" + boundary.encode()
    if body.count(delimiter) > max_parts + 1:
        raise PayloadTooLarge("the form has too many parts")
    form = PostedForm({}, {})
    for part in body.split(delimiter)[1:]:
        if part.startswith(b"--"):
            return form
        head, end_of_head, content = part.partition(b"\r\n\r\n")
        if not end_of_head or len(head) > _MAX_PART_HEAD_BYTES or head.partition(b"\r\n")[0].strip(b" \t"):
            break
        _add_part(form, head.decode("utf-8"), content)
    return PostedForm({}, {})


def _add_part(form: PostedForm, head: str, content: bytes) -> None:
    """Add a part with the given header lines to a form; a part without a name is ignored."""
    match = _DISPOSITION.search(head)
    parameters = parse_content_header(match[1].strip())[1] if match else {}
    name, filename = parameters.get("name"), parameters.get("filename")
    if filename is None and "filename*" in parameters:
        filename = unquote(str(parameters["filename*"]).rpartition("'")[2])
    if not name:
        return
    if filename is None:
        form.fields.setdefault(str(name), []).append(content.decode("utf-8"))
    else:
        media_type = _TYPE.search(head)
        file = File(media_type[1].strip().lower() if media_type else "text/plain", content, str(filename))
        form.files.setdefault(str(name), []).append(file)
