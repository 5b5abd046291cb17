//! Rules about the layout of the manifest file.

use super::rules;

rules! {
    M120 "canonical" Static Note
    "The file is laid out as `imagate skills fmt` does."
    "Fields in the order of the specification, two spaces for each level, one newline at the end: then the difference \
     between two manifests is what changed, and nothing else. `imagate skills fmt FILE` rewrites it."

    M121 "sorted" Static Off
    "Skills are sorted by name and version, API references by id."
    "A sorted manifest has one order that every tool agrees on, so that additions do not conflict. It is off because \
     an order of your own may mean something; switch it on with `--warn M121`, and sort with \
     `imagate skills fmt --sort`."

    M122 "generator" Static Off
    "The manifest says in `x-generator` what made it."
    "When a manifest turns out to be wrong, it helps to know which program wrote it, and in which version. It is off \
     because nothing needs it; switch it on with `--warn M122`."
}
