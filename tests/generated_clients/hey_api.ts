// The client that @hey-api/openapi-ts generates.

import assert from "node:assert/strict";

import { createClient } from "./hey_api_client/client/index.js";
import { createImage, type CreateImageErrors } from "./hey_api_client/index.js";

const { CLIENT_TEST_ORIGIN: origin = "", CLIENT_TEST_KEY: key = "", CLIENT_TEST_WORD: word = "" } = process.env;

const send = (prompt: string, token = key, idempotencyKey?: string) =>
    createImage({
        client: createClient({ baseUrl: origin, auth: token }),
        ...(idempotencyKey === undefined ? {} : { headers: { "Idempotency-Key": idempotencyKey } }),
        body: { model: "gpt-image-2", prompt, quality: "low", n: null },
    });

async function image(prompt: string, idempotencyKey?: string): Promise<Buffer> {
    const { data, error } = await send(prompt, key, idempotencyKey);
    assert.ok(data, JSON.stringify(error));
    // With `stream`, the answer is one of events, which have no `data`.
    assert.ok("created" in data && Array.isArray(data.data));
    return Buffer.from(data.data[0]?.b64_json ?? "", "base64");
}

async function failure(prompt: string, token = key): Promise<string | null> {
    const { error, response } = await send(prompt, token);
    assert.ok(error && response);
    switch (response.status) {
        case 401: {
            const refused: CreateImageErrors[401] = error;
            return refused.error.code;
        }
        case 409: {
            const unfinished: CreateImageErrors[409] = error;
            return unfinished.error.code;
        }
        default:
            return JSON.stringify(error);
    }
}

const first = await image(`A fox, counted-${word}`, `run-${word}`);
assert.equal(first.subarray(1, 4).toString(), "PNG");
assert.deepEqual(await image(`A fox, counted-${word}`, `run-${word}`), first);
const { data: other } = await send("A fox, answers-quality-ultra");
assert.equal(other?.quality, "ultra");
assert.equal(await failure("A fox", "sk-wrong"), "INVALID_API_KEY");
assert.equal(await failure(`A fox ${word}, takes-8-seconds`), "image_in_progress");
