//! Rules about the shape of a manifest, which all other rules need.

use super::rules;

rules! {
    M001 "encoding" Shape Error
    "The file is UTF-8 without a byte order mark."
    "JSON is exchanged as UTF-8, and a byte order mark in front of it makes many parsers fail on the first \
     character. It is an error because JSON is not defined in another encoding (RFC 8259, section 8.1). Save the file as \
     UTF-8 without BOM; on Windows, `Out-File -Encoding utf8NoBOM` does so."

    M002 "syntax" Shape Error
    "The file is one JSON value."
    "It is an error because nothing can be read from a file that is not JSON (RFC 8259). JSON knows no comments, no comma after the last \
     element, no single quotes, no `NaN`, and no half of a character such as `\\ud800`. The message says what stands \
     where something else was expected, and the second place shown is where the list or object began."

    M003 "repeated-key" Static Error
    "No object holds a key twice."
    "Of two members with one key some readers take the first, most the last, and some refuse the file. It is an error \
     because it makes every install ambiguous: whoever reads the manifest sees another one than whoever checked it, so a \
     repeated `sha256` can hide a changed package. Keep one of them."

    M004 "schema" Shape Error
    "Required fields are there, and every known field has its JSON type."
    "The shape is what `schemas/skills-registry.schema.json` says, and nothing more: which fields must be there, and \
     the JSON type of those that are known. An optional field that says nothing is left out; `null` is no value. \
     Unknown fields are allowed at every level, and an element of `api_docs` may be any JSON. It is an error because \
     this much is what the specification requires."

    M005 "unknown-field" Static Warning
    "Fields are ones that the manifest format knows."
    "Unknown fields are allowed and kept, but most of them are a slip of the pen: `sha_256` instead of `sha256` is a \
     package without a checksum. Fields of your own are best told by a name that begins with `x-` or `x_`; those and \
     `$schema` are never reported."

    M006 "schema-version" Static Warning
    "`schema_version` is a version that this program knows."
    "The specification leaves the values of `schema_version` open; manifests in use say `1` or `1.0`. A newer major \
     version may give the same fields another meaning, so what is checked here may not be what that version asks \
     for. Write `1.0`, or use a newer imagate."

    M007 "limits" Shape Error
    "The file is not larger, and not nested deeper, than is read."
    "What is read is bounded, so that nobody can exhaust a server or a browser with a manifest: 64 MiB and 128 levels \
     of arrays and objects. It is an error because nothing of such a file is looked at: as a warning, it would pass \
     unchecked. Real manifests need neither; a registry that outgrows this is better split."
}
