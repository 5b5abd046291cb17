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

pub(super) use names::lenient;
pub use options::{Options, Override, Overrides, OverridesError};
pub(super) use shape::problem as shape_problem;
pub use urls::{can_be_asked, is_public};

use super::finding::{Findings, Report};
use super::located::Located;
use super::package;
use super::text::Source;

/// The schema, which is the word on the shape.
pub(super) const SCHEMA: &str = include_str!("../../schemas/skills-registry.schema.json");

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
        shape::check(manifest, findings);
        if let Some(files) = options.files {
            package::check(manifest, files, package::Scope::Packages, findings);
        }
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

/// Every rule that has something to look at, also where the shape is wrong: one missing field hides nothing else.
fn all(manifest: &Located<'_>, text: &str, options: &Options<'_>, findings: &mut Findings) {
    shape::check(manifest, findings);
    fields::check(manifest, findings);
    times::check(manifest, options.now, findings);
    urls::check(manifest, options, findings);
    names::check(manifest, findings);
    digests::check(manifest, findings);
    paths::check(manifest, findings);
    lists::check(manifest, options, findings);
    if let Some(files) = options.files {
        package::check(manifest, files, package::Scope::Everything, findings);
    }
    if let Some(web) = options.web {
        network::check(manifest, web, options, findings);
    }
    if let Some(previous) = options.previous {
        history::check(manifest, previous, options, findings);
    }
    layout::check(manifest, text, findings);
}
