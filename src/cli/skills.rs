//! The command `imagate skills`.

mod build;
mod diff;
mod disk;
mod explain;
mod export;
mod fmt;
mod input;
mod install;
mod validate;
mod verify;
mod web;

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
    /// Say what is wrong with a manifest, with rule, line and column.
    Validate(validate::ValidateCommand),
    /// Make the whole manifest and its packages from a folder of skills.
    Build(build::BuildCommand),
    /// Say whether the packages are those of the manifest, and safe to unpack.
    Verify(verify::VerifyCommand),
    /// Lay a manifest out in the usual way.
    Fmt(fmt::FmtCommand),
    /// Say what changed between two manifests, and which versions that asks for.
    Diff(diff::DiffCommand),
    /// Write the discovery index of Agent Skills for a manifest.
    Export(export::ExportCommand),
    /// Install skills into the folder of an agent.
    Install(install::InstallCommand),
    /// Say what a rule is for, or list the rules.
    Explain(explain::RuleExplainCommand),
}

// === impl SkillsCommand ===

impl SkillsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        match self.action {
            SkillsAction::Validate(validate) => validate.run(),
            SkillsAction::Build(build) => build.run(),
            SkillsAction::Verify(verify) => verify.run(),
            SkillsAction::Fmt(fmt) => fmt.run(),
            SkillsAction::Diff(diff) => diff.run(),
            SkillsAction::Export(export) => export.run(),
            SkillsAction::Install(install) => install.run(),
            SkillsAction::Explain(explain) => explain.run(),
        }
    }
}
