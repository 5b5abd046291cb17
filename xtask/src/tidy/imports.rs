//! Who names whom: every path of a file that begins at the crate, at a parent or at itself, against the import table.

use super::architecture::{LayerMap, ModuleLimits, module_of_file};
use super::tokens::{Kind, Token};

/// Paths that lead into a module which the table does not open, and crates that the module never names.
pub(super) fn forbidden(map: &LayerMap, file: &str, tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let Some(module) = module_of_file(file) else { return Vec::new() };
    let Some((room, row)) = map.room(&module) else { return Vec::new() };
    let tokens: Vec<Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).copied().collect();
    let mut found = Vec::new();
    for token in &tokens {
        if let Kind::Word(word) = token.kind
            && row.never_names.contains(word)
        {
            found.push((token.line, format!("`{room}` never names `{word}` (ARCHITECTURE.md)")));
        }
    }
    for (line, path) in paths(&module, &tokens) {
        if !is_allowed(map, (room, row), &path) {
            found.push((line, format!("`{room}` may not import `crate::{}` (ARCHITECTURE.md)", path.join("::"))));
        }
    }
    found
}

fn is_allowed(map: &LayerMap, (room, row): (&str, &ModuleLimits), path: &[&str]) -> bool {
    let Some((target, _)) = map.room(path) else { return false };
    let depth = target.split("::").count();
    let item = path.get(depth).map(|item| format!("{target}::{item}"));
    target == room || row.may_import.contains(target) || item.is_some_and(|item| row.may_import.contains(&item))
}

/// Every path that begins with `crate`, `super` or `self`, from the root of the crate.
fn paths<'a>(module: &[&'a str], tokens: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let mut paths = Vec::new();
    let mut here = module.to_vec();
    // The depth of braces at which each inline module ends.
    let mut inline = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.kind {
            Kind::Mark('{') => depth += 1,
            Kind::Mark('}') => {
                depth = depth.saturating_sub(1);
                if inline.last() == Some(&depth) {
                    inline.pop();
                    here.pop();
                }
            }
            Kind::Word("mod") => {
                if let [name, brace, ..] = &tokens[at + 1..]
                    && let Kind::Word(name) = name.kind
                    && brace.is_mark('{')
                {
                    here.push(name);
                    inline.push(depth);
                }
            }
            Kind::Word("crate" | "super" | "self") if begins_path(tokens, at) => {
                at = follow_path(tokens, at, &here, &mut paths);
                continue;
            }
            Kind::Word(_) | Kind::Mark(_) | Kind::Text | Kind::Comment(_) => {}
        }
        at += 1;
    }
    paths
}

/// Followed by `::`, and neither in the middle of a path nor a visibility.
fn begins_path(tokens: &[Token<'_>], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
    let is_visibility =
        before(1).is_some_and(|token| token.is_word("in")) && before(2).is_some_and(|token| token.is_mark('('));
    // One colon before a path is that of a type or a field.
    let is_continued = [1, 2].iter().all(|back| before(*back).is_some_and(|token| token.is_mark(':')));
    let begins = is_path_separator(tokens, at + 1) || tokens.get(at + 1).is_some_and(|token| token.is_word("as"));
    begins && !is_visibility && !is_continued
}

fn is_path_separator(tokens: &[Token<'_>], at: usize) -> bool {
    matches!(tokens.get(at..at + 2), Some([one, two]) if one.is_mark(':') && two.is_mark(':'))
}

/// Follows one path from its first word, through groups; gives back where it ends.
fn follow_path<'a>(
    tokens: &[Token<'a>],
    start: usize,
    here: &[&'a str],
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let mut path = match tokens[start].kind {
        Kind::Word("crate") => Vec::new(),
        Kind::Word("super") => here[..here.len().saturating_sub(1)].to_vec(),
        Kind::Word(_) | Kind::Mark(_) | Kind::Text | Kind::Comment(_) => here.to_vec(),
    };
    let mut at = start + 1;
    while is_path_separator(tokens, at) {
        at += 2;
        match tokens.get(at).map(|token| token.kind) {
            Some(Kind::Word("super")) => _ = path.pop(),
            Some(Kind::Word("self")) => {}
            Some(Kind::Word(word)) => path.push(word),
            Some(Kind::Mark('{')) => return follow_group(tokens, at, &path, paths),
            // `crate::module::*`, or the turbofish of a type.
            _ => break,
        }
        at += 1;
    }
    // A macro that is exported stands at the root, whatever module it belongs to.
    let is_macro = path.len() == 1 && tokens.get(at).is_some_and(|token| token.is_mark('!'));
    if !is_macro {
        paths.push((tokens[start].line, path));
    }
    at
}

/// The entries of `{…}`, each of which continues the path before it.
fn follow_group<'a>(
    tokens: &[Token<'a>],
    open: usize,
    path: &[&'a str],
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let mut at = open + 1;
    let mut entry = path.to_vec();
    let mut line = None;
    while let Some(token) = tokens.get(at) {
        match token.kind {
            Kind::Mark('{') => {
                at = follow_group(tokens, at, &entry, paths);
                line = None;
                continue;
            }
            Kind::Mark(mark @ (',' | '}')) => {
                paths.extend(line.take().map(|line| (line, entry.clone())));
                entry = path.to_vec();
                if mark == '}' {
                    return at + 1;
                }
            }
            // The name behind `as` is the file's own.
            Kind::Word("as") => at += 1,
            Kind::Word("self") => line = Some(token.line),
            Kind::Word("super") => {
                line.get_or_insert(token.line);
                entry.pop();
            }
            Kind::Word(word) => {
                line.get_or_insert(token.line);
                entry.push(word);
            }
            Kind::Mark('*') => line = Some(token.line),
            Kind::Mark(_) | Kind::Text | Kind::Comment(_) => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    const DOCUMENT: &str = "| Layer | Modules | May import |\n|---|---|---|\n\
        | ground | `image` | |\n| wire | `wire` | |\n\
        | flow | `gateway::flow` | ground, `gateway::keys::Caller`, `gateway::Gateway` |\n\
        | house | `gateway::keys` `gateway` | |\n\n\
        | Crate | Only in | Never in |\n|---|---|---|\n| `dropshot` | | `gateway::flow` |\n";

    /// What `gateway::flow` may not write, as `line: path or crate`.
    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let map = LayerMap::parse(DOCUMENT).unwrap();
        let found = forbidden(&map, "src/gateway/flow/image_generation.rs", &tokens(source));
        let found: Vec<String> = found
            .iter()
            .map(|(line, message)| format!("{line}: {}", message.split('`').nth(3).unwrap_or_default()))
            .collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn the_table_decides_who_may_be_named() {
        check("use crate::image::Size;", &[]);
        check("use crate::wire::Code;", &["1: crate::wire::Code"]);
        check("use crate::gateway::flow::Story;\nuse super::Story;\nuse self::inner::Story;", &[]);
        check("fn a() { b(crate::wire::code()) }", &["1: crate::wire::code"]);
        check("macro!(\"{}\", crate::wire::CODE)", &["1: crate::wire::CODE"]);
        check("use crate::Client;", &["1: crate::Client"]);
        check("fn a(x: crate::wire::Code, y: super::super::keys::Caller) {}", &["1: crate::wire::Code"]);
        check("S { x: crate::wire::code() }", &["1: crate::wire::code"]);
        check("use crate as root;", &["1: crate::"]);
    }

    #[test]
    fn an_item_is_open_without_its_room() {
        check("use crate::gateway::keys::Caller;", &[]);
        check("use crate::gateway::keys::Secret;", &["1: crate::gateway::keys::Secret"]);
        check("use crate::gateway::keys;", &["1: crate::gateway::keys"]);
        check("use crate::gateway::keys::*;", &["1: crate::gateway::keys"]);
        check("use crate::gateway::Gateway;", &[]);
        check("use crate::gateway::{self, Gateway};", &["1: crate::gateway"]);
    }

    #[test]
    fn groups_are_followed() {
        check(
            "use crate::{\n    gateway::{keys::{Caller, Secret as S}, Gateway},\n    image::Size,\n    wire::*,\n};\nuse crate::wire;",
            &["2: crate::gateway::keys::Secret", "4: crate::wire", "6: crate::wire"],
        );
    }

    #[test]
    fn parents_are_resolved() {
        check("use super::super::keys::Secret;", &["1: crate::gateway::keys::Secret"]);
        check("use super::super::super::wire::Code;", &["1: crate::wire::Code"]);
        check("use super::{super::keys::{Caller, Secret}, Story};", &["1: crate::gateway::keys::Secret"]);
        check(
            "mod tests { use super::Story; mod deep { use super::super::super::super::keys::Secret; } }\nuse super::super::Gateway;",
            &["1: crate::gateway::keys::Secret"],
        );
    }

    #[test]
    fn what_is_no_import_is_left_alone() {
        check(
            "pub(in crate::gateway) fn a() {}\npub(crate) struct B;\n// crate::wire and dropshot\nlet c = \"crate::wire dropshot\";",
            &[],
        );
        check("use other::crate_x::super_y;", &[]);
        check("let size = crate::size!(\"1024x1024\");", &[]);
        check("use dropshot::Body;", &["1: dropshot"]);
    }
}
