// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Addresses to which the account sends nothing. */
export class Suppressions {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List suppressions, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  list(query: types.ListSuppressionsQuery = {}): Paginator<types.Suppression> {
    return new Paginator<types.Suppression>(this.#transport, "/v1/my/suppressions", query);
  }

  /**
   * Suppress an address, or update its suppression for the same reason (then 200).
   *
   * Scope: `contacts:write`.
   */
  create(body: types.SuppressionWrite, options: RequestOptions = {}): Promise<types.Suppression> {
    return this.#transport.call("POST", "/v1/my/suppressions", { body, ...options });
  }

  /**
   * Lift a suppression; an optional `reason` is read from the body or query.
   *
   * Scope: `contacts:write`.
   */
  lift(id: number, body: types.Lift = {}, options: RequestOptions = {}): Promise<types.Suppression> {
    return this.#transport.call("DELETE", `/v1/my/suppressions/${segment(id)}`, { body, ...options });
  }
}
