//! Checks branch names, and finds the repository that an address of a known host names.

use url::Url;

/// Returns true if git allows a branch with this name (`git help check-ref-format`).
pub(super) fn is_branch(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_allowed =
        |letter: char| !letter.is_control() && !matches!(letter, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    name != "@"
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && name.split('/').all(is_part)
        && name.chars().all(is_allowed)
}

/// Returns true if the path of the address contains the branch between slashes.
pub(super) fn contains_branch(url: &Url, branch: &str) -> bool {
    let decode = |text: &str| text.replace("%2F", "/").replace("%2f", "/");
    format!("{}/", decode(url.path())).contains(&format!("/{branch}/"))
}

/// Returns `host/owner/repository` of a clone address, or `None` if its host is not a known one.
pub(super) fn repository_of_clone_url(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let path = url.path().trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let is_known = matches!(host, "github.com" | "gitlab.com" | "codeberg.org" | "bitbucket.org");
    is_known.then(|| format!("{host}/{path}").to_lowercase())
}

/// Returns `host/owner/repository` of a download address, or `None` if its host is not a known one or its path is too
/// short.
pub(super) fn repository_of_raw_url(url: &Url) -> Option<String> {
    let parts: Vec<&str> = url.path().trim_matches('/').split('/').collect();
    let (host, length) = match url.host_str()? {
        "raw.githubusercontent.com" => ("github.com", 2),
        host @ ("github.com" | "codeberg.org" | "bitbucket.org") => (host, 2),
        // GitLab groups can be nested; the path of the repository ends at `-`.
        "gitlab.com" => ("gitlab.com", parts.iter().position(|part| *part == "-")?),
        _ => return None,
    };
    Some(format!("{host}/{}", parts.get(..length)?.join("/")).to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_follow_the_rules_of_git() {
        for name in ["main", "release/1.2", "a@b", "feature/ä"] {
            assert!(is_branch(name), "{name}");
        }
        for name in
            ["", "@", "-a", "a b", "a..b", "a/", "/a", "a//b", "a.lock", ".a", "a/.b", "a.", "a@{b", "a:b", "a\\b"]
        {
            assert!(!is_branch(name), "{name}");
        }
    }

    #[test]
    fn a_branch_is_found_between_slashes() {
        let contains = |url: &str, branch| contains_branch(&Url::parse(url).unwrap(), branch);
        assert!(contains("https://h/o/r/main", "main") && contains("https://h/o/r/refs/heads/a/b/", "a/b"));
        assert!(contains("https://h/o/r/a%2Fb", "a/b"));
        assert!(!contains("https://h/o/r/maintenance", "main") && !contains("https://main/o/r", "main"));
    }

    #[test]
    fn addresses_of_known_hosts_give_their_repository() {
        let git = |url: &str| repository_of_clone_url(&Url::parse(url).unwrap());
        let raw = |url: &str| repository_of_raw_url(&Url::parse(url).unwrap());
        let named = Some("github.com/o/r".to_owned());
        assert_eq!(git("https://github.com/O/r.git"), named);
        assert_eq!(raw("https://raw.githubusercontent.com/o/R/main"), named);
        assert_eq!(raw("https://github.com/o/r/raw/main"), named);
        assert_eq!(raw("https://gitlab.com/a/b/c/-/raw/main"), git("https://gitlab.com/a/b/c.git"));
        assert_eq!(git("https://git.example.com/o/r"), None);
        assert_eq!(raw("https://raw.githubusercontent.com/o"), None);
    }
}
