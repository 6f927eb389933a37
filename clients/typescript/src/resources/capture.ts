// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Download, Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Messages captured instead of sent: all messages of a new installation, and those sent with test keys. */
export class Capture {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List captured messages, newest first.
   *
   * Also requires `contacts:read`. Scope: `account:read`.
   */
  list(query: types.ListCapturedQuery = {}): Paginator<types.CapturedMessage> {
    return new Paginator<types.CapturedMessage>(this.#transport, "/v1/my/capture", query);
  }

  /**
   * Delete all captured messages.
   *
   * Scope: `account:write`.
   */
  clear(options: RequestOptions = {}): Promise<types.CaptureCleared> {
    return this.#transport.call("DELETE", "/v1/my/capture", { ...options });
  }

  /**
   * Get a captured message with its content.
   *
   * Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their
   * preferences are replaced. Scope: `account:read`.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.CapturedMessageDetail> {
    return this.#transport.call("GET", `/v1/my/capture/${segment(id)}`, { ...options });
  }

  /**
   * Get the source of a captured email, or the text of a captured SMS.
   *
   * Also requires `contacts:read`. Without `contacts:write`, links with which the recipient can change their
   * preferences are replaced. Scope: `account:read`.
   */
  getSource(id: number): Download {
    return new Download(this.#transport, `/v1/my/capture/${segment(id)}/raw`, {});
  }

  /**
   * Simulate a recipient's action on a captured message, with the effects of a real action.
   *
   * Also requires `contacts:read`. Scope: `account:write`.
   */
  simulateRecipient(id: number, body: types.SimulateEventRequest, options: RequestOptions = {}): Promise<types.CapturedMessageDetail> {
    return this.#transport.call("POST", `/v1/my/capture/${segment(id)}/simulate`, { body, ...options });
  }
}
