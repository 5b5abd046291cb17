//! The command `imagate user` on a gateway that is managed through its admin API.

use super::view::{LinkView, UserView, print_list, print_stopped_key};
use super::{RoleArg, UserAction};
use crate::cli::failure::CommandFailure;
use crate::cli::limit_arg::{all_request_limits, request_limits};
use crate::cli::remote::{RemoteGateway, only_local, page_size, view};
use crate::client::admin::Error;
use crate::client::admin::types::{NewUser, OneTimeLink, Role, User, UserName, UserUpdate, builder};

pub(super) async fn run(gateway: &RemoteGateway, action: UserAction, json: bool) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    let (name, change, outcome) = match action {
        UserAction::List => return print_list(&list(gateway).await?, json),
        UserAction::Invite { name, admin: is_admin, group, limits } => {
            let new = NewUser::builder()
                .name(UserName::try_from(name).map_err(Error::from)?)
                .role(Some(if is_admin { Role::Admin } else { Role::Member }))
                .groups(Some(group))
                .limits(request_limits(limits)?);
            let created = admin.create_user().body(new).send().await?;
            return print_link(gateway, &created.user, &created.link, json);
        }
        UserAction::SetupLink => {
            return Err(only_local(
                "user setup-link",
                "a gateway with an admin token has an admin already, or gets its first one there",
            ));
        }
        UserAction::Reset { name } => {
            let user = admin.retrieve_user().id(name).send().await?;
            let link = admin.reset_user().id(&user.id).send().await?;
            return print_link(gateway, &user, &link, json);
        }
        UserAction::ResetFactor { name } => {
            let user = admin.reset_user_factor().id(name).send().await?;
            return view::<UserView>(&user)?.print_change("has no second factor", json);
        }
        UserAction::Disconnect { name } => {
            let user = admin.disconnect_user().id(name).send().await?;
            return view::<UserView>(&user)?.print_change("is not connected with the provider any more", json);
        }
        UserAction::Groups { name, group } => {
            let change = UserUpdate::builder().groups(Some(group));
            return print_groups(&admin.update_user().id(name).body(change).send().await?, json);
        }
        UserAction::Limit { name, limits } => {
            let limits = all_request_limits(limits)?;
            (name, UserUpdate::builder().limits(Some(limits)), "limited")
        }
        UserAction::Disable { name } => (name, enable(false), "disabled"),
        UserAction::Enable { name } => (name, enable(true), "enabled"),
        UserAction::Role { name, role: RoleArg::Admin } => {
            (name, UserUpdate::builder().role(Some(Role::Admin)), "is an admin")
        }
        UserAction::Role { name, role: RoleArg::Member } => {
            (name, UserUpdate::builder().role(Some(Role::Member)), "is a member")
        }
    };
    let user = admin.update_user().id(name).body(change).send().await?;
    view::<UserView>(&user)?.print_change(outcome, json)
}

fn enable(enabled: bool) -> builder::UserUpdate {
    UserUpdate::builder().enabled(Some(enabled))
}

fn print_groups(user: &User, json: bool) -> Result<(), CommandFailure> {
    let changed: UserView = view(user)?;
    changed.print_change(&changed.groups_outcome(), json)?;
    for key in &user.stopped_keys {
        print_stopped_key(&key.id, &key.name, &key.group, &user.name);
    }
    Ok(())
}

/// Prints a link. A gateway without `public_url` names only the path, which is then below its address.
fn print_link(gateway: &RemoteGateway, user: &User, link: &OneTimeLink, json: bool) -> Result<(), CommandFailure> {
    let below = || format!("{}{}", gateway.address, link.path.expose());
    let url = link.url.as_ref().map_or_else(below, |url| url.expose().to_owned());
    let view = LinkView { id: Some(&user.id), name: Some(&user.name), link: &url, expires_at: link.expires_at.into() };
    view.print(json)
}

/// Returns all users, oldest first, as on the store.
async fn list(gateway: &RemoteGateway) -> Result<Vec<UserView>, CommandFailure> {
    let mut users: Vec<User> = Vec::new();
    loop {
        let mut request = gateway.admin.list_users().limit(page_size()?);
        if let Some(last) = users.last() {
            request = request.before(&last.id);
        }
        let page = request.send().await?;
        let has_more = page.has_more && !page.data.is_empty();
        users.extend(page.data);
        if !has_more {
            break;
        }
    }
    users.iter().rev().map(view).collect()
}
