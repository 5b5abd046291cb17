//! Packages of skills: what is in one, whether that is safe, and how one is made.
//!
//! Decides what an archive may hold, what a `SKILL.md` must say, and the bytes of a package.
//! Refuses to know where files lie: they come through [`Files`](super::Files).

pub mod archive;
mod check;
mod contents;
pub mod front;
#[cfg(test)]
#[path = "../../tests/skills/hostile.rs"]
mod hostile;
mod limits;
mod pack;
pub(in crate::manifest) mod rules;
pub mod skill;
mod unwanted;

pub(in crate::manifest) use check::{Look, Scope};
pub use contents::{Content, Contents, Sha256Sum, Summing};
pub use limits::Limits;
pub use pack::{PackError, Stamp, pack};
pub use unwanted::{Unwanted, unwanted};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";
/// More of it than this is not read.
const SKILL_BYTES: usize = 1024 * 1024;
