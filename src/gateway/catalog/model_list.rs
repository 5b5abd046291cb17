//! Selects the entries of an upstream's list of models that are passed on. No I/O.
//!
//! An upstream may list everything it has, with an owner for each. Callers get the names of text models, and nothing
//! that identifies the account.

use serde::Deserialize;
use serde_json::Value;

use super::TextModel;

/// The most models of one account (our choice). The largest known list has a tenth of that number.
const MAX_MODELS: usize = 5_000;
/// The longest name of a model and of an owner, in bytes (our choice).
const MAX_ID_LENGTH: usize = 128;
const MAX_OWNER_LENGTH: usize = 64;

/// The prefixes of the names of models that hold no conversation: models for images, video, audio, moderation,
/// embeddings and plain completion.
const NON_TEXT_PREFIXES: [&str; 13] = [
    "babbage-",
    "chatgpt-image",
    "dall-e-",
    "davinci-",
    "gpt-audio",
    "gpt-image-",
    "gpt-realtime",
    "omni-moderation",
    "sora-",
    "text-embedding-",
    "text-moderation",
    "tts-",
    "whisper-",
];
/// Parts of the names of further models that hold no conversation.
const NON_TEXT_PARTS: [&str; 5] = ["-audio", "-embedding", "-realtime", "-transcribe", "-tts"];
/// The prefixes of owner names that identify an organisation or a person.
const PERSONAL_OWNER_PREFIXES: [&str; 2] = ["org-", "user-"];

#[derive(Deserialize)]
struct UpstreamModelList {
    data: Vec<Value>,
}

/// Returns the text models of an answer; `None` if it is no list.
pub(super) fn parse_models(answer: &[u8]) -> Option<Vec<TextModel>> {
    let list: UpstreamModelList = serde_json::from_slice(answer).ok()?;
    Some(list.data.iter().filter_map(parse_model).take(MAX_MODELS).collect())
}

/// Returns the model of an entry; `None` if the entry has no usable name or is no text model.
fn parse_model(entry: &Value) -> Option<TextModel> {
    let id = entry["id"].as_str().filter(|id| is_text_model(id))?;
    let owner = entry["owned_by"].as_str().filter(|owner| is_plain_owner(owner));
    let created = entry["created"].as_i64().filter(|created| *created >= 0);
    Some(TextModel { id: id.to_owned(), created, owned_by: owner.map(str::to_owned) })
}

fn is_text_model(id: &str) -> bool {
    let is_id = !id.is_empty() && id.len() <= MAX_ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_graphic());
    let is_non_text = NON_TEXT_PREFIXES.iter().any(|start| id.starts_with(start))
        || NON_TEXT_PARTS.iter().any(|part| id.contains(part));
    // A name that contains `://` is an address, which may identify the account.
    is_id && !is_non_text && !id.contains("://")
}

/// True if the owner is a plain word that does not identify the account.
fn is_plain_owner(owner: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_word = !owner.is_empty() && owner.len() <= MAX_OWNER_LENGTH && owner.bytes().all(fits);
    is_word && !PERSONAL_OWNER_PREFIXES.iter().any(|start| owner.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(data: &Value) -> Vec<String> {
        let answer = json!({ "object": "list", "data": data }).to_string();
        parse_models(answer.as_bytes()).unwrap().into_iter().map(|model| model.id).collect()
    }

    #[test]
    fn only_text_models_are_listed() {
        let data =
            ["gpt-5.5", "gpt-image-2", "text-embedding-3-large", "whisper-1", "gpt-4o-mini-tts", "o3", "dall-e-3"]
                .map(|id| json!({"id": id, "object": "model"}));
        assert_eq!(ids(&json!(data)), ["gpt-5.5", "o3"]);
        assert_eq!(ids(&json!([{"id": "meta-llama/Llama-3.3-70B:free"}])), ["meta-llama/Llama-3.3-70B:free"]);
    }

    #[test]
    fn an_invalid_entry_does_not_affect_the_others() {
        let long = "x".repeat(200);
        let data = json!([null, 1, {"id": 7}, {"id": ""}, {"id": "a b"}, {"id": long}, {"id": "http://10.0.0.1/x"},
            {"name": "x"}, {"id": "gpt-5.5", "created": "soon", "owned_by": 3}]);
        assert_eq!(ids(&data), ["gpt-5.5"]);
    }

    #[test]
    fn an_owner_that_identifies_the_account_is_left_out() {
        let parse_owned_by = |owner: &str| {
            let answer = json!({"data": [{"id": "m", "created": 7, "owned_by": owner, "base_url": "http://10.0.0.1"}]});
            parse_models(answer.to_string().as_bytes()).unwrap().remove(0)
        };
        let known = parse_owned_by("openai");
        assert_eq!((known.created, known.owned_by.as_deref()), (Some(7), Some("openai")));
        for owner in ["org-a1b2", "user-a1b2", "https://10.0.0.1", "10.0.0.1", "gateway.example", "", "a b"] {
            assert_eq!(parse_owned_by(owner).owned_by, None, "{owner}");
        }
    }

    #[test]
    fn an_answer_that_is_no_list_is_refused() {
        for answer in ["", "[]", "{}", "null", "{\"data\": {}}", "{\"data\": [", "<html>"] {
            assert!(parse_models(answer.as_bytes()).is_none(), "{answer}");
        }
        assert_eq!(parse_models(b"{\"data\": []}"), Some(Vec::new()));
    }
}
