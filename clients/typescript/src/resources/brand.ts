// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Look and tone of the account's messages. */
export class Brand {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get the brand.
   *
   * Scope: `account:read`. Open to agents.
   */
  get(options: RequestOptions = {}): Promise<types.Brand> {
    return this.#transport.call("GET", "/v1/my/brand", { ...options });
  }

  /**
   * Update the brand; absent fields stay unchanged.
   *
   * Scope: `account:write`.
   */
  update(body: types.BrandWrite = {}, options: RequestOptions = {}): Promise<types.Brand> {
    return this.#transport.call("PUT", "/v1/my/brand", { body, ...options });
  }
}
