//! Skills registry manifests: read, check, format and compare.
//!
//! Decides what is wrong with a manifest and how that is told.
//! The shape is the word of `schemas/skills-registry.schema.json` alone; what a schema cannot say are findings with
//! stable ids ([`rules`]), of which only broken integrity is an error.
//! Refuses to know where bytes come from: a manifest is a [`Source`], and other files come through [`Files`], so that
//! the same code runs in a command, in a server and in a browser. It neither opens a file nor a connection.
//!
//! ```
//! use imagate::manifest::{Options, Source, check};
//!
//! let source = Source::new("skills.json", br#"{"schema_version": "1.0", "skills": []}"#.to_vec());
//! let report = check(source, &Options::default());
//! assert!(report.has_errors());
//! assert_eq!(report.findings()[0].rule().id, "M004");
//! ```

mod build;
mod check;
mod diff;
mod discovery;
mod document;
mod files;
mod finding;
mod format;
mod install;
mod layout;
mod located;
pub mod package;
pub mod render;
pub mod rules;
pub mod text;
mod threads;
mod web;

pub use build::{BuildError, Built, Facts, Problem, Recipe, build};
pub use check::{Options, Override, Overrides, OverridesError, can_be_asked, check, is_public, verify};
pub use diff::{Bump, Change, Difference, SkillDifference, diff};
pub use discovery::{DiscoveryError, discovery};
pub use document::{Manifest, ReadError};
pub use files::{Files, FilesError, Kind, Listed, MemoryFiles, Metadata};
pub use finding::{FileId, Finding, Findings, Level, Related, Report, Span};
pub use format::format;
pub use install::{Lock, LockError, Locked, Wanted, WantedError, package_address, package_fault};
pub use located::Located;
pub use text::Source;
pub use web::{Body, Question, Reply, Want, Web, WebError};

pub use crate::wire::manifest::{ApiReference, Repository, Skill, SkillsRegistry};
