"""Twenty turns of opencode through `/v1/responses` of a gateway that adds the image tool to requests of coding agents.

The turns run twice: as opencode is, which is no agent that gets the tool, and with the header `originator` of such an
agent in opencode's own configuration. The upstream is a scripted provider that refuses a request with the status 400 if
its tools conflict. Every turn must end with the text of the provider, and no request may be refused. The argument names
an MCP server and its tool, which some turns bring: an image tool that belongs to the agent.

The driver has a gateway of its own, and ends it. opencode reaches only this machine: the proxy setting leads all its
other connections to a port that refuses them.
"""

import base64
import collections
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import upstream_model
from kit import PICTURE, absent, feature

OPENCODE = pathlib.Path(os.environ["ZOO_HOME"], "node_modules/.bin/opencode")
GATEWAY = os.environ["ZOO_PROGRAM"]
FOLDER = pathlib.Path(os.environ["ZOO_FOLDER"])
SERVER, TOOL = sys.argv[1].split(".")
# All turns of both runs, and one turn; the runner stops the driver later than that.
DEADLINE = time.monotonic() + 500
TURN_SECONDS = 60
CONTEXT_TOKENS = 100_000
IMAGE = base64.b64encode(PICTURE.read_bytes()).decode()
# Names of image tools that belong to an agent, as their letters.
OWN_IMAGE_TOOL = re.compile("imagegen|(generate|create|make|draw|edit)image")

SAYS = ("says",)
THINKS = ("thinks",)
DRAWS = ("draws",)
FILLS = ("fills",)
RUNS = ("calls", ("bash", {"command": "echo one", "description": "Prints a word"}))
READS = ("calls", ("read", {"filePath": "WORDS"}))
BOTH = ("calls", RUNS[1], READS[1])
DELEGATES = ("calls", ("task", {"description": "Say yes", "prompt": "Say yes.", "subagent_type": "general"}))
PAINTS = ("calls", (f"{SERVER}_{TOOL}", {"prompt": "a cube"}))

# What each turn does, the steps of the model, the further arguments of opencode, and whether the MCP server is there.
TURNS = [
    ("text", [SAYS], [], False),
    ("shell", [RUNS, SAYS], [], False),
    ("text", [SAYS], [], False),
    ("file", [READS, SAYS], [], False),
    ("image", [DRAWS], [], False),
    ("text", [SAYS], [], False),
    ("reasoning", [THINKS], [], False),
    ("two calls", [BOTH, SAYS], [], False),
    ("attached picture", [SAYS], ["-f", str(PICTURE)], False),
    ("subagent", [DELEGATES, SAYS, SAYS], [], False),
    ("own image tool", [PAINTS, SAYS], [], True),
    ("own image tool, text", [SAYS], [], True),
    ("own image tool, shell", [RUNS, SAYS], [], True),
    ("text", [SAYS], [], False),
    ("plan", [SAYS], ["--agent", "plan"], False),
    ("image", [DRAWS], [], False),
    ("full context", [FILLS], [], False),
    ("text", [SAYS], [], False),
    ("own image tool, two", [PAINTS, RUNS, SAYS], [], True),
    ("shell", [RUNS, SAYS], [], False),
]


def is_hosted(tool):
    return tool.get("type") == "image_generation"


def is_own(tool):
    """True if an agent's tool, or one in its namespace, is for images."""
    letters = re.sub("[^a-z]", "", tool.get("name", "").lower())
    return bool(OWN_IMAGE_TOOL.search(letters)) or any(is_own(inner) for inner in tool.get("tools", []))


def tools_of(body):
    of_items = [tool for item in body["input"] if isinstance(item, dict) for tool in item.get("tools", [])]
    return (body.get("tools") or []) + of_items


def conflict(body):
    """The reason for which the provider refuses a request, or `None`. opencode itself has no hosted image tool."""
    tools = tools_of(body)
    names = collections.Counter(tool.get("name", tool.get("type")) for tool in tools)
    if twice := [name for name, count in names.items() if count > 1]:
        return f"The tool names {twice} are not unique."
    if not any(is_hosted(tool) for tool in tools):
        return None
    if own := [tool["name"] for tool in tools if is_own(tool)]:
        return f"The tool image_generation conflicts with the tools {own}."
    choice = body.get("tool_choice")
    allowed = choice.get("tools", [choice]) if isinstance(choice, dict) else []
    if choice == "none" or (allowed and not any(is_hosted(tool) for tool in allowed)):
        return "The tool image_generation conflicts with 'tool_choice'."
    if ((body.get("text") or {}).get("format") or {"type": "text"})["type"] != "text":
        return "The tool image_generation conflicts with 'text.format'."
    if any(item.get("type", "").startswith("compaction") for item in body["input"]):
        return "The tool image_generation conflicts with a compaction item."
    return None


class Provider:
    """The scripted provider, and the MCP server of the agent, on a free port of this machine."""

    def __init__(self):
        self.lock = threading.Lock()
        self.steps = []
        self.seen = []
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(405, "application/json", b"{}")

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.answer(*(mcp_answer(body) if self.path == "/mcp" else provider.respond(body)))

            def answer(self, status, kind, data):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def begin(self, steps):
        with self.lock:
            self.steps, self.seen = list(steps), []

    def respond(self, body):
        with self.lock:
            refusal = conflict(body)
            tools = tools_of(body)
            has_tool, has_own = any(map(is_hosted, tools)), any(map(is_own, tools))
            self.seen.append({"tool": has_tool, "own": has_own, "refusal": refusal})
            if refusal is not None:
                error = {"message": refusal, "type": "invalid_request_error", "param": "tools", "code": None}
                return 400, "application/json", json.dumps({"error": error}).encode()
            # The requests for a title and for a summary have no tool of opencode; they are no steps of a turn.
            has_step = self.steps and any(tool.get("type") == "function" for tool in tools)
            kind, *calls = self.steps.pop(0) if has_step else SAYS
            outputs = self.outputs(kind, calls, body, has_tool)
        return 200, "text/event-stream", b"".join(events(body, outputs, kind == "fills"))

    @staticmethod
    def outputs(kind, calls, body, has_tool):
        number = next(upstream_model.numbers)
        if kind == "calls":
            return [upstream_model.call(body, name, json.dumps(arguments)) for name, arguments in calls]
        message = upstream_model.said_by_the_model(f"Said in answer {number}.")
        if kind == "thinks":
            reasoning = {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": "b3BhcXVl" * 8}
            return [reasoning, message]
        if kind == "draws" and has_tool:
            image = {"id": f"ig_{number}", "type": "image_generation_call", "status": "completed", "result": IMAGE}
            options = {"action": "generate", "background": "opaque", "output_format": "png", "quality": "low"}
            return [{**image, **options, "size": "1024x1024", "revised_prompt": "a cube"}, message]
        return [message]


def events(body, outputs, is_full):
    """The events of an answer, in the form of a real service."""
    read = CONTEXT_TOKENS if is_full else 10
    usage = {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + 10,
    }
    response = {
        "id": f"resp_{next(upstream_model.numbers)}",
        "object": "response",
        "created_at": 1_776_000_000,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        "metadata": {},
    }
    steps = [("created", {"response": response}), ("in_progress", {"response": response})]
    for index, item in enumerate(outputs):
        steps += item_events(index, item)
    steps.append(("completed", {"response": {**response, "status": "completed", "output": outputs, "usage": usage}}))
    for number, (name, event) in enumerate(steps):
        data = json.dumps({"type": f"response.{name}", "sequence_number": number, **event})
        yield f"event: response.{name}\ndata: {data}\n\n".encode()


def item_events(index, item):
    place = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"}
    if item["type"] == "message":
        part = item["content"][0]
        begun["content"] = []
        at_part = {**place, "content_index": 0}
        inner = [
            ("content_part.added", {**at_part, "part": {**part, "text": ""}}),
            ("output_text.delta", {**at_part, "delta": part["text"], "logprobs": []}),
            ("output_text.done", {**at_part, "text": part["text"], "logprobs": []}),
            ("content_part.done", {**at_part, "part": part}),
        ]
    elif item["type"] == "function_call":
        begun["arguments"] = ""
        inner = [
            ("function_call_arguments.delta", {**place, "delta": item["arguments"]}),
            ("function_call_arguments.done", {**place, "arguments": item["arguments"], "name": item["name"]}),
        ]
    elif item["type"] == "image_generation_call":
        begun = {name: begun[name] for name in ("id", "type", "status")}
        inner = [(f"image_generation_call.{word}", place) for word in ("in_progress", "generating", "completed")]
    else:
        begun, inner = item, []
    added = ("output_item.added", {"output_index": index, "item": begun})
    return [added, *inner, ("output_item.done", {"output_index": index, "item": item})]


def mcp_answer(request):
    """The answer of an MCP server with one tool."""
    if "id" not in request:
        return 202, "application/json", b""
    schema = {"type": "object", "properties": {"prompt": {"type": "string"}}}
    tool = {"name": TOOL, "description": "Makes an image.", "inputSchema": schema}
    version = request.get("params", {}).get("protocolVersion")
    server = {"capabilities": {"tools": {}}, "serverInfo": {"name": SERVER, "version": "1"}}
    results = {
        "initialize": {"protocolVersion": version, **server},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "The image is made."}]},
    }
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": results.get(request["method"], {})}
    return 200, "application/json", json.dumps(answer).encode()


def check_provider(provider):
    """The provider refuses each conflict, and accepts the image tool without one."""
    hosted, own = {"type": "image_generation"}, {"type": "function", "name": "f"}
    named = [{**own, "name": name} for name in ("generate_image", "image_gen", "x_image-generation", "imagegen")]
    deferred = {"type": "additional_tools", "tools": [{"type": "namespace", "name": "a", "tools": [named[0]]}]}
    schema = {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}
    refused = [
        {"tools": [own, own]},
        {"tools": [hosted, hosted]},
        *({"tools": [hosted, tool]} for tool in named),
        {"tools": [hosted], "input": [deferred]},
        {"tools": [hosted, own], "tool_choice": {"type": "function", "name": "f"}},
        {"tools": [hosted], "text": schema},
        {"tools": [hosted], "input": [{"type": "compaction", "encrypted_content": "a"}]},
        {"tools": [hosted], "input": [{"type": "compaction_trigger"}]},
    ]
    accepted = [{"tools": [hosted, own], "tool_choice": "auto"}, {"tools": [named[0]], "text": schema}]
    for status, parts in ((400, refused), (200, accepted)):
        for part in parts:
            data = json.dumps({"model": "m", "input": [{"role": "user", "content": "x"}], **part}).encode()
            try:
                found = urllib.request.urlopen(f"{provider.origin}/v1/responses", data, timeout=10).status
            except urllib.error.HTTPError as error:
                found = error.code
            if found != status:
                raise AssertionError(f"the provider answers {found} to {part}")


@contextlib.contextmanager
def gateway(folder, provider):
    """A gateway that adds the image tool; gives its base URL, a key, and a function that reads its records."""
    config = folder / "imagate.toml"
    config.write_text(
        f'[[accounts]]\nname = "agents"\nkind = "api_key"\nbase_url = "{provider.origin}/v1"\n'
        'api_key = { env = "TURNS_KEY" }\nprotocol = "responses"\ntier = "free"\n'
        '[[groups]]\nname = "default"\ninject_image_tool = true\n'
    )
    place = ["--config", config, "--data-dir", folder / "data"]
    environment = {**os.environ, "TURNS_KEY": "sk-turns"}

    def printed(*words):
        command = [GATEWAY, *words, *place]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return result.stdout

    def records():
        """The records, after the last one is final."""
        for _ in range(20):
            lines = [json.loads(line) for line in printed("usage", "--json").splitlines()]
            if all(line["state"] in ("succeeded", "failed") for line in lines):
                break
            time.sleep(0.5)
        return lines

    command = [GATEWAY, "serve", "--listen", "127.0.0.1:0", *place]
    with open(folder / "log.txt", "w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        lines = (line.strip() for line in process.stdout)
        origin = next(line.removeprefix("listening on ") for line in lines if line.startswith("listening on "))
        key = json.loads(printed("key", "create", "--name", "turns", "--json"))["secret"]
        yield f"{origin}/v1", key, records
    finally:
        process.kill()
        process.wait()


def run_opencode(folder, arguments):
    """Runs one turn; returns its exit code, its events and the end of its error output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "OPENCODE"))}
    environment |= {
        "HOME": str(folder),
        # opencode takes its folder from this variable.
        "PWD": str(folder / "project"),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    process = subprocess.Popen(
        [OPENCODE, "run", "--format", "json", *arguments],
        env=environment,
        cwd=folder / "project",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        seconds = max(1, min(TURN_SECONDS, DEADLINE - time.monotonic()))
        output, errors = process.communicate(timeout=seconds)
    finally:
        # Also ends what opencode has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return process.returncode, found, errors[-300:]


def write_config(folder, base_url, key, headers, mcp):
    model = {"limit": {"context": CONTEXT_TOKENS, "output": 8000}, "attachment": True}
    modalities = {"input": ["text", "image"], "output": ["text"]}
    config = {
        "model": "imagate/gpt-5.5",
        "provider": {
            "imagate": {
                "npm": "@ai-sdk/openai",
                "options": {"baseURL": base_url, "apiKey": key, "headers": headers},
                "models": {"gpt-5.5": {**model, "reasoning": True, "modalities": modalities}},
            }
        },
        "mcp": {SERVER: {"type": "remote", "url": mcp}} if mcp else {},
        "permission": {"external_directory": "allow"},
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
    }
    (folder / "project/opencode.json").write_text(json.dumps(config))


def faults_of(provider, steps, has_server, gets_tool, code, found, errors):
    """What is wrong with a turn: its end in opencode, or a request that went upstream."""
    faults = [seen["refusal"] for seen in provider.seen if seen["refusal"]]
    said = [event["part"]["text"] for event in found if event["type"] == "text"]
    calls = [event["part"] for event in found if event["type"] == "tool_use"]
    if code != 0 or not said or any(event["type"] == "error" for event in found):
        faults.append(f"opencode ends with {code}: {[e for e in found if e['type'] == 'error'] or errors}")
    elif not said[-1].startswith("Said in answer"):
        faults.append(f"opencode says {said[-1]!r}")
    if provider.steps:
        faults.append(f"steps {provider.steps} were not asked for")
    if failed := [call for call in calls if call["state"]["status"] != "completed"]:
        faults.append(f"calls failed: {failed}")
    # opencode shows the image of the added tool as a call of a tool that it does not have.
    expected = sum(len(step) - 1 for step in steps) + (DRAWS in steps and gets_tool)
    if len(calls) != expected:
        faults.append(f"{len(calls)} calls in place of {expected}")
    if has_server and not any(seen["own"] for seen in provider.seen):
        faults.append("no request has the tool of the MCP server")
    for seen in provider.seen:
        if not seen["refusal"] and seen["tool"] != (gets_tool and not seen["own"]):
            faults.append("the image tool is added" if seen["tool"] else "the image tool is not added")
    return faults


def run_turns(name, headers, gets_tool, provider):
    """Runs the turns in one session and prints their table; returns the counts, and the faults."""
    folder = FOLDER / name
    (folder / "project").mkdir(parents=True)
    words = folder / "project/words.txt"
    words.write_text("one two\n")
    total, faults = collections.Counter(), []
    print(f"\n{name}\nturn  action                 requests  image tool  own tool  refused", flush=True)
    with gateway(folder, provider) as (base_url, key, records):
        for number, (action, steps, arguments, has_server) in enumerate(TURNS, 1):
            write_config(folder, base_url, key, headers, f"{provider.origin}/mcp" if has_server else None)
            provider.begin(json.loads(json.dumps(steps).replace("WORDS", str(words))))
            session = ["--continue"] if number > 1 else []
            # The list of files takes all words after it.
            ended = run_opencode(folder, [*session, f"Turn {number}.", *arguments])
            seen = provider.seen
            counts = {
                "requests": len(seen),
                "tool": sum(request["tool"] for request in seen),
                "own": sum(request["own"] for request in seen),
                "refused": sum(request["refusal"] is not None for request in seen),
            }
            total.update(counts)
            print("{:4}  {:21}  {:8}  {:10}  {:8}  {:7}".format(number, action, *counts.values()), flush=True)
            for fault in dict.fromkeys(faults_of(provider, steps, has_server, gets_tool, *ended)):
                faults.append(f"{name}, turn {number} ({action}): {fault}")
                print(f"      {fault}", flush=True)
        rows = records()
    print(f"all   {'':21}  {total['requests']:8}  {total['tool']:10}  {total['own']:8}  {total['refused']:7}")
    attempts = sum(len(row["attempts"]) for row in rows)
    injected = sum(row["injected_tool"] for row in rows)
    succeeded = sum(row["state"] == "succeeded" for row in rows)
    print(f"records: {len(rows)}, succeeded {succeeded}, attempts {attempts}, with the added tool {injected}")
    if not (len(rows) == succeeded == attempts == total["requests"] and injected == total["tool"]):
        faults.append(f"{name}: the records do not agree with the requests")
    return total, faults


@feature("generation")
def _():
    provider = Provider()
    check_provider(provider)
    version = subprocess.run([OPENCODE, "--version"], capture_output=True, text=True, timeout=60, check=True)
    print(f"opencode {version.stdout.strip()}, MCP tool {SERVER}_{TOOL}")
    plain, faults = run_turns("as it is", {}, False, provider)
    agent, more = run_turns("as an agent", {"originator": "codex_exec"}, True, provider)
    provider.server.shutdown()
    if faults + more:
        raise AssertionError(" ".join(faults + more))
    return (
        f"{len(TURNS)} turns with {plain['requests']} requests, none with an added tool; as an agent, {len(TURNS)} "
        f"turns with {agent['requests']} requests, {agent['tool']} with an added tool; none refused"
    )


absent("edit", "this driver is about the turns of a conversation")
absent("error", "this driver is about the turns of a conversation")
absent("retry", "this driver is about the turns of a conversation")
