//! Checks the answers of the addresses in a manifest.
//!
//! The module decides which addresses are requested, each once, and how their answers are judged. It must not know how
//! requests are made ([`WebFetcher`]). An address that [`urls::may_be_requested`] refuses is not requested, nor is one
//! with a query or fragment to which a path must be appended; the static rules report these addresses.

mod refs;

use std::collections::BTreeMap;

use url::Url;

use super::{CheckOptions, urls};
use crate::manifest::discovery::address;
use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::package::PackageLimits;
use crate::manifest::package::archive::path_fault;
use crate::manifest::rules::{M100, M101, M102, M103, M104, Rule};
use crate::manifest::web::{FetchBody, FetchError, FetchRequest, FetchResponse, FetchScope, WebFetcher};

/// The maximum number of bytes that are read of a list of branches.
const REFS_BYTES: u64 = 8 * 1024 * 1024;

/// The purpose of a request.
enum FetchPurpose<'a> {
    Package(LocatedNode<'a>),
    Source(LocatedNode<'a>),
    Branch { git_url: LocatedNode<'a>, branch: &'a str, location: LocatedNode<'a> },
}

type FetchPlan<'a> = BTreeMap<FetchRequest, Vec<FetchPurpose<'a>>>;

pub(super) fn check(
    manifest: &LocatedNode<'_>,
    web: &dyn WebFetcher,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    let mut plan = FetchPlan::new();
    plan_requests(manifest, options, &mut plan);
    let (requests, purposes_by_request): (Vec<FetchRequest>, Vec<Vec<FetchPurpose<'_>>>) = plan.into_iter().unzip();
    let responses = web.fetch(&requests);
    for ((request, purposes), reply) in requests.iter().zip(&purposes_by_request).zip(&responses) {
        for purpose in purposes {
            purpose.report_reply(request, reply, findings);
        }
    }
}

fn plan_requests<'a>(manifest: &LocatedNode<'a>, options: &CheckOptions<'_>, plan: &mut FetchPlan<'a>) {
    let mut add_request = |address: String, scope, purpose| {
        plan.entry(FetchRequest { address, scope }).or_default().push(purpose);
    };
    let parse_allowed = |text: &str| {
        let url = Url::parse(text).ok()?;
        urls::may_be_requested(&url, options.allow_private_hosts).then_some(url)
    };
    let repository = manifest.get("repository");
    let of_repository = |key| repository.as_ref().and_then(|repository| repository.text_of(key));
    if let Some((base, _)) =
        of_repository("raw_base_url").filter(|(base, _)| parse_allowed(base).is_some_and(|url| is_bare(&url)))
    {
        let limits = PackageLimits { depth: 64, ..PackageLimits::default() };
        for skill in manifest.skills() {
            if let Some((path, _)) = skill.text_of("package").filter(|(path, _)| path_fault(path, &limits).is_none()) {
                add_request(
                    address(base, path),
                    FetchScope::Checksum { limit: limits.archive_bytes },
                    FetchPurpose::Package(skill),
                );
            }
        }
    }
    for location in manifest.apis().flat_map(|api| api.elements_of("source_urls")) {
        if let Some(mut url) = location.text().and_then(parse_allowed) {
            url.set_fragment(None);
            add_request(url.into(), FetchScope::Status, FetchPurpose::Source(location));
        }
    }
    if let (Some((git, git_url)), Some((branch, location))) = (of_repository("git_url"), of_repository("branch"))
        && parse_allowed(git).is_some_and(|url| is_bare(&url))
    {
        let refs = format!("{}/info/refs?service=git-upload-pack", git.trim_end_matches('/'));
        add_request(refs, FetchScope::Bytes { limit: REFS_BYTES }, FetchPurpose::Branch { git_url, branch, location });
    }
}

fn is_bare(url: &Url) -> bool {
    url.query().is_none() && url.fragment().is_none()
}

// === impl FetchPurpose ===

impl FetchPurpose<'_> {
    fn report_reply(
        &self,
        request: &FetchRequest,
        reply: &Result<FetchResponse, FetchError>,
        findings: &mut FindingCollector,
    ) {
        let (rule, location): (&'static Rule, _) = match self {
            Self::Package(skill) => (&M100, skill.get("package").unwrap_or_else(|| skill.clone())),
            Self::Source(location) => (&M102, location.clone()),
            Self::Branch { git_url, .. } => (&M103, git_url.clone()),
        };
        let address = &request.address;
        match reply {
            Err(error @ (FetchError::Tls(_) | FetchError::Forbidden(_))) => {
                findings.report_at(&M104, &location, format!("{address}: {error}"));
            }
            // A list of branches over the limit is incomplete, so it proves nothing about the branch.
            Err(FetchError::TooLarge { .. }) if matches!(self, Self::Branch { .. }) => {}
            Err(error) => {
                findings.report_at(rule, &location, format!("{address}: {error}"));
            }
            Ok(reply) => self.report_response(address, reply, (rule, &location), findings),
        }
    }

    fn report_response(
        &self,
        address: &str,
        reply: &FetchResponse,
        (rule, location): (&'static Rule, &LocatedNode<'_>),
        findings: &mut FindingCollector,
    ) {
        match (self, &reply.body) {
            (Self::Source(_), _) if !matches!(reply.status, 404 | 410 | 500..) => {}
            (Self::Package(skill), FetchBody::Checksum { size, sum }) => {
                check_served_package(skill, address, *size, &sum.to_string(), findings);
            }
            (Self::Branch { branch, location, .. }, FetchBody::Bytes(bytes)) => match refs::has_branch(bytes, branch) {
                Some(true) => {}
                Some(false) => {
                    let message = format!("the repository has no branch `{}`", branch.escape_debug());
                    findings.report_at(&M103, location, message);
                }
                None => {
                    findings.report_at(&M103, location, format!("{address} does not answer like a git repository"));
                }
            },
            _ => {
                findings.report_at(rule, location, format!("{address} answers {}", reply.status));
            }
        }
    }
}

/// Compares the package that a host serves with the size and checksum of its entry.
fn check_served_package(skill: &LocatedNode<'_>, address: &str, size: u64, sum: &str, findings: &mut FindingCollector) {
    if let Some(location) = skill.get("size_bytes")
        && let Some(stated) = location.node().to_json().as_f64()
    {
        #[expect(clippy::cast_precision_loss, reason = "no more than 10 MiB are read")]
        let differs = (stated - size as f64).abs() >= 1.0;
        if differs {
            findings.report_at(&M101, &location, format!("{address} serves {size} bytes, but {stated} are stated"));
        }
    }
    if let Some((_, location)) = skill.text_of("sha256").filter(|(stated, _)| !stated.eq_ignore_ascii_case(sum)) {
        findings.report_at(&M101, &location, format!("{address} serves bytes with the checksum {sum}"));
    }
}
