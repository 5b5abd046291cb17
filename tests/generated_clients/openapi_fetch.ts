// The types that openapi-typescript generates, with openapi-fetch.

import assert from "node:assert/strict";

import createClient from "openapi-fetch";

import type { paths } from "./openapi_typescript.js";

const { CLIENT_TEST_ORIGIN: origin = "", CLIENT_TEST_KEY: key = "", CLIENT_TEST_WORD: word = "" } = process.env;
const path = "/v1/images/generations";
type Failures = paths[typeof path]["post"]["responses"];

// The second type selects the JSON answer: with `stream`, the answer is one of events.
const client = createClient<paths, "application/json">({ baseUrl: origin });

const send = (prompt: string, token = key, idempotencyKey?: string) =>
    client.POST(path, {
        headers: { authorization: `Bearer ${token}` },
        params: { header: idempotencyKey === undefined ? {} : { "Idempotency-Key": idempotencyKey } },
        body: { model: "gpt-image-2", prompt, quality: "low", n: null },
    });

async function image(prompt: string, idempotencyKey?: string): Promise<Buffer> {
    const { data, error } = await send(prompt, key, idempotencyKey);
    assert.ok(data, JSON.stringify(error));
    return Buffer.from(data.data[0]?.b64_json ?? "", "base64");
}

async function failure(prompt: string, token = key): Promise<string | null> {
    const { error, response } = await send(prompt, token);
    assert.ok(error);
    switch (response.status) {
        case 401: {
            const refused: Failures[401]["content"]["application/json"] = error;
            return refused.error.code;
        }
        case 409: {
            const unfinished: Failures[409]["content"]["application/json"] = error;
            return unfinished.error.code;
        }
        default:
            return JSON.stringify(error);
    }
}

const first = await image(`A fox, counted-${word}`, `run-${word}`);
assert.equal(first.subarray(1, 4).toString(), "PNG");
assert.deepEqual(await image(`A fox, counted-${word}`, `run-${word}`), first);
assert.equal((await send("A fox, answers-quality-ultra")).data?.quality, "ultra");
assert.equal(await failure("A fox", "sk-wrong"), "INVALID_API_KEY");
assert.equal(await failure(`A fox ${word}, takes-8-seconds`), "image_in_progress");
