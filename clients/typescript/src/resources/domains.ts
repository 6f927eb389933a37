// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Sending domains and their DNS records. */
export class Domains {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List sending domains, newest first.
   *
   * Scope: `domains:read`. Open to agents.
   */
  list(query: types.ListDomainsQuery = {}): Paginator<types.SendingDomain> {
    return new Paginator<types.SendingDomain>(this.#transport, "/v1/my/domains", query);
  }

  /**
   * Add a sending domain; the response lists the DNS records it needs.
   *
   * Scope: `domains:write`.
   */
  create(body: types.DomainCreate, options: RequestOptions = {}): Promise<types.SendingDomain> {
    return this.#transport.call("POST", "/v1/my/domains", { body, ...options });
  }

  /**
   * Get a sending domain.
   *
   * Scope: `domains:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.SendingDomain> {
    return this.#transport.call("GET", `/v1/my/domains/${segment(id)}`, { ...options });
  }

  /**
   * Delete a sending domain with its DKIM keys.
   *
   * Scope: `domains:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.SendingDomain> {
    return this.#transport.call("DELETE", `/v1/my/domains/${segment(id)}`, { ...options });
  }

  /**
   * Check the DNS records of a sending domain now.
   *
   * Scope: `domains:write`.
   */
  verify(id: number, options: RequestOptions = {}): Promise<types.SendingDomain> {
    return this.#transport.call("POST", `/v1/my/domains/${segment(id)}/verify`, { ...options });
  }

  /**
   * Create the next DKIM key; it signs once its record is in DNS.
   *
   * Scope: `domains:write`.
   */
  rotateDkimKey(id: number, options: RequestOptions = {}): Promise<types.SendingDomain> {
    return this.#transport.call("POST", `/v1/my/domains/${segment(id)}/rotate_key`, { ...options });
  }
}
