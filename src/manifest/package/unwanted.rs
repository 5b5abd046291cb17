//! Detects files that do not belong in a package, by their names.

use super::auto_loaded::auto_loader;

/// The reason why a file does not belong in a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwantedFileKind {
    /// The file may contain a secret.
    Secret,
    /// Other programs read the file on their own.
    AutoLoaded,
    /// The file was left behind by an editor, a system or a tool.
    Junk,
}

const SECRET_NAMES: &[&str] = &[
    ".env",
    ".git-credentials",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".ssh",
    ".aws",
    ".gnupg",
    ".htpasswd",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "credentials.json",
    "secrets.json",
];
const SECRET_ENDINGS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk"];
/// Names like those of files with secrets, of files that contain only examples.
const EXAMPLE_NAMES: &[&str] = &[".env.example", ".env.sample", ".env.template"];
const JUNK_NAMES: &[&str] = &[
    ".ds_store",
    "__macosx",
    "thumbs.db",
    "ehthumbs.db",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "node_modules",
    ".venv",
    ".gitignore",
    ".directory",
];
const JUNK_ENDINGS: &[&str] = &[".pyc", ".pyo", ".swp", ".swo", ".tmp", ".bak", ".orig", "~"];

/// Returns the reason why a path, or one of its parent folders, does not belong in a package, if there is one.
#[must_use]
pub fn unwanted(path: &str) -> Option<UnwantedFileKind> {
    path.split('/').find_map(segment_kind)
}

fn segment_kind(name: &str) -> Option<UnwantedFileKind> {
    let name = name.to_lowercase();
    let name = name.as_str();
    if EXAMPLE_NAMES.contains(&name) {
        None
    } else if SECRET_NAMES.contains(&name) || name.starts_with(".env.") || has_ending(name, SECRET_ENDINGS) {
        Some(UnwantedFileKind::Secret)
    } else if auto_loader(name).is_some() {
        Some(UnwantedFileKind::AutoLoaded)
    } else if JUNK_NAMES.contains(&name) || name.starts_with("._") || has_ending(name, JUNK_ENDINGS) {
        Some(UnwantedFileKind::Junk)
    } else {
        None
    }
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwanted_files_are_detected() {
        for path in [".env", "a/.env.local", "keys/ID_RSA", "server.pem", "a.key", ".ssh/known_hosts"] {
            assert_eq!(unwanted(path), Some(UnwantedFileKind::Secret), "{path}");
        }
        for path in [".git/config", "a/.vscode", ".MCP.json", "lib/x.pth"] {
            assert_eq!(unwanted(path), Some(UnwantedFileKind::AutoLoaded), "{path}");
        }
        for path in [".DS_Store", "a/Thumbs.db", "__MACOSX/x", "._x", "a/__pycache__/x.py", "x.pyc", "SKILL.md~"] {
            assert_eq!(unwanted(path), Some(UnwantedFileKind::Junk), "{path}");
        }
        for path in ["SKILL.md", ".env.example", "key", "environment.md", "a/b/c.txt", ".key", "~"] {
            assert_eq!(unwanted(path), None, "{path}");
        }
    }
}
