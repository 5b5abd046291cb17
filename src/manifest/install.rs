//! Selects the release of a skill to install, and reads and writes the lock file.
//!
//! The module decides the version to install and the content of the lock file. It must not download, unpack or write
//! files.

use std::collections::BTreeMap;
use std::str::FromStr;

use semver::{Version, VersionReq};

use super::check::nearest;
use super::discovery::{address, release_rank};
use super::package::PackageLimits;
use super::package::archive::{fold, path_fault};
use crate::wire::manifest::{Skill, SkillsRegistry};

/// A skill to install, written as `NAME` or `NAME@REQ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillRequirement {
    name: String,
    requirement: Option<VersionReq>,
}

/// The reason why a skill cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkillRequirementError {
    /// The text does not have the required form.
    #[error("`{0}` is not `NAME` or `NAME@REQUIREMENT`, such as `images@^1.2`")]
    Form(String),
    /// The manifest does not contain the skill.
    #[error("the manifest has no skill `{name}`{}", .nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?")))]
    Unknown {
        /// The name that was looked up.
        name: String,
        /// The most similar name in the manifest, if it is similar enough.
        nearest: Option<String>,
    },
    /// The manifest contains only other versions.
    #[error("no version of `{name}` matches; the manifest has {there}")]
    Version {
        /// The name of the skill.
        name: String,
        /// The versions in the manifest.
        there: String,
    },
    /// The entry does not allow a safe download.
    #[error("the entry of `{name}` {why}")]
    Entry {
        /// The name of the skill.
        name: String,
        /// The problem of the entry.
        why: &'static str,
    },
}

// === impl SkillRequirement ===

impl FromStr for SkillRequirement {
    type Err = SkillRequirementError;

    fn from_str(text: &str) -> Result<Self, SkillRequirementError> {
        let form = || SkillRequirementError::Form(text.to_owned());
        let (name, requirement) = match text.split_once('@') {
            None => (text, None),
            // A complete version such as `1.2.3` means exactly this version; `VersionReq` would read it as `^1.2.3`.
            Some((name, exact)) if Version::parse(exact).is_ok() => (name, Some(format!("={exact}"))),
            Some((name, requirement)) => (name, Some(requirement.to_owned())),
        };
        let is_name =
            !name.is_empty() && path_fault(name, &PackageLimits { depth: 1, ..PackageLimits::default() }).is_none();
        if !is_name || name.starts_with('.') || fold(name) == LockFile::FILE {
            return Err(form());
        }
        let requirement = requirement.map(|text| VersionReq::parse(&text)).transpose().map_err(|_| form())?;
        Ok(Self { name: name.to_owned(), requirement })
    }
}

impl SkillRequirement {
    /// Returns the name of the skill, which is also the name of its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if this version of the skill is accepted. A version that is not a semantic version is accepted only
    /// if no versions are required.
    #[must_use]
    pub fn matches_version(&self, version: &str) -> bool {
        match &self.requirement {
            None => true,
            Some(requirement) => Version::parse(version).is_ok_and(|version| requirement.matches(&version)),
        }
    }

    /// Returns true if only certain versions are accepted.
    #[must_use]
    pub fn has_version(&self) -> bool {
        self.requirement.is_some()
    }

    /// Checks that a manifest lists at least one release that matches.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest has no such skill, or only other versions of it.
    pub fn check_listed(&self, registry: &SkillsRegistry) -> Result<(), SkillRequirementError> {
        self.matching(registry).map(drop)
    }

    /// Returns the releases that match: at least one.
    fn matching<'a>(&self, registry: &'a SkillsRegistry) -> Result<Vec<(usize, &'a Skill)>, SkillRequirementError> {
        let all = registry.skills.iter().enumerate();
        let candidates: Vec<(usize, &Skill)> = all.filter(|(_, skill)| skill.name == self.name).collect();
        if candidates.is_empty() {
            return Err(self.unknown(registry.skills.iter().map(|skill| &*skill.name)));
        }
        let there = candidates.iter().map(|(_, skill)| skill.version.as_str()).collect::<Vec<_>>().join(", ");
        let matching: Vec<(usize, &Skill)> =
            candidates.into_iter().filter(|(_, skill)| self.matches_version(&skill.version)).collect();
        if matching.is_empty() {
            return Err(SkillRequirementError::Version { name: self.name.clone(), there });
        }
        Ok(matching)
    }

    /// Returns the error for a skill that is not among the known ones.
    fn unknown<'a>(&self, known: impl Iterator<Item = &'a str>) -> SkillRequirementError {
        let nearest = nearest(&self.name, known).map(str::to_owned);
        SkillRequirementError::Unknown { name: self.name.clone(), nearest }
    }

    /// Returns the newest release that matches, with its index in the manifest.
    ///
    /// # Errors
    ///
    /// Returns an error if no release matches, or if the entry of the release does not allow a safe download.
    pub fn choose<'a>(&self, registry: &'a SkillsRegistry) -> Result<(usize, &'a Skill), SkillRequirementError> {
        let newest = self.matching(registry)?.into_iter().max_by(|(_, a), (_, b)| {
            // A pre-release is chosen only if nothing else matches.
            release_rank(&a.version).cmp(&release_rank(&b.version))
        });
        let (index, chosen) = newest.ok_or_else(|| self.unknown(std::iter::empty()))?;
        let entry = |why| Err(SkillRequirementError::Entry { name: self.name.clone(), why });
        if chosen.sha256.len() != 64 || !chosen.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return entry("has no valid checksum for its package");
        }
        if path_fault(&chosen.package, &PackageLimits { depth: 64, ..PackageLimits::default() }).is_some() {
            return entry("names a package outside of the repository");
        }
        Ok((index, chosen))
    }
}

/// Returns the address from which the package of a skill is downloaded.
#[must_use]
pub fn package_address(registry: &SkillsRegistry, skill: &Skill) -> String {
    address(&registry.repository.raw_base_url, &skill.package)
}

/// The skills that are installed in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LockFile {
    /// The version of the lock file format.
    lock_version: u32,
    /// The installed skills by name.
    skills: BTreeMap<String, LockFileEntry>,
}

/// The reason why an installed skill cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotInstalledError {
    /// The skill is not installed.
    #[error("the skill `{name}` is not installed{}", .nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?")))]
    Unknown {
        /// The name that was looked up.
        name: String,
        /// The most similar name of an installed skill, if it is similar enough.
        nearest: Option<String>,
    },
    /// Another version is installed.
    #[error("`{name}` is installed in version {installed}, which does not match")]
    Version {
        /// The name of the skill.
        name: String,
        /// The installed version.
        installed: String,
    },
}

/// An installed skill.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LockFileEntry {
    /// The version of the release.
    pub version: String,
    /// The path of the package, as the manifest states it.
    pub package: String,
    /// The checksum of the package.
    pub sha256: String,
    /// The size of the package in bytes.
    pub size_bytes: u64,
    /// The checksum of each file, by path.
    pub files: BTreeMap<String, String>,
}

/// The reason why a lock file is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockFileError {
    /// The file is not a lock file.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The file has a format version that is not supported.
    #[error("its format version is {0}, which this program does not support")]
    Version(u32),
}

// === impl LockFile ===

impl LockFile {
    /// The name of the file.
    pub const FILE: &str = "skills.lock.json";
    const VERSION: u32 = 1;

    /// Creates a lock file without skills.
    #[must_use]
    pub fn new() -> Self {
        Self { lock_version: Self::VERSION, skills: BTreeMap::new() }
    }

    /// Reads a lock file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a lock file, or if its format version is not supported.
    pub fn read(bytes: &[u8]) -> Result<Self, LockFileError> {
        let lock: Self = serde_json::from_slice(bytes)?;
        if lock.lock_version == Self::VERSION { Ok(lock) } else { Err(LockFileError::Version(lock.lock_version)) }
    }

    /// Returns the entry of a skill.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LockFileEntry> {
        self.skills.get(name)
    }

    /// Returns the entry of a skill, if it is installed in a version that matches.
    ///
    /// # Errors
    ///
    /// Returns an error if the skill is not installed, or only in another version.
    pub fn find(&self, requirement: &SkillRequirement) -> Result<&LockFileEntry, NotInstalledError> {
        let name = requirement.name().to_owned();
        let Some(locked) = self.skills.get(&name) else {
            let nearest = nearest(&name, self.skills.keys().map(String::as_str)).map(str::to_owned);
            return Err(NotInstalledError::Unknown { name, nearest });
        };
        if requirement.matches_version(&locked.version) {
            Ok(locked)
        } else {
            Err(NotInstalledError::Version { name, installed: locked.version.clone() })
        }
    }

    /// Returns the installed skills, sorted by name.
    pub fn skills(&self) -> impl Iterator<Item = (&str, &LockFileEntry)> {
        self.skills.iter().map(|(name, locked)| (name.as_str(), locked))
    }

    /// Removes the entry of a skill.
    pub fn remove(&mut self, name: &str) {
        self.skills.remove(name);
    }

    /// Sets the entry of a skill.
    pub fn set(&mut self, name: impl Into<String>, locked: LockFileEntry) {
        self.skills.insert(name.into(), locked);
    }

    /// Returns the file as text. The text is the same on all machines that have the same skills installed.
    ///
    /// # Errors
    ///
    /// Does not occur in practice: each value is text or a number.
    pub fn to_text(&self) -> Result<String, LockFileError> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
