//! The command `imagate skills validate`.

use std::path::PathBuf;

use anyhow::Context as _;
use chrono::Utc;
use clap::{Args, ValueEnum};

use super::manifest_input::ManifestInput;
use super::verify::{display_root, thread_count};
use super::web_client::{HostPolicy, WebClient};
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{has_color, print};
use crate::manifest::{
    CheckOptions, CheckReport, FindingLevel, RepositoryFiles, RuleOverrideError, RuleOverrides, WebFetcher, check,
    render,
};

/// Arguments of `skills validate`.
#[derive(Debug, Args)]
pub(super) struct ValidateCommand {
    /// The manifest: a file, `-` for standard input, or an https URL.
    #[arg(value_name = "FILE", default_value = "skills.json")]
    manifest: ManifestInput,
    /// The checkout of the repository, whose files and packages are checked against the manifest.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The manifest that was published before. Published versions must not have changed.
    #[arg(long, value_name = "FILE")]
    previous: Option<ManifestInput>,
    /// The output format of the findings.
    #[arg(long, value_enum, default_value_t = ReportFormat::Human)]
    format: ReportFormat,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    /// Accept findings of a rule for the given reason, which every report shows; may be given several times.
    #[arg(long, value_name = "RULE=REASON")]
    allow: Vec<String>,
    /// Report findings of a rule as warnings; may be given several times.
    #[arg(long, value_name = "RULE")]
    warn: Vec<String>,
    /// Report findings of a rule as errors; may be given several times.
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Allow URLs of hosts in private networks.
    #[arg(long)]
    allow_private_hosts: bool,
    /// Also send requests to the URLs of the manifest: packages, sources and the branch.
    #[arg(long)]
    online: bool,
    /// Allow downloading the manifests.
    #[arg(long)]
    allow_network: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ReportFormat {
    /// Text for people, with the affected lines.
    Human,
    /// One JSON document.
    Json,
    /// SARIF 2.1.0, for code scanners.
    Sarif,
    /// GitHub workflow commands, for annotations.
    Github,
    /// JUnit XML, for build servers.
    Junit,
}

// === impl ValidateCommand ===

impl ValidateCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let overrides = self.overrides().map_err(|error| CommandFailure::Usage(error.to_string()))?;
        if self.manifest == ManifestInput::Stdin && self.previous == Some(ManifestInput::Stdin) {
            return Err(CommandFailure::Usage("only one manifest can be read from standard input".to_owned()));
        }
        let manifest = self.manifest.read(self.allow_network)?;
        let previous = self.previous.as_ref().map(|input| input.read(self.allow_network)).transpose()?;
        let open = |root: &PathBuf| Checkout::open(root).with_context(|| root.display().to_string());
        let checkout = self.root.as_ref().map(open).transpose()?;
        let online = self
            .online
            .then(|| WebClient::new(HostPolicy::from_allow_private(self.allow_private_hosts)))
            .transpose()?;
        let display_root = self.root.as_deref().map(display_root).unwrap_or_default();
        let options = CheckOptions {
            strict: self.strict,
            overrides,
            now: Some(Utc::now()),
            previous: previous.as_ref(),
            files: checkout.as_ref().map(|checkout| checkout as &dyn RepositoryFiles),
            display_root: &display_root,
            web: online.as_ref().map(|online| online as &dyn WebFetcher),
            allow_private_hosts: self.allow_private_hosts,
            threads: thread_count(),
        };
        let report = check(manifest, &options);
        self.format.print(&report)?;
        if report.has_errors() { Err(CommandFailure::HasFindings) } else { Ok(()) }
    }

    fn overrides(&self) -> Result<RuleOverrides, RuleOverrideError> {
        let mut overrides = RuleOverrides::default();
        for text in &self.allow {
            let (rule, reason) = text.split_once('=').unwrap_or((text, ""));
            overrides.allow(rule, reason)?;
        }
        for (rules, level) in [(&self.warn, FindingLevel::Warning), (&self.deny, FindingLevel::Error)] {
            rules.iter().try_for_each(|rule| overrides.level(rule, level))?;
        }
        Ok(overrides)
    }
}

// === impl ReportFormat ===

impl ReportFormat {
    pub(super) fn print(self, report: &CheckReport) -> Result<(), CommandFailure> {
        let text = match self {
            Self::Human => render::human(report, has_color()),
            Self::Json => render::json(report)?,
            Self::Sarif => render::sarif(report)?,
            Self::Github => render::github(report),
            Self::Junit => render::junit(report),
        };
        Ok(print(&text)?)
    }
}
