//! The skills that a folder publishes: its manifest, the discovery index that follows from it, and the packages that it names.
//!
//! Decides when the folder is looked at again, and whether what is found there may be published: only a manifest in
//! which no error is found, and whose packages lie beside it, are its own and are safe.
//! Refuses to know HTTP; what a finding is, is for the manifest's own checks.
//!
//! The folder is looked at when somebody asks, once a second at most and by one at a time, and checked where something in it
//! has changed, or could not be read. While nothing is published yet, whoever asks waits for the look that is under way.
//! What has an error is told to the operator and not published: callers keep what was good before.

mod package;
mod stamps;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::Utc;

use crate::checkout::Checkout;
use crate::manifest::{Files, Manifest, Options, Report, Source, check, discovery, verify};

use package::PublishedPackage;
use stamps::{Noting, Stamp};

/// The manifest in the folder.
const MANIFEST: &str = "skills.json";
/// The longest manifest that is read (ours): 10,000 skills take a tenth of it.
const LONGEST: u64 = 64 << 20;
/// A look costs one question to the file system for each package.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A folder with a manifest.
pub(crate) struct Registry {
    folder: PathBuf,
    state: Mutex<State>,
    /// Held by a look to its end, also where nobody waits for it any more.
    looking: Arc<tokio::sync::Mutex<()>>,
}

/// What may be published.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// The manifest, to the byte.
    pub(crate) manifest: Document,
    /// The discovery index of Agent Skills.
    pub(crate) index: Document,
    /// The packages, by their paths as the manifest writes them.
    packages: HashMap<String, Arc<PublishedPackage>>,
}

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// What it says.
    pub(crate) bytes: Bytes,
    /// The entity tag of its bytes.
    pub(crate) tag: EntityTag,
}

/// A strong entity tag, in its quotes: it changes with every byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag(String);

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    /// The folder as it was checked last, good or not; nothing where not all of it could be read.
    seen: Option<Arc<[Stamp]>>,
    /// What the operator was told last.
    complaint: Option<String>,
    published: Option<Arc<Published>>,
}

/// Why a folder is not published.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("there is no {MANIFEST} that can be read: {0}")]
    Unreadable(String),
    #[error("{count} errors, the first of them {rule} at `{pointer}`: {message}")]
    Errors { count: usize, rule: &'static str, pointer: String, message: String },
}

// === impl Registry ===

impl Registry {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), state: Mutex::default(), looking: Arc::default() }
    }

    /// What is published now, if anything is.
    pub(crate) async fn published(self: &Arc<Self>) -> Option<Arc<Published>> {
        if let Some(alone) = self.turn().await
            && self.is_due()
        {
            let this = Arc::clone(self);
            let look = move || {
                let _alone = alone;
                this.look();
            };
            if let Err(error) = tokio::runtime::Handle::current().spawn_blocking(look).await {
                tracing::error!(%error, "a look at the skills ended in the middle");
            }
        }
        self.lock().published.clone()
    }

    /// The right to look, if that is due and nobody has it. Who finds nothing published waits for it.
    async fn turn(&self) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        if !self.is_due() {
            return None;
        }
        match Arc::clone(&self.looking).try_lock_owned() {
            Ok(alone) => Some(alone),
            Err(_) if self.lock().published.is_none() => Some(Arc::clone(&self.looking).lock_owned().await),
            Err(_) => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) -> bool {
        self.lock().looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
    }

    /// Checks the folder where it has changed.
    fn look(&self) {
        let seen = self.lock().seen.clone();
        let is_same = seen.is_some_and(|seen| seen.iter().all(Stamp::still_holds));
        let found = if is_same { None } else { Some(self.check()) };
        let mut state = self.lock();
        state.looked = Some(Instant::now());
        let Some((seen, result)) = found else { return };
        let was_read = seen.is_some();
        state.seen = seen;
        match result {
            Ok(published) => {
                tracing::info!(tag = published.manifest.tag.as_str(), "the skills are published");
                state.complaint = None;
                state.published = Some(Arc::new(published));
            }
            Err(unfit) => self.complain(&mut state, unfit.to_string(), was_read),
        }
    }

    /// What cannot be read is tried again each time; of that the operator hears once.
    fn complain(&self, state: &mut State, complaint: String, was_read: bool) {
        if was_read || state.complaint.as_ref() != Some(&complaint) {
            let folder = self.folder.display();
            let instead = state.published.as_ref().map_or("nothing", |_| "what was good before");
            tracing::error!(error = complaint, %folder, instead, "the skills are not published");
        }
        state.complaint = Some(complaint);
    }

    /// Reads everything. The stamps are taken first: what changes meanwhile is looked at again.
    fn check(&self) -> (Option<Arc<[Stamp]>>, Result<Published, Unfit>) {
        let mut seen = vec![Stamp::of(self.folder.join(MANIFEST))];
        let (checkout, source) = match self.read() {
            Ok(read) => read,
            Err(unfit) => return (None, Err(unfit)),
        };
        if let Ok(manifest) = Manifest::read(&source) {
            let packages = manifest.registry().skills.iter().map(|skill| skill.package.as_str());
            seen.extend(stamps::inside(packages).into_iter().map(|path| Stamp::of(self.folder.join(path))));
        }
        let checkout = Noting::new(&checkout);
        let result = publish(&checkout, &source).and_then(|published| {
            let packages = package::packages(&source, &self.folder, &seen).map_err(Unfit::Unreadable)?;
            Ok(Published { packages, ..published })
        });
        (checkout.was_read().then(|| seen.into()), result)
    }

    fn read(&self) -> Result<(Checkout, Source), Unfit> {
        let checkout = Checkout::open(&self.folder).map_err(|error| Unfit::Unreadable(error.to_string()))?;
        let bytes = checkout.read(MANIFEST, LONGEST).map_err(|error| Unfit::Unreadable(error.to_string()))?;
        let bytes = bytes.ok_or_else(|| Unfit::Unreadable("it is not there".to_owned()))?;
        Ok((checkout, Source::new(MANIFEST, bytes)))
    }
}

fn publish(files: &dyn Files, source: &Source) -> Result<Published, Unfit> {
    let mut options = Options { now: Some(Utc::now()), ..Options::default() };
    fit(&check(source.clone(), &options))?;
    options.files = Some(files);
    fit(&verify(source.clone(), &options))?;
    let index = discovery(source, None).map_err(|error| Unfit::Unreadable(error.to_string()))?;
    let (manifest, index) = (Document::new(source.bytes().to_vec()), Document::new(index.into_bytes()));
    Ok(Published { manifest, index, packages: HashMap::new() })
}

fn fit(report: &Report) -> Result<(), Unfit> {
    let mut errors = report.findings().iter().filter(|finding| finding.is_error());
    let Some(first) = errors.next() else { return Ok(()) };
    Err(Unfit::Errors {
        count: 1 + errors.count(),
        rule: first.rule().id,
        pointer: first.pointer().to_owned(),
        message: first.message().to_owned(),
    })
}

// === impl Published ===

impl Published {
    /// The package at a path that the manifest names, spelled as it is there.
    pub(crate) fn package(&self, path: &str) -> Option<&Arc<PublishedPackage>> {
        self.packages.get(path)
    }
}

// === impl Document ===

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let hex: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { bytes: bytes.into(), tag: EntityTag::new(&hex) }
    }
}

// === impl EntityTag ===

impl EntityTag {
    fn new(digest: &str) -> Self {
        Self(format!("\"{digest}\""))
    }

    /// The tag as a header has it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether one of these tags, as `If-None-Match` lists them, is this one.
    pub(crate) fn is_known(&self, tags: &str) -> bool {
        tags.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.0)
    }
}
