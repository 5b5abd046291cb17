//! The command `imagate skills explain`.

use clap::Args;

use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, table, wrap_to};
use crate::manifest::rules::{self, Rule};

/// The maximum width of an explanation in characters (our choice).
const WIDTH: usize = 80;

/// Arguments of `skills explain`.
#[derive(Debug, Args)]
pub(super) struct RuleExplainCommand {
    /// The id or name of the rule. Without it, all rules are listed.
    #[arg(value_name = "RULE")]
    rule: Option<String>,
}

// === impl RuleExplainCommand ===

impl RuleExplainCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Some(id_or_name) = self.rule else { return Ok(print(&rule_table())?) };
        let rule = rules::lookup(&id_or_name).map_err(|error| CommandFailure::Usage(error.to_string()))?;
        Ok(print(&rule_text(rule))?)
    }
}

fn rule_table() -> String {
    let row = |rule: &Rule| [rule.id, rule.level.as_str(), rule.name, rule.summary].map(str::to_owned);
    table(["RULE", "LEVEL", "NAME", "WHAT MUST HOLD"], &rules::all().map(row).collect::<Vec<_>>())
}

fn rule_text(rule: &Rule) -> String {
    let Rule { id, name, level, summary, .. } = rule;
    let (level, needs) = (level.as_str(), rule.class.needs());
    format!("{id} {name} ({level}; needs {needs})\n\n{summary}\n\n{}\n", wrap_to(rule.explain, WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_fit_a_terminal_and_lose_no_word() {
        for rule in rules::all() {
            let text = wrap_to(rule.explain, WIDTH);
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            assert!(text.split_whitespace().eq(rule.explain.split_whitespace()));
        }
    }
}
