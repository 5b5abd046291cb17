"""The text model of the zoo's upstream: it calls the tool that its task names, and ends with a message afterwards.

A task is part of the last message of the user: `[[call NAME {"argument": "value"}]]`. Each task is carried out once.
The message repeats what the last tool said. The model ignores a request without a task; the simulator answers those.
"""

import itertools
import json
import re

TASK = re.compile(r"\[\[call (\w+) (\{.*?\})\]\]")
MAX_REPEATED_CHARS = 2000
numbers = itertools.count(1)


def answer(body):
    """The content type and the body of the answer to a request, or `None` if the request has no task for a tool."""
    try:
        request = json.loads(body)
    except ValueError:
        return None
    items = request.get("input")
    if not isinstance(items, list):
        return None
    text = "\n".join(texts(item) for item in items if item.get("role") == "user")
    # Some agents escape the quotes of the words on their command line.
    tasks = TASK.findall(text.replace('\\"', '"'))
    if not tasks:
        return None
    calls = sum(item.get("type") == "function_call" for item in items)
    output = message(items) if calls >= len(tasks) else call(request, *tasks[calls])
    response = {
        "id": f"resp_{next(numbers)}",
        "object": "response",
        "created_at": 1_776_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": request.get("model"),
        "output": [output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20,
        },
        "metadata": {},
    }
    if not request.get("stream"):
        return "application/json", json.dumps(response).encode()
    return "text/event-stream", b"".join(events(response, output))


def texts(item):
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def message(items):
    outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
    said = outputs[-1] if outputs else ""
    return said_by_the_model(said if isinstance(said, str) else json.dumps(said))


def said_by_the_model(text):
    part = {"type": "output_text", "text": text[:MAX_REPEATED_CHARS], "annotations": [], "logprobs": []}
    return {"id": f"msg_{next(numbers)}", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def call(request, name, arguments):
    number = next(numbers)
    item = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": f"call_{number}"}
    for tool in request.get("tools", []):
        if tool.get("type") == "namespace":
            if any(inner.get("name", "").endswith(name) for inner in tool.get("tools", [])):
                return {**item, "namespace": tool["name"], "name": name, "arguments": arguments}
        elif tool.get("name", "").endswith(name):
            return {**item, "name": tool["name"], "arguments": arguments}
    offered = ", ".join(tool.get("name", tool.get("type", "")) for tool in request.get("tools", []))
    return said_by_the_model(f"No tool {name} among: {offered}.")


def events(response, output):
    place = {"output_index": 0, "item_id": output["id"]}
    steps = [
        ("created", {"response": {**response, "status": "in_progress", "output": [], "usage": None}}),
        ("output_item.added", {"output_index": 0, "item": {**output, "status": "in_progress", **empty(output)}}),
    ]
    if output["type"] == "message":
        part = output["content"][0]
        steps += [
            ("content_part.added", {**place, "content_index": 0, "part": {**part, "text": ""}}),
            ("output_text.delta", {**place, "content_index": 0, "delta": part["text"], "logprobs": []}),
            ("output_text.done", {**place, "content_index": 0, "text": part["text"], "logprobs": []}),
            ("content_part.done", {**place, "content_index": 0, "part": part}),
        ]
    else:
        steps += [
            ("function_call_arguments.delta", {**place, "delta": output["arguments"]}),
            ("function_call_arguments.done", {**place, "arguments": output["arguments"], "name": output["name"]}),
        ]
    steps += [("output_item.done", {"output_index": 0, "item": output}), ("completed", {"response": response})]
    for number, (name, event) in enumerate(steps):
        data = json.dumps({"type": f"response.{name}", "sequence_number": number, **event})
        yield f"event: response.{name}\ndata: {data}\n\n".encode()


def empty(output):
    return {"content": []} if output["type"] == "message" else {"arguments": ""}
