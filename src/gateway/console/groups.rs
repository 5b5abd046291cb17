//! The operations on groups of keys: they list groups and their settings, and change those that are not in the settings
//! file.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error_conversion::{ErrorSubject, from_identity_error};
use super::limit_usage::StoredSubject;
use super::{Console, list_object, require_admin};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::{self, Config, ConfigProblem};
use crate::gateway::limits::LimitSubject;
use crate::gateway::manage::{self, PolicyEnvironment};
use crate::gateway::people::{Actor, KeyGroup};
use crate::gateway::rules::{check_fields, missing_parameter, read_object, type_name, wrong_type};
use crate::tables::{Field, GROUP_UPDATE_FIELDS, NEW_GROUP_FIELDS};
use crate::wire::admin::types;

const POLICY_FIELD: &str = "policy";

/// The settings of a group, by the names of `[[groups]]`.
type PolicySettings = Map<String, Value>;

// === impl Console ===

impl Console {
    /// Returns the groups by name. A member sees the groups that its keys may belong to.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn list_groups(&self, actor: &Actor) -> Result<types::GroupList, Error> {
        let groups = self.people.groups().await.map_err(from_identity_error(ErrorSubject::Group, ""))?;
        let member = actor.user().filter(|_| !actor.is_admin());
        let visible_groups =
            groups.into_iter().filter(|group| member.is_none_or(|user| user.groups.contains(&group.row.name)));
        let mut data = Vec::new();
        for group in visible_groups {
            data.push(self.to_wire_group(group, actor).await?);
        }
        let usage = self.limit_usage(data.iter().map(group_subject).collect()).await?;
        data.iter_mut().zip(usage).for_each(|(group, usage)| group.limit_usage = usage);
        Ok(types::GroupList { object: list_object(), data })
    }

    /// Returns the group with this name or id. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such group.
    pub(crate) async fn retrieve_group(&self, actor: &Actor, handle: &str) -> Result<types::Group, Error> {
        require_admin(actor)?;
        let group = self.people.find_group(handle).await.map_err(from_identity_error(ErrorSubject::Group, handle))?;
        self.group_with_limit_usage(group, actor).await
    }

    /// Returns the group with the settings exactly as they are stored. For admins.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::retrieve_group`].
    pub(crate) async fn retrieve_stored_group(
        &self,
        actor: &Actor,
        handle: &str,
    ) -> Result<(types::Group, String), Error> {
        require_admin(actor)?;
        let group = self.people.find_group(handle).await.map_err(from_identity_error(ErrorSubject::Group, handle))?;
        let stored = group.row.policy.clone().unwrap_or_else(|| "{}".to_owned());
        Ok((self.group_with_limit_usage(group, actor).await?, stored))
    }

    /// Adds a group. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 400 for a name or a policy that cannot be used, 409 for a name that is taken.
    pub(crate) async fn create_group(&self, actor: &Actor, body: &[u8]) -> Result<types::Group, Error> {
        require_admin(actor)?;
        let (fields, policy) = read_fields_and_policy(NEW_GROUP_FIELDS, body)?;
        // The check of the fields has rejected a request without a name.
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        let policy = match policy {
            Some(policy) => Some(self.check_policy(name, policy).await?),
            None => None,
        };
        let created = self.people.create_group(&actor.audit_context(), name, policy.as_deref()).await;
        let created_group = created.map_err(from_identity_error(ErrorSubject::Group, name))?;
        // Requests of a group with a policy are refused until the group is in force.
        self.refresh_groups().await;
        self.group_with_limit_usage(created_group, actor).await
    }

    /// Replaces the policy of a group. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such group, 409 if it is a group of the settings file, 400 for a policy that
    /// cannot be used, 503 if the policy is stored but not yet in force.
    pub(crate) async fn update_group(&self, actor: &Actor, handle: &str, body: &[u8]) -> Result<types::Group, Error> {
        require_admin(actor)?;
        let (_, policy) = read_fields_and_policy(GROUP_UPDATE_FIELDS, body)?;
        let Some(policy) = policy else {
            return Err(missing_parameter(POLICY_FIELD.to_owned()).into());
        };
        let group = self.people.find_group(handle).await.map_err(from_identity_error(ErrorSubject::Group, handle))?;
        let policy = self.check_policy(&group.row.name, policy).await?;
        let changed = self.people.change_group(&actor.audit_context(), handle, &policy).await;
        let changed = changed.map_err(from_identity_error(ErrorSubject::Group, handle))?;
        if !self.refresh_groups().await {
            return Err(Error::Unavailable);
        }
        self.group_with_limit_usage(changed, actor).await
    }

    /// Deletes a group. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such group, 409 if it is a group of the settings file or keys belong to it.
    pub(crate) async fn delete_group(&self, actor: &Actor, handle: &str) -> Result<types::DeletedGroup, Error> {
        require_admin(actor)?;
        let deleted = self.people.delete_group(&actor.audit_context(), handle).await;
        let group = deleted.map_err(from_identity_error(ErrorSubject::Group, handle))?;
        // The refresh drops the policy, so that a new group with the same name starts without it.
        self.refresh_groups().await;
        Ok(types::DeletedGroup { name: group.name, deleted: true })
    }

    /// Waits until the groups of the store are in force in this process. Returns false if this cannot be confirmed.
    async fn refresh_groups(&self) -> bool {
        match &self.server {
            Some(server) => server.group_refresh.refresh().await,
            None => true,
        }
    }

    /// Returns the values that a setting of groups can have, such as those of `fallback`.
    pub(crate) fn group_setting_values(setting: &str) -> Vec<String> {
        config::allowed_words(&format!("groups.{setting}"))
    }

    /// Checks a policy, and returns it in the form in which it is stored.
    async fn check_policy(&self, name: &str, policy: PolicySettings) -> Result<String, Error> {
        let name = name.to_owned();
        let checked = self
            .check_on_blocking_thread(move |config, environment| {
                manage::check_policy(config, &name, &policy, environment)
            })
            .await?;
        match checked {
            Ok(group) => Ok(Value::Object(group.policy).to_string()),
            Err(problems) => Err(policy_rejection(&problems).into()),
        }
    }

    /// Runs a check on a blocking thread, because a check compiles patterns, which takes processor time.
    async fn check_on_blocking_thread<T: Send + 'static>(
        &self,
        check: impl FnOnce(&Config, PolicyEnvironment<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (config, server) = (Arc::clone(&self.config), self.server.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let environment = server.as_ref().map(|server| PolicyEnvironment::Server(&server.upstream));
            check(&config, environment.unwrap_or(PolicyEnvironment::OtherProcess))
        });
        checked.await.map_err(|error| {
            tracing::error!(%error, "a policy could not be checked");
            Error::Internal
        })
    }

    async fn group_with_limit_usage(&self, group: KeyGroup, actor: &Actor) -> Result<types::Group, Error> {
        let group = self.to_wire_group(group, actor).await?;
        let usage = self.limit_usage(vec![group_subject(&group)]).await?.pop();
        Ok(types::Group { limit_usage: usage.unwrap_or_default(), ..group })
    }

    /// Returns a group as the API shows it, without the use of its limits. Members see neither the
    /// policy nor the number of keys.
    async fn to_wire_group(&self, group: KeyGroup, actor: &Actor) -> Result<types::Group, Error> {
        let (policy, problem) = match actor.is_admin() {
            true => self.policy_and_problem(&group).await?,
            false => (None, None),
        };
        let KeyGroup { row, is_in_file } = group;
        Ok(types::Group {
            source: if is_in_file { types::GroupSource::File } else { types::GroupSource::Store },
            keys: actor.is_admin().then_some(row.key_count),
            name: row.name,
            policy,
            problem,
            limit_usage: Vec::new(),
        })
    }

    /// Returns the policy of a group, and the reason why it cannot be used, if there is one.
    async fn policy_and_problem(
        &self,
        group: &KeyGroup,
    ) -> Result<(Option<types::GroupPolicy>, Option<String>), Error> {
        let (policy, problem) = match manage::policy_in_force(&self.config, &group.row) {
            Some(in_force) => in_force,
            None => {
                let (row, is_in_file) = (group.row.clone(), group.is_in_file);
                self.check_on_blocking_thread(move |config, environment| {
                    manage::configured_policy(config, &row, is_in_file, environment)
                })
                .await?
            }
        };
        // A stored policy that does not have the form of the API is not shown. Its problem says why.
        Ok((serde_json::from_value(Value::Object(policy)).ok(), problem))
    }
}

/// Returns the subject of the limits of a group, and the limits of the policy that is shown.
fn group_subject(group: &types::Group) -> StoredSubject {
    let limits = group.policy.as_ref().and_then(|policy| policy.limits.as_ref());
    // The limits of the API document are always an object.
    let limits = limits.and_then(|limits| serde_json::to_value(limits).ok()?.as_object().cloned());
    (LimitSubject::Group(group.name.clone()), limits)
}

/// Reads a body, and checks its fields by the table. Returns them, and the policy beside them. The policy is returned
/// unchecked, because the settings define its fields.
fn read_fields_and_policy(
    table: &'static [Field],
    body: &[u8],
) -> Result<(Map<String, Value>, Option<PolicySettings>), Rejection> {
    let mut fields = read_object(body)?;
    let policy = match fields.remove(POLICY_FIELD) {
        None | Some(Value::Null) => None,
        Some(Value::Object(policy)) => Some(policy),
        Some(found) => return Err(wrong_type(POLICY_FIELD, "an object", type_name(&found))),
    };
    check_fields("", table, &mut fields)?;
    Ok((fields, policy))
}

/// Returns the rejection for the first problem, with the name of the field in the request.
fn policy_rejection(problems: &[ConfigProblem]) -> Rejection {
    let Some(problem) = problems.first() else {
        return Rejection::new(POLICY_FIELD, RejectionReason::InvalidValue, "The policy cannot be used.");
    };
    let param =
        problem.setting().map_or_else(|| POLICY_FIELD.to_owned(), |setting| format!("{POLICY_FIELD}.{setting}"));
    Rejection::new(param, RejectionReason::InvalidValue, format!("Invalid policy: {}.", problem.message()))
}
