//! The command `imagate skills`.

mod atomic_file;
mod build;
mod diff;
mod explain;
mod export;
mod fmt;
mod git_repository;
mod install;
mod list;
mod manifest_input;
mod new;
mod remove;
mod source_date;
mod update;
mod validate;
mod verify;
mod web_client;

use clap::{Args, Subcommand};

use super::failure::CommandFailure;

/// Arguments of `skills`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct SkillsCommand {
    #[command(subcommand)]
    action: SkillsAction,
}

#[derive(Debug, Subcommand)]
enum SkillsAction {
    /// Create the folder of a new skill, with a `SKILL.md` to fill in.
    New(new::NewCommand),
    /// Check a manifest and print each finding with its rule, line and column.
    Validate(validate::ValidateCommand),
    /// Build the manifest and its packages from a folder of skills.
    Build(build::BuildCommand),
    /// List the entries of a manifest, or the installed skills.
    List(list::ListCommand),
    /// Build the entries of a manifest again whose files have changed, and print the changes.
    ///
    /// `imagate skills build` adds a skill that the manifest does not list. To update an installed skill, install it
    /// again.
    Update(update::UpdateCommand),
    /// Remove entries from a manifest, or installed skills.
    Remove(remove::RemoveCommand),
    /// Check that the packages match the manifest and are safe to unpack.
    Verify(verify::VerifyCommand),
    /// Format a manifest in the standard layout.
    Fmt(fmt::FmtCommand),
    /// Show the changes between two manifests and the version bumps that they require.
    Diff(diff::DiffCommand),
    /// Write the Agent Skills discovery index for a manifest.
    Export(export::ExportCommand),
    /// Install skills into the folder of an agent.
    Install(install::InstallCommand),
    /// Explain a rule, or list all rules.
    Explain(explain::RuleExplainCommand),
}

// === impl SkillsCommand ===

impl SkillsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        match self.action {
            SkillsAction::New(new) => new.run(),
            SkillsAction::Validate(validate) => validate.run(),
            SkillsAction::Build(build) => build.run(),
            SkillsAction::List(list) => list.run(),
            SkillsAction::Update(update) => update.run(),
            SkillsAction::Remove(remove) => remove.run(),
            SkillsAction::Verify(verify) => verify.run(),
            SkillsAction::Fmt(fmt) => fmt.run(),
            SkillsAction::Diff(diff) => diff.run(),
            SkillsAction::Export(export) => export.run(),
            SkillsAction::Install(install) => install.run(),
            SkillsAction::Explain(explain) => explain.run(),
        }
    }
}
