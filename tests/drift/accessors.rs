//! Every member of an error has an accessor in the SDK, or a reason to have none.

use serde_json::{Map, Value, json};

use crate::{assert_mentions, assert_no_difference, document, root};

/// The accessor of a member of `ErrorDetail`.
struct MemberAccess {
    member: &'static str,
    accessor: Result<&'static str, NoAccessor>,
}

/// The reason why a member has no accessor.
#[derive(Clone, Copy)]
enum NoAccessor {
    /// The code says the same, and more.
    CodeIsFiner,
}

const fn same(member: &'static str) -> MemberAccess {
    MemberAccess { member, accessor: Ok(member) }
}

const MEMBERS: [MemberAccess; 10] = [
    same("code"),
    same("limit"),
    same("limit_scope"),
    same("limit_value"),
    same("message"),
    same("param"),
    same("reason"),
    same("resets_at"),
    MemberAccess { member: "resets_in_seconds", accessor: Ok("resets_in") },
    MemberAccess { member: "type", accessor: Err(NoAccessor::CodeIsFiner) },
];

/// One line for each member without a row, for each row without a member, and for each accessor that the source lacks.
fn differences(document: &Value, source: &str) -> Vec<String> {
    let documented = document["components"]["schemas"]["ErrorDetail"]["properties"].as_object();
    let documented: Vec<&String> = documented.into_iter().flat_map(Map::keys).collect();
    let is_listed = |member: &str| MEMBERS.iter().any(|access| access.member == member);
    let unlisted = documented.iter().filter(|member| !is_listed(member));
    let mut lines: Vec<String> = unlisted.map(|member| format!("{member}: no row")).collect();
    for MemberAccess { member, accessor } in MEMBERS {
        if !documented.iter().any(|documented| *documented == member) {
            lines.push(format!("{member}: not in the document"));
        }
        if accessor.is_ok_and(|accessor| !source.contains(&format!("pub fn {accessor}(&self)"))) {
            lines.push(format!("{member}: no accessor"));
        }
    }
    lines
}

fn error_source() -> String {
    std::fs::read_to_string(root().join("src/client/error.rs")).expect("the source is there")
}

#[test]
fn every_member_of_an_error_has_an_accessor() {
    assert_no_difference(&differences(&document(), &error_source()));
}

#[test]
fn a_member_without_accessor_is_found() {
    let mut changed = document();
    let properties = &mut changed["components"]["schemas"]["ErrorDetail"]["properties"];
    properties["mood"] = json!({ "type": "string" });
    properties.as_object_mut().expect("properties").remove("limit_value");
    let found = differences(&changed, &error_source().replace("pub fn resets_at(", "pub fn reset_time("));
    assert_mentions(&found, "mood: no row");
    assert_mentions(&found, "limit_value: not in the document");
    assert_mentions(&found, "resets_at: no accessor");
}
