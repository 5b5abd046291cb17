//! The possible flaws of a path, each as a message.

use unicode_normalization::UnicodeNormalization as _;

/// Names that Windows treats as devices, whatever follows their first dot.
const WINDOWS_DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
/// The maximum length of a name that all common file systems accept, in bytes.
const MAX_PART_BYTES: usize = 255;
/// The maximum length of a path that all common systems accept, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// Returns a message if the path leads out of its base folder on any system, is an address, or contains NUL.
pub(in crate::manifest) fn root_escape_reason(path: &str) -> Option<String> {
    // Some systems treat these forms as equal.
    let plain = path.replace('\\', "/").replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/");
    let plain = plain.replace("%5c", "/").replace("%5C", "/");
    if path.contains('\0') {
        Some("a path must not contain NUL".to_owned())
    } else if plain.contains("://") {
        Some("this is an address and not a path".to_owned())
    } else if plain.starts_with('/') {
        Some("the path is absolute".to_owned())
    } else if matches!(plain.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic()) {
        Some("the path begins with a drive".to_owned())
    } else if plain.split('/').any(|part| part.trim_end() == ".." || part == "..") {
        Some("the path contains `..`".to_owned())
    } else {
        None
    }
}

pub(super) fn unusual_form_reason(path: &str) -> Option<String> {
    if path.trim().is_empty() {
        Some("the path is empty".to_owned())
    } else if path.starts_with('~') {
        Some("the path begins with `~`, which shells expand to a home folder".to_owned())
    } else if path.contains('\\') {
        Some("the path contains a backslash; parts are separated by `/`".to_owned())
    } else if path.ends_with('/') {
        Some("the path ends with `/`".to_owned())
    } else if path.split('/').any(str::is_empty) {
        Some("the path has an empty part".to_owned())
    } else if path.split('/').any(|part| part == ".") {
        Some("the path contains the part `.`".to_owned())
    } else if has_escape(path) {
        Some("the path is written with percent signs, as in an address".to_owned())
    } else if path.contains(['?', '#']) {
        Some("the path contains `?` or `#`, which end a path in an address".to_owned())
    } else {
        None
    }
}

fn has_escape(path: &str) -> bool {
    let is_escape = |three: &[u8]| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit);
    path.as_bytes().windows(3).any(is_escape)
}

pub(super) fn portability_reason(path: &str) -> Option<String> {
    path.split(['/', '\\']).find_map(|part| {
        let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_lowercase();
        let shown = part.escape_debug();
        if is_device(&stem) {
            Some(format!("`{shown}` is a device on Windows"))
        } else if part != "." && part.ends_with(['.', ' ']) {
            Some(format!("`{shown}` ends with a dot or a space, which Windows removes"))
        } else if part.starts_with(' ') {
            Some(format!("`{shown}` begins with a space"))
        } else {
            let is_bad = |letter: &char| letter.is_control() || "<>:\"|?*".contains(*letter);
            let letter = part.chars().find(is_bad)?;
            Some(format!("`{}` is not allowed in a name on Windows", letter.escape_debug()))
        }
    })
}

fn is_device(stem: &str) -> bool {
    let is_port = |name: &str| {
        let number = name.strip_prefix("com").or_else(|| name.strip_prefix("lpt"));
        number.is_some_and(|number| {
            let mut letters = number.chars();
            matches!((letters.next(), letters.next()), (Some('1'..='9' | '¹' | '²' | '³'), None))
        })
    };
    WINDOWS_DEVICES.contains(&stem) || is_port(stem)
}

pub(super) fn normalization_reason(path: &str) -> Option<String> {
    (!path.nfc().eq(path.chars())).then(|| "the path is not in Unicode form NFC".to_owned())
}

pub(super) fn length_reason(path: &str) -> Option<String> {
    let longest = path.split('/').map(str::len).max().unwrap_or(0);
    if longest > MAX_PART_BYTES {
        Some(format!("a part of the path has {longest} bytes; the maximum is {MAX_PART_BYTES}"))
    } else if path.len() > MAX_PATH_BYTES {
        Some(format!("the path has {} bytes; the maximum is {MAX_PATH_BYTES}", path.len()))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_root_on_any_system_is_found() {
        for path in [
            "/a",
            "../a",
            "a/..",
            "a/../b",
            "a\\..\\b",
            "\\\\host\\share",
            "C:\\a",
            "c:a",
            "https://h/a",
            "%2e%2E/a",
            "a/.%2e/b",
            "a%2f..%2fb",
            "a%5c..%5Cb",
            "~/../a",
            "a\0b",
            "a/.. /b",
        ] {
            assert!(root_escape_reason(path).is_some(), "{path:?}");
        }
        for path in ["a", "a/b.zip", "..a/b", "a..b", "a/...", ".hidden", "a%b", "ä/中", "~/a", "~"] {
            assert_eq!(root_escape_reason(path), None, "{path:?}");
        }
    }

    #[test]
    fn names_that_windows_does_not_allow_are_found() {
        for path in ["a/con", "NUL.txt", "com1.tar.gz", "lpt¹", "aux .md", "a./b", "b /c", "a:b", "a|b", "a\u{1}"] {
            assert!(portability_reason(path).is_some(), "{path:?}");
        }
        for path in ["console", "com10", "comb", "nullable/x", "a.b/c", "com0"] {
            assert_eq!(portability_reason(path), None, "{path:?}");
        }
    }
}
