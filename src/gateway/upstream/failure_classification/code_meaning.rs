//! The meaning of the codes of errors: first those of the contract, then those of other upstreams, then rules for the
//! codes that nobody has listed.

use CodeMeaning::{
    Ciphertext, Credentials, Exhausted, Failure, Forbidden, InvalidRequest, Overloaded, PictureFault, RateLimit,
    Refusal, StoredContext, UnknownModel, Unpaid,
};

use crate::words::lines_of;

/// The meaning of a code, and with it the class and the cause of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeMeaning {
    /// The content was refused: `ContentRefused`.
    Refusal,
    /// A picture of the caller cannot be used: `InvalidRequest` with the parameter of the pictures.
    PictureFault,
    /// The usage window is used up: `Exhausted`.
    Exhausted,
    /// There were too many requests: `Throttled`.
    RateLimit,
    /// The upstream had no capacity to begin: `Throttled`.
    Overloaded,
    /// The account is not paid for or may not make this call, so that waiting does not help: `AccountUnpaid`.
    Unpaid,
    /// The account may not be used in this way: `ForbiddenToAccount`.
    Forbidden,
    /// The model is unknown, or not offered to this account: `NotOffered` or `UnknownModel`.
    UnknownModel,
    /// The account cannot read encrypted content: `BoundElsewhere`.
    Ciphertext,
    /// The account does not have stored context: `BoundElsewhere`.
    StoredContext,
    /// The credentials were refused: `CredentialsRefused`.
    Credentials,
    /// The request is invalid: `InvalidRequest`, unless it is the account's fault.
    InvalidRequest,
    /// The upstream failed: `Failed`, unless it was paid.
    Failure,
}

/// The codes of a failed response in the contract, which `openapi/contract/snapshot.json` lists.
const CONTRACT_CODES: &[(&str, CodeMeaning)] = &[
    ("server_error", Failure),
    ("rate_limit_exceeded", RateLimit),
    ("invalid_prompt", Refusal),
    ("data_residency_mismatch", Forbidden),
    ("bio_policy", Refusal),
    ("misalignment_policy_violation", Refusal),
    ("vector_store_timeout", Failure),
    ("invalid_image", PictureFault),
    ("invalid_image_format", PictureFault),
    ("invalid_base64_image", PictureFault),
    ("invalid_image_url", PictureFault),
    ("image_too_large", PictureFault),
    ("image_too_small", PictureFault),
    ("image_parse_error", PictureFault),
    ("image_content_policy_violation", Refusal),
    ("invalid_image_mode", PictureFault),
    ("image_file_too_large", PictureFault),
    ("unsupported_image_media_type", PictureFault),
    ("empty_image_file", PictureFault),
    ("failed_to_download_image", PictureFault),
    ("image_file_not_found", PictureFault),
];

/// Codes that other endpoints and other upstreams were seen to send, in lower case and without separators.
const OTHER_CODES: &[(CodeMeaning, &[&str])] = &[
    (Refusal, lines_of!("phrases/refusal_codes.txt")),
    (Exhausted, &["usagelimitreached", "usagelimitexceeded"]),
    (RateLimit, &["ratelimiterror", "ratelimitreached", "toomanyrequests", "resourceexhausted"]),
    (Overloaded, &["nocapacity", "serverbusy", "slowdown"]),
    (Unpaid, lines_of!("phrases/unpaid_codes.txt")),
    (UnknownModel, &["deploymentnotfound"]),
    (Ciphertext, &["invalidencryptedcontent"]),
    (StoredContext, &["previousresponsenotfound"]),
    (Credentials, &["invalidapikey", "invalidauthentication", "authenticationerror", "incorrectapikey"]),
    (InvalidRequest, lines_of!("phrases/invalid_request_codes.txt")),
];

/// Parts of codes of refusals.
const REFUSAL_PARTS: &[&str] = &[
    "contentpolicy",
    "contentfilter",
    "responsibleai",
    "safetyviolation",
    "sensitivecontent",
    "sensitiveword",
    "unsafegeneration",
];
/// Ends of codes of refusals.
const POLICY_ENDS: [&str; 2] = ["policy", "policyviolation"];
/// Parts of codes about a lack of capacity, such as `server_is_overloaded` and `no_available_channel`.
const OVERLOAD_PARTS: [&str; 2] = ["overloaded", "noavailable"];
/// Parts of codes that, together with `image`, are about a picture that cannot be used.
const PICTURE_FAULTS: [&str; 7] = ["invalid", "too", "parse", "empty", "unsupported", "failedtodownload", "notfound"];
/// Parts of codes that are not about a picture, even together with `image`.
const NO_PICTURE: [&str; 3] = ["generation", "model", "tool"];

/// Returns the meaning of a code in lower case and without separators.
pub(super) fn meaning_of(code: &str) -> Option<CodeMeaning> {
    listed_meaning(code).or_else(|| {
        let has_any = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
        if has_any(REFUSAL_PARTS) || POLICY_ENDS.iter().any(|end| code.ends_with(end)) {
            Some(Refusal)
        } else if has_any(&OVERLOAD_PARTS) {
            Some(Overloaded)
        } else if code.ends_with("modelnotfound") {
            Some(UnknownModel)
        } else if is_picture_fault(code) {
            Some(PictureFault)
        } else {
            None
        }
    })
}

/// True if a code is about a picture and not about the model or the tool.
fn is_picture_fault(code: &str) -> bool {
    // Without separators, "too large" has the word "tool".
    let code = code.replace("toolarge", "too");
    let has_any = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
    code.contains("image") && has_any(&PICTURE_FAULTS) && !has_any(&NO_PICTURE)
}

fn listed_meaning(code: &str) -> Option<CodeMeaning> {
    let in_contract =
        CONTRACT_CODES.iter().find(|(listed, _)| listed.chars().filter(|letter| *letter != '_').eq(code.chars()));
    let other = || OTHER_CODES.iter().find(|(_, codes)| codes.contains(&code)).map(|(meaning, _)| *meaning);
    in_contract.map(|(_, meaning)| *meaning).or_else(other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn each_code_of_the_contract_has_a_row() {
        let snapshot = include_str!("../../../../openapi/contract/snapshot.json");
        let snapshot: Value = serde_json::from_str(snapshot).expect("the snapshot is JSON");
        let list = snapshot["responses"]["error_codes"].as_array().expect("the snapshot lists the codes");
        let codes: BTreeSet<&str> = list.iter().filter_map(Value::as_str).collect();
        let rows: BTreeSet<&str> = CONTRACT_CODES.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, rows, "the snapshot of the contract and the table differ");
    }

    #[test]
    fn a_rule_agrees_with_the_rows_of_the_contract() {
        for (code, meaning) in CONTRACT_CODES.iter().filter(|(_, meaning)| *meaning == PictureFault) {
            let unlisted = format!("other{}", code.replace('_', ""));
            assert_eq!(meaning_of(&unlisted), Some(*meaning), "{code}");
        }
        assert_eq!(meaning_of("otherpolicyviolation"), Some(Refusal));
    }
}
