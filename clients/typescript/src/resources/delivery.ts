// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Current state of sending. */
export class Delivery {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get the delivery status: obstacles, queue, rates and connections.
   *
   * Scope: `account:read`. Open to agents.
   */
  getStatus(options: RequestOptions = {}): Promise<types.DeliveryStatus> {
    return this.#transport.call("GET", "/v1/my/delivery/status", { ...options });
  }
}
