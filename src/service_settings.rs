//! Usual mistakes in the settings of a service: a key that is not the key alone, and a base URL that goes too far. Pure.

/// The characters in which people put keys by mistake, also as word processors and chat programs write them.
const QUOTES: [char; 8] = ['"', '\'', '`', '\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}'];

/// The ends of paths that are operations of the API, or others of the same services, so that no base URL has them.
const OPERATIONS: [&str; 14] = [
    "/images/generations",
    "/images/edits",
    "/images/variations",
    "/images/estimate",
    "/images/models",
    "/responses/compact",
    "/responses/input_tokens",
    "/responses",
    "/chat/completions",
    "/completions",
    "/messages",
    "/models",
    "/moderations",
    "/embeddings",
];

/// Returns a key without white space and byte order marks around it, which editors and `echo` add to files.
pub(crate) fn trim_key(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || character == '\u{feff}')
}

/// Returns true if the text stands in quotes.
#[cfg(feature = "gateway")]
pub(crate) fn is_quoted(text: &str) -> bool {
    text.chars().count() > 1 && text.starts_with(QUOTES) && text.ends_with(QUOTES)
}

/// Returns the fault of a key that is sent as a bearer token. It is a clause whose subject is the key, and it does not
/// contain any part of the key.
pub(crate) fn key_fault(key: &str) -> Option<&'static str> {
    let scheme = key.trim_start_matches(QUOTES).get(..6);
    let is_header = key.to_ascii_lowercase().trim_start_matches(QUOTES).starts_with("authorization:");
    if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) && key.contains(char::is_whitespace) {
        Some("begins with `Bearer`, which is added when it is sent: write the key alone")
    } else if is_header {
        Some("is a whole header: write the key alone, without `Authorization: Bearer`")
    } else if key.starts_with(QUOTES) || key.ends_with(QUOTES) {
        Some("stands in quotes: write it without them")
    } else {
        None
    }
}

/// Splits the path of a base URL that ends with an operation into the path that was meant and the operation.
pub(crate) fn split_operation(path: &str) -> Option<(&str, &str)> {
    let mut rest = path.trim_end_matches('/');
    let operation_start = |path: &str| {
        let ends = |operation: &&'static str| {
            let start = path.len().checked_sub(operation.len())?;
            path.get(start..).filter(|end| end.eq_ignore_ascii_case(operation)).map(|_| start)
        };
        OPERATIONS.iter().find_map(ends)
    };
    let start = operation_start(rest)?;
    let operation = &rest[start..];
    rest = &rest[..start];
    // The address may already be the one that a client has made of a wrong setting.
    while let Some(start) = operation_start(rest) {
        rest = &rest[..start];
    }
    Some((rest, operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_key_alone() {
        for key in ["sk-proj-Aa0_9.~+/=", "bearer-of-news", "Bearer", "sk'k", "no token", ""] {
            assert_eq!(key_fault(key), None, "{key}");
        }
        for (key, expected) in [
            ("Bearer sk-k", "begins with `Bearer`"),
            ("bearer\tsk-k", "begins with `Bearer`"),
            ("\"Bearer sk-k\"", "begins with `Bearer`"),
            ("Authorization: Bearer sk-k", "is a whole header"),
            ("\"sk-k\"", "stands in quotes"),
            ("'sk-k'", "stands in quotes"),
            ("`sk-k`", "stands in quotes"),
            ("\u{201c}sk-k\u{201d}", "stands in quotes"),
            ("\"sk-k", "stands in quotes"),
            ("sk-k'", "stands in quotes"),
        ] {
            assert!(key_fault(key).is_some_and(|fault| fault.starts_with(expected)), "{key}: {:?}", key_fault(key));
        }
        assert_eq!(trim_key("\u{feff} sk-k\r\n"), "sk-k");
        assert_eq!(trim_key("\n\u{feff}sk-k\u{a0}"), "sk-k");
    }

    #[test]
    fn a_base_url_ends_before_the_operation() {
        for path in
            ["", "/", "/v1", "/v1/", "/openai/deployments/images", "/my-responses", "/v1/responsesx", "/models2"]
        {
            assert_eq!(split_operation(path), None, "{path}");
        }
        for (path, expected) in [
            ("/v1/images/generations", ("/v1", "/images/generations")),
            ("/v1/Images/Edits/", ("/v1", "/Images/Edits")),
            ("/responses", ("", "/responses")),
            ("/openai/v1/responses/compact", ("/openai/v1", "/responses/compact")),
            ("/v1/chat/completions", ("/v1", "/chat/completions")),
            ("/v1/images/generations/images/generations", ("/v1", "/images/generations")),
        ] {
            assert_eq!(split_operation(path), Some(expected), "{path}");
        }
    }
}
