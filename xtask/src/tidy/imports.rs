//! Checks every path of a file that begins with `crate`, `super` or `self` against the import table.

use super::architecture::{LayerMap, ModuleLimits, module_of_file};
use super::tokens::{Token, TokenKind};

/// Paths into modules that the table does not allow, and crates that the module must not name.
pub(super) fn forbidden(map: &LayerMap, file: &str, tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let Some(module) = module_of_file(file) else { return Vec::new() };
    let Some((module_name, limits)) = map.module(&module) else { return Vec::new() };
    let tokens: Vec<Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).copied().collect();
    let mut found = Vec::new();
    for token in &tokens {
        if let TokenKind::Word(word) = token.kind
            && limits.never_names.contains(word)
        {
            found.push((token.line, format!("`{module_name}` never names `{word}` (ARCHITECTURE.md)")));
        }
    }
    for (line, path) in paths(&module, &tokens) {
        if !is_allowed(map, (module_name, limits), &path) {
            let path = path.join("::");
            found.push((line, format!("`{module_name}` may not import `crate::{path}` (ARCHITECTURE.md)")));
        }
    }
    found
}

fn is_allowed(map: &LayerMap, (module_name, limits): (&str, &ModuleLimits), path: &[&str]) -> bool {
    let Some((target, _)) = map.module(path) else { return false };
    let depth = target.split("::").count();
    let item = path.get(depth).map(|item| format!("{target}::{item}"));
    target == module_name
        || limits.may_import.contains(target)
        || item.is_some_and(|item| limits.may_import.contains(&item))
}

/// Every path that begins with `crate`, `super` or `self`, with its line, resolved from the root of the crate.
fn paths<'a>(module: &[&'a str], tokens: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let mut paths = Vec::new();
    let mut module_path = module.to_vec();
    // The depth of braces at which each inline module ends.
    let mut inline = Vec::new();
    let mut depth = 0_usize;
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match token.kind {
            TokenKind::Punctuation('{') => depth += 1,
            TokenKind::Punctuation('}') => {
                depth = depth.saturating_sub(1);
                if inline.last() == Some(&depth) {
                    inline.pop();
                    module_path.pop();
                }
            }
            TokenKind::Word("mod") => {
                if let [name, brace, ..] = &tokens[index + 1..]
                    && let TokenKind::Word(name) = name.kind
                    && brace.is_punctuation('{')
                {
                    module_path.push(name);
                    inline.push(depth);
                }
            }
            TokenKind::Word("crate" | "super" | "self") if begins_path(tokens, index) => {
                index = follow_path(tokens, index, &module_path, &mut paths);
                continue;
            }
            TokenKind::Word(_) | TokenKind::Punctuation(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
        }
        index += 1;
    }
    paths
}

/// Returns whether a token begins a path: `::` or `as` follows, and it is neither inside a path nor part of a
/// visibility.
fn begins_path(tokens: &[Token<'_>], index: usize) -> bool {
    let before = |distance: usize| index.checked_sub(distance).and_then(|index| tokens.get(index));
    let is_visibility =
        before(1).is_some_and(|token| token.is_word("in")) && before(2).is_some_and(|token| token.is_punctuation('('));
    // A single colon before a path belongs to a type or a field.
    let is_continued = [1, 2].iter().all(|distance| before(*distance).is_some_and(|token| token.is_punctuation(':')));
    let begins = is_path_separator(tokens, index + 1) || tokens.get(index + 1).is_some_and(|token| token.is_word("as"));
    begins && !is_visibility && !is_continued
}

fn is_path_separator(tokens: &[Token<'_>], index: usize) -> bool {
    matches!(tokens.get(index..index + 2), Some([first, second]) if first.is_punctuation(':') && second.is_punctuation(':'))
}

/// Collects a path from its first word on, through groups. Returns the index of the token after it.
fn follow_path<'a>(
    tokens: &[Token<'a>],
    start: usize,
    module_path: &[&'a str],
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let mut path = match tokens[start].kind {
        TokenKind::Word("crate") => Vec::new(),
        TokenKind::Word("super") => module_path[..module_path.len().saturating_sub(1)].to_vec(),
        TokenKind::Word(_) | TokenKind::Punctuation(_) | TokenKind::Literal | TokenKind::Comment(_) => {
            module_path.to_vec()
        }
    };
    let mut index = start + 1;
    while is_path_separator(tokens, index) {
        index += 2;
        match tokens.get(index).map(|token| token.kind) {
            Some(TokenKind::Word("super")) => _ = path.pop(),
            Some(TokenKind::Word("self")) => {}
            Some(TokenKind::Word(word)) => path.push(word),
            Some(TokenKind::Punctuation('{')) => return follow_group(tokens, index, &path, paths),
            // `crate::module::*`, or the turbofish of a type.
            _ => break,
        }
        index += 1;
    }
    // An exported macro is at the root of the crate, whatever its module.
    let is_macro = path.len() == 1 && tokens.get(index).is_some_and(|token| token.is_punctuation('!'));
    if !is_macro {
        paths.push((tokens[start].line, path));
    }
    index
}

/// Collects the paths of a group `{…}`. Returns the index of the token after it.
fn follow_group<'a>(
    tokens: &[Token<'a>],
    open: usize,
    path: &[&'a str],
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let mut index = open + 1;
    let mut entry = path.to_vec();
    let mut line = None;
    while let Some(token) = tokens.get(index) {
        match token.kind {
            TokenKind::Punctuation('{') => {
                index = follow_group(tokens, index, &entry, paths);
                line = None;
                continue;
            }
            TokenKind::Punctuation(mark @ (',' | '}')) => {
                paths.extend(line.take().map(|line| (line, entry.clone())));
                entry = path.to_vec();
                if mark == '}' {
                    return index + 1;
                }
            }
            // The name after `as` is local to the file.
            TokenKind::Word("as") => index += 1,
            TokenKind::Word("self") => line = Some(token.line),
            TokenKind::Word("super") => {
                line.get_or_insert(token.line);
                entry.pop();
            }
            TokenKind::Word(word) => {
                line.get_or_insert(token.line);
                entry.push(word);
            }
            TokenKind::Punctuation('*') => line = Some(token.line),
            TokenKind::Punctuation(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
        }
        index += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    const DOCUMENT: &str = "| Layer | Modules | May import |\n|---|---|---|\n\
        | ground | `image` | |\n| wire | `wire` | |\n\
        | flow | `gateway::flow` | ground, `gateway::keys::Caller`, `gateway::Gateway` |\n\
        | server | `gateway::keys` `gateway` | |\n\n\
        | Crate | Only in | Never in |\n|---|---|---|\n| `dropshot` | | `gateway::flow` |\n";

    /// Checks the findings in a file of `gateway::flow`, each as `line: path or crate`.
    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let map = LayerMap::parse(DOCUMENT, "").unwrap();
        let found = forbidden(&map, "src/gateway/flow/image_generation.rs", &tokens(source));
        let found: Vec<String> = found
            .iter()
            .map(|(line, message)| format!("{line}: {}", message.split('`').nth(3).unwrap_or_default()))
            .collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn only_paths_of_the_table_are_allowed() {
        check("use crate::image::Size;", &[]);
        check("use crate::wire::Code;", &["1: crate::wire::Code"]);
        check("use crate::gateway::flow::Image;\nuse super::Image;\nuse self::inner::Image;", &[]);
        check("fn a() { b(crate::wire::code()) }", &["1: crate::wire::code"]);
        check("macro!(\"{}\", crate::wire::CODE)", &["1: crate::wire::CODE"]);
        check("use crate::Client;", &["1: crate::Client"]);
        check("fn a(x: crate::wire::Code, y: super::super::keys::Caller) {}", &["1: crate::wire::Code"]);
        check("S { x: crate::wire::code() }", &["1: crate::wire::code"]);
        check("use crate as root;", &["1: crate::"]);
    }

    #[test]
    fn an_item_may_be_allowed_without_its_module() {
        check("use crate::gateway::keys::Caller;", &[]);
        check("use crate::gateway::keys::Secret;", &["1: crate::gateway::keys::Secret"]);
        check("use crate::gateway::keys;", &["1: crate::gateway::keys"]);
        check("use crate::gateway::keys::*;", &["1: crate::gateway::keys"]);
        check("use crate::gateway::Gateway;", &[]);
        check("use crate::gateway::{self, Gateway};", &["1: crate::gateway"]);
    }

    #[test]
    fn paths_in_groups_are_checked() {
        check(
            "use crate::{\n    gateway::{keys::{Caller, Secret as S}, Gateway},\n    image::Size,\n    wire::*,\n};\nuse crate::wire;",
            &["2: crate::gateway::keys::Secret", "4: crate::wire", "6: crate::wire"],
        );
    }

    #[test]
    fn parents_are_resolved() {
        check("use super::super::keys::Secret;", &["1: crate::gateway::keys::Secret"]);
        check("use super::super::super::wire::Code;", &["1: crate::wire::Code"]);
        check("use super::{super::keys::{Caller, Secret}, Image};", &["1: crate::gateway::keys::Secret"]);
        check(
            "mod tests { use super::Image; mod deep { use super::super::super::super::keys::Secret; } }\nuse super::super::Gateway;",
            &["1: crate::gateway::keys::Secret"],
        );
    }

    #[test]
    fn text_that_is_not_a_path_is_ignored() {
        check(
            "pub(in crate::gateway) fn a() {}\npub(crate) struct B;\n// crate::wire and dropshot\nlet c = \"crate::wire dropshot\";",
            &[],
        );
        check("use other::crate_x::super_y;", &[]);
        check("let size = crate::size!(\"1024x1024\");", &[]);
        check("use dropshot::Body;", &["1: dropshot"]);
    }
}
