//! For every component of the document, the schema and the type accept the same values.
//!
//! jsonschema checks a value against the schema, serde against the type. `values.json` contains the values: both accept
//! a `good` value and refuse a `bad` value; only the type refuses a `stricter` value and only the schema a `laxer`
//! value, which therefore have a reason (`why`). `{"$good": "Name"}` stands for the first good value of that component.

use imagate::{admin_types, generated_types as types};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::schema::validator;
use crate::{admin_document, assert_mentions, assert_no_difference, document};

/// Makes a function that returns, for the name of a component, a check whether its type accepts a JSON text.
macro_rules! components {
    ($function:ident of $module:ident: $($name:ident)*) => {
        fn $function(name: &str) -> Option<fn(&str) -> bool> {
            match name {
                $(stringify!($name) => Some(reads::<$module::$name>),)*
                _ => None,
            }
        }
    };
}

components! {
    admin_reader of admin_types:
    Account AccountActivity AccountAvailability AccountChange AccountConcurrency AccountExplanation
    AccountExplanationList AccountFailure AccountHeaders AccountImageUrls AccountKind AccountList AccountName
    AccountPriority AccountProtocol AccountSecretHeaders AccountSettings AccountSource AccountState AccountTest
    AccountTestResult AccountTier ActorKind Alert AlertData AlertDelivery AlertDeliveryState AlertList
    AlertMessage AlertTest AlertTestList AmountLimit AuditDetails AuditEntry AuditList AuditSeq BudgetMode
    BudgetPeriod CostBasis CostReason CreatedKey CreatedToken CreatedUser DeletedAccount DeletedGroup DeletedKey
    DeletedPrice DeletedToken DeliveryPolicy Dialect DisabledReason ErrorCode ErrorDetail ErrorReason
    ErrorResponse ErrorType FallbackPolicy FilterFilePolicy GraceSeconds Group GroupFilter GroupList
    GroupModeration GroupName GroupPolicy GroupSource GroupUpdate Key KeyList KeyLock KeyName KeyRotation
    KeySort KeyState KeyUpdate LimitSubject LimitUsage LimitUsageState LinkAddress LinkPurpose ListObject Me
    MinuteLimit ModelTokens ModerationErrorPolicy NewAccount NewGroup NewKey NewPrice NewSecret NewToken NewUser
    OauthClientAuth OauthGrant OneTimeLink PageLimit Price PriceFactors PriceList PriceOrigin QualityLimit
    Record RecordAttempt AttemptClass RecordImage RecordList RecordOutcome RecordReason RecordSort RecordState
    RecordTokens RecordUsage RequestLimits Role Secret SecretSource StoredContextPolicy SubjectLimits
    SubjectLimitsList Token TokenList ToolPrices Usage UsageCounts UsageDay UsageGroup UsageGrouping UsageKey
    UsageMeasure User UserList UserName UserSort UserUpdate
}

components! {
    reader of types:
    AgentModel Background CostEstimate ErrorCode ErrorDetail ErrorReason ErrorResponse ErrorType ImageAction ImageCount
    ImageGenerationRequest ImageInputTokensDetails ImageModel ImageModelCapabilities ImageModelDescription
    ImageModelList ImageModelParameter ImageModelPrice ImageModelSizeRules ImageOutputTokensDetails ImageSize
    ImageUsage ListObject Model ModelList ModelObject Moderation OpenOutputFormat
    OutputCompression OutputFormat PartialImages Prompt Quality ResolvedBackground ResolvedQuality
    ResponseFormat ResponseInputTokensDetails ResponseOutputTokensDetails ResponseRequest ResponseToolUsage ResponseUsage
}

/// The components without a type: events are written and read while they arrive, an edit part by part, and images and
/// responses pass in pieces.
const WITHOUT_TYPE: [&str; 44] = [
    "AgentResponse",
    "AnyOutputItem",
    "AnyTool",
    "Image",
    "ImageEditCompletedEvent",
    "ImageEditEvent",
    "ImageEditForm",
    "ImageEditPartialImageEvent",
    "ImageEditRequest",
    "ImageGenerationCall",
    "ImageGenerationCallStatus",
    "ImageGenerationCompletedEvent",
    "ImageGenerationEvent",
    "ImageGenerationPartialImageEvent",
    "ImageGenerationTool",
    "ImageReference",
    "ImageUrl",
    "ImagesResponse",
    "InputFidelity",
    "OpenQuality",
    "ResponseCompletedEvent",
    "ResponseContentPart",
    "ResponseContentPartAddedEvent",
    "ResponseContentPartDoneEvent",
    "ResponseCreatedEvent",
    "ResponseError",
    "ResponseEvent",
    "ResponseFailedEvent",
    "ResponseImageCallCompletedEvent",
    "ResponseImageCallGeneratingEvent",
    "ResponseImageCallInProgressEvent",
    "ResponseImageCallPartialImageEvent",
    "ResponseInProgressEvent",
    "ResponseIncompleteEvent",
    "ResponseInput",
    "ResponseInputItem",
    "ResponseObject",
    "ResponseOutputItem",
    "ResponseOutputItemAddedEvent",
    "ResponseOutputItemDoneEvent",
    "ResponseOutputTextDeltaEvent",
    "ResponseOutputTextDoneEvent",
    "ResponseTool",
    "StreamErrorEvent",
];

/// Finds the check of a type by its name.
type Readers = fn(&str) -> Option<fn(&str) -> bool>;

fn reads<T: DeserializeOwned>(json: &str) -> bool {
    serde_json::from_str::<T>(json).is_ok()
}

/// For each kind of value, whether the schema and whether the type must accept it.
const VERDICTS: [(&str, bool, bool); 4] =
    [("good", true, true), ("bad", false, false), ("stricter", true, false), ("laxer", false, true)];

pub(crate) fn values() -> Value {
    serde_json::from_str(include_str!("values.json")).expect("the values are JSON")
}

/// The values of the operators' document. A component of words has each word, and
/// bad values: other types, and texts that differ from a word only in case or by a space.
pub(crate) fn admin_values() -> Value {
    let mut values: Value = serde_json::from_str(include_str!("admin_values.json")).expect("the values are JSON");
    for (name, schema) in admin_document()["components"]["schemas"].as_object().expect("the components") {
        let Some(words) = schema["enum"].as_array().filter(|_| schema["type"] == "string") else { continue };
        let word = words[0].as_str().expect("a word");
        let other =
            [word.to_uppercase(), word.to_lowercase()].into_iter().filter(|other| !words.contains(&json!(other)));
        let mut bad =
            vec![json!("no_such_word"), json!(""), json!(format!("{word} ")), Value::Null, json!(1), json!([word])];
        bad.extend(other.map(Value::from));
        assert!(values.get(name).is_none(), "{name} has values that are not written by hand");
        values[name] = json!({ "good": words, "bad": bad });
    }
    values
}

/// Compares the schemas of the public document with its types.
fn check(document: &Value, values: &Value) -> Vec<String> {
    check_with(reader, document, values)
}

/// Compares the schemas of the operators' document with its types.
pub(crate) fn check_admin(document: &Value, values: &Value) -> Vec<String> {
    check_with(admin_reader, document, values)
}

fn check_with(readers: Readers, document: &Value, values: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let components = document["components"]["schemas"].as_object().expect("an object of components");
    for name in values.as_object().into_iter().flat_map(Map::keys).filter(|name| !components.contains_key(*name)) {
        lines.push(format!("{name}: has values but is not a component"));
    }
    for name in components.keys() {
        lines.extend(check_component(readers(name), document, values, name));
    }
    lines
}

fn check_component(reader: Option<fn(&str) -> bool>, document: &Value, values: &Value, name: &str) -> Vec<String> {
    if reader.is_none() && !WITHOUT_TYPE.contains(&name) {
        return vec![format!("{name}: this component is not in the list of types")];
    }
    let validator = validator(document, name);
    let mut lines = Vec::new();
    for (group, by_schema, by_type) in VERDICTS {
        let group_values: Vec<Value> = values[name][group].as_array().cloned().unwrap_or_default();
        if group_values.is_empty() && by_schema == by_type {
            lines.push(format!("{name}: no {group} value"));
        }
        for entry in group_values {
            let value = expand(values, if by_schema == by_type { &entry } else { &entry["value"] });
            let is_read = reader.map_or(by_type, |accepts| accepts(&value.to_string()));
            let found = (validator.is_valid(&value), is_read);
            if found != (by_schema, by_type) {
                let text: String = value.to_string().chars().take(200).collect();
                lines.push(format!("{name}: {group} value {text}: schema={} type={}", found.0, found.1));
            }
        }
    }
    lines
}

/// Replaces each `{"$good": …}` by the value that it stands for.
pub(crate) fn expand(values: &Value, value: &Value) -> Value {
    match value {
        Value::Object(members) => match members.get("$good").and_then(Value::as_str) {
            Some(name) => expand(values, &values[name]["good"][0]),
            None => members.iter().map(|(name, member)| (name.clone(), expand(values, member))).collect(),
        },
        Value::Array(items) => items.iter().map(|item| expand(values, item)).collect(),
        _ => value.clone(),
    }
}

#[test]
fn schema_and_type_agree_on_every_value() {
    assert_no_difference(&check(&document(), &values()));
}

#[test]
fn every_disagreement_has_a_reason() {
    for (name, groups) in values().as_object().unwrap() {
        for group in ["stricter", "laxer"] {
            for entry in groups[group].as_array().into_iter().flatten() {
                assert!(entry["why"].as_str().is_some_and(|why| !why.is_empty()), "{name}: {entry}");
            }
        }
    }
}

#[test]
fn a_tightened_schema_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["ImageCount"]["maximum"] = json!(4);
    let found = check(&changed, &values());
    assert_mentions(&found, "ImageCount: good value 10: schema=false type=true");
}

#[test]
fn a_loosened_schema_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["Quality"]["enum"].as_array_mut().unwrap().push(json!("hd"));
    assert_mentions(&check(&changed, &values()), "Quality: bad value \"hd\": schema=true type=false");
}

#[test]
fn a_field_that_is_no_longer_required_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["ImageGenerationRequest"]["required"] = json!(["model"]);
    let place = r#"ImageGenerationRequest: bad value {"model":"gpt-image-2"}: schema=true type=false"#;
    assert_mentions(&check(&changed, &values()), place);
}

#[test]
fn a_component_without_values_is_reported() {
    let mut fewer = values();
    fewer["Prompt"]["bad"] = json!([]);
    fewer.as_object_mut().unwrap().remove("Model");
    let found = check(&document(), &fewer);
    assert_mentions(&found, "Prompt: no bad value");
    assert_mentions(&found, "Model: no good value");
}

#[test]
fn a_component_without_a_type_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["Sketch"] = json!({ "type": "string" });
    assert_mentions(&check(&changed, &values()), "Sketch: this component is not in the list of types");
}
