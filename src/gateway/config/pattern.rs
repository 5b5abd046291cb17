//! Regular expressions that operators write.

use regex::{Regex, RegexBuilder, RegexSetBuilder};

/// The size limit of a compiled pattern in bytes (our choice), because a short pattern can compile to gigabytes.
const SIZE_MAX: usize = 1 << 20;
/// The size limit of all compiled patterns of a group of the store together, in bytes (our choice).
const TOGETHER_MAX: usize = 8 << 20;

/// Compiles a pattern as the filter does: case-insensitive, matching anywhere in the text, with the same size limit.
///
/// # Errors
///
/// Returns the problem with the pattern, in one line.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    let compiled = builder.case_insensitive(true).size_limit(SIZE_MAX).dfa_size_limit(SIZE_MAX).build();
    let pattern = compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "is too large when compiled; use fewer or smaller repetitions".to_owned(),
        // The message shows the pattern on several lines; its last line states the problem.
        error => format!("is not a regular expression: {}", last_line(&error.to_string())),
    })?;
    if pattern.is_match("") {
        return Err("matches the empty text and therefore every prompt".to_owned());
    }
    Ok(pattern)
}

/// True unless these patterns together are too large when compiled. [`compile`] reports every other problem, and checks
/// the size of each single pattern.
pub(super) fn fit_together<'a>(patterns: impl Iterator<Item = &'a str>) -> bool {
    let patterns: Vec<&str> = patterns.collect();
    let compiled = RegexSetBuilder::new(&patterns).case_insensitive(true).size_limit(TOGETHER_MAX).build();
    patterns.len() < 2 || !matches!(compiled, Err(regex::Error::CompiledTooBig(_)))
}

fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_anywhere_in_any_case() {
        assert!(compile(r"\bred\s+cube\b").unwrap().is_match("a RED  cube, lit from the left"));
        assert!(!compile(r"\bred\b").unwrap().is_match("a shredded cube"));
    }

    #[test]
    fn invalid_and_too_broad_patterns_are_refused() {
        for (pattern, expected) in [
            ("(unclosed", "is not a regular expression: unclosed group"),
            (r"\w{1000}{1000}", "is too large when compiled"),
            ("", "every prompt"),
            ("a*", "every prompt"),
            (r"(?=look)", "is not a regular expression: look-around"),
        ] {
            let problem = compile(pattern).map(|regex| regex.to_string()).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains('\n'), "{pattern}: {problem}");
        }
    }
}
