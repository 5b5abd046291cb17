//! Refuses allocations whose size a caller may choose, in the modules that callers reach: they are shares of the
//! admission (`gateway::admission`), or have a constant bound.

use super::tokens::{Token, TokenKind};

/// The modules that are checked, as beginnings of paths.
const MODULES: [&str; 5] = ["front", "endpoints", "mcp", "pages", "rules"];
/// The functions that allocate as many elements as their argument says.
const SIZED: [&str; 2] = ["with_capacity", "reserve"];
/// The functions that gather a whole body in memory.
const WHOLE: [&str; 3] = ["to_bytes", "read_to_end", "read_to_string"];

/// The allocations of another kind that are allowed, with the reason.
const EXCEPTIONS: [(&str, &str); 9] = [
    ("src/gateway/front/framed_body.rs", "only tests use it"),
    ("src/gateway/front/gathered_body.rs", "an answer, gathered up to a constant"),
    ("src/gateway/endpoints/skills/package_body.rs", "a piece of a package, at most a constant"),
    ("src/gateway/mcp/edit_input.rs", "at most the number of images of an edit"),
    ("src/gateway/mcp/image_tools.rs", "stored answers, under a constant bound and a number of slots"),
    ("src/gateway/pages/playground_run.rs", "answers of the gateway itself"),
    ("src/gateway/front/local_dispatcher.rs", "answers to a command of the machine itself"),
    ("src/gateway/pages/attempt_timeline.rs", "as many as the attempts of a record"),
    ("src/gateway/rules/response/body_members.rs", "a value of the body, at most the constant bound of its reader"),
];

/// The allocations in a file whose size is not constant.
pub(super) fn unadmitted(path: &str, tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let is_checked = MODULES.iter().any(|module| is_in_module(path, module)) && !is_test_file(path);
    if !is_checked || EXCEPTIONS.iter().any(|(excepted, _)| *excepted == path) {
        return Vec::new();
    }
    let tokens: Vec<&Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).collect();
    let code = &tokens[..tests_begin(&tokens)];
    let found = (0..code.len()).filter_map(|index| {
        let what = allocation(&code[index..])?;
        let message = format!("{what} allocates a size that a caller may choose: take a share of the admission");
        Some((code[index].line, message))
    });
    found.collect()
}

fn is_in_module(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix("src/gateway/").and_then(|rest| rest.strip_prefix(module));
    rest.is_some_and(|rest| rest.starts_with(['/', '.']))
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The index of the first token of the unit tests, which end a file.
fn tests_begin(tokens: &[&Token<'_>]) -> usize {
    let is_tests = |pair: &[&Token<'_>]| pair[0].is_word("mod") && pair[1].is_word("tests");
    tokens.windows(2).position(is_tests).unwrap_or(tokens.len())
}

/// The allocation of the first of these tokens, if its size is not constant.
fn allocation(tokens: &[&Token<'_>]) -> Option<String> {
    let TokenKind::Word(word) = tokens.first()?.kind else { return None };
    let is_call = tokens.get(1).is_some_and(|token| token.is_punctuation('('));
    let is_sized = is_call && SIZED.contains(&word) && !is_constant(inside(&tokens[1..]));
    if is_sized || (is_call && WHOLE.contains(&word)) {
        return Some(format!("`{word}`"));
    }
    match word {
        "collect" if is_call && awaits(&tokens[3.min(tokens.len())..]) => Some("`collect().await`".to_owned()),
        "vec" if tokens.get(1).is_some_and(|token| token.is_punctuation('!')) => {
            let inside = inside(&tokens[2.min(tokens.len())..]);
            let semicolon = inside.iter().position(|token| token.is_punctuation(';'))?;
            (!is_constant(&inside[semicolon + 1..])).then(|| "`vec!`".to_owned())
        }
        _ => None,
    }
}

fn awaits(tokens: &[&Token<'_>]) -> bool {
    matches!(tokens, [dot, word, ..] if dot.is_punctuation('.') && word.is_word("await"))
}

/// The tokens between the bracket at the beginning and its end.
fn inside<'a, 'b>(tokens: &'a [&'b Token<'b>]) -> &'a [&'b Token<'b>] {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Punctuation('(' | '[' | '{') => depth += 1,
            TokenKind::Punctuation(')' | ']' | '}') if depth == 1 => return &tokens[1..index],
            TokenKind::Punctuation(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    &[]
}

/// True for numbers and constants, and for what is computed from them.
fn is_constant(tokens: &[&Token<'_>]) -> bool {
    let is_constant = |word: &str| {
        let is_name =
            word.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_');
        is_name || word.starts_with(|letter: char| letter.is_ascii_digit()) || ["as", "usize", "Self"].contains(&word)
    };
    !tokens.is_empty() && tokens.iter().all(|token| !matches!(token.kind, TokenKind::Word(word) if !is_constant(word)))
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn found(source: &str) -> Vec<usize> {
        unadmitted("src/gateway/front/body.rs", &tokens(source)).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn an_allocation_of_a_size_that_is_not_constant_is_found() {
        for source in [
            "Vec::with_capacity(length)",
            "BytesMut::with_capacity(body.len())",
            "vec![0; n]",
            "vec![0_u8; usize::try_from(length).unwrap_or(SIZE)]",
            "body.collect().await",
            "collected.to_bytes()",
            "text.reserve(count)",
        ] {
            assert_eq!(found(&format!("fn a() {{\n    {source};\n}}")), [2], "{source}");
        }
    }

    #[test]
    fn a_constant_size_and_a_test_are_allowed() {
        for source in [
            "Vec::with_capacity(SIZE)",
            "vec![0; 64 * 1024]",
            "vec![0; Self::MAX + 2]",
            "vec![a, b.len()]",
            "list.iter().collect()",
            "#[cfg(test)] mod tests { fn a() { vec![0; n]; } }",
        ] {
            assert_eq!(found(source), [0; 0], "{source}");
        }
        assert_eq!(unadmitted("src/gateway/front/body/tests.rs", &tokens("vec![0; n]")), []);
        assert_eq!(unadmitted("src/gateway/relay/body.rs", &tokens("vec![0; n]")), []);
    }
}
