//! The one way to lay a manifest out: fields in the order of the specification, unknown ones behind them as they come.

use semver::Version;

use super::text::{Member, Node, Value};

/// What part of a manifest a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Registry,
    Repository,
    Skills,
    Skill,
    Apis,
    Api,
    /// Nothing that the specification knows the inside of.
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

// === impl Part ===

impl Part {
    /// The fields that the specification knows, in its order.
    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Registry => REGISTRY,
            Self::Repository => REPOSITORY,
            Self::Skill => SKILL,
            Self::Api => API,
            Self::Skills | Self::Apis | Self::Free => &[],
        }
    }

    /// What the value of a field is.
    pub(super) fn of_field(self, key: &str) -> Self {
        match (self, key) {
            (Self::Registry, "repository") => Self::Repository,
            (Self::Registry, "skills") => Self::Skills,
            (Self::Registry, "apis") => Self::Apis,
            _ => Self::Free,
        }
    }

    /// What an element is.
    pub(super) fn of_element(self) -> Self {
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

/// The manifest with its fields in order. Nothing is lost: a key that stands twice still does.
pub(super) fn canonical(root: &Node) -> Node {
    arranged(root, Part::Registry)
}

pub(super) fn arranged(node: &Node, part: Part) -> Node {
    let value = match &node.value {
        Value::Array(elements) => {
            Value::Array(elements.iter().map(|element| arranged(element, part.of_element())).collect())
        }
        Value::Object(members) => {
            let arrange =
                |member: &Member| Member { node: arranged(&member.node, part.of_field(&member.key)), ..member.clone() };
            let mut members: Vec<Member> = members.iter().map(arrange).collect();
            // A stable sort: what has no rank of its own keeps its order.
            members.sort_by_key(|member| part.rank(&member.key));
            Value::Object(members)
        }
        other => other.clone(),
    };
    Node { span: node.span.clone(), value }
}

/// The manifest with its skills sorted by name and version, and its API references by id.
pub(super) fn sorted(root: &Node) -> Node {
    let mut root = root.clone();
    if let Value::Object(members) = &mut root.value {
        for member in members.iter_mut().filter(|member| ["skills", "apis"].contains(&member.key.as_str())) {
            if let Value::Array(elements) = &mut member.node.value {
                elements.sort_by_cached_key(order);
            }
        }
    }
    root
}

/// What entries are sorted by.
pub(super) fn order(entry: &Node) -> (String, Option<Version>, String) {
    let text = |key| entry.get(key).and_then(Node::text).unwrap_or_default().to_owned();
    let name = if entry.get("name").is_some() { text("name") } else { text("id") };
    (name, Version::parse(&text("version")).ok(), text("version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::text::{Limits, read};

    #[test]
    fn the_order_is_that_of_the_schema() {
        let schema = read(crate::manifest::check::SCHEMA, Limits::default()).unwrap();
        for (pointer, part) in [
            ("/properties", Part::Registry),
            ("/$defs/Repository/properties", Part::Repository),
            ("/$defs/Skill/properties", Part::Skill),
            ("/$defs/ApiReference/properties", Part::Api),
        ] {
            let keys: Vec<&str> = schema.at(pointer).unwrap().members().iter().map(|one| one.key.as_str()).collect();
            assert_eq!(keys, part.fields(), "{pointer}");
        }
    }
}
