//! What the addresses of a manifest answer.
//!
//! Decides which addresses are asked, each once, and what their answers mean; refuses to know how they are asked ([`Web`]).
//! What the static rules find wrong with an address is not asked.

mod refs;

use std::collections::BTreeMap;

use url::Url;

use super::{Options, urls};
use crate::manifest::discovery::address;
use crate::manifest::finding::Findings;
use crate::manifest::located::Located;
use crate::manifest::package::Limits;
use crate::manifest::package::archive::path_fault;
use crate::manifest::rules::{M100, M101, M102, M103, M104, Rule};
use crate::manifest::web::{Body, Question, Reply, Want, Web, WebError};

/// More of the list of branches is not read.
const REFS_BYTES: u64 = 8 * 1024 * 1024;

/// Who wants to know.
enum Asker<'a> {
    Package(Located<'a>),
    Source(Located<'a>),
    Branch { git_url: Located<'a>, branch: &'a str, place: Located<'a> },
}

type Asked<'a> = BTreeMap<Question, Vec<Asker<'a>>>;

pub(super) fn check(manifest: &Located<'_>, web: &dyn Web, options: &Options<'_>, findings: &mut Findings) {
    let mut asked = Asked::new();
    gather(manifest, options, &mut asked);
    let (questions, askers): (Vec<Question>, Vec<Vec<Asker<'_>>>) = asked.into_iter().unzip();
    let replies = web.ask(&questions);
    for ((question, askers), reply) in questions.iter().zip(&askers).zip(&replies) {
        for asker in askers {
            asker.judge(question, reply, findings);
        }
    }
}

fn gather<'a>(manifest: &Located<'a>, options: &Options<'_>, asked: &mut Asked<'a>) {
    let mut ask = |address: String, want, asker| {
        asked.entry(Question { address, want }).or_default().push(asker);
    };
    let good = |text: &str| {
        let url = Url::parse(text).ok()?;
        urls::can_be_asked(&url, options.allow_private_hosts).then_some(url)
    };
    let repository = manifest.get("repository");
    let of_repository = |key| repository.as_ref().and_then(|repository| repository.text_of(key));
    if let Some((base, _)) =
        of_repository("raw_base_url").filter(|(base, _)| good(base).is_some_and(|url| is_bare(&url)))
    {
        let limits = Limits { depth: 64, ..Limits::default() };
        for skill in manifest.skills() {
            if let Some((path, _)) = skill.text_of("package").filter(|(path, _)| path_fault(path, &limits).is_none()) {
                ask(address(base, path), Want::Sum { limit: limits.archive_bytes }, Asker::Package(skill));
            }
        }
    }
    for place in manifest.apis().flat_map(|api| api.elements_of("source_urls")) {
        if let Some(mut url) = place.text().and_then(good) {
            url.set_fragment(None);
            ask(url.into(), Want::Status, Asker::Source(place));
        }
    }
    if let (Some((git, git_url)), Some((branch, place))) = (of_repository("git_url"), of_repository("branch"))
        && good(git).is_some_and(|url| is_bare(&url))
    {
        let refs = format!("{}/info/refs?service=git-upload-pack", git.trim_end_matches('/'));
        ask(refs, Want::Bytes { limit: REFS_BYTES }, Asker::Branch { git_url, branch, place });
    }
}

fn is_bare(url: &Url) -> bool {
    url.query().is_none() && url.fragment().is_none()
}

// === impl Asker ===

impl Asker<'_> {
    fn judge(&self, question: &Question, reply: &Result<Reply, WebError>, findings: &mut Findings) {
        let (rule, place): (&'static Rule, _) = match self {
            Self::Package(skill) => (&M100, skill.get("package").unwrap_or_else(|| skill.clone())),
            Self::Source(place) => (&M102, place.clone()),
            Self::Branch { git_url, .. } => (&M103, git_url.clone()),
        };
        let address = &question.address;
        match reply {
            Err(error @ (WebError::Tls(_) | WebError::Forbidden(_))) => {
                findings.at(&M104, &place, format!("{address}: {error}"));
            }
            // Nobody knows what would have come behind it.
            Err(WebError::TooLarge { .. }) if matches!(self, Self::Branch { .. }) => {}
            Err(error) => {
                findings.at(rule, &place, format!("{address}: {error}"));
            }
            Ok(reply) => self.answered(address, reply, (rule, &place), findings),
        }
    }

    fn answered(
        &self,
        address: &str,
        reply: &Reply,
        (rule, place): (&'static Rule, &Located<'_>),
        findings: &mut Findings,
    ) {
        match (self, &reply.body) {
            (Self::Source(_), _) if !matches!(reply.status, 404 | 410 | 500..) => {}
            (Self::Package(skill), Body::Sum { size, sum }) => {
                served(skill, address, (*size, &sum.to_string()), findings);
            }
            (Self::Branch { branch, place, .. }, Body::Bytes(bytes)) => match refs::has_branch(bytes, branch) {
                Some(true) => {}
                Some(false) => {
                    let message = format!("the repository has no branch `{}`", branch.escape_debug());
                    findings.at(&M103, place, message);
                }
                None => {
                    findings.at(&M103, place, format!("{address} does not answer as a git repository does"));
                }
            },
            _ => {
                findings.at(rule, place, format!("{address} answers {}", reply.status));
            }
        }
    }
}

/// Holds what a host serves against what the entry promises.
fn served(skill: &Located<'_>, address: &str, (size, sum): (u64, &str), findings: &mut Findings) {
    if let Some(place) = skill.get("size_bytes")
        && let Some(stated) = place.node().to_json().as_f64()
    {
        #[expect(clippy::cast_precision_loss, reason = "no more than 10 MiB are read")]
        let differs = (stated - size as f64).abs() >= 1.0;
        if differs {
            findings.at(&M101, &place, format!("{address} serves {size} bytes, and {stated} are stated"));
        }
    }
    if let Some((_, place)) = skill.text_of("sha256").filter(|(stated, _)| !stated.eq_ignore_ascii_case(sum)) {
        findings.at(&M101, &place, format!("{address} serves bytes with the checksum {sum}"));
    }
}
