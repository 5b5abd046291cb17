//! The skills that a folder publishes: its manifest, and the discovery index that follows from it.
//!
//! Decides when the folder is looked at again, and whether what is found there may be published: only a manifest in
//! which no error is found, and whose packages lie beside it, are its own and are safe.
//! Refuses to know HTTP; what a finding is, is for the manifest's own checks.
//!
//! The folder is looked at when somebody asks, once a second at most, and checked where something in it has changed.
//! What has an error is told to the operator and not published: callers keep what was good before.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use chrono::Utc;

use crate::checkout::Checkout;
use crate::manifest::{Files as _, Manifest, Options, Report, Source, check, discovery, verify};

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
    looking: tokio::sync::Mutex<()>,
}

/// What may be published.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// The manifest, to the byte.
    pub(crate) manifest: Document,
    /// The discovery index of Agent Skills.
    pub(crate) index: Document,
}

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// What it says.
    pub(crate) bytes: Bytes,
    /// The strong entity tag, in its quotes: it changes with every byte.
    pub(crate) tag: String,
}

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    /// The folder as it was checked last, good or not.
    seen: Vec<Stamp>,
    published: Option<Arc<Published>>,
}

/// A file as it was; nothing where it was not there.
type Stamp = (PathBuf, Option<(u64, SystemTime)>);

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
        Self { folder: folder.to_owned(), state: Mutex::default(), looking: tokio::sync::Mutex::default() }
    }

    /// What is published now, if anything is.
    pub(crate) async fn published(self: &Arc<Self>) -> Option<Arc<Published>> {
        if let Ok(_alone) = self.looking.try_lock()
            && self.is_due()
        {
            let this = Arc::clone(self);
            let looked = tokio::runtime::Handle::current().spawn_blocking(move || this.look()).await;
            if let Err(error) = looked {
                tracing::error!(%error, "a look at the skills ended in the middle");
            }
        }
        self.lock().published.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) -> bool {
        self.lock().looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
    }

    /// Checks the folder where it has changed.
    fn look(&self) {
        let seen = std::mem::take(&mut self.lock().seen);
        let is_same = !seen.is_empty() && seen.iter().all(|old| stamp(&old.0) == *old);
        let (seen, found) = if is_same { (seen, None) } else { self.check() };
        let mut state = self.lock();
        (state.looked, state.seen) = (Some(Instant::now()), seen);
        match found {
            Some(Ok(published)) => {
                tracing::info!(tag = published.manifest.tag, "the skills are published");
                state.published = Some(Arc::new(published));
            }
            Some(Err(unfit)) => {
                let instead = if state.published.is_some() { "what was good before" } else { "nothing" };
                tracing::error!(error = %unfit, folder = %self.folder.display(), instead, "the skills are not published");
            }
            None => {}
        }
    }

    /// Reads everything. The stamps are taken first: what changes meanwhile is looked at again.
    fn check(&self) -> (Vec<Stamp>, Option<Result<Published, Unfit>>) {
        let mut seen = vec![stamp(&self.folder.join(MANIFEST))];
        let result = self.read().and_then(|(checkout, source)| {
            if let Ok(manifest) = Manifest::read(&source) {
                let packages = manifest.registry().skills.iter().map(|skill| self.folder.join(&skill.package));
                seen.extend(packages.map(|path| stamp(&path)));
            }
            publish(&checkout, &source)
        });
        (seen, Some(result))
    }

    fn read(&self) -> Result<(Checkout, Source), Unfit> {
        let checkout = Checkout::open(&self.folder).map_err(|error| Unfit::Unreadable(error.to_string()))?;
        let bytes = checkout.read(MANIFEST, LONGEST).map_err(|error| Unfit::Unreadable(error.to_string()))?;
        let bytes = bytes.ok_or_else(|| Unfit::Unreadable("it is not there".to_owned()))?;
        Ok((checkout, Source::new(MANIFEST, bytes)))
    }
}

fn publish(checkout: &Checkout, source: &Source) -> Result<Published, Unfit> {
    let mut options = Options { now: Some(Utc::now()), ..Options::default() };
    fit(&check(source.clone(), &options))?;
    options.files = Some(checkout);
    fit(&verify(source.clone(), &options))?;
    let index = discovery(source, None).map_err(|error| Unfit::Unreadable(error.to_string()))?;
    Ok(Published { manifest: Document::new(source.bytes().to_vec()), index: Document::new(index.into_bytes()) })
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

fn stamp(path: &Path) -> Stamp {
    let is = std::fs::metadata(path).and_then(|metadata| Ok((metadata.len(), metadata.modified()?)));
    (path.to_owned(), is.ok())
}

// === impl Document ===

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let hex: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { bytes: bytes.into(), tag: format!("\"{hex}\"") }
    }

    /// Whether one of these tags, as `If-None-Match` lists them, is this one.
    pub(crate) fn is_known(&self, tags: &str) -> bool {
        tags.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.tag)
    }
}
