"""What jsonschema says of documents: one in base64 on each line of standard input, `1` or `0` on standard output.

The schema is the argument. JSON is read as RFC 8259 has it, so without NaN; half of a character is no text.
"""

import base64
import json
import sys

from jsonschema import Draft202012Validator


def refuse(name):
    raise ValueError(name)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for line in sys.stdin:
        try:
            value = json.loads(base64.b64decode(line).decode("utf-8"), parse_constant=refuse)
            json.dumps(value, ensure_ascii=False).encode("utf-8")
            verdict = validator.is_valid(value)
        except (ValueError, RecursionError):
            verdict = False
        print(int(verdict))


main()
