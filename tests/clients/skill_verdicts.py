"""Says of each SKILL.md whether the reference validator of Agent Skills accepts it.

One line of base64 in, one line `1`, or `0` and the reason, out. Each lies in a folder `demo`.
"""

import base64
import pathlib
import sys
import tempfile

from skills_ref.validator import validate

with tempfile.TemporaryDirectory() as root:
    folder = pathlib.Path(root, "demo")
    folder.mkdir()
    for line in sys.stdin:
        (folder / "SKILL.md").write_bytes(base64.b64decode(line))
        try:
            problems = validate(folder)
        except Exception as error:  # It raises for some files that it should refuse.
            problems = [repr(error)]
        print("0 " + " ".join(problems[0].split()) if problems else "1")
