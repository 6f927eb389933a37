// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** How people of the account may sign in. */
export class SignIn {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get how people of the account may sign in.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  getSettings(options: RequestOptions = {}): Promise<types.SignInSettings> {
    return this.#transport.call("GET", "/v1/my/sign_in", { ...options });
  }

  /**
   * Update how people of the account may sign in. Only owners may.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  updateSettings(body: types.SignInPatch, options: RequestOptions = {}): Promise<types.SignInSettings> {
    return this.#transport.call("PATCH", "/v1/my/sign_in", { body, ...options });
  }
}
