import { ApiError, CampaneroError, ConnectionFailed, errorOfStatus } from "./errors.js";
import { IDEMPOTENT_POSTS, VERSION } from "./version.js";

const MAX_PAGE_SIZE = 100;
const FIRST_BACKOFF_SECONDS = 0.5;
const MAX_BACKOFF_SECONDS = 8;
const MAX_JITTER = 0.25;
const REPEATABLE_METHODS = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);
// The errors with which the service says that it has not carried out the request
const NOT_DONE_CODES = new Set(["rate_limited", "storage_unavailable", "unavailable"]);
// The codes of errors of Node at which nothing was sent
const NOT_SENT_CODES = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

/** The parameters of a query; those that are undefined or null are left out. */
export type Query = object;

/** A file to upload: a Blob or File, or its bytes with a name. */
export type FileContent = Blob | { name: string; content: Uint8Array<ArrayBuffer> | string };

/** Options of a single request. */
export interface RequestOptions {
  /** Stops the request and its retries. */
  signal?: AbortSignal;
  /** A key of your own instead of a new one; requests with the same key are carried out once. */
  idempotencyKey?: string;
  headers?: Record<string, string>;
}

/** Options of a client. */
export interface TransportOptions {
  /** The number of seconds until a response has to begin; 30 by default. */
  timeoutSeconds?: number;
  /** How often a request is repeated at most; 4 by default. */
  maxRetries?: number;
  /** How long a request is repeated at most; 60 seconds by default. */
  maxRetrySeconds?: number;
  /** A function instead of the global `fetch`. */
  fetch?: typeof fetch;
}

interface Content extends RequestOptions {
  query?: Query;
  body?: unknown;
  form?: { file: FileContent; fields: object };
}

/** One page of a list, with the numbers of the whole list. */
export class Page<T> {
  /** The number of this page, counted from 1. */
  readonly number: number;
  /** The number of pages. */
  readonly pages: number;
  /** The number of objects on all pages. */
  readonly total: number;
  /** The number of the next page, if there is one. */
  readonly nextNumber: number | undefined;

  constructor(
    readonly items: T[],
    headers: Headers,
  ) {
    this.number = Number(headers.get("x-page-number") ?? 1);
    this.pages = Number(headers.get("x-total-pages") ?? 0);
    this.total = Number(headers.get("x-total-count") ?? 0);
    const next = headers.get("x-next-page");
    this.nextNumber = next === null ? undefined : Number(next);
  }
}

/** All objects of a list, for `for await`. Iterating makes a request for each page when it is reached. */
export class Paginator<T> implements AsyncIterable<T> {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #query: Query;

  constructor(transport: Transport, path: string, query: Query) {
    this.#transport = transport;
    this.#path = path;
    this.#query = query;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) yield* page.items;
  }

  /**
   * Yields the pages, from `page` of the query on, else from the first. Throws CampaneroError if a page leads back to an
   * earlier one, because the list would never end.
   */
  async *pages(): AsyncGenerator<Page<T>, void, undefined> {
    let page = await this.page();
    yield page;
    let number = 0;
    while (page.nextNumber !== undefined) {
      if (!(page.nextNumber > number)) {
        throw new CampaneroError(`the list leads back from page ${number || 1} to page ${page.nextNumber}`);
      }
      number = page.nextNumber;
      page = await this.page(number);
      yield page;
    }
  }

  /** Returns one page; its `total` is the number of objects on all pages. */
  async page(number?: number): Promise<Page<T>> {
    const hasSize = ["limit", "per_page", "per"].some((name) => Reflect.get(this.#query, name) != null);
    const query = { ...this.#query, ...(hasSize ? {} : { limit: MAX_PAGE_SIZE }), ...(number ? { page: number } : {}) };
    const response = await this.#transport.request("GET", this.#path, { query });
    return new Page((await readBody(() => response.json())) as T[], response.headers);
  }
}

/** A file that the service makes, read while it arrives. Each method makes a request of its own. */
export class Download {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #query: Query;

  constructor(transport: Transport, path: string, query: Query) {
    this.#transport = transport;
    this.#path = path;
    this.#query = query;
  }

  /** Yields the content in chunks of any size. Throws ConnectionFailed if the file arrives incomplete. */
  async *chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    const response = await this.#transport.request("GET", this.#path, { query: this.#query });
    const reader = response.body?.getReader();
    if (!reader) return;
    try {
      for (;;) {
        const { done, value } = await readBody(() => reader.read());
        if (done) return;
        yield value;
      }
    } finally {
      await reader.cancel().catch(() => undefined); // a broken stream cannot be cancelled, and need not be
    }
  }

  /** Yields the lines of a text without their line ends. */
  async *lines(): AsyncGenerator<string, void, undefined> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of this.chunks()) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
    rest += decoder.decode();
    if (rest) yield rest;
  }

  /** Yields the objects of a file with one JSON object a line. */
  async *records(): AsyncGenerator<unknown, void, undefined> {
    for await (const line of this.lines()) yield JSON.parse(line);
  }

  /** Returns the whole content as text. */
  async text(): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    for await (const chunk of this.chunks()) text += decoder.decode(chunk, { stream: true });
    return text + decoder.decode();
  }
}

/**
 * Sends requests to one service with one API key.
 *
 * Repeated are requests that were not sent, and requests that the service has not carried out (429, and 503 with a code
 * of the service). After a broken connection, or 502, 503 or 504 of a proxy, only requests are repeated that have no
 * further effect when they arrive twice; a POST with an Idempotency-Key is one of these.
 */
export class Transport {
  readonly #url: string;
  readonly #key: string | undefined;
  readonly #options: Required<TransportOptions>;

  constructor(url: string, key?: string, options: TransportOptions = {}) {
    const parts = new URL(url);
    if (!["http:", "https:"].includes(parts.protocol) || parts.search || parts.hash || parts.username) {
      throw new TypeError("url must be the address of the service, such as https://mail.example.com");
    }
    this.#key = key?.trim();
    if (this.#key !== undefined && !/^[!-~]+$/.test(this.#key)) {
      throw new TypeError("key must be an API key: printable ASCII characters without spaces");
    }
    this.#url = url.replace(/\/+$/, "");
    const { timeoutSeconds = 30, maxRetries = 4, maxRetrySeconds = 60 } = options;
    // Without a binding, browsers reject a call of the function
    const send = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#options = { timeoutSeconds, maxRetries, maxRetrySeconds, fetch: send };
  }

  /** Returns the JSON of a response, or undefined if it has no content. Throws ApiError or ConnectionFailed. */
  async call<T>(method: string, path: string, content: Content = {}): Promise<T> {
    const response = await this.request(method, path, content);
    const text = await readBody(() => response.text());
    return (text ? JSON.parse(text) : undefined) as T;
  }

  /** Returns a response whose content is not read yet; `path` is the whole path, such as `/v1/my/contacts`. */
  async request(method: string, path: string, content: Content = {}): Promise<Response> {
    const headers = this.#headers(content);
    let isRepeatable = REPEATABLE_METHODS.has(method);
    if (method === "POST" && IDEMPOTENT_POSTS.test(path)) {
      isRepeatable = true;
      if (!headers.has("idempotency-key")) headers.set("Idempotency-Key", findKey(content));
    }
    const body = encodeBody(content, headers);
    const url = this.#url + path + encodeQuery(content.query ?? {});
    const request = { method, headers, redirect: "manual", ...(body === undefined ? {} : { body }) } as const;
    const deadline = Date.now() + this.#options.maxRetrySeconds * 1000;
    let backoff = FIRST_BACKOFF_SECONDS;
    for (let left = this.#options.maxRetries; ; left -= 1) {
      const result = await this.#attempt(url, request, content.signal);
      if (result instanceof Response) return result;
      if (left <= 0 || !mayRepeat(result, isRepeatable)) throw result;
      const wait = delaySeconds(result, backoff);
      if (Date.now() + wait * 1000 > deadline) throw result;
      backoff = Math.min(MAX_BACKOFF_SECONDS, backoff * 2);
      await sleep(wait, content.signal);
    }
  }

  #headers(content: Content): Headers {
    const headers = new Headers({ "User-Agent": `campanero-client/${VERSION}`, ...content.headers });
    if (this.#key !== undefined && !headers.has("authorization")) headers.set("Authorization", `Bearer ${this.#key}`);
    if (content.idempotencyKey) headers.set("Idempotency-Key", content.idempotencyKey);
    return headers;
  }

  /** Returns the response of an attempt, or the error that it ends with. Throws if the caller stops the request. */
  async #attempt(url: string, request: RequestInit, signal: AbortSignal | undefined): Promise<Response | CampaneroError> {
    signal?.throwIfAborted();
    const timer = new AbortController();
    const stop = () => timer.abort(signal?.reason);
    const timeout = setTimeout(
      () => timer.abort(new Error(`no response in ${this.#options.timeoutSeconds} seconds`)),
      this.#options.timeoutSeconds * 1000,
    );
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const response = await this.#options.fetch(url, { ...request, signal: timer.signal });
      if (response.status < 300 && response.type !== "opaqueredirect") return response;
      return await readError(response);
    } catch (error) {
      signal?.throwIfAborted();
      return connectionFailed(error, `${request.method} ${new URL(url).pathname}`);
    } finally {
      clearTimeout(timeout);
    }
  }
}

async function readError(response: Response): Promise<ApiError> {
  const text = await response.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined; // the response of a proxy
  }
  const known = body !== null && typeof body === "object" ? (body as Record<string, unknown>) : {};
  const kind = errorOfStatus(response.status);
  return new kind(response.status, known, response.headers, parseRetryAfter(response.headers.get("retry-after")));
}

function connectionFailed(error: unknown, place: string): ConnectionFailed {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return new ConnectionFailed(`${place}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
}

async function readBody<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof SyntaxError) throw error;
    throw connectionFailed(error, "the response broke off");
  }
}

function mayRepeat(error: CampaneroError, isRepeatable: boolean): boolean {
  if (error instanceof ApiError) {
    if (error.status === 429 || (error.status === 503 && NOT_DONE_CODES.has(error.code))) return true;
    return isRepeatable && [502, 503, 504].includes(error.status);
  }
  const code: unknown = error.cause instanceof Error ? Reflect.get(error.cause, "code") : undefined;
  return isRepeatable || (typeof code === "string" && NOT_SENT_CODES.has(code));
}

function delaySeconds(error: CampaneroError, backoff: number): number {
  const retryAfter = error instanceof ApiError ? error.retryAfter : undefined;
  if (retryAfter === undefined) return (backoff / 2) * (1 + Math.random());
  return retryAfter + Math.random() * MAX_JITTER * Math.max(retryAfter, FIRST_BACKOFF_SECONDS);
}

/** Returns the seconds of a Retry-After header (RFC 9110, section 10.2.3), or undefined if it has none. */
function parseRetryAfter(value: string | null): number | undefined {
  if (!value) return undefined;
  if (/^[0-9]+$/.test(value)) return Number(value);
  const moment = Date.parse(value);
  return Number.isNaN(moment) ? undefined : Math.max(0, (moment - Date.now()) / 1000);
}

function sleep(seconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

function findKey(content: Content): string {
  const { body } = content;
  const key: unknown = typeof body === "object" && body !== null ? Reflect.get(body, "idempotency_key") : undefined;
  return typeof key === "string" && key ? key : crypto.randomUUID();
}

function encodeBody(content: Content, headers: Headers): string | FormData | undefined {
  if (content.form) {
    const form = new FormData();
    const { file, fields } = content.form;
    for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
      if (value != null) form.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
    }
    if (file instanceof Blob) form.set("file", file);
    else form.set("file", new Blob([file.content]), file.name);
    return form;
  }
  if (content.body === undefined) return undefined;
  headers.set("Content-Type", "application/json");
  return JSON.stringify(content.body);
}

function encodeQuery(query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query) as [string, unknown][]) {
    if (value != null) parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `?${text}` : "";
}

/** Returns a value as one segment of a path. Throws TypeError if it cannot be one. */
export function segment(value: string | number): string {
  const text = String(value);
  if (["", ".", ".."].includes(text) || (typeof value === "number" && !Number.isInteger(value))) {
    throw new TypeError(`${JSON.stringify(value)} cannot be a part of a path`);
  }
  return encodeURIComponent(text);
}
