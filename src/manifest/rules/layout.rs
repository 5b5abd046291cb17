//! Rules about the layout of the manifest file.

use super::rules;

rules! {
    M120 "canonical" Static Note
    "The file has the layout that `imagate skills fmt` writes."
    "Fields in the order of the specification, two spaces for each level and one newline at the end: with one layout, \
     the difference between two manifests shows only the changes of their content. `imagate skills fmt FILE` rewrites \
     the file."

    M121 "sorted" Static Off
    "Skills are sorted by name and version, API references by id."
    "Every tool can compute the order of a sorted manifest, so additions by several people rarely conflict. The rule \
     is off because an order of your own may have a meaning. Switch it on with `--warn M121`, and sort with `imagate \
     skills fmt --sort`."

    M122 "generator" Static Off
    "The manifest names the program that wrote it in `x-generator`."
    "If a manifest turns out to be wrong, it helps to know which program wrote it, and in which version. The rule is \
     off because no reader needs the field. Switch it on with `--warn M122`."
}
