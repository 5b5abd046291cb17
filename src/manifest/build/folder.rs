//! The files of one skill, as they go into its package.

use std::collections::BTreeMap;

use super::{Built, Kind, Problem, Recipe, limits};
use crate::manifest::package::{Unwanted, unwanted};

/// Reads every file below a folder, and says of each that stays out why.
pub(super) fn files(
    recipe: &Recipe<'_>,
    root: &str,
    built: &mut Built,
) -> Result<BTreeMap<String, Vec<u8>>, Vec<Problem>> {
    let mut files = BTreeMap::new();
    let mut problems = Vec::new();
    let mut left: Vec<String> = vec![String::new()];
    while let Some(below) = left.pop() {
        let at = if below.is_empty() { root.to_owned() } else { format!("{root}/{below}") };
        let listed = match recipe.files.list(&at) {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) => return Err(vec![error.into()]),
        };
        for entry in listed {
            let path = if below.is_empty() { entry.name } else { format!("{below}/{}", entry.name) };
            let whole = format!("{root}/{path}");
            match (unwanted(&path), entry.metadata.kind) {
                (Some(Unwanted::Junk), _) => built.left_out.push(whole),
                (Some(Unwanted::Secret), _) => {
                    problems
                        .push(Problem::new(whole, "may hold a secret, and is not packed; take it out of the skill"));
                }
                (None, Kind::Folder) if path.matches('/').count() < limits().depth => left.push(path),
                (None, Kind::Folder) => problems.push(Problem::new(whole, "lies deeper than a package may")),
                (None, Kind::Link(_) | Kind::Other) => {
                    problems.push(Problem::new(whole, "is a link or no plain file, which a package cannot hold"));
                }
                (None, Kind::File) => match recipe.files.read(&whole, limits().file_bytes) {
                    Ok(Some(bytes)) => {
                        files.insert(path, bytes);
                    }
                    Ok(None) => problems.push(Problem::new(whole, "went away while it was read")),
                    Err(error) => problems.push(error.into()),
                },
            }
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}
