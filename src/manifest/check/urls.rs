//! Checks addresses, and whether related addresses agree.

mod hosts;
mod repository;

use url::Url;

use super::CheckOptions;
use crate::manifest::finding::{FindingCollector, SourceSpan};
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M020, M021, M022, M023, M024, M025, M026, M027, M028, Rule};

/// The schemes that lead to another machine and start no program of the manifest's choice. All but https have warnings.
const REMOTE_SCHEMES: [&str; 4] = ["https", "http", "ssh", "git"];

/// Returns true if a request may be sent to an address.
///
/// The address must use https and contain no credentials, and its host must not be a link-local address. Unless
/// `allow_private` is true, its host must be publicly reachable. The addresses to which the host name resolves are checked separately ([`is_public`](crate::manifest::is_public)).
#[must_use]
pub fn may_be_requested(url: &Url, allow_private: bool) -> bool {
    let is_reachable = |host| !hosts::is_link_local(&host) && (allow_private || !hosts::is_private(&host));
    url.scheme() == "https"
        && url.username().is_empty()
        && url.password().is_none()
        && url.host().is_some_and(is_reachable)
}

pub(super) fn check(manifest: &LocatedNode<'_>, options: &CheckOptions<'_>, findings: &mut FindingCollector) {
    check_unsafe(manifest, findings);
    if let Some(repository) = manifest.get("repository") {
        check_repository(&repository, options, findings);
    }
    for source in manifest.apis().flat_map(|api| api.elements_of("source_urls")) {
        if let Some(text) = source.text() {
            let _ = check_address(&M022, text, &source, options, findings);
        }
    }
}

/// Reports addresses of the repository that make an installation unsafe.
pub(super) fn check_unsafe(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let Some(repository) = manifest.get("repository") else { return };
    for key in ["git_url", "raw_base_url"] {
        if let Some((text, location)) = repository.text_of(key)
            && let Some(reason) = danger(text)
        {
            findings.report_at(&M028, &location, reason);
        }
    }
}

/// Returns the reason why no program should request an address or pass it to git, in whatever form it is written.
fn danger(text: &str) -> Option<&'static str> {
    let text = text.trim();
    if text.starts_with('-') || text.contains("//-") || text.contains("@-") {
        return Some("the address or its host begins with `-`, as an option of a command does");
    }
    // `ext::sh -c …` and every other `<transport>::<address>` starts a program of that name (git-remote-helpers).
    if text
        .find("::")
        .is_some_and(|at| text[..at].chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter)))
    {
        return Some("the address names a transport of git, which is a program");
    }
    let Ok(url) = Url::parse(text) else {
        let is_path = text.starts_with(['/', '\\', '.', '~']);
        return is_path.then_some("the address is a path of the reader's own machine");
    };
    if !REMOTE_SCHEMES.contains(&url.scheme()) {
        return Some("the address does not lead to another machine by a protocol of git or the web");
    }
    // Only under a scheme of the web, every spelling of an IP address is read as one.
    let host_url = Url::parse(&format!("https://{}/", url.host_str()?)).ok()?;
    host_url.host().filter(hosts::is_link_local).map(|_| "the host is a link-local address or a metadata service")
}

fn check_repository(repository: &LocatedNode<'_>, options: &CheckOptions<'_>, findings: &mut FindingCollector) {
    let mut checked_url = |key: &str, rule| {
        let (text, location) = repository.text_of(key)?;
        let url = check_address(rule, text, &location, options, findings)?;
        check_bare(rule, &url, &location, findings);
        Some((url, location))
    };
    let git = checked_url("git_url", &M020);
    let raw = checked_url("raw_base_url", &M021);
    if let Some((branch, location)) = repository.text_of("branch") {
        if !repository::is_branch(branch) {
            let message = format!("git does not allow the branch name `{}`", branch.escape_debug());
            findings.report_at(&M027, &location, message);
        } else if let Some((url, at)) = &raw
            && !repository::contains_branch(url, branch)
        {
            findings
                .report_at(&M025, at, format!("the address does not contain the branch `{}`", branch.escape_debug()))
                .with_related(location.span(), "the branch of the manifest");
        }
    }
    if let (Some((git, git_location)), Some((raw, location))) = (git, raw)
        && let (Some(cloned_repository), Some(raw_repository)) =
            (repository::repository_of_clone_url(&git), repository::repository_of_raw_url(&raw))
        && cloned_repository != raw_repository
    {
        findings
            .report_at(
                &M026,
                &location,
                format!("files come from `{raw_repository}`, but `{cloned_repository}` is cloned"),
            )
            .with_related(git_location.span(), "the clone address");
    }
}

/// Parses an address, and reports its flaws. Returns `None` only if it cannot be parsed.
fn check_address(
    rule: &'static Rule,
    text: &str,
    location: &LocatedNode<'_>,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) -> Option<Url> {
    // The message does not repeat the address, which may contain a password.
    let Ok(url) = Url::parse(text) else {
        let finding = findings.report_at(rule, location, "this is not an absolute address");
        finding.with_help("it begins with `https://` and the name of a host");
        return None;
    };
    if text.trim() != text || text.contains(|character: char| character.is_control() || character == ' ') {
        findings.report_at(rule, location, "the address contains spaces or control characters");
    }
    if !url.username().is_empty() || url.password().is_some() {
        check_credentials(text, location, findings);
    }
    if url.scheme() != "https" {
        let finding = findings.report_at(rule, location, format!("the address begins with `{}:`", url.scheme()));
        finding.with_help("use `https:`, which every client can reach and no attacker in the network can change");
    }
    if !options.allow_private_hosts && url.host().is_some_and(|host| hosts::is_private(&host)) {
        findings.report_at(&M024, location, "this host is not publicly reachable");
    }
    Some(url)
}

/// Reports credentials. The span is exactly the credential, so that it can be masked if the line is shown.
fn check_credentials(text: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let whole = location.span();
    let start = text.find("//").map_or(0, |at| at + 2);
    let end = text[start..].find('/').map_or(text.len(), |at| start + at);
    let at = text[start..end].rfind('@').map_or(end, |at| start + at);
    // If the string contains escapes, it is longer than its text, and the whole string is marked.
    let is_plain = whole.end - whole.start == text.len() + 2;
    let span = if is_plain {
        SourceSpan { start: whole.start + 1 + start, end: whole.start + 1 + at, ..whole }
    } else {
        whole
    };
    findings
        .report_in_file(&M023, span, location.pointer(), "the address contains credentials")
        .with_help("remove and revoke them: every reader of the manifest has them");
}

/// Reports a query or fragment: a path that is appended to the address would become a part of it.
fn check_bare(rule: &'static Rule, url: &Url, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    for (part, is_present) in [("query", url.query().is_some()), ("fragment", url.fragment().is_some())] {
        if is_present {
            findings.report_at(rule, location, format!("the address has a {part}"));
        }
    }
}
