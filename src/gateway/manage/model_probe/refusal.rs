//! Reads the rule that a refusal states. Pure. A message that can be understood in two ways states no rule.

use serde_json::Value;

use super::FoundRule;

/// The phrases before a list of words, in lower case.
const LIST_PHRASES: [&str; 7] = [
    "supported values are",
    "allowed values are",
    "valid values are",
    "must be one of",
    "expected one of",
    "should be one of",
    "choose one of",
];
/// The phrases before the greatest and the least value.
const MAX_PHRASES: [&str; 5] = ["<=", "at most", "less than or equal to", "maximum of", "no more than"];
const MIN_PHRASES: [&str; 5] = [">=", "at least", "greater than or equal to", "minimum of", "no less than"];
/// The phrases of a refusal of a field that the model does not have.
const UNSUPPORTED_PHRASES: [&str; 5] =
    ["unknown parameter", "unrecognized", "unexpected field", "does not support the", "not supported"];
/// The most characters of a message that a comment repeats (our choice).
const MESSAGE_MAX: usize = 200;
/// The longest word of a list (our choice): the longest that the settings allow.
const WORD_MAX: usize = 32;

/// The error of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamRefusal {
    param: Option<String>,
    /// The message, or the beginning of the body.
    pub(super) message: String,
}

/// The rule that one refusal states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatedRule(FoundRule);

// === impl StatedRule ===

impl StatedRule {
    /// True if both state the same rule. The order of words does not matter, nor does the reason if there is no rule.
    pub(super) fn is_same_rule(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (FoundRule::Words(words), FoundRule::Words(others)) => {
                let (mut words, mut others) = (words.clone(), others.clone());
                words.sort_unstable();
                others.sort_unstable();
                words == others
            }
            (FoundRule::NotLearned(_), FoundRule::NotLearned(_)) => true,
            (rule, other) => rule == other,
        }
    }

    pub(super) fn into_rule(self) -> FoundRule {
        self.0
    }
}

// === impl UpstreamRefusal ===

impl UpstreamRefusal {
    /// Reads the body of an answer, in the form of the API or in any other.
    pub(super) fn parse(body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = json.get("error").filter(|error| error.is_object()).unwrap_or(&json);
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        let message = text("message").unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        Self { param: text("param"), message: message.chars().filter(|letter| !letter.is_control()).collect() }
    }

    /// True if the refusal is about this field.
    pub(super) fn names(&self, field: &str) -> bool {
        match &self.param {
            Some(param) => param == field,
            None => ['\'', '"', '`'].iter().any(|quote| self.message.contains(&format!("{quote}{field}{quote}"))),
        }
    }

    /// Returns the list of words that the refusal of this field states.
    pub(super) fn stated_words(&self, field: &str) -> StatedRule {
        self.stated(field, || {
            let mut lists = self.sentences().filter_map(word_list);
            let words = lists.next()?.ok_or("the list cannot be read");
            Some(words.and_then(|words| match lists.all(|list| list.as_ref() == Some(&words)) {
                true => Ok(FoundRule::Words(words)),
                false => Err("the refusal has two lists"),
            }))
        })
    }

    /// Returns the greatest value that the refusal of this field states, as the end of a range.
    pub(super) fn stated_max(&self, field: &str) -> StatedRule {
        self.stated(field, || Some(self.number_after(&MAX_PHRASES)?.map(|max| FoundRule::Range { min: i64::MIN, max })))
    }

    /// Returns the least value that the refusal of this field states, as the beginning of a range.
    pub(super) fn stated_min(&self, field: &str) -> StatedRule {
        self.stated(field, || Some(self.number_after(&MIN_PHRASES)?.map(|min| FoundRule::Range { min, max: i64::MAX })))
    }

    /// Returns the type that the refusal of this field expects.
    pub(super) fn stated_type(&self, field: &str) -> Option<&'static str> {
        let message = self.message.to_ascii_lowercase();
        let expected = message.split_once("expected").filter(|_| self.names(field))?.1;
        let expected = expected.split([',', '.', ';']).next().unwrap_or(expected);
        let mut found = ["integer", "boolean", "object"].into_iter().filter(|kind| expected.contains(kind));
        found.next().filter(|_| found.next().is_none())
    }

    /// Returns the rule that `read` finds, if the refusal is about this field. `read` returns `None` if the message states
    /// no rule, and an error if it states one that is not clear.
    fn stated(&self, field: &str, read: impl FnOnce() -> Option<Result<FoundRule, &'static str>>) -> StatedRule {
        let quoted = || self.message.chars().take(MESSAGE_MAX).collect::<String>();
        if !self.names(field) {
            let named = self.param.as_deref().unwrap_or("nothing that the probe asked for");
            let named: String = named.chars().take(WORD_MAX).filter(|letter| !letter.is_control()).collect();
            return StatedRule(FoundRule::NotLearned(format!("the refusal names {named} instead: {}", quoted())));
        }
        StatedRule(match read() {
            Some(Ok(rule)) => rule,
            Some(Err(reason)) => FoundRule::NotLearned(format!("{reason}: {}", quoted())),
            None if self.is_unsupported() => FoundRule::Unsupported,
            None => FoundRule::NotLearned(format!("the refusal states no rule: {}", quoted())),
        })
    }

    fn is_unsupported(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        UNSUPPORTED_PHRASES.iter().any(|phrase| message.contains(phrase))
    }

    fn sentences(&self) -> impl Iterator<Item = &str> {
        self.message.split_inclusive(". ")
    }

    /// Returns the number after one of the phrases; an error if there are several numbers.
    fn number_after(&self, phrases: &[&str]) -> Option<Result<i64, &'static str>> {
        let message = self.message.to_ascii_lowercase();
        let mut numbers: Vec<i64> = Vec::new();
        for phrase in phrases {
            numbers.extend(message.split(phrase).skip(1).filter_map(first_number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        match numbers[..] {
            [] => None,
            [number] => Some(Ok(number)),
            _ => Some(Err("the refusal states two bounds")),
        }
    }
}

/// Reads the whole number at the beginning of a text, after blanks.
fn first_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let end = text.char_indices().find(|(index, letter)| !(letter.is_ascii_digit() || (*index == 0 && *letter == '-')));
    let (number, rest) = text.split_at(end.map_or(text.len(), |(index, _)| index));
    // A decimal number is no bound of a whole number.
    let is_decimal =
        rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()));
    number.parse().ok().filter(|_| !is_decimal)
}

/// Returns the words of the list in a sentence. The outer `None` stands for a sentence without a list, the inner one for a
/// list that cannot be read.
fn word_list(sentence: &str) -> Option<Option<Vec<String>>> {
    let lower = sentence.to_ascii_lowercase();
    let start = LIST_PHRASES.iter().filter_map(|phrase| Some(lower.find(phrase)? + phrase.len())).min()?;
    let mut words: Vec<String> = Vec::new();
    let mut rest = sentence.get(start..)?;
    while let Some(open) = rest.find(['\'', '"', '`']) {
        let quote = rest[open..].chars().next()?;
        let (word, after) = rest[open + 1..].split_once(quote).unwrap_or((" ", ""));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if word.is_empty()
            || word.len() > WORD_MAX
            || !word.bytes().all(fits)
            || words.iter().any(|other| other == word)
        {
            return Some(None);
        }
        words.push(word.to_owned());
        rest = after;
    }
    // Further words without quotes, such as "and others", make the list incomplete.
    let is_open = ["etc", "others", "more", "..."].iter().any(|word| rest.to_ascii_lowercase().contains(word));
    Some((!words.is_empty() && !is_open).then_some(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(param: Option<&str>, message: &str) -> UpstreamRefusal {
        let error = serde_json::json!({"error": {"message": message, "param": param}});
        UpstreamRefusal::parse(error.to_string().as_bytes())
    }

    #[track_caller]
    fn check_words(message: &str, expected: Option<&[&str]>) {
        let rule = refusal(Some("quality"), message).stated_words("quality").into_rule();
        let words = match rule {
            FoundRule::Words(words) => Some(words),
            _ => None,
        };
        assert_eq!(
            words.as_deref(),
            expected.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).as_deref(),
            "{message}"
        );
    }

    #[test]
    fn a_list_is_read_if_it_is_clear() {
        let words: Option<&[&str]> = Some(&["low", "high"]);
        for message in [
            "Invalid value: 'x'. Supported values are: 'low' and 'high'.",
            "Invalid value: 'x'. Supported values are: 'low', and 'high'. See the documentation.",
            "quality must be one of \"low\", \"high\"",
            "Input should be one of `low` or `high`.",
        ] {
            check_words(message, words);
        }
        for message in [
            "Invalid value: 'x'.",
            "Supported values are: low, high.",
            "Supported values are: 'low', 'high', and others.",
            "Supported values are: 'low', 'high.",
            "Supported values are: 'low', 'low'.",
            "Supported values are: 'low'. Supported values are: 'high'.",
            "The model doesn't know it. Expected one of: 'low', but don't ask 'why'.",
        ] {
            check_words(message, None);
        }
    }

    #[test]
    fn a_refusal_of_another_field_states_nothing() {
        let message = "Supported values are: 'a' and 'b'.";
        for param in [Some("prompt"), None] {
            let rule = refusal(param, message).stated_words("quality").into_rule();
            assert!(matches!(rule, FoundRule::NotLearned(_)), "{rule:?}");
        }
        assert!(refusal(None, "Invalid 'quality'.").names("quality"));
        assert!(!refusal(Some("n"), "Invalid 'quality'.").names("quality"));
    }

    #[test]
    fn bounds_types_and_missing_fields_are_read() {
        let max = |message: &str| refusal(Some("n"), message).stated_max("n").into_rule();
        let range = FoundRule::Range { min: i64::MIN, max: 4 };
        assert_eq!(max("Expected a value <= 4, but got 9 instead."), range);
        assert_eq!(max("n must be at most 4."), range);
        assert!(matches!(max("at most 4, at most 5"), FoundRule::NotLearned(_)));
        assert!(matches!(max("at most 4.5"), FoundRule::NotLearned(_)));
        assert_eq!(max("Unknown parameter: 'n'."), FoundRule::Unsupported);
        let min = refusal(Some("n"), "Expected a value >= -1.").stated_min("n").into_rule();
        assert_eq!(min, FoundRule::Range { min: -1, max: i64::MAX });
        let kind = |message: &str| refusal(Some("n"), message).stated_type("n");
        assert_eq!(kind("Invalid type for 'n': expected an integer, but got a string instead."), Some("integer"));
        assert_eq!(kind("expected an integer or a boolean"), None);
        assert_eq!(UpstreamRefusal::parse(b"<html>").message, "<html>");
    }
}
