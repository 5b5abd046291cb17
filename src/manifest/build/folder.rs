//! Reads the files of one skill as they go into its package.

use std::collections::BTreeMap;

use super::{BuildInput, BuildOutput, BuildProblem, FileKind, limits};
use crate::manifest::package::{UnwantedFileKind, unwanted};

/// Reads all files below a folder. Junk and files that other programs read on their own are listed in
/// `left_out`; every other file that cannot be packed is a problem.
pub(super) fn skill_files(
    input: &BuildInput<'_>,
    root: &str,
    built: &mut BuildOutput,
) -> Result<BTreeMap<String, Vec<u8>>, Vec<BuildProblem>> {
    let mut files = BTreeMap::new();
    let mut problems = Vec::new();
    let mut pending: Vec<String> = vec![String::new()];
    while let Some(subfolder) = pending.pop() {
        let folder = if subfolder.is_empty() { root.to_owned() } else { format!("{root}/{subfolder}") };
        let entries = match input.files.list(&folder) {
            Ok(entries) => entries.unwrap_or_default(),
            Err(error) => return Err(vec![error.into()]),
        };
        for entry in entries {
            let path = if subfolder.is_empty() { entry.name } else { format!("{subfolder}/{}", entry.name) };
            let full_path = format!("{root}/{path}");
            match (unwanted(&path), entry.metadata.kind) {
                (Some(UnwantedFileKind::Junk | UnwantedFileKind::AutoLoaded), _) => built.left_out.push(full_path),
                (Some(UnwantedFileKind::Secret), _) => {
                    problems.push(BuildProblem::new(
                        full_path,
                        "may contain a secret, and is not packed; remove it from the skill",
                    ));
                }
                (None, FileKind::Folder) if path.matches('/').count() < limits().depth => pending.push(path),
                (None, FileKind::Folder) => {
                    problems.push(BuildProblem::new(full_path, "is nested deeper than packages allow"));
                }
                (None, FileKind::Link(_) | FileKind::Other) => {
                    problems.push(BuildProblem::new(
                        full_path,
                        "is a link or not a regular file, which a package cannot contain",
                    ));
                }
                (None, FileKind::File) => match input.files.read(&full_path, limits().file_bytes) {
                    Ok(Some(bytes)) => {
                        files.insert(path, bytes);
                    }
                    Ok(None) => problems.push(BuildProblem::new(full_path, "disappeared while it was read")),
                    Err(error) => problems.push(error.into()),
                },
            }
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}
