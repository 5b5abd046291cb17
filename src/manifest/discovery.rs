//! The discovery index of Agent Skills, version 0.2.0: a list of the skills for clients that read only this format.
//!
//! The module decides which entries the index contains: the newest version of each skill, which is also the one that an
//! install without a version chooses. Each digest is the checksum that the manifest states, so clients of the index
//! verify the same bytes.

use std::collections::BTreeMap;

use semver::Version;

use super::check::parse_lenient_version;
use super::text::{JsonLimits, JsonNode, SourceFile, read};

/// The address that identifies the version of the index.
const INDEX_SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";

/// The reason why no index can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The manifest cannot be read.
    #[error("the manifest cannot be read: {0}")]
    Unreadable(String),
    /// A field is missing or has another form.
    #[error("`{pointer}` {why}")]
    Field {
        /// The field, as a JSON pointer.
        pointer: String,
        /// The problem of the field.
        why: &'static str,
    },
}

/// Returns the index of a manifest. The addresses of packages begin with `base`, or with `raw_base_url` of the
/// repository if `base` is `None`.
///
/// # Errors
///
/// Returns an error if the manifest cannot be read, or if an entry lacks a field that is needed to find and verify its
/// package.
pub fn discovery_index(source: &SourceFile, base: Option<&str>) -> Result<String, DiscoveryError> {
    let text = source.text().ok_or_else(|| DiscoveryError::Unreadable("it is not UTF-8".to_owned()))?;
    let root = read(text, JsonLimits::default()).map_err(|error| DiscoveryError::Unreadable(error.to_string()))?;
    let base = match base {
        Some(base) => base,
        None => field(&root, "/repository/raw_base_url")?,
    };
    let mut newest: BTreeMap<&str, (ReleaseRank<'_>, usize)> = BTreeMap::new();
    for (index, entry) in root.get("skills").into_iter().flat_map(JsonNode::elements).enumerate() {
        let name = field(&root, &format!("/skills/{index}/name"))?;
        let rank = release_rank(entry.get("version").and_then(JsonNode::text).unwrap_or_default());
        if newest.get(name).is_none_or(|(known, _)| rank >= *known) {
            newest.insert(name, (rank, index));
        }
    }
    let mut skills = Vec::new();
    for (name, (_, index)) in newest {
        let skill_field = |key: &str| field(&root, &format!("/skills/{index}/{key}"));
        let sum = skill_field("sha256")?;
        if sum.len() != 64 || !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let pointer = format!("/skills/{index}/sha256");
            return Err(DiscoveryError::Field { pointer, why: "is not a checksum of 64 hexadecimal digits" });
        }
        skills.push(serde_json::json!({
            "name": name,
            "type": "archive",
            "description": skill_field("description")?,
            "url": address(base, skill_field("package")?),
            "digest": format!("sha256:{}", sum.to_ascii_lowercase()),
        }));
    }
    let index = serde_json::json!({ "$schema": INDEX_SCHEMA, "skills": skills });
    let mut text =
        serde_json::to_string_pretty(&index).map_err(|error| DiscoveryError::Unreadable(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

fn field<'a>(root: &'a JsonNode, pointer: &str) -> Result<&'a str, DiscoveryError> {
    let missing = || DiscoveryError::Field { pointer: pointer.to_owned(), why: "is missing or not a text" };
    root.at(pointer).and_then(JsonNode::text).ok_or_else(missing)
}

/// The order in which the releases of a skill are preferred: the newest that is no pre-release, then the newest
/// pre-release, then texts that are no versions.
pub(super) type ReleaseRank<'a> = (bool, Option<Version>, &'a str);

/// Returns the rank of a release; the highest is chosen.
pub(super) fn release_rank(version: &str) -> ReleaseRank<'_> {
    let parsed = parse_lenient_version(version);
    (parsed.as_ref().is_some_and(|version| version.pre.is_empty()), parsed, version)
}

/// Appends a path to an address.
pub(super) fn address(base: &str, path: &str) -> String {
    let mut address = base.trim_end_matches('/').to_owned();
    for segment in path.split('/') {
        address.push('/');
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~+@".contains(&byte) {
                address.push(char::from(byte));
            } else {
                address.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    address
}
