"""Writes `snapshot.json`: the contract of the provider, as the newest official Python SDK states it.

    python3 openapi/contract/read_sdk.py            # downloads the newest `openai` from PyPI with pip
    python3 openapi/contract/read_sdk.py WHEEL      # reads a wheel

The types are read from the source of the package, which is not imported. Only names, types and words are kept, no
sentence. A form of type that this script does not know stops it, so nothing is left out silently. `README.md` has the
sections of the snapshot.
"""

import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

SNAPSHOT = pathlib.Path(__file__).with_name("snapshot.json")
PLAIN = {"str": "text", "int": "integer", "float": "number", "bool": "boolean", "object": "any", "FileTypes": "file"}
LISTS = {"Iterable", "List", "Sequence", "SequenceNotStr"}
WRAPPERS = {"Annotated", "NotRequired", "Optional", "Required", "Union"} | LISTS
METHODS = {"delete", "get", "patch", "post", "put"}
# The names of text models change at any time, and every one is passed on.
TEXT_MODELS = {"AllModels", "ChatModel", "ResponsesModel"}
# The unions of a response that have sections of their own: their members are not repeated where they are used.
SECTIONED = {"input", "instructions", "output", "tool_choice", "tools"}


class Kind:
    """The parts of a type: the names of plain types, the words of literals, and the classes."""

    def __init__(self):
        self.plain, self.words, self.classes = set(), set(), []

    def add(self, other):
        self.plain |= other.plain
        self.words |= other.words
        self.classes += [found for found in other.classes if found not in self.classes]
        return self


class Module:
    """The classes, aliases and imports of a file."""

    def __init__(self, path, source):
        self.path, self.classes, self.aliases, self.imports = path, {}, {}, {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.AnnAssign) and node.value:
                self.aliases[node.target.id] = node.value
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.aliases[node.targets[0].id] = node.value
            elif isinstance(node, ast.ImportFrom) and node.level:
                folder = path.split("/")[: -node.level]
                target = "/".join(folder + node.module.split(".")) if node.module else "/".join(folder)
                for name in node.names:
                    self.imports[name.asname or name.name] = (target, name.name)


class Sdk:
    """The source of the package, read from a wheel."""

    def __init__(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("openai/") and name.endswith(".py")]
            self.sources = {name: archive.read(name).decode() for name in names}
        self.modules = {}
        self.version = re.search(r'__version__ = "([^"]+)"', self.sources["openai/_version.py"]).group(1)

    def module(self, path):
        """The module with this path without its ending; a folder is its `__init__`."""
        file = f"{path}.py" if f"{path}.py" in self.sources else f"{path}/__init__.py"
        if file not in self.modules:
            self.modules[file] = Module(file, self.sources[file])
        return self.modules[file]

    def find(self, path, name):
        return self.kind(ast.Name(name), self.module(f"openai/types/{path}"))

    def kind(self, node, module):
        """The kind of a type expression in a module."""
        kind = Kind()
        if isinstance(node, ast.Constant) and node.value is None:
            kind.plain.add("null")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.kind(ast.parse(node.value, mode="eval").body, module)
        elif isinstance(node, ast.Name):
            return self.named(node.id, module)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return self.subscript(node.value.id, node.slice, module)
        else:
            sys.exit(f"{module.path}: an unknown form of type: {ast.unparse(node)}")
        return kind

    def named(self, name, module):
        kind = Kind()
        if name in PLAIN:
            kind.plain.add(PLAIN[name])
        elif name in TEXT_MODELS:
            kind.plain.add("text")
        elif name in module.classes:
            kind.plain.add("object")
            kind.classes.append((module, module.classes[name]))
        elif name in module.aliases:
            return self.kind(module.aliases[name], module)
        elif name in module.imports:
            path, original = module.imports[name]
            return self.named(original, self.module(path))
        else:
            sys.exit(f"{module.path}: an unknown type: {name}")
        return kind

    def subscript(self, base, inner, module):
        kind = Kind()
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if base == "Literal":
            for value in (part.value for part in parts):
                kind.plain.add("boolean" if isinstance(value, bool) else "text")
                kind.words |= {value} if isinstance(value, str) else set()
        elif base == "Dict":
            kind.plain.add("map")
        elif base in WRAPPERS:
            for part in parts[:1] if base == "Annotated" else parts:
                kind.add(self.kind(part, module))
            kind.plain = {"list"} if base in LISTS else kind.plain | ({"null"} if base == "Optional" else set())
        else:
            sys.exit(f"{module.path}: an unknown generic type: {base}")
        return kind

    def members(self, found):
        """The members of a class and of those that it extends: name, kind, and whether it is required."""
        module, node = found
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id not in ("BaseModel", "TypedDict"):
                yield from self.inherited(base.id, module)
        for field in node.body:
            if isinstance(field, ast.AnnAssign):
                text = ast.unparse(field)
                alias = re.search(r"alias='([^']+)'", text)
                name = alias.group(1) if alias else field.target.id
                is_param = any(ast.unparse(base) != "BaseModel" for base in node.bases)
                required = "Required[" in text if is_param else field.value is None
                yield name, self.kind(field.annotation, module), required

    def inherited(self, name, module):
        """The members of a base, which is a class or the call `TypedDict(name, {member: type})`."""
        call = module.aliases.get(name)
        if isinstance(call, ast.Call):
            for key, annotation in zip(call.args[1].keys, call.args[1].values):
                yield key.value, self.kind(annotation, module), "Required[" in ast.unparse(annotation)
            return
        for parent in self.named(name, module).classes:
            yield from self.members(parent)

    def flatten(self, kind, stop=frozenset(), prefix="", above=()):
        """The members of the classes of a kind, and of the objects in them, by their path."""
        entries = {}
        for found in kind.classes:
            if found[1] in above:
                continue
            for name, member, required in self.members(found):
                path = f"{prefix}{name}"
                known = entries.setdefault(path, {"kind": Kind(), "required": []})
                known["kind"].add(member)
                known["required"].append(required)
                inner = {} if path in stop else self.flatten(member, stop, f"{path}.", (*above, found[1]))
                for path, entry in inner.items():
                    known = entries.setdefault(path, {"kind": Kind(), "required": []})
                    known["kind"].add(entry["kind"])
                    known["required"] += entry["required"]
        return entries

    def section(self, kind, stop=frozenset()):
        """The flattened members, as the snapshot has them."""
        section = {}
        for path, entry in sorted(self.flatten(kind, stop).items()):
            found = entry["kind"]
            section[path] = {"type": " or ".join(sorted(found.plain))}
            if all(entry["required"]):
                section[path]["required"] = True
            if found.words and path not in stop:
                section[path]["words"] = sorted(found.words)
        return section

    def types(self, kind):
        """The words of the member `type` of each class."""
        words = set()
        for found in kind.classes:
            for name, member, _ in self.members(found):
                words |= member.words if name == "type" else set()
        return sorted(words)

    def reach(self, kind, names, types, seen):
        """Collects the names of members, and the words of their types, at any depth."""
        for found in kind.classes:
            if found[1] in seen:
                continue
            seen.add(found[1])
            for name, member, _ in self.members(found):
                names.add(name)
                types |= member.words if name == "type" else set()
                self.reach(member, names, types, seen)

    def member(self, kind, name):
        """The kind of a member of the only class of a kind."""
        return next(member for found, member, _ in self.members(kind.classes[0]) if found == name)

    def class_of_type(self, kind, word):
        """The class of a union whose `type` is this word."""
        chosen = Kind()
        for found in kind.classes:
            if any(name == "type" and word in member.words for name, member, _ in self.members(found)):
                chosen.classes.append(found)
        return chosen

    def operations(self, *paths):
        """The method and path of each call."""
        found = set()
        for path in paths:
            for node in ast.walk(ast.parse(self.sources[f"openai/resources/{path}.py"])):
                is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                method = node.func.attr.removeprefix("_").removesuffix("_api_list") if is_call else ""
                if method not in METHODS or not ast.unparse(node.func).startswith("self._"):
                    continue
                address = node.args[0]
                address = address.args[0] if isinstance(address, ast.Call) else address
                found.add(f"{method.upper()} {address.value}")
        return sorted(found)


def images(sdk):
    area = {
        "operations": sdk.operations("images"),
        "generate": sdk.section(sdk.find("image_generate_params", "ImageGenerateParams")),
        "edit": sdk.section(sdk.find("image_edit_params", "ImageEditParams")),
        "reference": sdk.section(sdk.find("image_input_reference_param", "ImageInputReferenceParam")),
        "answer": sdk.section(sdk.find("images_response", "ImagesResponse")),
    }
    events = sdk.find("image_gen_stream_event", "ImageGenStreamEvent")
    events.add(sdk.find("image_edit_stream_event", "ImageEditStreamEvent"))
    area["events"] = sdk.types(events)
    return area | {word: sdk.section(sdk.class_of_type(events, word)) for word in area["events"]}


def responses(sdk):
    def find(name, file):
        return sdk.find(f"responses/{file}", name)

    create = find("ResponseCreateParams", "response_create_params")
    items = find("ResponseInputItemParam", "response_input_param")
    tools = find("ToolParam", "tool_param")
    choices = sdk.member(create, "tool_choice")
    output = find("ResponseOutputItem", "response_output_item")
    error = find("ResponseError", "response_error")
    names, types, seen = set(), set(), set()
    for kind in (items, tools, choices):
        sdk.reach(kind, names, types, seen)
    events = sdk.types(find("ResponseStreamEvent", "response_stream_event"))
    socket = sdk.types(find("ResponsesServerEvent", "responses_server_event"))
    listed = {"input_items": sdk.types(items), "tools": sdk.types(tools)}
    listed["tool_choices"] = sorted(choices.words | set(sdk.types(choices)))
    return {
        "operations": sdk.operations("responses/responses", "responses/input_items", "responses/input_tokens"),
        "create": sdk.section(create, SECTIONED),
        **listed,
        "input_types": sorted(types.difference(*listed.values())),
        "input_names": sorted(names),
        "image_tool": sdk.section(sdk.class_of_type(tools, "image_generation")),
        "answer": sdk.section(find("Response", "response"), SECTIONED | {"error"}),
        "output_items": sdk.types(output),
        "image_call": sdk.section(sdk.class_of_type(output, "image_generation_call")),
        "events": events,
        "socket_client_events": sdk.types(find("ResponsesClientEvent", "responses_client_event")),
        "socket_events": sorted(set(socket).difference(events)),
        "error": sdk.section(error, {"code"}),
        "error_codes": sorted(sdk.member(error, "code").words),
        "steer_error_codes": sorted(find("ResponseSteerErrorCode", "response_steer_error_code").words),
    }


def contract(sdk):
    return {
        "package": f"openai {sdk.version} (Python)",
        "images": images(sdk),
        "responses": responses(sdk),
        "models": {"operations": sdk.operations("models"), "model": sdk.section(sdk.find("model", "Model"))},
        "errors": {"object": sdk.section(sdk.find("shared/error_object", "ErrorObject"))},
    }


def write(value, indent=0):
    """JSON with one line for each entry, so that a difference shows what has changed."""
    inner = " " * (indent + 2)
    if isinstance(value, dict) and indent < 6:
        lines = [f"{inner}{json.dumps(name)}: {write(member, indent + 2)}" for name, member in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}" if lines else "{}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + json.dumps(word) for word in value) + "\n" + " " * indent + "]"
    return json.dumps(value)


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheel = sys.argv[1] if len(sys.argv) > 1 else None
        if not wheel:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            subprocess.run([*pip, "--dest", folder, "openai"], check=True)
            wheel = next(pathlib.Path(folder).glob("openai-*.whl"))
        SNAPSHOT.write_text(write(contract(Sdk(wheel))) + "\n")
    print(json.loads(SNAPSHOT.read_text())["package"])


if __name__ == "__main__":
    main()
