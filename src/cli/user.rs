//! The command `imagate user list|invite|setup-link|reset|reset-factor|disconnect|limit|disable|enable|groups|role`.

mod remote;
mod view;

use clap::{Args, Subcommand, ValueEnum};

use super::failure::CommandFailure;
use super::limit_arg::{LimitArg, stored_limits};
use super::output::print_message;
use super::remote::GatewayArgs;
use crate::gateway;
use crate::gateway::config::{Config, DEFAULT_GROUP};
use crate::gateway::people::{IdentityError, IdentityService, IssuedLink};
use crate::gateway::store::{AuditContext, NewUser, UserChange, UserFilter, UserRole, UserRow};
use view::{LinkView, UserView, print_list, print_stopped_key};

/// The number of users that are read at once.
const PAGE_SIZE: u32 = 1000;

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

// === impl UserCommand ===

impl UserCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        if let Some(gateway) = gateway.remote()? {
            return gateway.run(async |gateway| remote::run(gateway, action, json).await);
        }
        gateway
            .installation
            .with_store(async |config, store| action.run(&gateway::open_people(config, store), config, json).await)
    }
}

// === impl UserAction ===

impl UserAction {
    async fn run(self, people: &IdentityService, config: &Config, json: bool) -> Result<(), CommandFailure> {
        let audit = AuditContext::command();
        let (name, change, outcome) = match self {
            Self::List => return list(people, json).await,
            Self::Invite { name, admin, group: groups, limits } => {
                let role = if admin { UserRole::Admin } else { UserRole::Member };
                let new_user = NewUser { name: name.clone(), role, groups, limits: stored_limits(limits)? };
                return print_link(people.invite(&audit, new_user).await, &name, config, json);
            }
            Self::SetupLink => return print_setup_link(people.create_setup_link().await?, config, json),
            Self::Reset { name } => {
                return print_link(people.create_reset_link(&audit, &name).await, &name, config, json);
            }
            Self::ResetFactor { name } => {
                let reset = people.remove_second_factor(&audit, &name).await;
                return print_change(reset, &name, "has no second factor", json);
            }
            Self::Disconnect { name } => {
                let disconnected = people.disconnect_provider(&audit, &name).await;
                return print_change(disconnected, &name, "is not connected with the provider any more", json);
            }
            Self::Groups { name, group } => return change_groups(people, &audit, &name, group, json).await,
            Self::Limit { name, limits } => (name, UserChange::Limit(stored_limits(limits)?), "limited"),
            Self::Disable { name } => (name, UserChange::Disable, "disabled"),
            Self::Enable { name } => (name, UserChange::Enable, "enabled"),
            Self::Role { name, role: RoleArg::Admin } => (name, UserChange::Role(UserRole::Admin), "is an admin"),
            Self::Role { name, role: RoleArg::Member } => (name, UserChange::Role(UserRole::Member), "is a member"),
        };
        print_change(people.change_user(&audit, &name, change).await, &name, outcome, json)
    }
}

async fn list(people: &IdentityService, json: bool) -> Result<(), CommandFailure> {
    let mut filter = UserFilter { limit: PAGE_SIZE, ..UserFilter::default() };
    let mut users = Vec::new();
    loop {
        let page = people.user_page(&filter).await?;
        filter.before = page.items.last().map(|user| user.id.clone());
        users.extend(page.items);
        if !page.has_more {
            break;
        }
    }
    // The oldest user comes first, as everywhere on the command line.
    let users: Vec<UserView> = users.into_iter().rev().map(UserView::from).collect();
    print_list(&users, json)
}

fn print_link(
    result: Result<(UserRow, IssuedLink), IdentityError>,
    name: &str,
    config: &Config,
    json: bool,
) -> Result<(), CommandFailure> {
    let (user, one_time_link) = result.map_err(|error| user_failure(error, name))?;
    let link = format!("{}{}", pages_base_url(config), one_time_link.path());
    let (id, expires_at) = (user.id.to_string(), one_time_link.expires_at);
    LinkView { id: Some(&id), name: Some(&user.name), link: &link, expires_at }.print(json)?;
    warn_without_public_url(config);
    Ok(())
}

fn print_setup_link(one_time_link: Option<IssuedLink>, config: &Config, json: bool) -> Result<(), CommandFailure> {
    let Some(one_time_link) = one_time_link else {
        let error = anyhow::anyhow!("there is an admin already; `imagate user reset NAME` prints a link for a user");
        return Err(CommandFailure::Failed(error));
    };
    let link = format!("{}{}", pages_base_url(config), one_time_link.path());
    LinkView { id: None, name: None, link: &link, expires_at: one_time_link.expires_at }.print(json)?;
    warn_without_public_url(config);
    Ok(())
}

fn warn_without_public_url(config: &Config) {
    if config.public_url.is_none() {
        print_message("set `public_url` to the address at which users reach the gateway");
    }
}

/// Returns the base URL of the pages: `public_url`, or the listen address if it is not set.
pub(super) fn pages_base_url(config: &Config) -> String {
    config.public_url.as_ref().map_or_else(|| format!("http://{}", config.listen), |url| url.as_str().to_owned())
}

fn print_change(
    change: Result<UserRow, IdentityError>,
    name: &str,
    outcome: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    UserView::from(change.map_err(|error| user_failure(error, name))?).print_change(outcome, json)
}

async fn change_groups(
    people: &IdentityService,
    audit: &AuditContext,
    name: &str,
    groups: Vec<String>,
    json: bool,
) -> Result<(), CommandFailure> {
    let changed = people.apply_user_changes_and_list_stopped_keys(audit, name, &[UserChange::Groups(groups)]).await;
    let (user, disabled_keys) = changed.map_err(|error| user_failure(error, name))?;
    let user = UserView::from(user);
    user.print_change(&user.groups_outcome(), json)?;
    for key in disabled_keys {
        print_stopped_key(key.id.as_str(), &key.name, &key.group_name, &user.name);
    }
    Ok(())
}

fn user_failure(error: IdentityError, name: &str) -> CommandFailure {
    CommandFailure::Failed(match error {
        IdentityError::Unknown => anyhow::anyhow!("the user {name} does not exist"),
        IdentityError::NameTaken => anyhow::anyhow!("the user {name} already exists"),
        error => error.into(),
    })
}
