"""Many user actions with the official `openai` package, unchanged and with its default retries.

PLAN in the environment says what to do: `actions` different generations at `base_url` with `api_key`, `parallel` at
once, each made `times` times one after the other, with `prompt`, a client `timeout` in seconds or null, and `key`: whether
an action carries an `Idempotency-Key` of its own. With `twins` all actions send the same body. One line of JSON per call
says what came of it; the last line says how many requests the package sent.
"""

import concurrent.futures
import hashlib
import json
import os
import threading

import openai

plan = json.loads(os.environ["PLAN"])
sent = 0
lock = threading.Lock()


def count(request):
    global sent
    with lock:
        sent += 1


options = {} if plan["timeout"] is None else {"timeout": plan["timeout"]}
client = openai.OpenAI(
    base_url=plan["base_url"],
    api_key=plan["api_key"],
    http_client=openai.DefaultHttpxClient(event_hooks={"request": [count]}),
    **options,
)


def call(action):
    user = "twins" if plan["twins"] else f"action-{action}"
    more = {"extra_headers": {"Idempotency-Key": f"key-{action}"}} if plan["key"] else {}
    told = {"action": action, "image": None, "status": None, "code": None, "reason": None, "should_retry": None, "error": None}
    try:
        answer = client.images.generate(model="gpt-image-2", prompt=plan["prompt"], user=user, size="1024x1024", **more)
        told["image"] = hashlib.sha256(answer.data[0].b64_json.encode()).hexdigest()
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        told |= {"status": error.status_code, "code": error.code, "reason": body.get("reason"), "error": type(error).__name__}
        told["should_retry"] = error.response.headers.get("x-should-retry")
    except Exception as error:
        told["error"] = type(error).__name__
    return told


def act(action):
    return [call(action) for _ in range(plan["times"])]


with concurrent.futures.ThreadPoolExecutor(plan["parallel"]) as pool:
    for calls in pool.map(act, range(plan["actions"])):
        for told in calls:
            print(json.dumps(told))
print(json.dumps({"sent": sent}))
