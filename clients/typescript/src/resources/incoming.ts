// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Incoming SMS. */
export class Incoming {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List incoming SMS, newest first, including those from unknown numbers.
   *
   * Scope: `messages:read`.
   */
  list(query: types.ListIncomingQuery = {}): Paginator<types.IncomingMessage> {
    return new Paginator<types.IncomingMessage>(this.#transport, "/v1/my/incoming", query);
  }

  /**
   * Get an incoming SMS.
   *
   * Scope: `messages:read`.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.IncomingMessage> {
    return this.#transport.call("GET", `/v1/my/incoming/${segment(id)}`, { ...options });
  }

  /**
   * Mark an incoming SMS as reviewed, and opt its sender out if `opt_out` is true.
   *
   * Scope: `contacts:write`.
   */
  markSeen(id: number, body: types.OptOutReview = {}, options: RequestOptions = {}): Promise<types.IncomingMessage> {
    return this.#transport.call("POST", `/v1/my/incoming/${segment(id)}/seen`, { body, ...options });
  }
}
