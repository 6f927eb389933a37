// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Download, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Downloads of contacts, events and messages. */
export class Exports {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Export contacts as CSV that can be imported again without loss.
   *
   * Scope: `contacts:read`.
   */
  contactsCsv(query: types.ExportContactsCsvQuery = {}): Download {
    return new Download(this.#transport, "/v1/my/exports/contacts.csv", query);
  }

  /**
   * Export contacts as JSON lines.
   *
   * Scope: `contacts:read`.
   */
  contactsJsonl(query: types.ExportContactsJsonlQuery = {}): Download {
    return new Download(this.#transport, "/v1/my/exports/contacts.jsonl", query);
  }

  /**
   * Export events as CSV.
   *
   * Scope: `events:read`.
   */
  eventsCsv(query: types.ExportEventsCsvQuery = {}): Download {
    return new Download(this.#transport, "/v1/my/exports/events.csv", query);
  }

  /**
   * Export events as JSON lines.
   *
   * Scope: `events:read`.
   */
  eventsJsonl(query: types.ExportEventsJsonlQuery = {}): Download {
    return new Download(this.#transport, "/v1/my/exports/events.jsonl", query);
  }

  /**
   * Export messages as CSV.
   *
   * Scope: `messages:read`.
   */
  messagesCsv(query: types.ExportMessagesCsvQuery = {}): Download {
    return new Download(this.#transport, "/v1/my/exports/messages.csv", query);
  }

  /**
   * Export messages as JSON lines.
   *
   * Scope: `messages:read`.
   */
  messagesJsonl(query: types.ExportMessagesJsonlQuery = {}): Download {
    return new Download(this.#transport, "/v1/my/exports/messages.jsonl", query);
  }
}
