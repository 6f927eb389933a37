// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Groups of contacts defined by filters. */
export class Segments {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List segments, newest first.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  list(query: types.ListSegmentsQuery = {}): Paginator<types.Segment> {
    return new Paginator<types.Segment>(this.#transport, "/v1/my/segments", query);
  }

  /**
   * Create a segment from filters or a starter; without both it contains all contacts.
   *
   * Filters on the data of events require `events:read` too. Scope: `contacts:write`. Scope of agents:
   * `segments:write`.
   */
  create(body: types.SegmentCreate, options: RequestOptions = {}): Promise<types.Segment> {
    return this.#transport.call("POST", "/v1/my/segments", { body, ...options });
  }

  /**
   * Get ready-made segments, such as the contacts that engaged in the last 30 days.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  listStarters(options: RequestOptions = {}): Promise<types.SegmentStarters> {
    return this.#transport.call("GET", "/v1/my/segments/starters", { ...options });
  }

  /**
   * Get the fields and predicates that filters support.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  describeFilters(options: RequestOptions = {}): Promise<types.FilterSpec> {
    return this.#transport.call("GET", "/v1/my/segments/spec", { ...options });
  }

  /**
   * Count the contacts that match filters without saving the filters.
   *
   * Filters on the data of events require `events:read` too. Scope: `contacts:read`. Open to agents.
   */
  countContacts(body: types.CountWrite, options: RequestOptions = {}): Promise<types.ContactCount> {
    return this.#transport.call("POST", "/v1/my/segments/count", { body, ...options });
  }

  /**
   * Get a segment.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Segment> {
    return this.#transport.call("GET", `/v1/my/segments/${segment(id)}`, { ...options });
  }

  /**
   * Update a segment; `filters` replaces all filters.
   *
   * New filters on the data of events require `events:read` too. Scope: `contacts:write`. Scope of agents:
   * `segments:write`.
   */
  update(id: number, body: types.SegmentPatch = {}, options: RequestOptions = {}): Promise<types.Segment> {
    return this.#transport.call("PATCH", `/v1/my/segments/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a segment that is not in use.
   *
   * Scope: `contacts:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.Segment> {
    return this.#transport.call("DELETE", `/v1/my/segments/${segment(id)}`, { ...options });
  }

  /**
   * Explain filter by filter whether a contact is in a segment.
   *
   * Scope: `contacts:read`. Open to agents.
   */
  explain(id: number, query: types.ExplainSegmentQuery, options: RequestOptions = {}): Promise<types.SegmentExplanation> {
    return this.#transport.call("GET", `/v1/my/segments/${segment(id)}/explain`, { query, ...options });
  }
}
