// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Backups of the installation, for its first account. */
export class Backups {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get the backups on this machine, and the state of copies on another machine.
   *
   * Only for the first account of the installation. Scope: `account:write`.
   */
  get(options: RequestOptions = {}): Promise<types.Backups> {
    return this.#transport.call("GET", "/v1/my/backups", { ...options });
  }

  /**
   * Create a backup on this machine, in the background. Only for the first account of the installation.
   *
   * Scope: `account:write`.
   */
  create(options: RequestOptions = {}): Promise<types.Backups> {
    return this.#transport.call("POST", "/v1/my/backups", { ...options });
  }

  /**
   * Make a copy on another machine now, in the background; return the one that is already running, if there is one.
   *
   * Only for the first account of the installation. 409 if copies are not set up. Scope: `account:write`.
   */
  createCopy(options: RequestOptions = {}): Promise<types.CopyRun> {
    return this.#transport.call("POST", "/v1/my/backups/copies", { ...options });
  }

  /**
   * Restore the newest copy for a test, in the background; return the test that is already running, if there is
   * one.
   *
   * The copy is fetched, decrypted, unpacked beside the data and checked, and then deleted again. Only for the
   * first account of the installation. 409 if copies are not set up. Scope: `account:write`.
   */
  createProof(options: RequestOptions = {}): Promise<types.CopyRun> {
    return this.#transport.call("POST", "/v1/my/backups/proofs", { ...options });
  }
}
