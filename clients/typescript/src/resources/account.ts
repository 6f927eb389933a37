// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** The account: settings, capabilities and blockers. */
export class Account {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get the account with its settings, capabilities and blockers.
   *
   * Scope: `account:read`. Open to agents.
   */
  get(options: RequestOptions = {}): Promise<types.Account> {
    return this.#transport.call("GET", "/v1/my/account", { ...options });
  }

  /**
   * Update the account.
   *
   * Scope: `account:write`.
   */
  update(body: types.AccountWrite = {}, options: RequestOptions = {}): Promise<types.Account> {
    return this.#transport.call("PATCH", "/v1/my/account", { body, ...options });
  }
}
