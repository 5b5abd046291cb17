//! Checks the `SKILL.md` of an entry: that of the checkout, and that of the package if it differs or if the folder was
//! not read. Findings point into the file that was checked.

use super::{CheckScope, CheckWorker, FolderFileSizes};
use crate::manifest::finding::SourceSpan;
use crate::manifest::located::LocatedNode;
use crate::manifest::package::front::{self, SkillFile, SpannedText};
use crate::manifest::package::skill::FrontMatterFault;
use crate::manifest::package::{PackageContents, SKILL_BYTES, SKILL_FILE, skill};
use crate::manifest::rules::{M087, M088, M089, M093, M095, M096, Rule};
use crate::manifest::text::SourceFile;

/// The advised maximum number of lines of a `SKILL.md` (rule M095).
const ADVISED_LINES: usize = 500;
/// The advised maximum of 5,000 tokens, at about four bytes for each English token.
const ADVISED_BYTES: usize = 5000 * 4;

/// A finding about a file that is not in the report yet.
type PendingFinding = (&'static Rule, std::ops::Range<usize>, String);

impl CheckWorker<'_, '_> {
    pub(super) fn check_skill_files(
        &mut self,
        skill: &LocatedNode<'_>,
        folder_files: Option<&FolderFileSizes>,
        package: Option<(&PackageContents, &str)>,
    ) {
        let packed = package.and_then(|(contents, root)| contents.skills.get(&format!("{root}{SKILL_FILE}")));
        let name = skill.text_of("path").map(|(path, _)| path).unwrap_or_default();
        let checked_out = folder_files.and_then(|_| self.skill_file(name));
        if let Some(bytes) = &checked_out {
            let names: Vec<&str> = folder_files.into_iter().flatten().map(|(file, _)| file.as_str()).collect();
            self.check_skill_file(skill, &format!("{name}/{SKILL_FILE}"), bytes, &names);
        }
        if let (Some(bytes), Some((contents, root))) = (packed, package)
            && checked_out.as_ref() != Some(bytes)
        {
            let names: Vec<&str> = contents.files.keys().filter_map(|file| file.strip_prefix(root)).collect();
            let shown = skill.text_of("package").map(|(path, _)| path).unwrap_or_default();
            self.check_skill_file(skill, &format!("{shown}!/{root}{SKILL_FILE}"), bytes, &names);
        }
    }

    fn skill_file(&self, folder: &str) -> Option<Vec<u8>> {
        let limit = SKILL_BYTES as u64;
        self.tree.files().read(&format!("{folder}/{SKILL_FILE}"), limit).ok().flatten()
    }

    fn check_skill_file(&mut self, skill: &LocatedNode<'_>, shown: &str, bytes: &[u8], files: &[&str]) {
        // The scope `Packages` does not look at the folder of the skill.
        let folder = skill.text_of("path").filter(|_| self.scope == CheckScope::Everything);
        let folder = folder.and_then(|(path, _)| path.trim_end_matches('/').rsplit('/').next());
        let mut pending = match front::read(bytes) {
            Ok(file) => document_findings(skill, folder, &file, bytes, files),
            Err(error) => vec![(&M087, error.span, format!("`{SKILL_FILE}` {}", error.message))],
        };
        pending.retain(|(rule, _, _)| self.scope.includes(rule));
        if pending.is_empty() {
            return;
        }
        let name = match self.display_root {
            "" => shown.to_owned(),
            root => format!("{}/{shown}", root.trim_end_matches('/')),
        };
        let source = self.findings.add(SourceFile::new(name, bytes));
        for (rule, range, message) in pending {
            self.findings.report_in_file(rule, SourceSpan::new(source, range), skill.pointer(), message);
        }
    }
}

fn document_findings(
    entry: &LocatedNode<'_>,
    folder: Option<&str>,
    file: &SkillFile<'_>,
    bytes: &[u8],
    files: &[&str],
) -> Vec<PendingFinding> {
    let rule = |fault: &FrontMatterFault| if fault.is_extra { &M096 } else { &M087 };
    let mut pending: Vec<PendingFinding> =
        skill::faults(file, folder).into_iter().map(|fault| (rule(&fault), fault.span, fault.message)).collect();
    let fields: [(&str, &'static Rule, Option<&SpannedText>); 3] = [
        ("name", &M088, file.front.name.as_ref()),
        ("version", &M088, file.front.metadata.get("version")),
        ("description", &M089, file.front.description.as_ref()),
    ];
    for (field, rule, word) in fields {
        let is_same = if field == "name" { skill::is_same_name } else { is_same_text };
        if let (Some(word), Some((stated, _))) = (word, entry.text_of(field))
            && !is_same(&word.text, stated)
        {
            pending.push((rule, word.span.clone(), format!("the manifest has another `{field}`: `{stated}`")));
        }
    }
    let body_start = bytes.len() - file.body.len();
    for link in links(file.body) {
        let target = file.body.get(link.clone()).unwrap_or_default();
        if let Some(path) = inner_path(target)
            && !files
                .iter()
                .any(|file| *file == path || file.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/')))
        {
            let range = link.start + body_start..link.end + body_start;
            pending.push((&M093, range, format!("there is no `{path}` in the skill")));
        }
    }
    let lines = file.body.lines().count();
    if lines > ADVISED_LINES || file.body.len() > ADVISED_BYTES {
        let message = format!("the text has {lines} lines and {} bytes, all of which agents read", file.body.len());
        pending.push((&M095, body_start..body_start, message));
    }
    pending
}

fn is_same_text(first: &str, second: &str) -> bool {
    first.trim() == second.trim()
}

/// Returns the targets of the inline links of a text, except in code.
fn links(body: &str) -> Vec<std::ops::Range<usize>> {
    let mut links = Vec::new();
    let mut at = 0;
    let mut is_in_fence = false;
    for line in body.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        is_in_fence ^= is_fence;
        if !is_in_fence && !is_fence {
            line_links(line, at, &mut links);
        }
        at += line.len();
    }
    links
}

fn line_links(line: &str, offset: usize, links: &mut Vec<std::ops::Range<usize>>) {
    let mut is_in_code = false;
    let mut before = '\n';
    for (at, character) in line.char_indices() {
        is_in_code ^= character == '`';
        if character == '(' && before == ']' && !is_in_code {
            let remainder = line.get(at + 1..).unwrap_or_default();
            let length = remainder.find([')', ' ', '"', '\n']).unwrap_or(remainder.len());
            links.push(offset + at + 1..offset + at + 1 + length);
        }
        before = character;
    }
}

/// Returns the path inside the skill that a link names, or `None` if the link leads out of the skill.
fn inner_path(target: &str) -> Option<String> {
    let target = target.trim_start_matches('<').trim_end_matches('>');
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let is_outside =
        path.is_empty() || path.starts_with('/') || path.contains(':') || path.contains(['{', '$', '%', '*']);
    if is_outside {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_are_found_and_others_are_not() {
        let body = "See [a](docs/a.md), [b](./b.md#part \"title\") and `[c](c.md)`.\n```\n[d](d.md)\n```\n![e](img/e.png)\n[f](https://x.y/z) [g](#top) [h](mailto:a@b) [i](../x.md)\n";
        let found: Vec<String> = links(body).into_iter().filter_map(|link| inner_path(&body[link])).collect();
        assert_eq!(found, ["docs/a.md", "b.md", "img/e.png"]);
    }
}
