// Slow images with the official Node client and its default settings: plain, and streamed unless PLAIN_ONLY is set.
//
// BASE_URL and API_KEY name the gateway. DELAYS are the milliseconds that each image takes, all of them at once; REPEAT
// says how often each of them is asked for, PARALLEL how many at a time. Prints one line per check, and exits with 1 if
// one failed.

import OpenAI from "openai";
import assert from "node:assert/strict";
import { check, finish } from "./kit.mjs";

const { BASE_URL, API_KEY, DELAYS, REPEAT = "1", PARALLEL = "64", PLAIN_ONLY } = process.env;
const sdk = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY });
const fields = (user, delay) => ({
  model: "gpt-image-2",
  prompt: `a cube [[delay=${delay}]]`,
  size: "1024x1024",
  user,
});

async function plain(delay, number) {
  const answer = await sdk.images.generate(fields(`node-plain-${delay}-${number}`, delay));
  assert.ok(answer.data[0].b64_json);
}

async function streamed(delay, number) {
  const events = await sdk.images.generate({ ...fields(`node-stream-${delay}-${number}`, delay), stream: true });
  let last;
  for await (const event of events) last = event.type;
  assert.equal(last, "image_generation.completed");
}

async function every(ask) {
  const jobs = DELAYS.split(" ").flatMap((delay) => Array.from({ length: Number(REPEAT) }, (_, number) => [delay, number]));
  const next = async () => {
    for (let job = jobs.pop(); job; job = jobs.pop()) await ask(...job);
  };
  await Promise.all(Array.from({ length: Number(PARALLEL) }, next));
}

const runs = [check("plain", () => every(plain))];
if (!PLAIN_ONLY) runs.push(check("streamed", () => every(streamed)));
await Promise.all(runs);
finish(`Node ${process.version}`);
