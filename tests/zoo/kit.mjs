// The common part of the JavaScript drivers of the zoo: the environment that the runner gives, and the lines that it reads.
//
// A driver prints one JSON object for each feature: `client`, `feature`, `verdict` and `detail`. The verdict is `pass`,
// `error` (the detail is the text that the client shows) or `absent` (the client has no such feature).

import { readFileSync } from "node:fs";
import { join } from "node:path";

export const baseURL = process.env.ZOO_BASE_URL;
export const apiKey = process.env.ZOO_API_KEY;
export const picturePath = join(process.env.ZOO_PICTURES, "picture.png");
export const picture = readFileSync(picturePath);
export const prompt = "a lighthouse on a cliff at dusk";
// The upstream refuses the first request with this word, before anything is paid.
export const retryPrompt = `${prompt}, ${process.env.ZOO_RETRY_WORD}`;
// A prompt of more characters than a prompt may have.
export const longPrompt = "a cube ".repeat(8000);
// A size that no image has: its edges are not multiples of 16.
export const wrongSize = "1000x1001";
// Longer texts are cut in the lines that a driver prints.
const maxDetailChars = 600;

export function report(feature, verdict, detail) {
  const text = String(detail).split(/\s+/).join(" ").slice(0, maxDetailChars);
  console.log("\n" + JSON.stringify({ client: process.env.ZOO_CLIENT, feature, verdict, detail: text }));
}

const shown = (error) => [error?.name, error?.message ?? error, error?.responseBody].filter(Boolean).join(": ");

/** Runs the function. It returns the detail; what it throws is the error that the client shows. */
export async function feature(name, run) {
  try {
    report(name, "pass", await run());
  } catch (error) {
    report(name, "error", shown(error));
  }
}

/** Runs the function; it must throw an error whose text has all of these words. */
export async function error(words, run) {
  try {
    const result = await run();
    report("error", "error", `no error, but ${JSON.stringify(result)}`);
  } catch (error) {
    const missing = words.filter((word) => !shown(error).includes(word));
    report("error", missing.length ? "error" : "pass", missing.length ? `${shown(error)} (not in the text: ${missing})` : shown(error));
  }
}

export const absent = (name, reason) => report(name, "absent", reason);

/** The detail for an image: its size. Throws if the bytes are no PNG, or one of another size. */
export function png(bytes, size) {
  const data = Buffer.from(bytes);
  if (data.subarray(1, 4).toString("latin1") !== "PNG") throw new Error(`not a PNG: ${data.subarray(0, 16).toString("hex")}`);
  const found = `${data.readUInt32BE(16)}x${data.readUInt32BE(20)}`;
  if (size && found !== size) throw new Error(`the image has ${found}, not ${size}`);
  return `a PNG of ${found}`;
}

export const decoded = (text, size) => png(Buffer.from(text.replace(/^data:[^,]*,/, ""), "base64"), size);
