//! Writes what a probe found as a `[[models]]` table. Everything that was not learned, or that the settings cannot say, is
//! a comment.

use std::fmt::Write as _;

use super::{FoundRule, NUMBER_FIELDS, ProbeFinding, WORD_FIELDS};
use crate::image::{Format, SizeRequest};

/// The settings for the fields of the API.
const SETTINGS: [(&str, &str); 5] = [
    ("size", "sizes"),
    ("quality", "qualities"),
    ("output_format", "formats"),
    ("background", "backgrounds"),
    ("input_fidelity", "input_fidelity"),
];

/// Returns the table as TOML.
pub(crate) fn to_toml(model: &str, findings: &[ProbeFinding]) -> String {
    let mut table = TableWriter { settings: String::new(), fields: String::new(), comments: String::new() };
    for finding in findings {
        table.add(&finding.field, &finding.rule);
    }
    let TableWriter { settings, fields, comments } = table;
    format!("[[models]]\nid = {}\n{settings}{comments}{fields}", quoted(model))
}

/// True if the setting of this field accepts the word.
fn is_allowed(field: &str, word: &str) -> bool {
    match field {
        "size" => SizeRequest::parse_for_own_rules(word).is_ok(),
        "output_format" => word.parse::<Format>().is_ok(),
        "background" => ["auto", "opaque", "transparent"].contains(&word),
        _ => true,
    }
}

struct TableWriter {
    settings: String,
    fields: String,
    comments: String,
}

// === impl TableWriter ===

impl TableWriter {
    fn add(&mut self, field: &str, rule: &FoundRule) {
        let setting = SETTINGS.iter().find(|(name, _)| *name == field).map(|(_, setting)| *setting);
        match (rule, setting) {
            (FoundRule::NotLearned(reason), _) => self.comment(field, &format!("not learned, {reason}")),
            (FoundRule::Words(words), Some(setting)) => self.add_words(field, setting, words),
            (FoundRule::Unsupported, Some("input_fidelity")) => {}
            (FoundRule::Range { min, max }, _) if NUMBER_FIELDS.contains(&field) => self.add_number(field, *min, *max),
            (FoundRule::Unsupported, _) if field == "output_compression" => {
                line(&mut self.settings, "compression", "false");
            }
            (FoundRule::Unsupported, _) if field == "partial_images" => {
                line(&mut self.settings, "max_partial_images", "0");
            }
            (FoundRule::Unsupported, _) => self.comment(field, "the model does not have this field"),
            (FoundRule::Words(words), None) if field == "moderation" => {
                self.comment(
                    field,
                    &format!("the upstream accepts {}; the settings have no rule for it", words.join(", ")),
                );
            }
            (rule, _) if !WORD_FIELDS.contains(&field) && !NUMBER_FIELDS.contains(&field) => {
                self.add_field(field, rule);
            }
            (rule, _) => self.comment(field, &format!("an unexpected rule: {rule:?}")),
        }
    }

    /// Adds the words that the setting accepts; the others are a comment.
    fn add_words(&mut self, field: &str, setting: &str, words: &[String]) {
        let (usable, other): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| is_allowed(field, word));
        if !usable.is_empty() {
            line(&mut self.settings, setting, &list(&usable));
        }
        for word in other {
            self.comment(field, &format!("the upstream also accepts {word:?}, which the settings cannot allow"));
        }
    }

    fn add_number(&mut self, field: &str, min: i64, max: i64) {
        let (setting, least, greatest) = match field {
            "n" => ("max_images", 1, 10),
            "partial_images" => ("max_partial_images", 0, 3),
            _ => ("compression", 0, 100),
        };
        if min != least || max > greatest {
            self.comment(
                field,
                &format!("the upstream accepts {min} to {max}; the gateway accepts at most {least} to {greatest}"),
            );
        }
        match setting {
            "compression" => line(&mut self.settings, setting, if max == 100 && min < 100 { "true" } else { "false" }),
            _ if max >= least => line(&mut self.settings, setting, &max.min(greatest).to_string()),
            _ => self.comment(field, "the upstream accepts no value"),
        }
    }

    fn add_field(&mut self, field: &str, rule: &FoundRule) {
        let rest = match rule {
            FoundRule::Words(words) => {
                format!("kind = \"choice\"\nwords = {}\n", list(&words.iter().collect::<Vec<_>>()))
            }
            FoundRule::Range { min, max } => format!("kind = \"integer\"\nmin = {min}\nmax = {max}\n"),
            FoundRule::Boolean => "kind = \"boolean\"\n".to_owned(),
            _ => "kind = \"object\"\n".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ =
            write!(self.fields, "[[models.fields]]\nname = {}\n{rest}operations = \"generations\"\n", quoted(field));
    }

    fn comment(&mut self, field: &str, text: &str) {
        let _ = writeln!(self.comments, "# {field}: {text}");
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name} = {value}");
}

fn list(words: &[&String]) -> String {
    format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
