//! Shapes of code that hide what it does.

use super::tokens::Token;

/// A `match` whose first arm has only a guard: its branches are an `if`.
pub(super) fn leading_guards(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let tokens: Vec<&Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).collect();
    let is_guard = |arm: &&[&Token<'_>]| arm[0].is_punctuation('{') && arm[1].is_word("_") && arm[2].is_word("if");
    let found = tokens.windows(3).filter(is_guard);
    found.map(|arm| (arm[1].line, "a `match` begins with a guard only: write an `if` before it".to_owned())).collect()
}

/// Conversions of lengths to `u64` with an answer to a failure that cannot happen.
pub(super) fn fallible_lengths(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let tokens: Vec<&Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).collect();
    let mut found = Vec::new();
    for (index, window) in tokens.windows(4).enumerate() {
        if !window[0].is_word("u64") || !window[3].is_word("try_from") {
            continue;
        }
        let end = tokens[index..].iter().position(|token| token.is_word("unwrap_or") || token.is_punctuation(';'));
        let Some(end) = end.map(|length| index + length) else { continue };
        // `… . len ( ) ) . unwrap_or`
        if tokens[end].is_word("unwrap_or") && end >= index + 9 && tokens[end - 5].is_word("len") {
            found.push((window[0].line, "a length fits into `u64` on every system: write `as u64`".to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    #[test]
    fn a_match_may_not_begin_with_a_guard() {
        let lines =
            |source: &str| leading_guards(&tokens(source)).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(lines("match a {\n    // A comment.\n    _ if b => 1,\n    Some(_) => 2,\n}"), [3]);
        assert!(lines("match a { Some(_) if b => 1, _ if c => 2, _ => 3 }").is_empty());
    }

    #[test]
    fn the_length_of_a_list_is_converted_without_a_fallback() {
        let count = |source: &str| fallible_lengths(&tokens(source)).len();
        assert_eq!(count("u64::try_from(self.images.len()).unwrap_or(u64::MAX)"), 1);
        assert_eq!(count("u64::try_from(time.as_millis()).unwrap_or(u64::MAX)"), 0);
        assert_eq!(count("u32::try_from(list.len()).unwrap_or(u32::MAX)"), 0);
        assert_eq!(count("let a = u64::try_from(list.len())?; b.unwrap_or(1)"), 0);
    }
}
