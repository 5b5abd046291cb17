//! Groups of keys: which there are, what is set of them, and those that the settings file has not.

use serde_json::{Map, Value};

use super::trouble::{Kind, of_people};
use super::{Console, admins_only, list};
use crate::error::{Error, Reason, Rejection};
use crate::gateway::config::{self, Problem};
use crate::gateway::manage;
use crate::gateway::people::{Actor, Group};
use crate::gateway::rules::{check_fields, read_object};
use crate::tables::{Field, GROUP_UPDATE_FIELDS, NEW_GROUP_FIELDS};
use crate::wire::admin::types;

const POLICY: &str = "policy";

/// The settings of a group, by the names of `[[groups]]`.
type Policy = Map<String, Value>;

// === impl Console ===

impl Console {
    /// The groups by name. Members see those in which their keys may be.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn list_groups(&self, actor: &Actor) -> Result<types::GroupList, Error> {
        let groups = self.people.groups().await.map_err(of_people(Kind::Group, ""))?;
        let of_member = actor.user().filter(|_| !actor.is_admin());
        let theirs =
            groups.into_iter().filter(|group| of_member.is_none_or(|user| user.groups.contains(&group.row.name)));
        let data = theirs.map(|group| self.shown_group(group, actor)).collect();
        Ok(types::GroupList { object: list(), data, extra: Map::new() })
    }

    /// One group, by its name or id. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 where there is none.
    pub(crate) async fn retrieve_group(&self, actor: &Actor, handle: &str) -> Result<types::Group, Error> {
        admins_only(actor)?;
        let found = self.people.find_group(handle).await.map_err(of_people(Kind::Group, handle))?;
        Ok(self.shown_group(found, actor))
    }

    /// Adds a group. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 400 for a name or a policy that cannot be used, 409 for a name that is taken.
    pub(crate) async fn create_group(&self, actor: &Actor, body: &[u8]) -> Result<types::Group, Error> {
        admins_only(actor)?;
        let (fields, policy) = read(NEW_GROUP_FIELDS, body)?;
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        let policy = policy.map(|policy| self.checked(name, policy)).transpose()?;
        let made = self.people.make_group(&actor.act(), name, policy.as_deref()).await;
        Ok(self.shown_group(made.map_err(of_people(Kind::Group, name))?, actor))
    }

    /// Gives a group another policy. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 where there is none, 409 where the file has it, 400 for a policy that cannot be used.
    pub(crate) async fn update_group(&self, actor: &Actor, handle: &str, body: &[u8]) -> Result<types::Group, Error> {
        admins_only(actor)?;
        let (_, policy) = read(GROUP_UPDATE_FIELDS, body)?;
        let Some(policy) = policy else {
            return Err(
                Rejection::new(POLICY, Reason::MissingParameter, "Missing required parameter: 'policy'.").into()
            );
        };
        let found = self.people.find_group(handle).await.map_err(of_people(Kind::Group, handle))?;
        let policy = self.checked(&found.row.name, policy)?;
        let changed = self.people.change_group(&actor.act(), handle, &policy).await;
        Ok(self.shown_group(changed.map_err(of_people(Kind::Group, handle))?, actor))
    }

    /// Deletes a group. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 where there is none, 409 where the file has it or keys belong to it.
    pub(crate) async fn delete_group(&self, actor: &Actor, handle: &str) -> Result<types::DeletedGroup, Error> {
        admins_only(actor)?;
        let gone = self.people.delete_group(&actor.act(), handle).await;
        let gone = gone.map_err(of_people(Kind::Group, handle))?;
        Ok(types::DeletedGroup { name: gone.name, deleted: true, extra: Map::new() })
    }

    /// The words that a setting of groups can have, such as `fallback`.
    pub(crate) fn words_of_groups(setting: &str) -> Vec<String> {
        config::words_of(&format!("groups.{setting}"))
    }

    /// A policy as it is stored.
    fn checked(&self, name: &str, policy: Policy) -> Result<String, Rejection> {
        match manage::check_policy(&self.config, name, &policy) {
            Ok(group) => Ok(Value::Object(group.policy).to_string()),
            Err(problems) => Err(unusable(&problems)),
        }
    }

    /// A group as it goes out. Members see neither the policy nor the number of keys.
    fn shown_group(&self, group: Group, actor: &Actor) -> types::Group {
        let Group { row, of_file } = group;
        let told = actor.is_admin().then(|| manage::policy_of(&self.config, &row, of_file));
        let (policy, problem) = told.map_or((None, None), |(policy, problem)| (Some(policy), problem));
        types::Group {
            source: if of_file { types::GroupSource::File } else { types::GroupSource::Store },
            keys: actor.is_admin().then_some(row.keys),
            name: row.name,
            policy: policy.and_then(|policy| serde_json::from_value(Value::Object(policy)).ok()),
            problem,
            extra: Map::new(),
        }
    }
}

/// Reads a body by the table of its fields, apart from the policy, whose fields the settings know.
fn read(table: &'static [Field], body: &[u8]) -> Result<(Policy, Option<Policy>), Rejection> {
    let mut fields = read_object(body)?;
    let policy = match fields.remove(POLICY) {
        None | Some(Value::Null) => None,
        Some(Value::Object(policy)) => Some(policy),
        Some(_) => {
            let message = "Invalid type for 'policy': expected an object.";
            return Err(Rejection::new(POLICY, Reason::InvalidType, message));
        }
    };
    check_fields("", table, &mut fields)?;
    Ok((fields, policy))
}

/// The first thing that is wrong, with the field as the operator has spelled it.
fn unusable(problems: &[Problem]) -> Rejection {
    let Some(problem) = problems.first() else {
        return Rejection::new(POLICY, Reason::InvalidValue, "The policy cannot be used.");
    };
    let param = problem.setting().map_or_else(|| POLICY.to_owned(), |setting| format!("{POLICY}.{setting}"));
    Rejection::new(param, Reason::InvalidValue, format!("Invalid policy: {}.", problem.message()))
}
