//! Learns the rules of an image model from the refusals of its upstream.
//!
//! No request can be fulfilled: none has a prompt, and each asks for at least one value that no model has. So two rules
//! are broken that an upstream checks independently of each other. The first request breaks all rules at once; an
//! upstream that accepts it, or any other, ends the probe. A rule that a refusal does not state clearly is not learned:
//! the result says so, and nothing is guessed.

mod refusal;
mod table;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use refusal::{StatedRule, UpstreamRefusal};
pub(crate) use table::to_toml;

/// Words that no model has as a value (our choice). Two answers must agree, so there are two.
const UNKNOWN_WORDS: [&str; 2] = ["imagate-probe-a", "imagate-probe-b"];
/// Numbers that no field allows (our choice).
const HIGH_NUMBERS: [i64; 2] = [1_000_000_007, 1_000_000_009];
const LOW_NUMBERS: [i64; 2] = [-1_000_000_007, -1_000_000_009];
/// The fields of the API whose values are words.
pub(super) const WORD_FIELDS: [&str; 6] =
    ["size", "quality", "output_format", "background", "input_fidelity", "moderation"];
/// The fields of the API whose values are whole numbers.
pub(super) const NUMBER_FIELDS: [&str; 3] = ["n", "partial_images", "output_compression"];

/// Sends requests for images that the upstream must refuse.
pub(crate) trait RefusalSource {
    /// The error of a request that got no answer.
    type Error;

    /// Sends one request with these fields, and returns the status and the body of the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if there was no answer.
    async fn request(&mut self, fields: &Map<String, Value>) -> Result<(u16, Vec<u8>), Self::Error>;
}

/// The reason why a probe ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProbeStop<E> {
    /// The upstream accepted a request without a prompt and with invalid values. It may have made an image.
    #[error(
        "the upstream ACCEPTED a request that breaks several rules (status {status}): it may have made an image, and the probe was stopped. The request was: {request}"
    )]
    Accepted {
        /// The status of the answer.
        status: u16,
        /// The fields of the request.
        request: String,
    },
    /// The answer does not say anything about the fields.
    #[error("the upstream answered with status {status}: {message}")]
    OtherAnswer {
        /// The status of the answer.
        status: u16,
        /// The message of its error, or the beginning of its body.
        message: String,
    },
    /// There was no answer.
    #[error("{0}; if the upstream has accepted the request, it makes an image")]
    NoAnswer(E),
}

/// The result for one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeFinding {
    /// The name of the field.
    pub(crate) field: String,
    /// The rule that its refusals state.
    pub(crate) rule: FoundRule,
}

/// The rule of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundRule {
    /// One of these words.
    Words(Vec<String>),
    /// A whole number within these limits.
    Range {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// True or false.
    Boolean,
    /// An object.
    Object,
    /// The model does not have the field.
    Unsupported,
    /// The refusals do not state the rule, for this reason.
    NotLearned(String),
}

/// Asks for the rules of a model: those of the fields of the API, and those of `further` fields.
///
/// # Errors
///
/// Returns an error if the upstream accepts a request, if it refuses one for a reason that is not in its fields, or if it
/// gives no answer.
pub(crate) async fn learn<S: RefusalSource>(
    source: &mut S,
    model: &str,
    further: &[String],
) -> Result<Vec<ProbeFinding>, ProbeStop<S::Error>> {
    let mut probe = ModelProbe { source, model };
    probe.check_control(further).await?;
    let mut findings = Vec::new();
    for field in WORD_FIELDS {
        let rule = probe.words(field).await?;
        findings.push(ProbeFinding { field: field.to_owned(), rule });
    }
    for field in NUMBER_FIELDS {
        let rule = probe.range(field).await?;
        findings.push(ProbeFinding { field: field.to_owned(), rule });
    }
    for field in further {
        let rule = probe.unknown_kind(field).await?;
        findings.push(ProbeFinding { field: field.clone(), rule });
    }
    Ok(findings)
}

struct ModelProbe<'a, S> {
    source: &'a mut S,
    model: &'a str,
}

// === impl ModelProbe ===

impl<S: RefusalSource> ModelProbe<'_, S> {
    /// Sends the request that breaks all rules at once.
    async fn check_control(&mut self, further: &[String]) -> Result<(), ProbeStop<S::Error>> {
        let words = WORD_FIELDS.into_iter().chain(further.iter().map(String::as_str));
        let mut fields: Map<String, Value> =
            words.map(|name| (name.to_owned(), Value::from(UNKNOWN_WORDS[0]))).collect();
        fields.extend(NUMBER_FIELDS.map(|name| (name.to_owned(), Value::from(LOW_NUMBERS[0]))));
        self.refusal(fields).await.map(drop)
    }

    /// Sends a request with one invalid field and without a prompt.
    async fn ask(&mut self, field: &str, value: Value) -> Result<UpstreamRefusal, ProbeStop<S::Error>> {
        self.refusal(Map::from_iter([(field.to_owned(), value)])).await
    }

    async fn refusal(&mut self, mut fields: Map<String, Value>) -> Result<UpstreamRefusal, ProbeStop<S::Error>> {
        fields.insert("model".to_owned(), self.model.into());
        let (status, body) = self.source.request(&fields).await.map_err(ProbeStop::NoAnswer)?;
        let refusal = UpstreamRefusal::parse(&body);
        match status {
            200..300 => Err(ProbeStop::Accepted { status, request: Value::Object(fields).to_string() }),
            400 | 422 if !refusal.names("model") => Ok(refusal),
            _ => Err(ProbeStop::OtherAnswer { status, message: refusal.message }),
        }
    }

    async fn words(&mut self, field: &str) -> Result<FoundRule, ProbeStop<S::Error>> {
        let mut answers = Vec::new();
        for word in UNKNOWN_WORDS {
            answers.push(self.ask(field, json!(word)).await?.stated_words(field));
        }
        Ok(agreed(answers))
    }

    async fn range(&mut self, field: &str) -> Result<FoundRule, ProbeStop<S::Error>> {
        let (mut least, mut greatest) = (Vec::new(), Vec::new());
        for number in HIGH_NUMBERS {
            greatest.push(self.ask(field, json!(number)).await?.stated_max(field));
        }
        for number in LOW_NUMBERS {
            least.push(self.ask(field, json!(number)).await?.stated_min(field));
        }
        Ok(match (agreed(least), agreed(greatest)) {
            (FoundRule::Range { min, .. }, FoundRule::Range { max, .. }) => FoundRule::Range { min, max },
            (rule @ (FoundRule::Unsupported | FoundRule::NotLearned(_)), _) | (_, rule) => rule,
        })
    }

    /// Asks for the rule of a field whose kind is not known: a word is refused either with a list of words, or with the
    /// type that is expected.
    async fn unknown_kind(&mut self, field: &str) -> Result<FoundRule, ProbeStop<S::Error>> {
        match self.words(field).await? {
            FoundRule::NotLearned(reason) => {
                let refusal = self.ask(field, json!(UNKNOWN_WORDS[0])).await?;
                match refusal.stated_type(field) {
                    Some("integer") => self.range(field).await,
                    Some("boolean") => Ok(FoundRule::Boolean),
                    Some("object") => Ok(FoundRule::Object),
                    _ => Ok(FoundRule::NotLearned(reason)),
                }
            }
            rule => Ok(rule),
        }
    }
}

/// Returns the rule that all answers state.
fn agreed(answers: Vec<StatedRule>) -> FoundRule {
    let mut answers = answers.into_iter();
    let Some(first) = answers.next() else { return FoundRule::NotLearned("nothing was asked".to_owned()) };
    if answers.all(|answer| answer.is_same_rule(&first)) {
        return first.into_rule();
    }
    FoundRule::NotLearned("two refusals contradict each other".to_owned())
}
