//! The command `imagate group` on a gateway that is managed through its admin API. The gateway checks the policy.

use std::path::Path;

use super::{GroupAction, GroupView, print_deleted, print_list, read_policy};
use crate::cli::failure::CommandFailure;
use crate::cli::remote::{RemoteGateway, view};
use crate::client::admin::Error;
use crate::client::admin::types::{Group, GroupName, GroupPolicy, GroupUpdate, NewGroup};

pub(super) async fn run(gateway: &RemoteGateway, action: GroupAction, json: bool) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    match action {
        GroupAction::List => {
            let groups = admin.list_groups().send().await?;
            print_list(&groups.data.iter().map(group_view).collect::<Result<Vec<_>, _>>()?, json)
        }
        GroupAction::Show { name } => group_view(&admin.retrieve_group().name(name).send().await?)?.print(json),
        GroupAction::Create { name, policy } => {
            let policy = policy.map(|file| read_wire_policy(&file)).transpose()?;
            let new = NewGroup::builder().name(GroupName::try_from(name).map_err(Error::from)?).policy(policy);
            group_view(&admin.create_group().body(new).send().await?)?.print_change("made", json)
        }
        GroupAction::Change { name, policy } => {
            let change = GroupUpdate::builder().policy(read_wire_policy(&policy)?);
            group_view(&admin.update_group().name(name).body(change).send().await?)?.print_change("changed", json)
        }
        GroupAction::Delete { name, .. } => print_deleted(&admin.delete_group().name(name).send().await?.name, json),
    }
}

fn group_view(group: &Group) -> Result<GroupView, CommandFailure> {
    Ok(view::<GroupView>(group)?.with_plain_numbers())
}

/// Reads a policy. A setting that this version does not know is sent all the same, because the gateway may be newer.
fn read_wire_policy(file: &Path) -> Result<GroupPolicy, CommandFailure> {
    let policy = serde_json::from_value(read_policy(file)?.into());
    policy.map_err(|error| CommandFailure::Usage(format!("{} is not a valid policy: {error}", file.display())))
}
