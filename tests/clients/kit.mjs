// Shared by the tours in JavaScript: checks that print one line each, the environment, clients, and sizes of images.

import assert from "node:assert/strict";

let failed = 0;
// One client for all calls of a tour, over one pool of connections, or a fresh one for each call.
const isOne = process.env.CLIENTS === "one";
const clients = new Map();

/** Runs a check and prints a line about it. */
export async function check(name, work) {
  try {
    await work();
    console.log(`ok     ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}\n${error?.stack ?? error}`);
  }
}

/** Prints the sum, and ends with 1 when a check failed. */
export function finish(what) {
  console.log(`${what}: ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

/** A setting of one of the two gateways. */
export function setting(which, name) {
  const value = process.env[`${which}_${name}`];
  assert.ok(value, `${which}_${name} is not set`);
  return value;
}

/** What `make` gives: a fresh one, or always the same for the same words. */
export function made(make, ...words) {
  const key = JSON.stringify(words);
  if (!isOne || !clients.has(key)) clients.set(key, make());
  return clients.get(key);
}

/** Stands for a client wherever one is used: each use asks for it. */
export const each = (make) => new Proxy({}, { get: (_, name) => make()[name] });

/** `fetch` has one pool for all: a fresh client's connection ends with its call. */
export function pooled(address, init = {}) {
  if (isOne) return fetch(address, init);
  const headers = new Headers(init.headers);
  headers.set("connection", "close");
  return fetch(address, { ...init, headers });
}

/** Format and pixel size from the first bytes of the file, such as `png 1024x1024`. */
export function probe(bytes) {
  if (bytes.subarray(0, 8).toString("latin1") === "\x89PNG\r\n\x1a\n") {
    return `png ${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`;
  }
  if (bytes.subarray(0, 4).toString("latin1") === "RIFF") {
    const kind = bytes.subarray(12, 16).toString("latin1");
    if (kind === "VP8 ") return `webp ${bytes.readUInt16LE(26) & 0x3fff}x${bytes.readUInt16LE(28) & 0x3fff}`;
    if (kind === "VP8L") {
      const bits = bytes.readUInt32LE(21);
      return `webp ${(bits & 0x3fff) + 1}x${((bits >>> 14) & 0x3fff) + 1}`;
    }
    return `webp ${bytes.readUIntLE(24, 3) + 1}x${bytes.readUIntLE(27, 3) + 1}`;
  }
  assert.equal(bytes.readUInt16BE(0), 0xffd8, "not an image");
  for (let at = 2; ; at += 2 + bytes.readUInt16BE(at + 2)) {
    const marker = bytes[at + 1];
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      return `jpeg ${bytes.readUInt16BE(at + 7)}x${bytes.readUInt16BE(at + 5)}`;
    }
  }
}
