// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Single messages, and all messages with their content and status. */
export class Messages {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List messages of every kind and status, newest first.
   *
   * Scope: `messages:read`. Open to agents.
   */
  list(query: types.ListMessagesQuery = {}): Paginator<types.Message> {
    return new Paginator<types.Message>(this.#transport, "/v1/my/messages", query);
  }

  /**
   * Send a single message.
   *
   * Each recipient of an email (`to`, `cc`, `bcc`) gets a message of its own, with its own id and outcome; a
   * suppressed recipient gets none (`recipients`). If all recipients are suppressed, the response is 422
   * `recipient_suppressed`. In the rate limit, each recipient counts as a request. Scope: `messages:send`.
   */
  create(body: types.MessageWrite, options: RequestOptions = {}): Promise<types.SentMessage> {
    return this.#transport.call("POST", "/v1/my/messages", { body, ...options });
  }

  /**
   * Send up to 500 messages, each with a result of its own.
   *
   * Every message that the response reports as queued is on disk. In the rate limit, each recipient counts as a
   * request. After a broken connection, repeat the request with the same `Idempotency-Key`: messages that were
   * queued are not queued again. Scope: `messages:send`.
   */
  createBatch(body: types.MessageBatch, options: RequestOptions = {}): Promise<types.MessageBatchResult> {
    return this.#transport.call("POST", "/v1/my/messages/batch", { body, ...options });
  }

  /**
   * Get a message with its content and events.
   *
   * Without the scope `contacts:read`, `html` and `text` of a message to a contact are null. Without
   * `contacts:write`, links with which the recipient can change their preferences are replaced. Scope:
   * `messages:read`.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.MessageDetail> {
    return this.#transport.call("GET", `/v1/my/messages/${segment(id)}`, { ...options });
  }

  /**
   * Retry a rejected or uncertain message.
   *
   * Scope: `messages:send`.
   */
  retry(id: number, options: RequestOptions = {}): Promise<types.Message> {
    return this.#transport.call("POST", `/v1/my/messages/${segment(id)}/retry`, { ...options });
  }

  /**
   * Cancel a queued message.
   *
   * Scope: `messages:send`.
   */
  cancel(id: number, options: RequestOptions = {}): Promise<types.Message> {
    return this.#transport.call("POST", `/v1/my/messages/${segment(id)}/cancel`, { ...options });
  }

  /**
   * Mark an uncertain message as sent.
   *
   * Scope: `messages:send`.
   */
  assumeSent(id: number, options: RequestOptions = {}): Promise<types.Message> {
    return this.#transport.call("POST", `/v1/my/messages/${segment(id)}/assume_sent`, { ...options });
  }
}
