//! `imagate skills validate`

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::Context as _;
use chrono::Utc;
use clap::{Args, ValueEnum};

use super::input::Input;
use super::verify::threads;
use super::web::{Hosts, Online};
use crate::checkout::Checkout;
use crate::cli::failure::Failure;
use crate::cli::output::print;
use crate::manifest::{Files, Level, Options, Overrides, OverridesError, Report, Web, check, render};

/// Arguments of `skills validate`.
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// The manifest: a file, `-` for standard input, or an https address.
    #[arg(value_name = "FILE")]
    manifest: Input,
    /// The checkout of the repository; files and packages are checked against the manifest.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The manifest that was published before; what was published must not change.
    #[arg(long, value_name = "FILE")]
    previous: Option<Input>,
    /// How findings are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Warnings are errors.
    #[arg(long)]
    strict: bool,
    /// The rule may be broken, for this reason, which stands in every report; may be given several times.
    #[arg(long, value_name = "RULE=REASON")]
    allow: Vec<String>,
    /// Breaking the rule is a warning; may be given several times.
    #[arg(long, value_name = "RULE")]
    warn: Vec<String>,
    /// Breaking the rule is an error; may be given several times.
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Addresses may name hosts that only some can reach.
    #[arg(long)]
    allow_private_hosts: bool,
    /// Ask the addresses of the manifest, too: packages, sources and the branch.
    #[arg(long)]
    online: bool,
    /// The manifests may be downloaded.
    #[arg(long)]
    allow_network: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    /// For people: with the lines shown.
    Human,
    /// One JSON document.
    Json,
    /// SARIF 2.1.0, for code scanners.
    Sarif,
    /// Workflow commands of GitHub, for annotations.
    Github,
    /// JUnit XML, for build servers.
    Junit,
}

// === impl Validate ===

impl Validate {
    pub(super) fn run(self) -> Result<(), Failure> {
        let overrides = self.overrides().map_err(|error| Failure::Usage(error.to_string()))?;
        if self.manifest == Input::Stdin && self.previous == Some(Input::Stdin) {
            return Err(Failure::Usage("only one manifest can come from standard input".to_owned()));
        }
        let manifest = self.manifest.read(self.allow_network)?;
        let previous = self.previous.as_ref().map(|input| input.read(self.allow_network)).transpose()?;
        let open = |root: &PathBuf| Checkout::open(root).with_context(|| root.display().to_string());
        let checkout = self.root.as_ref().map(open).transpose()?;
        let online = self.online.then(|| Online::new(Hosts::allowed(self.allow_private_hosts))).transpose()?;
        let options = Options {
            strict: self.strict,
            overrides,
            now: Some(Utc::now()),
            previous: previous.as_ref(),
            files: checkout.as_ref().map(|checkout| checkout as &dyn Files),
            web: online.as_ref().map(|online| online as &dyn Web),
            allow_private_hosts: self.allow_private_hosts,
            threads: threads(),
        };
        let report = check(manifest, &options);
        self.format.print(&report)?;
        if report.has_errors() { Err(Failure::Found) } else { Ok(()) }
    }

    fn overrides(&self) -> Result<Overrides, OverridesError> {
        let mut overrides = Overrides::default();
        for text in &self.allow {
            let (rule, reason) = text.split_once('=').unwrap_or((text, ""));
            overrides.allow(rule, reason)?;
        }
        for (rules, level) in [(&self.warn, Level::Warning), (&self.deny, Level::Error)] {
            rules.iter().try_for_each(|rule| overrides.level(rule, level))?;
        }
        Ok(overrides)
    }
}

// === impl Format ===

impl Format {
    pub(super) fn print(self, report: &Report) -> Result<(), Failure> {
        let text = match self {
            Self::Human => render::human(report, has_colours()),
            Self::Json => render::json(report)?,
            Self::Sarif => render::sarif(report)?,
            Self::Github => render::github(report),
            Self::Junit => render::junit(report),
        };
        Ok(print(&text)?)
    }
}

/// Whether standard output shows colours, and nobody forbids it.
fn has_colours() -> bool {
    std::io::stdout().is_terminal() && anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}
