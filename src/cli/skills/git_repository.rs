//! The fields `repository` of a first manifest, as git knows them: from the address of the remote, and its branch.
//!
//! Nothing is sent. A user name or a password of the address is left out, because every reader of the manifest would see
//! it. A field that git does not show is left out too, and is then asked for.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::manifest::RepositoryFields;

/// The remote that is used if there are several.
const ORIGIN: &str = "origin";

/// The address of a repository on a web host.
#[derive(Debug, PartialEq, Eq)]
struct RemoteAddress {
    /// The host, with its port if the address is of the web and has one.
    host: String,
    /// The path without slashes at its ends.
    path: String,
}

/// Returns the fields that git knows of the repository around this folder.
pub(super) fn fields_from_git(folder: &Path) -> RepositoryFields {
    let Some((remote, address)) = remote(folder) else { return RepositoryFields::default() };
    let branch = branch(folder, &remote);
    let prefix = git(folder, &["rev-parse", "--show-prefix"]).unwrap_or_default();
    RepositoryFields {
        name: address.name(),
        git_url: Some(format!("https://{}/{}", address.host, address.path)),
        raw_base_url: branch.as_deref().and_then(|branch| address.raw_base_url(branch, prefix.trim_end_matches('/'))),
        branch,
    }
}

/// Returns the options that set these fields, of those that are not known.
pub(super) fn missing_options(fields: &RepositoryFields) -> Vec<&'static str> {
    let RepositoryFields { name, git_url, raw_base_url, branch } = fields;
    let options =
        [(name, "--repository"), (git_url, "--git-url"), (raw_base_url, "--raw-base-url"), (branch, "--branch")];
    options.into_iter().filter(|(field, _)| field.is_none()).map(|(_, option)| option).collect()
}

/// Returns the name and the address of the remote.
fn remote(folder: &Path) -> Option<(String, RemoteAddress)> {
    let remotes = git(folder, &["remote"])?;
    let names: Vec<&str> = remotes.lines().collect();
    let name = match names[..] {
        [only] => only,
        _ => names.into_iter().find(|name| *name == ORIGIN)?,
    };
    let address = RemoteAddress::parse(&git(folder, &["remote", "get-url", "--", name])?)?;
    Some((name.to_owned(), address))
}

/// Returns the default branch of the remote, or else the branch that is checked out.
fn branch(folder: &Path, remote: &str) -> Option<String> {
    let head = git(folder, &["symbolic-ref", "--quiet", "--short", &format!("refs/remotes/{remote}/HEAD")]);
    let default = head.as_deref().and_then(|head| head.strip_prefix(remote)?.strip_prefix('/')).map(str::to_owned);
    default.or_else(|| git(folder, &["branch", "--show-current"])).filter(|branch| !branch.is_empty())
}

/// Runs git in a folder; returns the line that it prints, and `None` if it fails or does not exist.
fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(words).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

// === impl RemoteAddress ===

impl RemoteAddress {
    /// Parses an address of a remote: `https://host/owner/name.git`, `ssh://git@host/owner/name.git` or
    /// `git@host:owner/name.git`. Returns `None` for a path and for anything else.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest.to_owned()),
            // A colon before the first slash separates the host from the path.
            None => {
                let (host, path) = text.split_once(':').filter(|(host, _)| !host.contains('/'))?;
                ("ssh", format!("{host}/{path}"))
            }
        };
        let (authority, path) = rest.split_once('/')?;
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = match scheme {
            "https" | "http" => host,
            // The port of another protocol is not that of the web.
            "ssh" | "git" | "git+ssh" => host.split_once(':').map_or(host, |(host, _)| host),
            _ => return None,
        };
        let path = path.trim_matches('/');
        let is_plain = |text: &str| !text.is_empty() && !text.contains(['?', '#', ' ', '\\']);
        // One letter is a drive of Windows.
        let is_host = host.len() > 1 && is_plain(host);
        (is_host && is_plain(path)).then(|| Self { host: host.to_ascii_lowercase(), path: path.to_owned() })
    }

    fn path_without_suffix(&self) -> &str {
        self.path.strip_suffix(".git").unwrap_or(&self.path)
    }

    fn name(&self) -> Option<String> {
        self.path_without_suffix().rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// Returns the prefix of the addresses of files in a folder of a branch, for the hosts whose form is known.
    fn raw_base_url(&self, branch: &str, folder: &str) -> Option<String> {
        let (host, path) = (&*self.host, self.path_without_suffix());
        let base = match host {
            "github.com" => format!("https://raw.githubusercontent.com/{path}/{branch}"),
            "bitbucket.org" => format!("https://{host}/{path}/raw/{branch}"),
            "codeberg.org" | "gitea.com" => format!("https://{host}/{path}/raw/branch/{branch}"),
            _ if host.starts_with("gitlab.") => format!("https://{host}/{path}/-/raw/{branch}"),
            _ => return None,
        };
        Some(if folder.is_empty() { base } else { format!("{base}/{folder}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &str)>) {
        let parsed = RemoteAddress::parse(text);
        let parts = parsed.as_ref().map(|address| (address.host.as_str(), address.path.as_str()));
        assert_eq!(parts, expected, "{text}");
    }

    #[test]
    fn the_address_of_a_remote_is_read_without_its_credentials() {
        let expected = Some(("github.com", "example/skills.git"));
        for text in [
            "https://github.com/example/skills.git",
            "https://user:secret@github.com/example/skills.git/",
            "https://token@GitHub.com/example/skills.git",
            "ssh://git@github.com:22/example/skills.git",
            "git@github.com:example/skills.git",
            "github.com:/example/skills.git",
            "git://github.com/example/skills.git",
        ] {
            check(text, expected);
        }
        check("https://git.example:8443/skills", Some(("git.example:8443", "skills")));
        let none =
            ["/srv/skills.git", "../skills", "C:\\skills", "C:/skills", "file:///srv/skills.git", "https://x.y", ""];
        for text in none {
            check(text, None);
        }
    }

    #[test]
    fn the_addresses_of_files_are_known_for_some_hosts() {
        let raw = |host: &str| {
            let address = RemoteAddress { host: host.to_owned(), path: "example/skills.git".to_owned() };
            (address.name(), address.raw_base_url("main", ""), address.raw_base_url("v2/next", "a/b"))
        };
        let both = |base: &str| {
            let address = |rest: &str| Some(format!("https://{base}/{rest}"));
            (Some("skills".to_owned()), address("main"), address("v2/next/a/b"))
        };
        assert_eq!(raw("github.com"), both("raw.githubusercontent.com/example/skills"));
        assert_eq!(raw("gitlab.example.org"), both("gitlab.example.org/example/skills/-/raw"));
        assert_eq!(raw("codeberg.org"), both("codeberg.org/example/skills/raw/branch"));
        assert_eq!(raw("bitbucket.org"), both("bitbucket.org/example/skills/raw"));
        assert_eq!(raw("git.example.org"), (Some("skills".to_owned()), None, None));
    }
}
