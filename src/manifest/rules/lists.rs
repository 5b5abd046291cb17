//! Rules about tags, agents and API references.

use super::rules;

rules! {
    M060 "tags" Static Warning
    "Tags are in small letters, trimmed, not empty, and stand once."
    "Search compares tags as they are: `Images`, `images ` and `images` are three tags for a program and one for a \
     person."

    M061 "agents" Static Warning
    "Agents are in small letters, trimmed, not empty, and stand once."
    "Installers look for their own id in this list, letter by letter, such as `codex` or `claude-code`."

    M062 "agent-slip" Static Warning
    "Agents are not misspelled."
    "An id that is nearly one of a known agent is most often a slip: `claudecode` for `claude-code`. A skill with it \
     is not offered to the agent it is made for. Agents that are like no known one are not reported: new ones come \
     every week."

    M063 "api-twice" Static Warning
    "Every API reference has an id of its own."
    "Skills refer to API references by `id`. Of two with the same, nobody knows which is meant."

    M064 "api-id" Static Warning
    "Ids of API references hold small letters, digits and `-`, `_`, `.`, `/`."
    "An id stands in links, file names and other manifests. Blanks and capital letters get lost there. \
     `Images (Python)` becomes `images-python`."

    M065 "language" Static Warning
    "`language` is a programming language or a language tag."
    "Readers choose a document by it. The specification does not say which kind of language it means, so the names of \
     programming languages (`python`) and the tags of BCP 47 (`en`, `zh-Hans`) are both known; others are likely \
     slips, such as `pyhton`."

    M066 "api-docs-reference" Static Warning
    "What `api_docs` refers to is there."
    "A text in `api_docs`, or the `id` of an object in it, names an API reference of this manifest, a path in the \
     repository, or an address. One that is neither leads nowhere. Paths are looked up where the checkout is given. \
     Any other JSON is kept and not looked at."
}
