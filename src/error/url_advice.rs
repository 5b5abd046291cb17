//! Advice about an address that does not exist: most such addresses come from a base URL with a part too much or too
//! little, or belong to an operation that other services have.

use crate::tables::{ADMIN_OPERATIONS, OPERATIONS};

/// The segment with the version, in which addresses differ most often.
const VERSION: &str = "v1";
/// The longest path that is compared with others, in bytes (our choice).
const PATH_MAX: usize = 200;
/// The greatest number of changed, missing or added characters in a misspelled path (our choice).
const MISSPELLED_MAX: usize = 2;

/// Addresses that no API document has.
const OTHER_ADDRESSES: [(&str, &str); 2] = [("POST", "/mcp"), ("GET", "/healthz")];

/// Words that callers use for operations with another name: a path without its version, and the path of the operation.
const OTHER_WORDS: [(&str, &str); 6] = [
    ("images/generate", "/v1/images/generations"),
    ("images/create", "/v1/images/generations"),
    ("generate", "/v1/images/generations"),
    ("generations", "/v1/images/generations"),
    ("edits", "/v1/images/edits"),
    ("engines", "/v1/models"),
];

/// Operations of other services that this one does not have: a part of a path, and what to do instead.
const UNSERVED: [(&str, &str); 22] = [
    ("images/variations", "This gateway makes no variations: edit an image with POST /v1/images/edits."),
    (
        "chat/completions",
        "This gateway serves no chat: make images with POST /v1/images/generations, or with POST /v1/responses and the tool 'image_generation'.",
    ),
    ("completions", "This gateway completes no texts: make images with POST /v1/images/generations."),
    ("messages", "This gateway serves no chat: make images with POST /v1/images/generations."),
    ("responses/compact", "This gateway does not compact conversations: let the client do it."),
    ("responses/input_tokens", "This gateway does not count tokens."),
    (
        "responses",
        "A stored response cannot be fetched or changed: send the request again with the same 'Idempotency-Key' to get the same answer.",
    ),
    ("conversations", "This gateway does not manage conversations."),
    ("embeddings", "This gateway makes no embeddings."),
    ("moderations", "This gateway has no endpoint for moderation."),
    ("audio", "This gateway serves no audio."),
    ("videos", "This gateway makes no videos."),
    ("realtime", "This gateway has no realtime sessions."),
    ("files", "This gateway does not store files: send images with the request."),
    ("uploads", "This gateway does not store files: send images with the request."),
    ("batches", "This gateway has no batches: send each request by itself, or use the command 'imagate batch'."),
    ("fine_tuning", "This gateway does not train models."),
    ("assistants", "This gateway has no assistants."),
    ("threads", "This gateway has no assistants."),
    ("vector_stores", "This gateway does not store files."),
    ("containers", "This gateway has no containers."),
    ("evals", "This gateway has no evaluations."),
];

/// Returns sentences about the address that was probably meant, with a space before them; empty if none is similar.
pub(super) fn url_advice(path: &str) -> String {
    if path.len() > PATH_MAX {
        return String::new();
    }
    let path = path.to_ascii_lowercase();
    let segments: Vec<&str> = path.split('/').filter(|segment| !matches!(*segment, "" | "." | "..")).collect();
    let versions = segments.iter().filter(|segment| **segment == VERSION).count();
    let words: Vec<&str> = segments.into_iter().filter(|segment| *segment != VERSION).collect();
    if words.is_empty() {
        return " The base URL of the API ends in '/v1'; POST /v1/images/generations makes an image.".to_owned();
    }
    let question = find_address(|address| ends_with(&words, &without_version(address)))
        .or_else(|| named_otherwise(&words))
        .map(|(method, address)| {
            let is_api = address.starts_with("/v1/");
            let cause = match versions {
                0 if is_api => " The base URL of the API ends in '/v1'.",
                2.. if is_api => " The base URL has '/v1' more than once.",
                _ => "",
            };
            format!(" Did you mean {method} {address}?{cause}")
        });
    question
        .or_else(|| unserved(&words).map(|sentence| format!(" {sentence}")))
        .or_else(|| misspelled(&words).map(|(method, address)| format!(" Did you mean {method} {address}?")))
        .unwrap_or_default()
}

/// The addresses of the documents, and the others, as method and path.
fn addresses() -> impl Iterator<Item = (&'static str, &'static str)> {
    let documented = OPERATIONS.iter().chain(ADMIN_OPERATIONS).map(|operation| (operation.method, operation.path));
    documented.chain(OTHER_ADDRESSES)
}

fn find_address(is_meant: impl Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
    addresses().find(|(_, address)| is_meant(address))
}

fn without_version(address: &str) -> Vec<&str> {
    address.split('/').filter(|segment| !matches!(*segment, "" | VERSION)).collect()
}

/// True if the words end with these segments, of which one in braces stands for any word.
fn ends_with(words: &[&str], segments: &[&str]) -> bool {
    let Some(start) = words.len().checked_sub(segments.len()) else { return false };
    let is_same = |(word, segment): (&&str, &&str)| segment.starts_with('{') || word == segment;
    words[start..].iter().zip(segments).all(is_same)
}

/// True if these segments begin somewhere in the words.
fn contains(words: &[&str], segments: &str) -> bool {
    let segments: Vec<&str> = segments.split('/').collect();
    words.windows(segments.len()).any(|part| part == segments)
}

fn named_otherwise(words: &[&str]) -> Option<(&'static str, &'static str)> {
    let joined = words.join("/");
    let (_, meant) = OTHER_WORDS.iter().find(|(word, _)| *word == joined)?;
    find_address(|address| address == *meant)
}

fn unserved(words: &[&str]) -> Option<&'static str> {
    UNSERVED.iter().find(|(part, _)| contains(words, part)).map(|(_, sentence)| *sentence)
}

/// The address from which the words differ in the fewest characters.
fn misspelled(words: &[&str]) -> Option<(&'static str, &'static str)> {
    let joined = words.join("/");
    let distances = addresses().filter_map(|(method, address)| {
        let meant = without_version(address).join("/");
        // Most addresses are compared by their lengths only, which costs little for any path.
        let is_near = meant.len().abs_diff(joined.len()) <= MISSPELLED_MAX;
        is_near.then(|| (edit_distance(&joined, &meant), method, address))
    });
    let nearest = distances.min_by_key(|(distance, ..)| *distance).filter(|(distance, ..)| *distance <= MISSPELLED_MAX);
    nearest.map(|(_, method, address)| (method, address))
}

/// The number of bytes to change, add or remove to make one text of the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, left) in left.bytes().enumerate() {
        let mut current = vec![row + 1];
        for (column, right) in right.bytes().enumerate() {
            let changed = previous[column] + usize::from(left != right);
            current.push(changed.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_probably_meant_is_named() {
        for (path, meant) in [
            ("/v1/v1/images/generations", "POST /v1/images/generations? The base URL has '/v1' more than once."),
            ("/v1/v1/v1/models", "GET /v1/models? The base URL has '/v1' more than once."),
            ("/images/generations", "POST /v1/images/generations? The base URL of the API ends in '/v1'."),
            ("/images/edits/", "POST /v1/images/edits? The base URL of the API ends in '/v1'."),
            ("/models/gpt-image-2", "GET /v1/models/{model}? The base URL of the API ends in '/v1'."),
            ("/v1//images/edits", "POST /v1/images/edits?"),
            ("/v1/models/", "GET /v1/models?"),
            ("/V1/Images/Generations", "POST /v1/images/generations?"),
            ("/api/v1/images/generations", "POST /v1/images/generations?"),
            ("/v1/images/generations/images/generations", "POST /v1/images/generations?"),
            ("/v1/images/generation", "POST /v1/images/generations?"),
            ("/v1/image/generation", "POST /v1/images/generations?"),
            ("/v1/images/generate", "POST /v1/images/generations?"),
            ("/v1/image/edits", "POST /v1/images/edits?"),
            ("/v1/response", "POST /v1/responses?"),
            ("/v1/admin/keys", "GET /admin/v1/keys?"),
            ("/v1/mcp", "POST /mcp?"),
        ] {
            assert_eq!(url_advice(path), format!(" Did you mean {meant}"), "{path}");
        }
    }

    #[test]
    fn an_operation_of_other_services_has_a_sentence() {
        for path in [
            "/v1/images/variations",
            "/images/variations",
            "/v1/v1/chat/completions",
            "/chat/completions",
            "/v1/responses/compact",
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
            "/v1/embeddings",
            "/openai/deployments/x/chat/completions",
        ] {
            let advice = url_advice(path);
            assert!(advice.starts_with(" ") && advice.ends_with('.') && !advice.contains('?'), "{path}: {advice}");
        }
        assert!(url_advice("/v1/images/variations").contains("variations"));
        assert!(url_advice("/v1/responses/compact").contains("compact"));
    }

    #[test]
    fn another_address_has_no_advice() {
        for path in ["/nowhere", "/wp-login.php", "/.env", "/v1/x", "/favicon.ico", &format!("/{}", "a".repeat(500))] {
            assert_eq!(url_advice(path), "", "{path}");
        }
        for path in ["/", "/v1", "/v1/", "//"] {
            assert!(url_advice(path).contains("ends in '/v1'"), "{path}");
        }
    }
}
