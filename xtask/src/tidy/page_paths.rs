//! Checks that each path of the repository in the code spans of its Markdown pages exists.
//!
//! A code span is a path if it begins with a folder of the repository or has the ending of a source file. Paths are
//! written from the root, from `src/` or `src/gateway/`, or from the folder of the page; a file name alone stands for a
//! file in any folder. `*`, `…`, `<name>`, `{name}` and a word in capitals are placeholders.

use std::collections::BTreeSet;

use super::Source;

/// Folders whose pages belong to the repositories of others: data of tests, and the published skills.
const DATA_FOLDERS: [&str; 2] = ["schemas/skills/", "tests/"];
/// Folders to which a path may be relative, besides the root and the folder of the page.
const BASES: [&str; 2] = ["src/", "src/gateway/"];
/// The folders at the root that are named in pages only if they are those of this repository.
const ROOT_FOLDERS: [&str; 8] = ["src", "docs", "tests", "xtask", "openapi", "generated", "examples", "schemas"];
/// The endings of source files, which also mark a path that begins with another folder.
const SOURCE_ENDINGS: [&str; 2] = [".rs", ".html"];
/// The endings of files that are not text, which the check does not read.
const BINARY_ENDINGS: [&str; 5] = [".png", ".jpg", ".tar", ".webp", ".zip"];

/// The path, line and message of each path that does not exist.
pub(super) fn dead_paths(sources: &[Source]) -> Vec<(&str, usize, String)> {
    let mut known = BTreeSet::new();
    for source in sources {
        known.insert(&*source.path);
        known.extend(source.path.match_indices('/').map(|(end, _)| &source.path[..end]));
    }
    let mut found = Vec::new();
    for page in sources.iter().filter(|source| is_page(&source.path)) {
        for (line, span) in code_spans(&page.text) {
            if is_repository_path(span) && !exists(span, &page.path, &known) {
                found.push((&*page.path, line, format!("there is no `{span}`")));
            }
        }
    }
    found
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md") && !DATA_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// The texts between backticks outside of fenced code, each with its line.
fn code_spans(page: &str) -> Vec<(usize, &str)> {
    let (mut spans, mut is_fenced) = (Vec::new(), false);
    for (index, line) in page.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if !is_fence && !is_fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (index + 1, span)));
        }
    }
    spans
}

fn is_repository_path(span: &str) -> bool {
    let is_path_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-./*…<>{}".contains(letter);
    let folder = span.split_once('/').map(|(folder, _)| folder);
    let is_named = folder.is_some_and(|folder| ROOT_FOLDERS.contains(&folder))
        || SOURCE_ENDINGS.iter().any(|ending| span.ends_with(ending));
    is_named
        && span.chars().all(is_path_letter)
        && !span.starts_with(['/', '.'])
        && !BINARY_ENDINGS.iter().any(|ending| span.ends_with(ending))
}

/// Returns whether a file or folder has this path, seen from one of the places that a path may begin at.
fn exists(span: &str, page: &str, known: &BTreeSet<&str>) -> bool {
    let span = span.trim_end_matches('/');
    let folder = page.rfind('/').map_or("", |end| &page[..=end]);
    let paths = ["", folder].into_iter().chain(BASES).map(|base| format!("{base}{span}"));
    let is_file_name = !span.contains('/');
    let mut is_known = paths.map(|path| {
        known.contains(&*path) || has_placeholder(&path) && known.iter().any(|known| matches_pattern(&path, known))
    });
    is_known.any(|is_known| is_known) || is_file_name && known.iter().any(|path| path.rsplit('/').next() == Some(span))
}

fn has_placeholder(path: &str) -> bool {
    path.split('/').any(|part| split_placeholder(part).is_some())
}

/// Returns whether each part of the path is that of the pattern, or has the fixed letters around its placeholder.
fn matches_pattern(pattern: &str, path: &str) -> bool {
    pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(|(pattern, part)| match split_placeholder(pattern) {
            None => pattern == part,
            Some((start, end)) => {
                part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end)
            }
        })
}

/// The letters before and after the placeholder of a part of a path.
fn split_placeholder(part: &str) -> Option<(&str, &str)> {
    let is_capital = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    let stem = part.split('.').next().unwrap_or_default();
    if stem.len() > 1 && stem.chars().all(is_capital) && !part.ends_with(".md") {
        return Some(("", &part[stem.len()..]));
    }
    let start = part.find(['*', '…', '<', '{'])?;
    let (end, mark) = part.char_indices().rfind(|(_, letter)| "*…>}".contains(*letter))?;
    Some((&part[..start], &part[end + mark.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let sources = [
            source("docs/page.md", page),
            source("docs/other.md", ""),
            source("tests/page.md", "`src/gone.rs`"),
            source("src/gateway/flow/attempt.rs", ""),
            source("src/client.rs", ""),
            source("generated/admin_types.rs", ""),
        ];
        dead_paths(&sources).into_iter().map(|(path, line, message)| format!("{path}:{line}: {message}")).collect()
    }

    #[test]
    fn paths_from_the_root_from_src_and_from_the_page_exist() {
        let page =
            "`src/gateway/flow/attempt.rs` `src/gateway/` `flow/attempt.rs` `client.rs` `attempt.rs` `docs/other.md`";
        assert_eq!(found(page), [""; 0]);
    }

    #[test]
    fn placeholders_stand_for_a_part_of_a_path() {
        let page =
            "`generated/*_types.rs` `src/gateway/{name}/attempt.rs` `generated/NAME.rs` `src/<name>.rs` `src/….rs`";
        assert_eq!(found(page), [""; 0]);
        assert_eq!(found("`generated/*_server.rs`"), ["docs/page.md:1: there is no `generated/*_server.rs`"]);
        assert_eq!(found("`docs/OTHER.md`"), ["docs/page.md:1: there is no `docs/OTHER.md`"]);
    }

    #[test]
    fn a_path_that_does_not_exist_is_found_with_its_line() {
        assert_eq!(
            found("\n`flow/gone.rs`, see `src/gone`"),
            ["docs/page.md:2: there is no `flow/gone.rs`", "docs/page.md:2: there is no `src/gone`",]
        );
        assert_eq!(found("`gone.rs`"), ["docs/page.md:1: there is no `gone.rs`"]);
    }

    #[test]
    fn other_code_is_no_path() {
        let page = "`/docs/` `flow::gone` `target/gone` `docs/gone.png` `src/gone --all`\n```\n`src/gone.rs`\n```\n";
        assert_eq!(found(page), [""; 0]);
    }
}
