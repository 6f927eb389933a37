import { InvalidSignature } from "./errors.js";
import type { RecordedEvent } from "./types.js";

const MAX_AGE_SECONDS = 300;

/** The headers of a request: those of fetch, or an object as Node has it. */
export type HeaderSource = Headers | Record<string, string | string[] | undefined>;

/**
 * Returns the event of a webhook request, or throws InvalidSignature if the request is not from Campanero
 * (Standard Webhooks, standardwebhooks.com).
 *
 * `body` is the body exactly as it was received, and `secret` the secret of the webhook, `whsec_…`. A request that was
 * signed more than `maxAgeSeconds` ago, or later than now by as much, is invalid too, so that a recorded request cannot
 * be sent again later. A delivery may arrive more than once; its header `webhook-id` stays the same.
 */
export async function verify(
  body: string | Uint8Array,
  headers: HeaderSource,
  secret: string,
  { maxAgeSeconds = MAX_AGE_SECONDS }: { maxAgeSeconds?: number } = {},
): Promise<RecordedEvent> {
  const id = find(headers, "webhook-id");
  const timestamp = find(headers, "webhook-timestamp");
  const signatures = find(headers, "webhook-signature");
  if (!id || !timestamp || !signatures) {
    throw new InvalidSignature("webhook-id, webhook-timestamp or webhook-signature is missing");
  }
  if (!/^[0-9]{1,12}$/.test(timestamp)) throw new InvalidSignature("webhook-timestamp is not a number of seconds");
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const start = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(start.length + content.length);
  signed.set(start);
  signed.set(content, start.length);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", decodeSecret(secret), algorithm, false, ["verify"]);
  let isValid = false;
  for (const signature of signatures.split(" ")) {
    const mac = signature.startsWith("v1,") ? decode(signature.slice(3)) : undefined;
    if (mac && (await crypto.subtle.verify("HMAC", key, mac, signed))) isValid = true;
  }
  if (!isValid) throw new InvalidSignature("no signature was made with this secret");
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > maxAgeSeconds) {
    throw new InvalidSignature(`the request was not signed within ${maxAgeSeconds} seconds`);
  }
  return JSON.parse(new TextDecoder().decode(content)) as RecordedEvent;
}

function find(headers: HeaderSource, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  for (const [key, value] of Object.entries(headers)) {
    if (key.toLowerCase() === name) return Array.isArray(value) ? value[0] : value;
  }
  return undefined;
}

function decodeSecret(secret: string): Uint8Array<ArrayBuffer> {
  const key = decode(secret.trim().replace(/^whsec_/, ""));
  if (!key?.length) throw new TypeError("the secret of a webhook is whsec_ and base64");
  return key;
}

function decode(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}
