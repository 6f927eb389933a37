// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Events recorded by the service or by clients. */
export class Events {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List events, newest first.
   *
   * Scope: `events:read`. Open to agents.
   */
  list(query: types.ListEventsQuery = {}): Paginator<types.RecordedEvent> {
    return new Paginator<types.RecordedEvent>(this.#transport, "/v1/my/events", query);
  }

  /**
   * Record an event; a repeated idempotency key returns the first event.
   *
   * Scope: `events:write`.
   */
  create(body: types.EventWrite, options: RequestOptions = {}): Promise<types.RecordedEvent> {
    return this.#transport.call("POST", "/v1/my/events", { body, ...options });
  }

  /**
   * Record up to 1,000 events; invalid events are reported by index and do not affect the valid events.
   *
   * Scope: `events:write`.
   */
  createBatch(body: types.EventBatch, options: RequestOptions = {}): Promise<types.EventBatchResult> {
    return this.#transport.call("POST", "/v1/my/events/batch", { body, ...options });
  }

  /**
   * Get an event.
   *
   * Scope: `events:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.RecordedEvent> {
    return this.#transport.call("GET", `/v1/my/events/${segment(id)}`, { ...options });
  }
}
