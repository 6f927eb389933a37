// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** API keys of the account, for its owner and admins. */
export class ApiKeys {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List active API keys, newest first.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  list(query: types.ListApiKeysQuery = {}): Paginator<types.ApiKey> {
    return new Paginator<types.ApiKey>(this.#transport, "/v1/my/api_keys", query);
  }

  /**
   * Create an API key. The key is shown once.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  create(body: types.KeyWrite, options: RequestOptions = {}): Promise<types.ApiKeyWithSecret> {
    return this.#transport.call("POST", "/v1/my/api_keys", { body, ...options });
  }

  /**
   * Revoke an API key with immediate effect.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  revoke(id: number, options: RequestOptions = {}): Promise<types.ApiKey> {
    return this.#transport.call("DELETE", `/v1/my/api_keys/${segment(id)}`, { ...options });
  }
}
