// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** URLs to which events are posted. */
export class Webhooks {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List webhooks, newest first.
   *
   * Scope: `account:read`.
   */
  list(query: types.ListWebhooksQuery = {}): Paginator<types.Webhook> {
    return new Paginator<types.Webhook>(this.#transport, "/v1/my/webhooks", query);
  }

  /**
   * Create a webhook. Its secret is shown once.
   *
   * Also requires `events:read`. A test key may not create a webhook. Scope: `account:write`.
   */
  create(body: types.WebhookWrite, options: RequestOptions = {}): Promise<types.WebhookWithSecret> {
    return this.#transport.call("POST", "/v1/my/webhooks", { body, ...options });
  }

  /**
   * Get a webhook.
   *
   * Scope: `account:read`.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Webhook> {
    return this.#transport.call("GET", `/v1/my/webhooks/${segment(id)}`, { ...options });
  }

  /**
   * Update a webhook. A webhook that is enabled again gets only events from then on.
   *
   * Any change but `"enabled": false` also requires `events:read`, and no test key may make it. Scope:
   * `account:write`.
   */
  update(id: number, body: types.WebhookPatch = {}, options: RequestOptions = {}): Promise<types.Webhook> {
    return this.#transport.call("PATCH", `/v1/my/webhooks/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a webhook with its delivery log.
   *
   * Scope: `account:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.Webhook> {
    return this.#transport.call("DELETE", `/v1/my/webhooks/${segment(id)}`, { ...options });
  }

  /**
   * Rotate the secret of a webhook; the previous secret also signs for 24 hours.
   *
   * Scope: `account:write`.
   */
  rotateSecret(id: number, options: RequestOptions = {}): Promise<types.WebhookWithSecret> {
    return this.#transport.call("POST", `/v1/my/webhooks/${segment(id)}/rotate_secret`, { ...options });
  }

  /**
   * Send a sample event now and return the response.
   *
   * Scope: `account:write`.
   */
  test(id: number, body: types.WebhookTest = {}, options: RequestOptions = {}): Promise<types.WebhookTestResult> {
    return this.#transport.call("POST", `/v1/my/webhooks/${segment(id)}/test`, { body, ...options });
  }

  /**
   * Send the failed deliveries again, or only those created since a time.
   *
   * Also requires `events:read`, and no test key may do it. Scope: `account:write`.
   */
  replayFailedDeliveries(id: number, body: types.ReplayFailedRequest = {}, options: RequestOptions = {}): Promise<types.WebhookReplayResult> {
    return this.#transport.call("POST", `/v1/my/webhooks/${segment(id)}/replay_failed`, { body, ...options });
  }

  /**
   * List deliveries of a webhook with their responses, newest events first.
   *
   * Scope: `account:read`.
   */
  listDeliveries(id: number, query: types.ListWebhookDeliveriesQuery = {}): Paginator<types.WebhookDelivery> {
    return new Paginator<types.WebhookDelivery>(this.#transport, `/v1/my/webhooks/${segment(id)}/deliveries`, query);
  }

  /**
   * Get a delivery.
   *
   * Scope: `account:read`.
   */
  getDelivery(id: number, deliveryId: number, options: RequestOptions = {}): Promise<types.WebhookDelivery> {
    return this.#transport.call("GET", `/v1/my/webhooks/${segment(id)}/deliveries/${segment(deliveryId)}`, { ...options });
  }

  /**
   * Send a delivery again with the same `webhook-id`.
   *
   * Also requires `events:read`, and no test key may do it. Scope: `account:write`.
   */
  replayDelivery(id: number, deliveryId: number, options: RequestOptions = {}): Promise<types.WebhookDelivery> {
    return this.#transport.call("POST", `/v1/my/webhooks/${segment(id)}/deliveries/${segment(deliveryId)}/replay`, { ...options });
  }
}
