"""The page of a sign-up form at `/f/{public_key}`, and form submissions from other websites."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sanic import HTTPResponse, Request

from appliance.api import http
from appliance.api.http import ApiError
from appliance.content import brand as brands
from appliance.core import addresses, clock, crypto
from appliance.core.domain_typos import suggest_address, suggest_domain
from appliance.core.errors import Invalid, NotFound, RateLimitExceeded, Unavailable
from appliance.forms import fields, store, submissions
from appliance.forms.fields import Field, list_fields
from appliance.forms.submissions import Submission
from appliance.public import pages
from appliance.storage.models import Form
from appliance.storage.transactions import fetch_public

# A person needs at least this long to fill in a form after it was shown.
MIN_FILL_MS = 700
_SHOWN_AT_PURPOSE = "f"
_HOST_PATTERN = re.compile(r"[A-Za-z0-9.:\[\]-]+")


async def show_form(request: Request, token: str) -> HTTPResponse:
    """Show the empty page of a sign-up form, or an error page if the form does not exist or cannot be read."""
    try:
        form = await fetch_public(store.find_by_key, token)
        shown_at = crypto.sign_token(_SHOWN_AT_PURPOSE, clock.now_ms(), 8)
        return await _form_page(form, _find_language(request, form), _read_query(request, form), {}, shown_at)
    except NotFound:
        return pages.not_found_page(language=pages.detect_language(request))
    except Unavailable:
        return pages.unavailable_page(pages.detect_language(request))


def _read_query(request: Request, form: Form) -> dict[str, str]:
    """Return the values of hidden fields in the URL, by field name."""
    return {
        field.name: str(request.args.get(field.query_parameter) or "")
        for field in list_fields(form)
        if field.query_parameter
    }


async def submit_form(request: Request, token: str) -> HTTPResponse:
    """Process a submission from the form's own page, and redirect or show the thank-you page.

    Invalid input shows the form again with the errors at their fields. A probable typo in the domain of the address is
    shown on the thank-you page, which then links to the redirect URL. A submission with a filled honeypot field is
    dropped but gets the same response as a valid submission.
    """
    language = pages.detect_language(request)
    raw: dict[str, Any] = {}
    try:
        form = await fetch_public(store.find_by_key, token)
        raw = submissions.select_values(form, pages.read_form(request))
        submission, errors = await fetch_public(_parse_submission, form, raw)
        if errors or submission is None:
            return await _form_page(form, _find_language(request, form), raw, errors, raw.get("t", ""), 422)
        submission = submission._replace(browser_language=_find_language(request, form))
        if not submissions.is_honeypot_filled(raw):
            await submissions.submit(form, submission, request.ctx.client, request.headers.get("user-agent"))
    except Invalid as error:
        errors = _list_errors(form, error, submission)
        return await _form_page(form, _find_language(request, form), raw, errors, raw.get("t", ""), 422)
    except NotFound:
        return pages.not_found_page(language=language)
    except Unavailable:
        return pages.unavailable_page(language)
    except RateLimitExceeded as error:
        response = pages.render_page(
            "note.html", None, 429, language, heading="form_many_heading", lead="form_many_lead"
        )
        response.headers["Retry-After"] = str(error.retry_after)
        return response
    redirect_url = store.get_redirect_url(form)
    suggestion = await fetch_public(suggest_domain, submission.address.value)
    if redirect_url and suggestion is None:
        return HTTPResponse("", 303, {**pages.PAGE_HEADERS, "Location": redirect_url})
    return await _thanks_page(form, submission, suggestion, redirect_url)


async def _thanks_page(
    form: Form, submission: Submission, suggestion: str | None, redirect_url: str | None
) -> HTTPResponse:
    # A phone number without an email address is not confirmed by email.
    is_mailed = form.double_opt_in and submission.address.kind == "email"
    return pages.render_page(
        "thanks.html",
        await fetch_public(brands.get_page_style, form.account_id, submission.language),
        form=form,
        phrase="form_mailed" if is_mailed else "form_done",
        is_mailed=is_mailed,
        address=addresses.mask_address(submission.address.value),
        domain=submission.address.value.rpartition("@")[2],
        suggestion=suggestion,
        redirect_url=redirect_url,
        frames=_list_frames(form),
    )


def _parse_submission(form: Form, raw: dict[str, Any]) -> tuple[Submission | None, dict[str, str]]:
    """Return (submission, {}), or (None, errors) with the text key of the message by field name.

    A form that was submitted too quickly (`MIN_FILL_MS`) has an error for the field `base`.
    """
    try:
        submission = submissions.parse_submission(form, {name: value for name, value in raw.items() if name != "t"})
    except Invalid as error:
        return None, _list_errors(form, error)
    shown_at = crypto.read_token(_SHOWN_AT_PURPOSE, raw.get("t", ""), 8)
    if shown_at is not None and clock.now_ms() - shown_at < MIN_FILL_MS:
        return None, {"base": "form_again"}
    return submission, {}


def _list_errors(form: Form, error: Invalid, submission: Submission | None = None) -> dict[str, str]:
    """Return the text key of each error of an Invalid, by the name of the field at which the form shows it.

    Custom data that is too long for the contact of `submission` is an error of its field with the longest value.
    """
    fields = {field.name: field for field in list_fields(form)}
    either = {name for name, field in fields.items() if not field.required} & {"email", "phone"}
    messages_by_name = dict(error.fields)
    for name in {"data", "data_merge"} & messages_by_name.keys():
        if submission is not None and submission.data:
            messages_by_name[f"data.{submissions.find_longest(submission.data)}"] = messages_by_name.pop(name)
    return {
        name: _error_phrase(name, fields.get(name), messages[0], either) for name, messages in messages_by_name.items()
    }


# The keys of the texts for an empty and for an invalid value, by the type of the field.
_PHRASES = {
    "select": ("form_choose", "form_choose"), "radio": ("form_choose", "form_choose"),
    "checkboxes": ("form_choose_some", "form_choose_some"), "checkbox": ("form_tick", "form_tick"),
    "date": ("form_blank", "form_date_wrong"), "number": ("form_blank", "form_number_wrong"),
}  # fmt: skip


def _error_phrase(name: str, field: Field | None, message: str, either: set[str]) -> str:
    is_blank = message == "can't be blank"
    if name == "topics":
        return "form_choose_some"
    if field is not None and field.type in _PHRASES:
        return _PHRASES[field.type][0 if is_blank else 1]
    if is_blank:
        return "form_either" if name in either else "form_blank"
    if name in ("email", "phone"):
        return f"form_{name}_wrong"
    if name == "language":
        return "form_blank"
    return "form_long"


def _find_language(request: Request, form: Form) -> str | None:
    """Return the language of a form, else the first language of the visitor's browser, or None."""
    return form.language or pages.read_browser_language(request)


async def _form_page(
    form: Form,
    language: str | None,
    raw: Mapping[str, Any],
    errors: Mapping[str, str],
    shown_at: str,
    status: int = 200,
) -> HTTPResponse:
    style = await fetch_public(brands.get_page_style, form.account_id, language)
    return pages.render_page(
        "form.html",
        style,
        status,
        form=form,
        form_html=fields.render_form(form, style.language, raw, errors, shown_at),
        leads=_origin_of(store.get_redirect_url(form)),
        frames=_list_frames(form),
    )


def _list_frames(form: Form) -> str:
    """Return the websites that may show the pages of a form in a frame, as a source list of the policy."""
    return " ".join(form.origins) or "'none'"


def _origin_of(url: str | None) -> str:
    """Return the origin of a URL, or an empty string if its host has unexpected characters.

    The origin is used in the policy `form-action`, which also limits the redirect after a submission.
    """
    parts = urlsplit(url or "")
    return f"{parts.scheme}://{parts.netloc}" if _HOST_PATTERN.fullmatch(parts.netloc) else ""


# Submissions by the API, for forms on other websites. They need only the public key of the form, and a success has the
# same response whether or not the address is known.

_FORM_CONTENT_TYPES = ("application/json", "application/x-www-form-urlencoded")
_MAX_FORM_FIELDS = 200
_MAX_FORM_BYTES = 65_536


async def allow_form_submission(request: Request, public_key: str) -> HTTPResponse:
    """Respond to a CORS preflight request of a page on another origin. Raises NotFound if the form does not exist."""
    form = await fetch_public(store.find_by_key, public_key)
    allowed = _build_cors_headers(request, form)
    if "Access-Control-Allow-Origin" in allowed:
        allowed |= {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Content-Type",
                    "Access-Control-Max-Age": "600"}  # fmt: skip
    return HTTPResponse(b"", 204, allowed)


def _build_cors_headers(request: Request, form: Form) -> dict[str, str]:
    """Return the CORS headers; they allow the origin of the request if the form lists this origin."""
    origin = (request.headers.get("origin") or "").lower()
    return {"Vary": "Origin"} | ({"Access-Control-Allow-Origin": origin} if origin in form.origins else {})


async def submit_form_as_api(request: Request, public_key: str) -> HTTPResponse:
    """Process a submission from another website; the response does not reveal whether the address is known.

    `suggested_email` is an address without a probable typo in its domain, or null; it follows from the address alone. A
    submission with a filled honeypot field is dropped and gets the same response as a valid submission. An HTML form is
    redirected if the form has a redirect URL. Raises NotFound if the form does not exist; all other errors become
    responses with CORS headers.
    """
    form = await fetch_public(store.find_by_key, public_key)
    cors = _build_cors_headers(request, form)
    try:
        is_html_form, raw = _parse_api_body(request, form)
        if not submissions.is_honeypot_filled(raw):
            submission = await fetch_public(submissions.parse_submission, form, raw)
            submission = submission._replace(browser_language=_find_language(request, form))
            await submissions.submit(form, submission, request.ctx.client, request.headers.get("user-agent"))
    except Exception as error:
        # Error responses need the CORS headers too, so that scripts of allowed origins can read them.
        response = http.error_response(request, error)
        response.headers.update(cors)
        return response
    redirect_url = store.get_redirect_url(form)
    if is_html_form and redirect_url:
        return HTTPResponse("", 303, {**cors, "Location": redirect_url})
    suggested = await fetch_public(suggest_address, str(raw.get("email") or "").strip())
    return http.json_response({"accepted": True, "suggested_email": suggested}, 202, cors)


def _parse_api_body(request: Request, form: Form) -> tuple[bool, Mapping[str, Any]]:
    """Return whether the body is an HTML form (not JSON), and its fields.

    Raises ApiError for another content type, or a body that is too large or cannot be parsed. If a field of an HTML
    form is repeated, its first value counts, except for checkboxes.
    """
    content_type = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if content_type not in _FORM_CONTENT_TYPES:
        raise ApiError(415, "unsupported_media_type", f"Send the body as {' or '.join(_FORM_CONTENT_TYPES)}.")
    if len(request.body) > _MAX_FORM_BYTES:
        raise ApiError(413, "payload_too_large")
    if content_type == _FORM_CONTENT_TYPES[0]:
        return False, http.parse_json_object(request, request.body)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "unsupported_media_type", "Send the body without a Content-Encoding.")
    try:
        fields = parse_qs(request.body.decode("utf-8"), max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        raise ApiError(400, "bad_request", "The body is not a valid form.") from None
    return True, submissions.select_values(form, fields)
