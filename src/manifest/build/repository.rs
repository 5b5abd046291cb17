//! What a manifest says of its repository.

use super::{Member, Node, Problem, Value, set, string};

/// What is known of the repository; what is not is taken from the manifest of before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: Option<String>,
    /// The address to clone it from.
    pub git_url: Option<String>,
    /// What to put before a path to download a file.
    pub raw_base_url: Option<String>,
    /// The branch.
    pub branch: Option<String>,
}

pub(super) fn node(facts: &Facts, previous: Option<&Node>, problems: &mut Vec<Problem>) -> Node {
    let before = previous.and_then(|previous| previous.get("repository"));
    let mut members: Vec<Member> = before.map(|before| before.members().to_vec()).unwrap_or_default();
    let fields = [
        ("name", &facts.name, "--repository"),
        ("git_url", &facts.git_url, "--git-url"),
        ("raw_base_url", &facts.raw_base_url, "--raw-base-url"),
        ("branch", &facts.branch, "--branch"),
    ];
    for (key, fact, option) in fields {
        match fact {
            Some(fact) => set(&mut members, key, string(fact)),
            None if before.is_some_and(|before| super::text(before, key).is_some()) => {}
            None => {
                let message = format!("`repository.{key}` is not known yet; say it once with {option}");
                problems.push(Problem::new("the manifest", message));
            }
        }
    }
    Node::new(Value::Object(members))
}
