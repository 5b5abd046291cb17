//! Skills registry manifests: read, check, format and compare.
//!
//! The module defines the problems that a manifest can have and how they are reported.
//! `schemas/skills-registry.schema.json` alone defines the shape. Rules that a schema cannot express have stable ids
//! ([`rules`]); a broken one is a finding. By default, a finding is an error if users could get other content than the
//! manifest promises, or none, if a secret leaks, or if a path leads out of the repository; others are warnings or
//! notes. This module must not depend on the source of the bytes: a manifest is a [`SourceFile`], and other files come
//! through [`RepositoryFiles`], so the same code runs in a command, in a server and in a browser. It opens no files and
//! no connections.
//!
//! ```
//! use imagate::manifest::{CheckOptions, SourceFile, check};
//!
//! let source = SourceFile::new("skills.json", br#"{"schema_version": "1.0", "skills": []}"#.to_vec());
//! let report = check(source, &CheckOptions::default());
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

pub use build::{
    BuildError, BuildInput, BuildOutput, BuildProblem, RepositoryFields, UpdateInput, UpdateOutput, build, update,
};
pub use check::{
    CheckOptions, RuleOverride, RuleOverrideError, RuleOverrides, check, may_be_requested, verify, verify_package,
};
pub use diff::{ManifestChange, ManifestDifference, SkillDifference, VersionBump, diff};
pub use discovery::{DiscoveryError, discovery_index};
pub use document::{Manifest, ManifestReadError};
pub use files::{FileKind, FileMetadata, FilesError, FolderEntry, MemoryFiles, RepositoryFiles};
pub use finding::{
    CheckReport, CheckedCounts, FileId, Finding, FindingCollector, FindingLevel, RelatedLocation, SourceSpan,
};
pub use format::format;
pub use install::{
    LockFile, LockFileEntry, LockFileError, NotInstalledError, SkillRequirement, SkillRequirementError, package_address,
};
pub use located::LocatedNode;
pub use text::SourceFile;
pub use web::{FetchBody, FetchError, FetchRequest, FetchResponse, FetchScope, WebFetcher};

pub use crate::net::is_public;
pub use crate::wire::manifest::{ApiReference, Repository, Skill, SkillsRegistry};
