//! The command `imagate skills build`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::atomic_file::{refuse_symlinks, write_file};
use super::git_repository::{fields_from_git, missing_options};
use super::source_date::SourceDate;
use super::verify::{shown_path, with_shown_paths};
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_message};
use crate::manifest::text::JsonLimits;
use crate::manifest::{BuildInput, BuildOutput, RepositoryFields, RepositoryFiles as _, SourceFile, build};

/// Arguments of `skills build`.
#[derive(Debug, Args)]
pub(super) struct BuildCommand {
    /// The root folder of the repository.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// The path of the manifest, relative to the root. Values that no file states are kept from the existing manifest.
    #[arg(long, value_name = "PATH", default_value = "skills.json")]
    manifest: String,
    /// The folder with one subfolder per skill, relative to the root.
    #[arg(long, value_name = "PATH", default_value = "skills")]
    skills: String,
    /// The folder with the API references as Markdown files, relative to the root.
    #[arg(long, value_name = "PATH", default_value = "apis")]
    apis: String,
    /// The folder for the packages, relative to the root.
    #[arg(long, value_name = "PATH", default_value = "packages")]
    packages: String,
    /// The name of the repository. The manifest remembers it [default of the first build: that of the git remote]
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,
    /// The URL to clone the repository from. The manifest remembers it [default of the first build: that of the git
    /// remote]
    #[arg(long, value_name = "URL")]
    git_url: Option<String>,
    /// The URL prefix for downloading files of the repository. The manifest remembers it [default of the first build:
    /// that of the git remote, if the form of its host is known]
    #[arg(long, value_name = "URL")]
    raw_base_url: Option<String>,
    /// The branch. The manifest remembers it [default of the first build: the default branch of the git remote]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Allow content to change without a new version. Use it only for versions that are not published.
    #[arg(long)]
    overwrite: bool,
    /// Write nothing, and fail if a file would be written.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    source_date: SourceDate,
}

// === impl BuildCommand ===

impl BuildCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let checkout = Checkout::open(&self.root).with_context(|| self.root.display().to_string())?;
        let now = self.source_date.now()?;
        let limit = JsonLimits::default().bytes as u64;
        let previous = checkout.read(&self.manifest, limit)?.map(|bytes| SourceFile::new(&*self.manifest, bytes));
        let without_slash = |path: &str| path.trim_end_matches('/').to_owned();
        let input = BuildInput {
            files: &checkout,
            previous: previous.as_ref(),
            skills: without_slash(&self.skills),
            apis: without_slash(&self.apis),
            packages: without_slash(&self.packages),
            repository: self.repository_fields(previous.is_none()),
            now,
            timestamp: self.source_date.zip_timestamp(),
            overwrite: self.overwrite,
        };
        let built = build(&input).map_err(|error| with_shown_paths(error, &self.root))?;
        let manifest_changed = previous.as_ref().is_none_or(|previous| previous.bytes() != built.manifest.as_bytes());
        let removed = built.removed.iter().chain(&built.removed_apis);
        removed.for_each(|name| print_message(&format!("`{name}` no longer exists and is removed from the manifest")));
        for path in &built.left_out {
            print_message(&format!("left out {}", self.shown(path)));
        }
        if self.check {
            self.print_changes(&built, manifest_changed)
        } else {
            self.write(&checkout, &built, manifest_changed)
        }
    }

    /// Returns the fields that are given. If `is_first`, the others are those of git, which are then printed.
    fn repository_fields(&self, is_first: bool) -> RepositoryFields {
        let given = RepositoryFields {
            name: self.repository.clone(),
            git_url: self.git_url.clone(),
            raw_base_url: self.raw_base_url.clone(),
            branch: self.branch.clone(),
        };
        let missing = missing_options(&given);
        if !is_first || missing.is_empty() {
            return given;
        }
        let known = fields_from_git(&self.root);
        let print_default = |option: &str, value: &Option<String>| {
            if let Some(value) = value.as_ref().filter(|_| missing.contains(&option)) {
                print_message(&format!("from git: {option} {value}"));
            }
        };
        print_default("--repository", &known.name);
        print_default("--git-url", &known.git_url);
        print_default("--raw-base-url", &known.raw_base_url);
        print_default("--branch", &known.branch);
        RepositoryFields {
            name: given.name.or(known.name),
            git_url: given.git_url.or(known.git_url),
            raw_base_url: given.raw_base_url.or(known.raw_base_url),
            branch: given.branch.or(known.branch),
        }
    }

    /// Returns a path of the repository as it is from the current folder.
    fn shown(&self, path: &str) -> String {
        shown_path(&self.root, path)
    }

    /// Prints the files that would be written, and fails if there are any.
    fn print_changes(&self, built: &BuildOutput, manifest_changed: bool) -> Result<(), CommandFailure> {
        let manifest = manifest_changed.then_some(self.manifest.as_str());
        let packages = built.packages.iter().map(|(path, _)| path.as_str());
        let changes: Vec<&str> = packages.chain(manifest).collect();
        for path in &changes {
            print(&format!("{}\n", self.shown(path)))?;
        }
        print_counts(built);
        if changes.is_empty() { Ok(()) } else { Err(CommandFailure::HasFindings) }
    }

    /// Writes the packages before the manifest, so that the manifest never names a missing package.
    fn write(&self, checkout: &Checkout, built: &BuildOutput, manifest_changed: bool) -> Result<(), CommandFailure> {
        for path in [&self.packages, &self.manifest] {
            refuse_symlinks(checkout, path)?;
        }
        for (path, bytes) in &built.packages {
            refuse_symlinks(checkout, path)?;
            write_file(&self.root.join(path), bytes)?;
            print_message(&format!("wrote {}", self.shown(path)));
        }
        if manifest_changed {
            write_file(&self.root.join(&self.manifest), built.manifest.as_bytes())?;
            print_message(&format!("wrote {}", self.shown(&self.manifest)));
        }
        print_counts(built);
        Ok(())
    }
}

fn print_counts(built: &BuildOutput) {
    print_message(&format!("packages: new {}, unchanged {}", built.packages.len(), built.unchanged));
}
