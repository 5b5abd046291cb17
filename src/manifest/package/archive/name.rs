//! The rules for paths: a path must name the same file on all systems, and never lead out of the archive.
//!
//! The functions are pure. A path that one system cannot store, or treats as equal to another path, is refused on all
//! systems.

use unicode_normalization::UnicodeNormalization as _;

use crate::manifest::package::PackageLimits;

/// The reason why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// The path breaks a rule for names.
    Unsafe(&'static str),
    /// The path exceeds a limit.
    TooLarge(&'static str),
}

/// Returns the fault of a relative path, if it has one.
#[must_use]
pub fn path_fault(path: &str, limits: &PackageLimits) -> Option<PathFault> {
    use PathFault::{TooLarge, Unsafe};
    if path.is_empty() {
        return Some(Unsafe("is an empty path"));
    }
    if path.len() > limits.path_bytes {
        return Some(TooLarge("is a longer path than the limit"));
    }
    if path.starts_with('/') {
        return Some(Unsafe("is an absolute path"));
    }
    if path.contains('\\') {
        return Some(Unsafe("has a backslash, which separates folders on some systems"));
    }
    if path.chars().any(|character| character.is_control() || is_invisible(character)) {
        return Some(Unsafe("has a control character, or one that changes the direction of writing"));
    }
    if path.split('/').count() > limits.depth {
        return Some(TooLarge("is nested deeper than the limit"));
    }
    path.split('/').find_map(segment_fault).map(Unsafe)
}

fn segment_fault(segment: &str) -> Option<&'static str> {
    match segment {
        "" => Some("has an empty folder name"),
        "." | ".." => Some("has a `.` or `..` in it"),
        _ if segment.len() > 255 => Some("has a name of more than 255 bytes"),
        _ if segment.ends_with(['.', ' ']) => {
            Some("has a name that ends with a dot or a space, which some systems remove")
        }
        _ if segment.contains(['<', '>', ':', '"', '|', '?', '*']) => {
            Some("has a character that names cannot have on some systems: one of `<>:\"|?*`")
        }
        _ if is_short_name(segment) => Some("has the form of a short name, by which Windows finds another file"),
        _ if is_device(segment) => Some("has the name of a device of Windows"),
        _ => None,
    }
}

/// Returns true for invisible characters that change the displayed text.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns true for names such as `GIT~1` and `SITECU~1.PY`, which NTFS and FAT give to longer names.
fn is_short_name(segment: &str) -> bool {
    let (stem, extension) = segment.split_once('.').unwrap_or((segment, ""));
    let is_numbered = stem.rsplit_once('~').is_some_and(|(start, number)| {
        !start.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    is_numbered && stem.chars().count() <= 8 && extension.chars().count() <= 3
}

/// Returns true for names that Windows treats as devices in every folder, whatever their extension.
fn is_device(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or(segment).trim_end().to_ascii_uppercase();
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix).is_some_and(|number| {
            let mut digits = number.chars();
            matches!((digits.next(), digits.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
        })
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$") || numbered("COM") || numbered("LPT")
}

/// Returns the name as seen by systems that ignore case and Unicode composition.
#[must_use]
pub fn fold(name: &str) -> String {
    name.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfd().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_are_accepted() {
        for path in [
            "SKILL.md",
            "scripts/run.sh",
            "a/b/c/d/e/f/g/h",
            ".config",
            "grüße/日本.md",
            "com10",
            "console",
            "a b",
            "a~b",
            "~1",
            "a~1.json",
        ] {
            assert_eq!(path_fault(path, &PackageLimits::default()), None, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_unsafe_on_any_system_is_refused() {
        let paths = [
            "",
            "/",
            "/etc/passwd",
            "//host/share",
            "..",
            "../x",
            "a/../b",
            "a/..",
            "./a",
            "a/.",
            "a//b",
            "a/",
            "C:",
            "C:/x",
            "c:x",
            "a\\b",
            "..\\x",
            "a\0b",
            "a\nb",
            "a\u{7f}",
            "con",
            "CON.txt",
            "a/nul",
            "aux.tar.gz",
            "Com1",
            "lpt9.md",
            "COM¹",
            "conin$",
            "a.",
            "a ",
            "a./b",
            "file:stream",
            "a?",
            "a*",
            "a|b",
            "\u{202e}gpj.sh",
            "a\u{200b}",
            "nul .txt",
            "GIT~1/config",
            "sitecu~1.py",
            ".g\u{206a}it",
        ];
        for path in paths {
            assert!(matches!(path_fault(path, &PackageLimits::default()), Some(PathFault::Unsafe(_))), "{path:?}");
        }
    }

    /// Several rules refuse some of these paths. The message must come from the intended rule.
    #[test]
    fn each_rule_has_its_own_message() {
        for (path, words) in [
            ("/etc/passwd", "an absolute path"),
            ("..\\x", "a backslash"),
            ("a\0b", "a control character"),
            ("a//b", "an empty folder name"),
            ("a/../b", "a `.` or `..` in it"),
            ("./a", "a `.` or `..` in it"),
            ("a/...", "ends with a dot"),
            ("C:", "a character that names cannot have"),
            ("nul.txt", "a device of Windows"),
            ("git~1", "a short name"),
        ] {
            let fault = path_fault(path, &PackageLimits::default());
            assert!(matches!(fault, Some(PathFault::Unsafe(why)) if why.contains(words)), "{path}: {fault:?}");
        }
    }

    #[test]
    fn length_and_depth_have_limits() {
        for path in ["a/b/c/d/e/f/g/h/i", &"x/".repeat(300), &"y".repeat(513)] {
            assert!(matches!(path_fault(path, &PackageLimits::default()), Some(PathFault::TooLarge(_))), "{path}");
        }
        assert!(matches!(path_fault(&"y".repeat(256), &PackageLimits::default()), Some(PathFault::Unsafe(_))));
    }

    #[test]
    fn folding_ignores_case_and_composition() {
        assert_eq!(fold("É/README"), fold("e\u{301}/readme"));
        assert_eq!(fold("STRASSE"), fold("straße"));
        assert_ne!(fold("a"), fold("b"));
    }
}
