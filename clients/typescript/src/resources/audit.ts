// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Audit log, for the account's owner and admins. */
export class Audit {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List audit log entries, newest first. Entries are permanent.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  list(query: types.ListAuditEntriesQuery = {}): Paginator<types.AuditEntry> {
    return new Paginator<types.AuditEntry>(this.#transport, "/v1/my/audit", query);
  }
}
