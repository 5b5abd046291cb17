//! The check: one walk from the bytes to everything that can be said of them.
//!
//! Decides in which order the rules are asked, and how bad a finding is after what the options say.

mod digests;
mod fields;
mod history;
mod layout;
mod lists;
mod names;
mod network;
mod options;
mod paths;
mod shape;
mod times;
mod urls;

pub(super) use fields::nearest;
pub(super) use names::lenient;
pub use options::{Options, Override, Overrides, OverridesError};
pub(super) use shape::problem as shape_problem;
pub use urls::{can_be_asked, is_public};

use super::finding::{Findings, Report};
use super::located::Located;
use super::package::{self, Scope};
use super::text::Source;
use super::threads::Threads;

/// The schema, which is the word on the shape.
pub(super) const SCHEMA: &str = include_str!("../../schemas/skills-registry.schema.json");

/// Of so many skills a thread looks at the files before it takes the next ones.
const SKILLS_OF_A_JOB: usize = 64;

/// Looks for everything that is wrong with a manifest.
///
/// It never fails: what cannot be read is a finding.
#[must_use]
pub fn check(source: Source, options: &Options<'_>) -> Report {
    read(source, options, |manifest, text, findings| all(manifest, text, options, findings))
}

/// Looks only whether the packages are the ones of a manifest, and safe: for whoever has these and no checkout.
#[must_use]
pub fn verify(source: Source, options: &Options<'_>) -> Report {
    read(source, options, |manifest, _, findings| {
        all_of(manifest, &[&|findings| shape::check(manifest, findings)], options, Scope::Packages, findings);
    })
}

fn read(source: Source, options: &Options<'_>, look: impl FnOnce(&Located<'_>, &str, &mut Findings)) -> Report {
    let mut findings = Findings::default();
    let file = findings.next();
    let text = shape::text(&source, file, &mut findings);
    findings.add(source);
    let root = text.as_ref().and_then(|text| shape::tree(text, file, &mut findings));
    if let (Some(text), Some(root)) = (&text, &root) {
        look(&Located::root(root, file), text, &mut findings);
    }
    findings.finish(options.asked(root.is_some()), |finding| options.settle(finding))
}

/// Rules about the manifest by itself.
type Alone<'a> = &'a (dyn Fn(&mut Findings) + Sync);

/// What one thread does at a time. None of it needs to know what came of the rest.
#[derive(Clone, Copy)]
enum Job<'a, 'm> {
    Alone(Alone<'a>),
    /// The files and packages of some skills.
    Skills(&'a package::Look<'a>, &'a [Located<'m>]),
}

fn all_of(manifest: &Located<'_>, alone: &[Alone<'_>], options: &Options<'_>, scope: Scope, findings: &mut Findings) {
    let look = options.files.map(|files| package::Look::new(files, scope));
    let skills: Vec<Located<'_>> = look.iter().flat_map(|_| manifest.skills()).collect();
    let mut jobs: Vec<Job<'_, '_>> = alone.iter().copied().map(Job::Alone).collect();
    jobs.extend(look.iter().flat_map(|look| skills.chunks(SKILLS_OF_A_JOB).map(|some| Job::Skills(look, some))));
    let found = Threads::new(options.threads).each(&jobs, |job| {
        let mut part = findings.part();
        match job {
            Job::Alone(rules) => rules(&mut part),
            Job::Skills(look, skills) => look.skills(skills, &mut part),
        }
        part
    });
    found.into_iter().for_each(|part| findings.append(part));
    if let Some(look) = look {
        look.others(manifest, findings);
    }
}

/// Every rule that has something to look at, also where the shape is wrong: one missing field hides nothing else.
fn all(manifest: &Located<'_>, text: &str, options: &Options<'_>, findings: &mut Findings) {
    let alone: [Alone<'_>; 8] = [
        &|findings| shape::check(manifest, findings),
        &|findings| fields::check(manifest, findings),
        &|findings| times::check(manifest, options.now, findings),
        &|findings| urls::check(manifest, options, findings),
        &|findings| names::check(manifest, findings),
        &|findings| digests::check(manifest, findings),
        &|findings| paths::check(manifest, findings),
        &|findings| lists::check(manifest, options, findings),
    ];
    all_of(manifest, &alone, options, Scope::Everything, findings);
    if let Some(web) = options.web {
        network::check(manifest, web, options, findings);
    }
    if let Some(previous) = options.previous {
        history::check(manifest, previous, options, findings);
    }
    layout::check(manifest, text, findings);
}
