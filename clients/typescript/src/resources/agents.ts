// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** API keys of AI agents, and the switch that stops them. */
export class Agents {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get the agents of the account, and whether they are stopped.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  get(options: RequestOptions = {}): Promise<types.Agents> {
    return this.#transport.call("GET", "/v1/my/agents", { ...options });
  }

  /**
   * Stop all agents of the account: every further request of theirs gets 403.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  stop(options: RequestOptions = {}): Promise<types.Agents> {
    return this.#transport.call("POST", "/v1/my/agents/stop", { ...options });
  }

  /**
   * Resume the agents of the account.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  resume(options: RequestOptions = {}): Promise<types.Agents> {
    return this.#transport.call("POST", "/v1/my/agents/resume", { ...options });
  }
}
