//! Rules about tags, agents, API references, and what refers to them.

use super::rules;

rules! {
    M060 "tags" Static Warning
    "Tags are in lower case, trimmed, not empty, and not repeated."
    "Search compares tags as they are written: `Images`, `images ` and `images` are three tags for a program and one \
     for a person."

    M061 "agents" Static Warning
    "Agents are in lower case, trimmed, not empty, and not repeated."
    "Installers look for their own id in this list and compare it letter by letter, for example `codex` or \
     `claude-code`."

    M062 "agent-slip" Static Warning
    "Agents are not misspelled."
    "An id that is nearly that of a known agent is most likely a typing error: `claudecode` for `claude-code`. The \
     skill is then not offered to the agent for which it is made. Ids that resemble no known agent are not reported: \
     new agents appear every week."

    M063 "api-twice" Static Warning
    "Every API reference has its own id."
    "Skills refer to API references by `id`. If two have the same id, a reference to it is ambiguous."

    M064 "api-id" Static Warning
    "Ids of API references consist of lower-case letters, digits and `-`, `_`, `.`, `/`."
    "An id is used in links, file names and other manifests, where spaces and capital letters get lost. Write \
     `images-python` instead of `Images (Python)`."

    M065 "language" Static Warning
    "`language` is a programming language or a language tag."
    "Readers choose a document by its language. The specification does not say which kind of language it means, so \
     the names of programming languages (`python`) and the tags of BCP 47 (`en`, `zh-Hans`) are both accepted; other \
     values are likely typing errors, such as `pyhton`."

    M066 "api-docs-reference" Static Warning
    "Everything that `api_docs` refers to exists."
    "A text in `api_docs`, or the `id` of an object in it, names an API reference of this manifest, a path in the \
     repository, or an address. Any other text leads nowhere. Paths are checked only if the checkout is given. Other \
     JSON values are kept and not checked."
}
