//! Reads ARCHITECTURE.md: the rooms that it names, and the import table.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use super::{Finding, Source};

/// The room whose own rooms stand one level deeper.
const HALL: &str = "gateway";
/// The files that are no rooms: what the crate shows, and the program.
const DOORS: [&str; 2] = ["lib", "main"];

/// What the document says about the house.
#[derive(Debug)]
pub(super) struct Map {
    /// The rooms of the table by name.
    rows: BTreeMap<String, Row>,
    /// The rooms that have a paragraph.
    described: BTreeSet<String>,
}

/// One row of the import table.
#[derive(Debug)]
pub(super) struct Row {
    /// Rooms, and single items of rooms.
    pub(super) may_import: BTreeSet<String>,
    pub(super) never_names: BTreeSet<String>,
}

impl Map {
    pub(super) fn parse(document: &str) -> Result<Self> {
        let cells = |line: &str| line.trim().trim_matches('|').split('|').map(names).collect::<Vec<_>>();
        let table = document.lines().skip_while(|line| !line.starts_with("| Room | May import")).skip(2);
        let mut rows = BTreeMap::new();
        for line in table.take_while(|line| line.starts_with('|')) {
            let [room, may_import, never_names] = cells(line).try_into().unwrap_or_default();
            ensure!(room.len() == 1, "a row of the import table is not `room | rooms | names`: {line}");
            rows.extend(
                room.into_iter()
                    .map(|room| (room, Row { may_import: may_import.clone(), never_names: never_names.clone() })),
            );
        }
        ensure!(!rows.is_empty(), "there is no table that begins with `| Room | May import | Never names |`");
        let described = document.lines().filter_map(|line| line.strip_prefix("**`")?.split_once("`**"));
        Ok(Self { rows, described: described.map(|(room, _)| room.to_owned()).collect() })
    }

    /// The room that a path from the root of the crate leads into, if it leads into one.
    pub(super) fn room(&self, path: &[&str]) -> Option<(&str, &Row)> {
        (1..=path.len()).rev().find_map(|length| {
            let (name, row) = self.rows.get_key_value(&path[..length].join("::"))?;
            Some((name.as_str(), row))
        })
    }

    /// The rooms of the document against those of the source tree.
    pub(super) fn compare(&self, document: &str, sources: &[Source]) -> Vec<Finding> {
        let there: BTreeSet<String> = sources.iter().filter_map(|source| room_of_file(&source.path)).collect();
        let table: BTreeSet<String> = self.rows.keys().cloned().collect();
        let mut findings = Vec::new();
        for (part, listed) in [("import table", &table), ("list of rooms", &self.described)] {
            let missing = there.difference(listed).map(|room| format!("the {part} lacks the room `{room}`"));
            let extra =
                listed.difference(&there).map(|room| format!("the {part} names `{room}`, which is no room in src/"));
            findings.extend(missing.chain(extra).map(|message| Finding {
                path: document.to_owned(),
                line: 1,
                message,
            }));
        }
        let listed = |name: &String| self.room(&name.split("::").collect::<Vec<_>>()).is_some();
        for (room, row) in &self.rows {
            for name in row.may_import.iter().filter(|name| !listed(name)) {
                let message = format!("`{room}` may import `{name}`, which is in no room");
                findings.push(Finding { path: document.to_owned(), line: 1, message });
            }
        }
        findings
    }
}

/// The module path of a source file, and nothing for files that are no module of the crate.
pub(super) fn module_of_file(path: &str) -> Option<Vec<&str>> {
    let module = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    (!DOORS.contains(&module)).then(|| module.split('/').collect())
}

fn room_of_file(path: &str) -> Option<String> {
    let module = module_of_file(path)?;
    let depth = if module.first() == Some(&HALL) { 2 } else { 1 };
    Some(module[..depth.min(module.len())].join("::"))
}

/// The words between backticks.
fn names(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "**`image`** is.\n\n| Room | May import | Never names |\n|---|---|---|\n\
        | `image` | | `tokio`, `hyper` |\n| `gateway` | `gateway::keys` | |\n| `gateway::keys` | `image::Size` | |\n";

    #[test]
    fn a_path_leads_into_the_innermost_room() {
        let map = Map::parse(DOCUMENT).unwrap();
        let room = |path: &[&str]| map.room(path).map(|(name, _)| name.to_owned());
        assert_eq!(room(&["gateway", "keys", "secret"]).as_deref(), Some("gateway::keys"));
        assert_eq!(room(&["gateway", "Gateway"]).as_deref(), Some("gateway"));
        assert_eq!(room(&["nowhere"]), None);
        assert!(map.rows["image"].never_names.contains("hyper"));
    }

    #[test]
    fn document_and_tree_name_the_same_rooms() {
        let map = Map::parse(DOCUMENT).unwrap();
        let file = |path: &str| Source { path: path.to_owned(), text: String::new() };
        let files =
            ["src/lib.rs", "src/image/size.rs", "src/gateway.rs", "src/gateway/relay/lexer.rs", "tests/it/main.rs"];
        let findings = map.compare("A.md", &files.map(file));
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "the import table lacks the room `gateway::relay`",
                "the import table names `gateway::keys`, which is no room in src/",
                "the list of rooms lacks the room `gateway`",
                "the list of rooms lacks the room `gateway::relay`",
            ]
        );
    }

    #[test]
    fn an_entry_that_leads_nowhere_is_found() {
        let map = Map::parse("| Room | May import | Never names |\n|---|---|---|\n| `a` | `b::C` | |\n").unwrap();
        let messages: Vec<String> = map.compare("A.md", &[]).into_iter().map(|finding| finding.message).collect();
        assert!(messages.contains(&"`a` may import `b::C`, which is in no room".to_owned()), "{messages:?}");
    }

    #[test]
    fn a_row_of_another_shape_is_an_error() {
        assert!(Map::parse("| Room | May import | Never names |\n|---|---|---|\n| a | `b` | |\n").is_err());
    }
}
