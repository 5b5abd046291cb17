// Ten edits in a row over one connection, with `fetch` and with the official SDK.
//
// BASE_URL and API_KEY name the gateway, PICTURES a folder with `first.png`. Each client sends its own name as `user`.
// Prints one line per check, and exits with 1 if one failed.

import OpenAI, { toFile } from "openai";
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { check, finish } from "./kit.mjs";

const { BASE_URL, API_KEY, PICTURES } = process.env;
const picture = readFileSync(join(PICTURES, "first.png"));
const sizes = [4_000_000, 100_000, 12_000_000, 300_000, 1_048_576, 8_000_000, 150_000, 2_000_000, 6_000_000, 100_001];
const image = (size) => Buffer.concat([picture, randomBytes(size - picture.length)]);
const fields = (user) => ({ model: "gpt-image-2", prompt: "a hat", size: "1024x1024", user });
const headers = { Authorization: `Bearer ${API_KEY}` };

async function isGood(answer, what) {
  const text = await answer.text();
  assert.equal(answer.status, 200, `${what}: ${text.slice(0, 300)}`);
  assert.equal(JSON.parse(text).data.length, 1);
}

await check("fetch with a form", async () => {
  for (const size of sizes) {
    const body = new FormData();
    for (const [name, value] of Object.entries(fields("fetch-form"))) body.append(name, value);
    body.append("image", new Blob([image(size)], { type: "image/png" }), "a.png");
    await isGood(await fetch(`${BASE_URL}/images/edits`, { method: "POST", headers, body }), size);
  }
});

await check("fetch with a form that was written before", async () => {
  for (const size of sizes) {
    const part = (head, content) => [`--xx\r\nContent-Disposition: form-data; ${head}\r\n\r\n`, content, "\r\n"];
    const pieces = Object.entries(fields("fetch-bytes")).flatMap(([name, value]) => part(`name="${name}"`, value));
    pieces.push(...part(`name="image"; filename="a.png"`, image(size)), "--xx--\r\n");
    const body = Buffer.concat(pieces.map((piece) => Buffer.from(piece)));
    const kind = { ...headers, "Content-Type": "multipart/form-data; boundary=xx" };
    await isGood(await fetch(`${BASE_URL}/images/edits`, { method: "POST", headers: kind, body }), size);
  }
});

await check("openai", async () => {
  const sdk = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 });
  for (const size of sizes) {
    const file = await toFile(image(size), "a.png", { type: "image/png" });
    const answer = await sdk.images.edit({ ...fields("openai-node"), image: file });
    assert.equal(answer.data.length, 1);
  }
});

finish(`Node ${process.version}`);
