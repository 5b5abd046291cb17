//! Which release of a skill is installed, and what is remembered of it.
//!
//! Decides the version and the lock file; refuses to download, to unpack and to write.

use std::collections::BTreeMap;
use std::str::FromStr;

use semver::{Version, VersionReq};

use super::discovery::address;
use super::package::archive::{fold, path_fault};
use super::package::{Limits, Sha256Sum};
use crate::wire::manifest::{Skill, SkillsRegistry};

/// `NAME` or `NAME@REQ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    name: String,
    requirement: Option<VersionReq>,
}

/// Why a skill cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WantedError {
    /// It was not written as it should be.
    #[error("`{0}` is not `NAME` or `NAME@REQUIREMENT`, such as `images@^1.2`")]
    Form(String),
    /// The manifest does not have it.
    #[error("the manifest has no skill `{0}`")]
    Unknown(String),
    /// The manifest has other versions.
    #[error("no version of `{name}` fits; there is {there}")]
    Version {
        /// The skill.
        name: String,
        /// The versions of the manifest.
        there: String,
    },
    /// The entry cannot be trusted with a download.
    #[error("the entry of `{name}` {why}")]
    Entry {
        /// The skill.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

// === impl Wanted ===

impl FromStr for Wanted {
    type Err = WantedError;

    fn from_str(text: &str) -> Result<Self, WantedError> {
        let form = || WantedError::Form(text.to_owned());
        let (name, requirement) = match text.split_once('@') {
            None => (text, None),
            // A whole version means that one; `^` says more.
            Some((name, exact)) if Version::parse(exact).is_ok() => (name, Some(format!("={exact}"))),
            Some((name, requirement)) => (name, Some(requirement.to_owned())),
        };
        let is_name = !name.is_empty() && path_fault(name, &Limits { depth: 1, ..Limits::default() }).is_none();
        if !is_name || name.starts_with('.') || fold(name) == Lock::FILE {
            return Err(form());
        }
        let requirement = requirement.map(|text| VersionReq::parse(&text)).transpose().map_err(|_| form())?;
        Ok(Self { name: name.to_owned(), requirement })
    }
}

impl Wanted {
    /// The name, which is that of the folder too.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The newest release that fits.
    ///
    /// # Errors
    ///
    /// There is none, or its entry is not one that a download can be held against.
    pub fn choose<'a>(&self, registry: &'a SkillsRegistry) -> Result<&'a Skill, WantedError> {
        let named: Vec<&Skill> = registry.skills.iter().filter(|skill| skill.name == self.name).collect();
        if named.is_empty() {
            return Err(WantedError::Unknown(self.name.clone()));
        }
        let version = |skill: &Skill| Version::parse(&skill.version).ok();
        let fits = |skill: &&&Skill| match &self.requirement {
            None => true,
            Some(requirement) => version(skill).is_some_and(|version| requirement.matches(&version)),
        };
        // Of all releases the newest that is not a preview, unless there is nothing else.
        let rank = |skill: &&&Skill| {
            let version = version(skill);
            (version.as_ref().is_some_and(|version| version.pre.is_empty()), version)
        };
        let chosen = named.iter().filter(fits).max_by_key(rank).ok_or_else(|| WantedError::Version {
            name: self.name.clone(),
            there: named.iter().map(|skill| skill.version.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let entry = |why| Err(WantedError::Entry { name: self.name.clone(), why });
        if chosen.sha256.len() != 64 || !chosen.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return entry("has no checksum to hold its package against");
        }
        if path_fault(&chosen.package, &Limits { depth: 64, ..Limits::default() }).is_some() {
            return entry("names a package outside of the repository");
        }
        Ok(chosen)
    }
}

/// Where the package of a skill is downloaded from.
#[must_use]
pub fn package_address(registry: &SkillsRegistry, skill: &Skill) -> String {
    address(&registry.repository.raw_base_url, &skill.package)
}

/// Says what is wrong with bytes that should be the package of a skill. Nothing of them is looked at before.
#[must_use]
pub fn package_fault(skill: &Skill, bytes: &[u8]) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "a package is far below 2^52 bytes")]
    let size = bytes.len() as f64;
    if let Some(stated) = skill.size_bytes.filter(|stated| (stated - size).abs() >= 1.0) {
        return Some(format!("it has {size} bytes, and the manifest says {stated}"));
    }
    let sum = Sha256Sum::of(bytes).to_string();
    let differs = !sum.eq_ignore_ascii_case(&skill.sha256);
    differs.then(|| format!("its checksum is {sum}, and the manifest says {}", skill.sha256))
}

/// What was installed into a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lock {
    /// Of this format.
    lock_version: u32,
    /// By name.
    skills: BTreeMap<String, Locked>,
}

/// One skill that was installed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Locked {
    /// The release.
    pub version: String,
    /// Where its package came from.
    pub package: String,
    /// The checksum of the package.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// The checksum of each file.
    pub files: BTreeMap<String, String>,
}

/// Why a lock file is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// It is none.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// It is from a later version.
    #[error("it is of version {0}, which this program does not know")]
    Version(u32),
}

// === impl Lock ===

impl Lock {
    /// The name of the file.
    pub const FILE: &str = "skills.lock.json";
    const VERSION: u32 = 1;

    /// Nothing installed yet.
    #[must_use]
    pub fn new() -> Self {
        Self { lock_version: Self::VERSION, skills: BTreeMap::new() }
    }

    /// Reads a lock file.
    ///
    /// # Errors
    ///
    /// Where it is none, or of a later version.
    pub fn read(bytes: &[u8]) -> Result<Self, LockError> {
        let lock: Self = serde_json::from_slice(bytes)?;
        if lock.lock_version == Self::VERSION { Ok(lock) } else { Err(LockError::Version(lock.lock_version)) }
    }

    /// What is known of a skill.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Locked> {
        self.skills.get(name)
    }

    /// Remembers a skill.
    pub fn set(&mut self, name: impl Into<String>, locked: Locked) {
        self.skills.insert(name.into(), locked);
    }

    /// The file as text: the same wherever the same skills are installed.
    ///
    /// # Errors
    ///
    /// Never in practice: every value is text or a number.
    pub fn to_text(&self) -> Result<String, LockError> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
