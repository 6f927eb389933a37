// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

/** The version of the client: that of the service whose API it was generated from. */
export const VERSION = "0.1.0";

/** The POST requests that the service carries out once for an Idempotency-Key. */
export const IDEMPOTENT_POSTS = /^(?:\/v1\/my\/messages|\/v1\/my\/messages\/batch|\/v1\/my\/campaigns\/[^\/]+\/send|\/v1\/my\/events)$/;
