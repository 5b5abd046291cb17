//! Reads the files of one skill as they go into its package.

use std::collections::BTreeMap;

use super::{BuildInput, BuildOutput, BuildProblem, FileKind, limits};
use crate::manifest::package::{UnwantedFileKind, unwanted};

/// Reads all files below a folder. Junk is listed in `left_out`; every other file that cannot be packed is a problem.
pub(super) fn skill_files(
    input: &BuildInput<'_>,
    root: &str,
    built: &mut BuildOutput,
) -> Result<BTreeMap<String, Vec<u8>>, Vec<BuildProblem>> {
    let mut files = BTreeMap::new();
    let mut problems = Vec::new();
    let mut left: Vec<String> = vec![String::new()];
    while let Some(below) = left.pop() {
        let at = if below.is_empty() { root.to_owned() } else { format!("{root}/{below}") };
        let listed = match input.files.list(&at) {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) => return Err(vec![error.into()]),
        };
        for entry in listed {
            let path = if below.is_empty() { entry.name } else { format!("{below}/{}", entry.name) };
            let whole = format!("{root}/{path}");
            match (unwanted(&path), entry.metadata.kind) {
                (Some(UnwantedFileKind::Junk), _) => built.left_out.push(whole),
                (Some(UnwantedFileKind::Secret), _) => {
                    problems.push(BuildProblem::new(
                        whole,
                        "may hold a secret, and is not packed; take it out of the skill",
                    ));
                }
                (None, FileKind::Folder) if path.matches('/').count() < limits().depth => left.push(path),
                (None, FileKind::Folder) => problems.push(BuildProblem::new(whole, "lies deeper than a package may")),
                (None, FileKind::Link(_) | FileKind::Other) => {
                    problems.push(BuildProblem::new(whole, "is a link or no plain file, which a package cannot hold"));
                }
                (None, FileKind::File) => match input.files.read(&whole, limits().file_bytes) {
                    Ok(Some(bytes)) => {
                        files.insert(path, bytes);
                    }
                    Ok(None) => problems.push(BuildProblem::new(whole, "went away while it was read")),
                    Err(error) => problems.push(error.into()),
                },
            }
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}
