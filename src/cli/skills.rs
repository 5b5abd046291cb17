//! `imagate skills`

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

use super::failure::Failure;

/// Arguments of `skills`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Skills {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say what is wrong with a manifest, with rule, line and column.
    Validate(validate::Validate),
    /// Make the whole manifest and its packages from a folder of skills.
    Build(build::Build),
    /// Say whether the packages are those of the manifest, and safe to unpack.
    Verify(verify::Verify),
    /// Lay a manifest out in the usual way.
    Fmt(fmt::Fmt),
    /// Say what changed between two manifests, and which versions that asks for.
    Diff(diff::Diff),
    /// Write the discovery index of Agent Skills for a manifest.
    Export(export::Export),
    /// Install skills into the folder of an agent.
    Install(install::Install),
    /// Say what a rule is for, or list the rules.
    Explain(explain::Explain),
}

// === impl Skills ===

impl Skills {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Validate(validate) => validate.run(),
            Action::Build(build) => build.run(),
            Action::Verify(verify) => verify.run(),
            Action::Fmt(fmt) => fmt.run(),
            Action::Diff(diff) => diff.run(),
            Action::Export(export) => export.run(),
            Action::Install(install) => install.run(),
            Action::Explain(explain) => explain.run(),
        }
    }
}
