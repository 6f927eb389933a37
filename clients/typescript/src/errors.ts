/** Base of all errors of the client. */
export class CampaneroError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No connection, a timeout, or a connection that broke. The service may have carried out the request. */
export class ConnectionFailed extends CampaneroError {}

/** A webhook request was not signed with the secret, or it is too old. */
export class InvalidSignature extends CampaneroError {}

/**
 * A response with a status of 400 or above.
 *
 * `code` is the error code for programs, and `reason` the exact reason, if there is one. `fields` maps the path of each
 * invalid field, such as `steps[1].subject`, to its messages; `base` has errors of no single field. `body` is the whole
 * JSON of the response; it is empty if the response is not from Campanero, but from a proxy before it. `retryAfter` is
 * the number of seconds after which the request may be repeated.
 */
export class ApiError extends CampaneroError {
  readonly code: string;
  readonly reason: string | undefined;
  readonly requestId: string | undefined;
  readonly fields: Record<string, string[]>;

  constructor(
    readonly status: number,
    readonly body: Record<string, unknown>,
    readonly headers: Headers,
    readonly retryAfter?: number,
  ) {
    const code = typeof body["code"] === "string" ? body["code"] : "unknown";
    const place = headers.get("location");
    const other = place ? `The address redirects to ${place}.` : `The response has the status ${status}.`;
    super(`${status} ${code}: ${typeof body["message"] === "string" ? body["message"] : other}`);
    this.code = code;
    this.reason = typeof body["reason"] === "string" ? body["reason"] : undefined;
    this.requestId = headers.get("x-request-id") ?? undefined;
    this.fields = (body["validation_errors"] ?? {}) as Record<string, string[]>;
  }
}

/** 400: the request cannot be read. */
export class BadRequest extends ApiError {}

/** 401: the API key is missing, wrong or revoked. */
export class Unauthorized extends ApiError {}

/** 403: the API key does not have the scope; `body.required_scope` names it. */
export class Forbidden extends ApiError {}

/** 404: the account has no object with this id. */
export class NotFound extends ApiError {}

/** 409: the object was changed meanwhile, or the idempotency key was used for another request. */
export class Conflict extends ApiError {}

/** 422: `fields` has all errors, each at its field; or a rule forbids the action, and `reason` names it. */
export class ValidationFailed extends ApiError {}

/** 429: too many requests; `retryAfter` says when to try again. */
export class RateLimited extends ApiError {}

/** 500 or above: an unexpected error of the service, or of a proxy before it. */
export class ServerError extends ApiError {}

/** 503: the service cannot handle the request now; `retryAfter` says when to try again. */
export class Unavailable extends ServerError {}

const BY_STATUS: Record<number, typeof ApiError> = {
  400: BadRequest,
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  422: ValidationFailed,
  429: RateLimited,
  503: Unavailable,
};

/** Returns the error class of a status. */
export function errorOfStatus(status: number): typeof ApiError {
  return BY_STATUS[status] ?? (status >= 500 ? ServerError : ApiError);
}
