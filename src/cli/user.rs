//! The command `imagate user list|invite|setup-link|reset|reset-factor|disconnect|limit|disable|enable|groups|role`.

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::failure::CommandFailure;
use super::installation::{InstallationArgs, pages_base_url};
use super::limit_arg::{LimitArg, all_request_limits, request_limits};
use super::managed_gateway::{GatewayArgs, ManagedGateway, page_size};
use super::output::{Column, cell, moment, print, print_json, print_message, table};
use crate::client::admin::Error;
use crate::client::admin::types::{NewUser, OneTimeLink, Role, User, UserName, UserUpdate, builder};
use crate::gateway::config::DEFAULT_GROUP;
use crate::gateway::store::Timestamp;
use crate::gateway::{self, names};

/// Arguments of `user`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct UserCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: UserAction,
}

#[derive(Debug, Subcommand)]
enum UserAction {
    /// List the users.
    List,
    /// Add a user, and print a one-time link for choosing a password. It is valid for three days.
    Invite {
        /// The name for signing in.
        name: String,
        /// Make the user an admin, who may do everything.
        #[arg(long)]
        admin: bool,
        /// A group in which the user may create keys; may be given several times.
        #[arg(long, value_name = "GROUP", default_value = DEFAULT_GROUP)]
        group: Vec<String>,
        /// A limit of all keys of the user together, such as `images_per_day=50` or `budget_usd=5`; may be repeated.
        #[arg(long = "limit", value_name = "NAME=VALUE")]
        limits: Vec<LimitArg>,
    },
    /// Replace all limits of a user. Without --limit, the user has none.
    Limit {
        /// The name or id of the user.
        name: String,
        /// A limit of all keys of the user together, such as `images_per_day=50` or `budget_usd=5`; may be repeated.
        #[arg(long = "limit", value_name = "NAME=VALUE")]
        limits: Vec<LimitArg>,
    },
    /// Print another one-time link for creating the first admin. It replaces the earlier link, and is valid for 30 minutes.
    SetupLink,
    /// Print a one-time link for choosing another password. It is valid for one day.
    Reset {
        /// The name or id of the user.
        name: String,
    },
    /// Remove the second factor of a user who has lost it. The user then signs in with the password alone.
    ResetFactor {
        /// The name or id of the user.
        name: String,
    },
    /// Remove the connection of a user with the provider of OpenID Connect. All sessions of the user end.
    Disconnect {
        /// The name or id of the user.
        name: String,
    },
    /// Disable a user: all sessions end, and all keys of the user are refused.
    Disable {
        /// The name or id of the user.
        name: String,
    },
    /// Enable a disabled user.
    Enable {
        /// The name or id of the user.
        name: String,
    },
    /// Change the groups in which a user may create keys. The user's keys in other groups are disabled.
    Groups {
        /// The name or id of the user.
        name: String,
        /// A group, which must exist; may be given several times [default: none]
        #[arg(long, value_name = "GROUP")]
        group: Vec<String>,
    },
    /// Change the role of a user.
    Role {
        /// The name or id of the user.
        name: String,
        /// The role. An admin may do everything; a member may see and change only their own keys.
        role: RoleArg,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleArg {
    Admin,
    Member,
}

/// A one-time link; one for the first admin has no user.
#[derive(Serialize)]
struct LinkView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    link: &'a str,
    expires_at: Timestamp,
}

// === impl UserCommand ===

impl UserCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        if matches!(action, UserAction::SetupLink) {
            let reason = "a gateway with an admin token has an admin already, or gets its first one there";
            return print_setup_link(gateway.only_local("user setup-link", reason)?, json);
        }
        gateway.find()?.run(async |gateway| action.run(gateway, json).await)
    }
}

/// Prints a link for the first admin. The admin API has none, because no token exists before the first admin.
fn print_setup_link(installation: InstallationArgs, json: bool) -> Result<(), CommandFailure> {
    installation.with_store(async |config, store| {
        let Some(one_time_link) = gateway::open_people(config, store).create_setup_link().await? else {
            let error =
                anyhow::anyhow!("there is an admin already; `imagate user reset NAME` prints a link for a user");
            return Err(CommandFailure::Failed(error));
        };
        let link = format!("{}{}", pages_base_url(config), one_time_link.path());
        LinkView { id: None, name: None, link: &link, expires_at: one_time_link.expires_at }.print(json)?;
        warn_without_public_url(config.public_url.is_some());
        Ok(())
    })
}

fn warn_without_public_url(has_public_url: bool) {
    if !has_public_url {
        print_message("set `public_url` to the address at which users reach the gateway");
    }
}

// === impl UserAction ===

impl UserAction {
    async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let admin = &gateway.admin;
        let (name, change, outcome) = match self {
            Self::List => return print_list(&list(gateway).await?, json),
            Self::Invite { name, admin: is_admin, group, limits } => {
                let new = NewUser::builder()
                    .name(UserName::try_from(name).map_err(Error::from)?)
                    .role(Some(if is_admin { Role::Admin } else { Role::Member }))
                    .groups(Some(group))
                    .limits(request_limits(limits)?);
                let created = admin.create_user().body(new).send().await?;
                return print_link(gateway, &created.user, &created.link, json);
            }
            // It needs no admin API.
            Self::SetupLink => return Ok(()),
            Self::Reset { name } => {
                let user = admin.retrieve_user().id(name).send().await?;
                let link = admin.reset_user().id(&user.id).send().await?;
                return print_link(gateway, &user, &link, json);
            }
            Self::ResetFactor { name } => {
                let user = admin.reset_user_factor().id(name).send().await?;
                return print_change(&user, "has no second factor", json);
            }
            Self::Disconnect { name } => {
                let user = admin.disconnect_user().id(name).send().await?;
                return print_change(&user, "is not connected with the provider any more", json);
            }
            Self::Groups { name, group } => {
                let change = UserUpdate::builder().groups(Some(group));
                return print_groups(&admin.update_user().id(name).body(change).send().await?, json);
            }
            Self::Limit { name, limits } => {
                (name, UserUpdate::builder().limits(Some(all_request_limits(limits)?)), "limited")
            }
            Self::Disable { name } => (name, UserUpdate::builder().enabled(Some(false)), "disabled"),
            Self::Enable { name } => (name, UserUpdate::builder().enabled(Some(true)), "enabled"),
            Self::Role { name, role: RoleArg::Admin } => (name, with_role(Role::Admin), "is an admin"),
            Self::Role { name, role: RoleArg::Member } => (name, with_role(Role::Member), "is a member"),
        };
        let user = admin.update_user().id(name).body(change).send().await?;
        print_change(&user, outcome, json)
    }
}

fn with_role(role: Role) -> builder::UserUpdate {
    UserUpdate::builder().role(Some(role))
}

fn print_groups(user: &User, json: bool) -> Result<(), CommandFailure> {
    let groups = if user.groups.is_empty() { "no group".to_owned() } else { user.groups.join(", ") };
    print_change(user, &format!("is in {groups}"), json)?;
    for key in &user.stopped_keys {
        print_stopped_key(&key.id, &key.name, &key.group, &user.name);
    }
    Ok(())
}

/// Prints a link. A gateway without `public_url` names only the path, which is then below its address.
fn print_link(gateway: &ManagedGateway, user: &User, link: &OneTimeLink, json: bool) -> Result<(), CommandFailure> {
    let below = || format!("{}{}", gateway.address, link.path.expose());
    let url = link.url.as_ref().map_or_else(below, |url| url.expose().to_owned());
    let view = LinkView { id: Some(&user.id), name: Some(&user.name), link: &url, expires_at: link.expires_at.into() };
    view.print(json)?;
    warn_without_public_url(link.url.is_some());
    Ok(())
}

/// Returns all users, oldest first.
async fn list(gateway: &ManagedGateway) -> Result<Vec<User>, CommandFailure> {
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
    users.reverse();
    Ok(users)
}

/// Prints a user after a change.
fn print_change(user: &User, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    let name = names::escape_hidden(&user.name);
    Ok(if json { print_json(user) } else { print(&format!("{name} {outcome}\n")) }?)
}

fn table_row(user: &User) -> [String; 6] {
    let state = match (user.disabled_at, user.has_password || user.has_identity == Some(true)) {
        (Some(_), _) => "disabled",
        (None, true) => "active",
        (None, false) => "no password",
    };
    let groups = cell(Some(user.groups.join(",")).filter(|groups| !groups.is_empty()));
    let (id, name, role) = (user.id.clone(), user.name.clone(), user.role.to_string());
    [id, name, role, groups, state.to_owned(), cell(user.last_sign_in_at.map(moment))]
}

// === impl LinkView ===

impl LinkView<'_> {
    /// Prints the link alone on its line, so that a script can read the line unchanged.
    fn print(&self, json: bool) -> Result<(), CommandFailure> {
        if json {
            return Ok(print_json(self)?);
        }
        print(&format!("{}\n", self.link))?;
        let name = self.name.unwrap_or("the first admin");
        print_message(&format!("one-time link for {name}, valid until {}", self.expires_at));
        Ok(())
    }
}

fn print_list(users: &[User], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&users)?);
    }
    let rows: Vec<[String; 6]> = users.iter().map(table_row).collect();
    let (name, groups) = (Column::from("NAME"), Column::name("GROUPS"));
    let (state, signed_in) = (Column::state("STATE"), Column::moment("LAST SIGN-IN"));
    Ok(print(&table(["ID".into(), name, "ROLE".into(), groups, state, signed_in], &rows))?)
}

/// Prints which key is disabled because its user left its group.
fn print_stopped_key(id: &str, key: &str, group: &str, user: &str) {
    print_message(&format!("key {id} ({key}) in group {group} is disabled: {user} left the group"));
}
