//! Builds the `repository` field of a manifest.

use super::{BuildProblem, JsonMember, JsonNode, JsonValue, set_member, string};

/// The fields of the repository that are to be set. A field that is `None` is taken from the previous manifest, as are
/// fields that this program does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryFields {
    /// The name of the repository.
    pub name: Option<String>,
    /// The address from which the repository is cloned.
    pub git_url: Option<String>,
    /// The address that is put before a path to download a file.
    pub raw_base_url: Option<String>,
    /// The name of the branch.
    pub branch: Option<String>,
}

pub(super) fn repository_node(
    fields: &RepositoryFields,
    previous: Option<&JsonNode>,
    problems: &mut Vec<BuildProblem>,
) -> JsonNode {
    let before = previous.and_then(|previous| previous.get("repository"));
    let mut members: Vec<JsonMember> = before.map(|before| before.members().to_vec()).unwrap_or_default();
    let rows = [
        ("name", &fields.name, "--repository"),
        ("git_url", &fields.git_url, "--git-url"),
        ("raw_base_url", &fields.raw_base_url, "--raw-base-url"),
        ("branch", &fields.branch, "--branch"),
    ];
    for (key, value, option) in rows {
        match value {
            Some(value) => set_member(&mut members, key, string(value)),
            None if before.is_some_and(|before| super::text(before, key).is_some()) => {}
            None => {
                let message = format!("`repository.{key}` is not known yet; set it once with {option}");
                problems.push(BuildProblem::new("the manifest", message));
            }
        }
    }
    JsonNode::new(JsonValue::Object(members))
}
