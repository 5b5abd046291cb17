//! The command `imagate skills diff`.

use std::fmt::Write as _;

use clap::Args;

use super::manifest_input::ManifestInput;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_json};
use crate::manifest::{Manifest, ManifestDifference, SkillDifference, diff};

/// Arguments of `skills diff`.
#[derive(Debug, Args)]
pub(super) struct DiffCommand {
    /// The old manifest: a file, `-` for standard input, or an https URL.
    #[arg(value_name = "OLD")]
    old: ManifestInput,
    /// The new manifest, given in the same way.
    #[arg(value_name = "NEW", default_value = "skills.json")]
    new: ManifestInput,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Allow downloading the manifests.
    #[arg(long)]
    allow_network: bool,
}

// === impl DiffCommand ===

impl DiffCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        if self.old == ManifestInput::Stdin && self.new == ManifestInput::Stdin {
            return Err(CommandFailure::Usage("only one manifest can be read from standard input".to_owned()));
        }
        let old = Manifest::read(&self.old.read(self.allow_network)?)?;
        let new = Manifest::read(&self.new.read(self.allow_network)?)?;
        let difference = diff(&old, &new);
        if self.json {
            print_json(&difference)?;
        } else {
            print(&difference_text(&difference))?;
        }
        // The versions were raised far enough for the changes.
        if difference.is_enough() { Ok(()) } else { Err(CommandFailure::HasFindings) }
    }
}

pub(super) fn difference_text(difference: &ManifestDifference) -> String {
    let mut text: String = difference.skills.iter().map(skill_text).collect();
    for change in &difference.changes {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{} ({})", change.what, change.bump.as_str());
    }
    let _ = writeln!(text, "required bump in all: {}", difference.required.as_str());
    text
}

fn skill_text(skill: &SkillDifference) -> String {
    let name = skill.name.escape_debug();
    let mut text = match (&skill.before, &skill.now) {
        (Some(before), Some(now)) => format!("{name} {} -> {}", before.escape_debug(), now.escape_debug()),
        (None, Some(now)) => format!("{name} {}", now.escape_debug()),
        (Some(before), None) => format!("{name} {}", before.escape_debug()),
        (None, None) => name.to_string(),
    };
    if let Some(made) = skill.made {
        let verdict = if skill.is_enough { "enough" } else { "TOO LITTLE" };
        // Writing into a string cannot fail.
        let _ = write!(text, ": {} required, {} made, {verdict}", skill.required.as_str(), made.as_str());
    } else if !skill.is_enough {
        text.push_str(": the versions cannot be compared");
    }
    text.push('\n');
    for change in &skill.changes {
        let _ = writeln!(text, "  {} ({})", change.what, change.bump.as_str());
    }
    text
}
