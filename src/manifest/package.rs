//! Packages of skills: reads them, checks that they are safe, and builds them.
//!
//! The module decides what an archive may contain, what a `SKILL.md` must state, and the bytes of a package. It must
//! not depend on the location of files: they come through [`RepositoryFiles`](super::RepositoryFiles).

pub mod archive;
mod auto_loaded;
mod check;
mod contents;
pub mod front;
#[cfg(test)]
#[path = "../../tests/skills/hostile.rs"]
mod hostile;
mod limits;
mod pack;
pub mod skill;
mod unwanted;

pub use check::VerifiedPackage;
pub(in crate::manifest) use check::{CheckScope, RepositoryChecker};
pub use contents::{PackageContents, PackageFile, Sha256Hasher, Sha256Sum};
pub use limits::PackageLimits;
pub use pack::{PackError, ZipTimestamp, pack};
pub use unwanted::{UnwantedFileKind, unwanted};

/// The name of the file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";
/// The maximum number of bytes that are read of a `SKILL.md`.
const SKILL_BYTES: usize = 1024 * 1024;
