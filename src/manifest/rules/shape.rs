//! Rules about the shape of a manifest, which all other rules need, and about its keys and its version.

use super::rules;

rules! {
    M001 "encoding" Shape Error
    "The file is UTF-8 without a byte order mark."
    "JSON is exchanged as UTF-8, and a byte order mark in front of it makes many parsers fail on the first character. \
     It is an error because JSON is not defined in another encoding (RFC 8259, section 8.1). Save the file as UTF-8 \
     without BOM; on Windows, `Out-File -Encoding utf8NoBOM` does so."

    M002 "syntax" Shape Error
    "The file is one JSON value."
    "It is an error because nothing can be read from a file that is not JSON (RFC 8259). JSON has no comments, no \
     comma after the last element, no single quotes, no `NaN`, and no unpaired surrogate such as `\\ud800`. The \
     message states what was found and what was expected; the second location is the start of the array, object or \
     string."

    M003 "repeated-key" Static Error
    "No object contains a key twice."
    "Of two members with the same key, some readers use the first, most use the last, and some refuse the file. It is \
     an error because it makes every installation ambiguous: a reader of the manifest may see another value than its \
     reviewer, so a repeated `sha256` can hide a changed package. Keep one of them."

    M004 "schema" Shape Error
    "All required fields are present, and every known field has its JSON type."
    "`schemas/skills-registry.schema.json` alone defines the shape: which fields must be present, and the JSON types \
     of the known fields. Leave out an optional field that has no value; `null` is not a value. Unknown fields are \
     allowed at every level, and an element of `api_docs` may be any JSON. It is an error because the specification \
     requires this shape."

    M005 "unknown-field" Static Warning
    "Every field is one that the manifest format defines."
    "Unknown fields are allowed and kept, but most of them are typing errors: `sha_256` instead of `sha256` is a \
     package without a checksum. Begin the names of your own fields with `x-` or `x_`; those and `$schema` are never \
     reported."

    M006 "schema-version" Static Warning
    "`schema_version` is a version that this program knows."
    "The specification leaves the values of `schema_version` open; existing manifests state `1` or `1.0`. A newer \
     major version may give the same fields another meaning, so this check may not match its requirements. Write \
     `1.0`, or use a newer imagate."

    M007 "limits" Shape Error
    "The file is within the limits of size and nesting."
    "The limits are 64 MiB and 128 levels of arrays and objects, so that a manifest cannot exhaust a server or a \
     browser. It is an error because a file beyond them is not checked at all: as a warning, it would pass unchecked. \
     Real manifests stay far below; split a registry that outgrows the limits."
}
