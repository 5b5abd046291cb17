//! Groups of keys: which there are, and those that the settings file has not.

use serde_json::Map;

use super::told::read;
use super::trouble::{Kind, of_people};
use super::{Console, admins_only, list};
use crate::error::Error;
use crate::gateway::people::{Actor, Group};
use crate::tables::NEW_GROUP_FIELDS;
use crate::wire::admin::types;

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
        let data = theirs.map(|group| shown(group, actor)).collect();
        Ok(types::GroupList { object: list(), data, extra: Map::new() })
    }

    /// Adds a group. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 400 for a name that cannot be used, 409 for one that is taken.
    pub(crate) async fn create_group(&self, actor: &Actor, body: &[u8]) -> Result<types::Group, Error> {
        admins_only(actor)?;
        let new: types::NewGroup = read(NEW_GROUP_FIELDS, body)?;
        let made = self.people.make_group(&actor.act(), &new.name).await;
        Ok(shown(made.map_err(of_people(Kind::Group, &new.name))?, actor))
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
}

fn shown(group: Group, actor: &Actor) -> types::Group {
    types::Group {
        name: group.row.name,
        source: if group.of_file { types::GroupSource::File } else { types::GroupSource::Store },
        // How many keys others have is not for members.
        keys: actor.is_admin().then_some(group.row.keys),
        extra: Map::new(),
    }
}
