//! Texts that must not be in the repository.

use super::tokens::{Token, TokenKind};

/// Markers of unfinished work. Only the first is allowed, with a kind and an issue.
const TODO_WORDS: [&str; 3] = ["TODO", "FIXME", "XXX"];
/// Top-level folders that belong to one machine or user.
const FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];

/// Comments with a marker of unfinished work and without an issue.
pub(super) fn bare_todos(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for token in tokens {
        let TokenKind::Comment(comment) = token.kind else { continue };
        for (offset, line) in comment.lines().enumerate() {
            if TODO_WORDS
                .iter()
                .any(|mark| line.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == *mark))
                && !has_issue(line)
            {
                found.push((
                    token.line + offset,
                    "a `TODO` needs a kind and an issue, such as `TODO(cleanup #12)`".to_owned(),
                ));
            }
        }
    }
    found
}

/// Returns whether a kind and a number in parentheses follow the marker.
fn has_issue(line: &str) -> bool {
    let Some((_, after)) = line.split_once("TODO(") else { return false };
    let Some((kind, number)) = after.split_once(')').and_then(|(inside, _)| inside.split_once(" #")) else {
        return false;
    };
    let is_word = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    is_word && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Paths that exist on one machine only.
pub(super) fn machine_paths(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| {
        let folder = FOLDERS.iter().find(|folder| names_folder(line, folder))?;
        Some((index + 1, format!("a path of one machine (below {folder})")))
    });
    found.collect()
}

/// Returns whether the line contains `/folder/` at the beginning of a path.
fn names_folder(line: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    let begins = |at: usize| {
        line[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && !".-_~$}*".contains(before))
    };
    line.match_indices(&path).any(|(at, _)| begins(at))
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    #[test]
    fn unfinished_work_names_its_issue() {
        let bare = |source: &str| bare_todos(&tokens(source)).len();
        assert_eq!(bare("// TODO tidy up\n// TODO(cleanup)\n// FIXME: no\n/* XXX */"), 4);
        assert_eq!(bare("// TODO(cleanup #12): fold the two.\nlet todo = \"TODO\"; // a todo list"), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for folder in FOLDERS {
            assert_eq!(machine_paths(&format!("/{folder}/x")).len(), 1);
            assert_eq!(
                machine_paths(&format!("a\nb = \"/{folder}/x\"")),
                [(2, format!("a path of one machine (below {folder})"))]
            );
            assert_eq!(machine_paths(&format!("https://example.com/{folder}/x ./{folder}/y $X/{folder}/")), []);
        }
    }
}
