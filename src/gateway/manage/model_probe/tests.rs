//! A scripted upstream with random rules, which counts what it would have made.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;

/// The rule of one field at the scripted upstream.
#[derive(Clone, Debug, PartialEq)]
enum ScriptedRule {
    Words(Vec<String>),
    Range(i64, i64),
    Boolean,
    Object,
    /// The upstream does not know the field, and says so.
    Unknown,
    /// The upstream does not look at the field.
    Ignored,
    /// A refusal without the accepted values.
    Terse,
    /// Two refusals with different lists.
    Contradicting,
}

/// An upstream that checks fields in its own order, and reports the first broken rule.
#[derive(Debug, Default)]
struct ScriptedUpstream {
    rules: BTreeMap<String, ScriptedRule>,
    /// The order of the checks; `prompt` is one of them.
    order: Vec<String>,
    requests: usize,
    /// The requests that it would have fulfilled.
    completions: usize,
    needs_no_prompt: bool,
}

impl ScriptedUpstream {
    fn broken_rule(&self, fields: &Map<String, Value>) -> Option<(String, String)> {
        self.order.iter().find_map(|name| {
            let message = if name == "prompt" {
                let is_missing = !self.needs_no_prompt && !fields.contains_key("prompt");
                is_missing.then(|| "Missing required parameter: 'prompt'.".to_owned())
            } else {
                self.field_message(name, fields.get(name)?)
            };
            Some((name.clone(), message?))
        })
    }

    fn field_message(&self, name: &str, value: &Value) -> Option<String> {
        let quoted = |words: &[String]| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
        let invalid = format!("Invalid value: {value}.");
        match self.rules.get(name)? {
            ScriptedRule::Ignored => None,
            ScriptedRule::Unknown => Some(format!("Unknown parameter: '{name}'.")),
            ScriptedRule::Terse => Some(invalid),
            ScriptedRule::Contradicting => Some(format!("{invalid} Supported values are: 'a{}'.", self.requests % 7)),
            ScriptedRule::Words(words) => match value.as_str() {
                Some(word) if words.iter().any(|known| known == word) => None,
                _ => Some(format!("{invalid} Supported values are: {}.", quoted(words))),
            },
            ScriptedRule::Range(min, max) => match value.as_i64() {
                None => Some(format!("Invalid type for '{name}': expected an integer, but got a string instead.")),
                Some(number) if number < *min => Some(format!("Expected a value >= {min}, but got {number} instead.")),
                Some(number) if number > *max => Some(format!("Expected a value <= {max}, but got {number} instead.")),
                Some(_) => None,
            },
            ScriptedRule::Boolean if value.is_boolean() => None,
            ScriptedRule::Boolean => Some(format!("Invalid type for '{name}': expected a boolean.")),
            ScriptedRule::Object if value.is_object() => None,
            ScriptedRule::Object => Some(format!("Invalid type for '{name}': expected an object.")),
        }
    }
}

impl RefusalSource for ScriptedUpstream {
    type Error = Infallible;

    async fn request(&mut self, fields: &Map<String, Value>) -> Result<(u16, Vec<u8>), Infallible> {
        self.requests += 1;
        Ok(match self.broken_rule(fields) {
            Some((param, message)) => {
                (400, json!({"error": {"message": message, "param": param}}).to_string().into_bytes())
            }
            None => {
                self.completions += 1;
                (200, b"{}".to_vec())
            }
        })
    }
}

/// Pseudorandom numbers (xorshift), equal for equal seeds.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn words(&mut self) -> Vec<String> {
        let count = 1 + self.below(6);
        (0..count).map(|index| format!("w{index}-{}", self.below(1_000_000))).collect()
    }

    fn range(&mut self) -> ScriptedRule {
        let min = i64::try_from(self.below(3)).unwrap();
        ScriptedRule::Range(min, min + i64::try_from(self.below(200)).unwrap())
    }

    fn rule(&mut self, is_number: bool, is_further: bool) -> ScriptedRule {
        match self.below(10) {
            0 => ScriptedRule::Unknown,
            1 => ScriptedRule::Ignored,
            2 => ScriptedRule::Terse,
            3 if !is_number => ScriptedRule::Contradicting,
            4 if is_further => ScriptedRule::Boolean,
            5 if is_further => ScriptedRule::Object,
            6 | 7 if is_further => self.range(),
            _ if is_number => self.range(),
            _ => ScriptedRule::Words(self.words()),
        }
    }
}

const FURTHER: [&str; 4] = ["complexity", "frame_count", "tiling", "svg"];

fn random_upstream(seed: u64) -> ScriptedUpstream {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut upstream = ScriptedUpstream::default();
    for name in WORD_FIELDS.into_iter().chain(NUMBER_FIELDS).chain(FURTHER) {
        let rule = random.rule(NUMBER_FIELDS.contains(&name), FURTHER.contains(&name));
        upstream.rules.insert(name.to_owned(), rule);
        let place = random.below(upstream.order.len() as u64 + 1);
        upstream.order.insert(usize::try_from(place).unwrap(), name.to_owned());
    }
    // Most upstreams check the prompt last; some check a few fields after it.
    let place = upstream.order.len() - usize::try_from(random.below(3)).unwrap();
    upstream.order.insert(place, "prompt".to_owned());
    upstream
}

/// The rule that a probe can learn from this upstream; `None` if it must say that it has not learned it.
fn learnable(upstream: &ScriptedUpstream, field: &str) -> Option<FoundRule> {
    let place = |name: &str| upstream.order.iter().position(|other| other == name);
    if place(field) > place("prompt") {
        return None;
    }
    match &upstream.rules[field] {
        ScriptedRule::Words(words) => Some(FoundRule::Words(words.clone())),
        ScriptedRule::Range(min, max) => Some(FoundRule::Range { min: *min, max: *max }),
        ScriptedRule::Boolean => Some(FoundRule::Boolean),
        ScriptedRule::Object => Some(FoundRule::Object),
        ScriptedRule::Unknown => Some(FoundRule::Unsupported),
        ScriptedRule::Ignored | ScriptedRule::Terse | ScriptedRule::Contradicting => None,
    }
}

#[tokio::test]
async fn fifty_random_rule_sets_are_learned_exactly_without_an_image() {
    let further = FURTHER.map(str::to_owned);
    let mut learned = 0;
    for seed in 0..50 {
        let mut upstream = random_upstream(seed);
        let findings = learn(&mut upstream, "next-1", &further).await.unwrap();
        assert_eq!((upstream.completions, findings.len()), (0, upstream.rules.len()), "seed {seed}");
        for ProbeFinding { field, rule } in &findings {
            match learnable(&upstream, field) {
                Some(expected) => assert_eq!(*rule, expected, "seed {seed}, {field}"),
                None => assert!(matches!(rule, FoundRule::NotLearned(_)), "seed {seed}, {field}: {rule:?}"),
            }
            learned += usize::from(!matches!(rule, FoundRule::NotLearned(_)));
        }
    }
    assert!(learned > 300, "only {learned} rules were learnable");
}

#[tokio::test]
async fn an_upstream_that_accepts_any_word_makes_no_image_and_teaches_nothing() {
    let mut upstream = random_upstream(1);
    upstream.rules.values_mut().for_each(|rule| *rule = ScriptedRule::Ignored);
    let findings = learn(&mut upstream, "next-1", &[]).await.unwrap();
    assert_eq!(upstream.completions, 0);
    assert!(findings.iter().all(|finding| matches!(finding.rule, FoundRule::NotLearned(_))), "{findings:?}");
}

#[tokio::test]
async fn the_first_accepted_request_ends_the_probe() {
    let mut upstream = ScriptedUpstream { needs_no_prompt: true, ..random_upstream(1) };
    upstream.rules.values_mut().for_each(|rule| *rule = ScriptedRule::Ignored);
    let stop = learn(&mut upstream, "next-1", &[]).await.unwrap_err();
    assert!(matches!(&stop, ProbeStop::Accepted { status: 200, .. }), "{stop:?}");
    assert_eq!(upstream.requests, 1);
    assert!(stop.to_string().contains("ACCEPTED"), "{stop}");
}

#[tokio::test]
async fn a_planted_ambiguity_is_a_comment_in_the_table() {
    let mut upstream = random_upstream(3);
    let words = |words: &[&str]| ScriptedRule::Words(words.iter().map(|word| (*word).to_owned()).collect());
    upstream.order.retain(|name| name != "prompt");
    upstream.order.push("prompt".to_owned());
    for (name, rule) in [
        ("size", words(&["auto", "512x512"])),
        ("quality", ScriptedRule::Contradicting),
        ("output_format", words(&["png", "svg", "gif"])),
        ("background", ScriptedRule::Terse),
        ("input_fidelity", ScriptedRule::Unknown),
        ("moderation", words(&["auto", "low"])),
        ("n", ScriptedRule::Range(1, 12)),
        ("partial_images", ScriptedRule::Unknown),
        ("output_compression", ScriptedRule::Range(0, 100)),
        ("complexity", words(&["plain", "rich"])),
        ("frame_count", ScriptedRule::Range(2, 8)),
        ("tiling", ScriptedRule::Boolean),
        ("svg", ScriptedRule::Object),
    ] {
        upstream.rules.insert(name.to_owned(), rule);
    }
    let findings = learn(&mut upstream, "next-1", &FURTHER.map(str::to_owned)).await.unwrap();
    let expected = r#"[[models]]
id = "next-1"
sizes = ["auto", "512x512"]
formats = ["png", "gif"]
max_images = 10
max_partial_images = 0
compression = true
# quality: not learned, two refusals contradict each other
# output_format: the upstream also accepts "svg", which the settings cannot allow
# background: not learned, the refusal states no rule: Invalid value: "imagate-probe-a".
# moderation: the upstream accepts auto, low; the settings have no rule for it
# n: the upstream accepts 1 to 12; the gateway accepts at most 1 to 10
[[models.fields]]
name = "complexity"
kind = "choice"
words = ["plain", "rich"]
operations = "generations"
[[models.fields]]
name = "frame_count"
kind = "integer"
min = 2
max = 8
operations = "generations"
[[models.fields]]
name = "tiling"
kind = "boolean"
operations = "generations"
[[models.fields]]
name = "svg"
kind = "object"
operations = "generations"
"#;
    assert_eq!(to_toml("next-1", &findings), expected);
}
