//! The canonical layout of a manifest: fields in the order of the specification, then unknown ones in their own order.

use semver::Version;

use super::text::{JsonMember, JsonNode, JsonValue};

/// The part of a manifest to which a value belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManifestSection {
    Registry,
    Repository,
    Skills,
    Skill,
    Apis,
    Api,
    /// A value whose content the specification does not define.
    Free,
}

const REGISTRY: &[&str] = &["schema_version", "generated_at", "repository", "skills", "apis"];
const REPOSITORY: &[&str] = &["name", "git_url", "raw_base_url", "branch"];
const SKILL: &[&str] = &[
    "name",
    "version",
    "title",
    "description",
    "path",
    "package",
    "sha256",
    "size_bytes",
    "api_docs",
    "tags",
    "agents",
    "updated_at",
];
const API: &[&str] = &["id", "title", "product", "language", "path", "tags", "source_urls"];

// === impl ManifestSection ===

impl ManifestSection {
    /// Returns the fields that the specification defines, in its order.
    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Registry => REGISTRY,
            Self::Repository => REPOSITORY,
            Self::Skill => SKILL,
            Self::Api => API,
            Self::Skills | Self::Apis | Self::Free => &[],
        }
    }

    /// Returns the section of the value of a field.
    pub(super) fn section_of_field(self, key: &str) -> Self {
        match (self, key) {
            (Self::Registry, "repository") => Self::Repository,
            (Self::Registry, "skills") => Self::Skills,
            (Self::Registry, "apis") => Self::Apis,
            _ => Self::Free,
        }
    }

    /// Returns the section of an element.
    pub(super) fn section_of_element(self) -> Self {
        match self {
            Self::Skills => Self::Skill,
            Self::Apis => Self::Api,
            _ => Self::Free,
        }
    }

    fn rank(self, key: &str) -> usize {
        let fields = self.fields();
        fields.iter().position(|field| *field == key).unwrap_or(fields.len())
    }
}

/// Returns the manifest with its fields in order. Nothing is lost: a repeated key stays repeated.
pub(super) fn canonical(root: &JsonNode) -> JsonNode {
    with_ordered_fields(root, ManifestSection::Registry)
}

pub(super) fn with_ordered_fields(node: &JsonNode, section: ManifestSection) -> JsonNode {
    let value = match &node.value {
        JsonValue::Array(elements) => JsonValue::Array(
            elements.iter().map(|element| with_ordered_fields(element, section.section_of_element())).collect(),
        ),
        JsonValue::Object(members) => {
            let with_ordered_value = |member: &JsonMember| JsonMember {
                node: with_ordered_fields(&member.node, section.section_of_field(&member.key)),
                ..member.clone()
            };
            let mut members: Vec<JsonMember> = members.iter().map(with_ordered_value).collect();
            // The sort is stable: unknown fields all have the last rank, and keep their order.
            members.sort_by_key(|member| section.rank(&member.key));
            JsonValue::Object(members)
        }
        other => other.clone(),
    };
    JsonNode { span: node.span.clone(), value }
}

/// Returns the manifest with its skills sorted by name and version, and its API references by id.
pub(super) fn sorted(root: &JsonNode) -> JsonNode {
    let mut root = root.clone();
    if let JsonValue::Object(members) = &mut root.value {
        for member in members.iter_mut().filter(|member| ["skills", "apis"].contains(&member.key.as_str())) {
            if let JsonValue::Array(elements) = &mut member.node.value {
                elements.sort_by_cached_key(sort_key);
            }
        }
    }
    root
}

/// Returns the sort key of an entry.
pub(super) fn sort_key(entry: &JsonNode) -> (String, Option<Version>, String) {
    let text = |key| entry.get(key).and_then(JsonNode::text).unwrap_or_default().to_owned();
    let name = if entry.get("name").is_some() { text("name") } else { text("id") };
    (name, Version::parse(&text("version")).ok(), text("version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::text::{JsonLimits, read};

    #[test]
    fn the_fields_have_the_order_of_the_schema() {
        let schema = read(crate::manifest::check::SCHEMA, JsonLimits::default()).unwrap();
        for (pointer, section) in [
            ("/properties", ManifestSection::Registry),
            ("/$defs/Repository/properties", ManifestSection::Repository),
            ("/$defs/Skill/properties", ManifestSection::Skill),
            ("/$defs/ApiReference/properties", ManifestSection::Api),
        ] {
            let keys: Vec<&str> =
                schema.at(pointer).unwrap().members().iter().map(|member| member.key.as_str()).collect();
            assert_eq!(keys, section.fields(), "{pointer}");
        }
    }
}
