//! Identifies equal requests by operation, fields, the contents of every file, and the turn of an agent if the request
//! names one.

use std::hash::BuildHasher as _;
use std::io;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hmac;
use tokio::sync::OnceCell;

use crate::gateway::keys::Caller;
use crate::gateway::rules::{Job, SharedTask};
use crate::gateway::spool::SpooledBytes;
use crate::image::ByteSource;

/// A hash of a whole request.
pub(super) type ReplayDigest = [u8; 32];

/// The number of bytes of a file that are read at once.
const PIECE: usize = 256 * 1024;

/// The digest of a task, computed on first use; until then the task is kept.
pub(super) struct RequestIdentity {
    task: Mutex<Option<SharedTask>>,
    digest: OnceCell<ReplayDigest>,
}

/// Returns the SHA-256 of operation, fields and files, or of the body of a request for a response. Files are read on a
/// thread that may block.
///
/// # Errors
///
/// Returns an error if a file cannot be read.
pub(super) async fn digest(task: &SharedTask) -> io::Result<ReplayDigest> {
    if is_in_memory(task) {
        return digest_blocking(task);
    }
    let task = task.clone();
    tokio::task::spawn_blocking(move || digest_blocking(&task)).await.map_err(io::Error::other)?
}

/// True if the digest needs no file to be read.
pub(super) fn is_in_memory(task: &SharedTask) -> bool {
    match task {
        SharedTask::Images(job) => job.edit_input().is_none(),
        SharedTask::Response(job) => matches!(job.body(), SpooledBytes::Memory(_)),
    }
}

fn digest_blocking(task: &SharedTask) -> io::Result<ReplayDigest> {
    let mut context = Context::new(&SHA256);
    update_with_part(&mut context, b"imagate job v1");
    update_with_part(&mut context, task.operation_id().as_bytes());
    match task {
        SharedTask::Images(job) => update_with_images(&mut context, job)?,
        SharedTask::Response(job) => update_with_file(&mut context, job.body())?,
    }
    if let Some(turn) = task.turn() {
        update_with_part(&mut context, turn.as_bytes());
    }
    Ok(digest_from_hash(context.finish().as_ref()))
}

fn update_with_images(context: &mut Context, job: &Job) -> io::Result<()> {
    // The fields are sorted here too, because the order of a JSON map depends on the features of a crate.
    let mut fields: Vec<_> = job.upstream_fields().iter().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    context.update(&(fields.len() as u64).to_be_bytes());
    for (name, value) in fields {
        update_with_part(context, name.as_bytes());
        update_with_part(context, value.to_string().as_bytes());
    }
    if let Some(material) = job.edit_input() {
        context.update(&(material.images.len() as u64).to_be_bytes());
        for upload in material.images.iter().chain(&material.mask) {
            update_with_file(context, &*upload.file)?;
        }
    }
    Ok(())
}

/// Adds a part with its length, so that no two lists of parts give the same bytes.
fn update_with_part(context: &mut Context, bytes: &[u8]) {
    context.update(&(bytes.len() as u64).to_be_bytes());
    context.update(bytes);
}

fn update_with_file(context: &mut Context, file: &dyn ByteSource) -> io::Result<()> {
    let length = file.len();
    context.update(&length.to_be_bytes());
    let mut piece = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
    let mut at = 0;
    while at < length {
        match file.read_at(at, &mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                context.update(&piece[..count]);
                at += count as u64;
            }
        }
    }
    Ok(())
}

fn digest_from_hash(hash: &[u8]) -> ReplayDigest {
    let mut digest = [0; 32];
    digest.copy_from_slice(hash);
    digest
}

/// Returns the scope of an idempotency key, with its API key and operation: two API keys with the same string do not
/// conflict.
pub(super) fn scope(caller: &Caller, operation: &str, idempotency_key: &str) -> ReplayDigest {
    let mut context = Context::new(&SHA256);
    for text in ["imagate replay scope v1", caller.key().as_str(), operation, idempotency_key] {
        update_with_part(&mut context, text.as_bytes());
    }
    digest_from_hash(context.finish().as_ref())
}

/// Returns the stored form of a digest. It is keyed with the caller's own random string, so that a stolen database
/// cannot be searched for guessed prompts.
pub(super) fn keyed_digest(digest: &ReplayDigest, idempotency_key: &str) -> ReplayDigest {
    let key = hmac::Key::new(hmac::HMAC_SHA256, idempotency_key.as_bytes());
    digest_from_hash(hmac::sign(&key, digest).as_ref())
}

/// Returns a cheap hash that is equal if the digest is: requests with different hashes need not read files.
pub(super) fn cheap_hash(hasher: &std::hash::RandomState, task: &SharedTask) -> u64 {
    let known = (task.operation_id(), task.turn());
    match task {
        SharedTask::Images(job) => {
            let lengths: Vec<u64> = job.edit_input().map_or_else(Vec::new, |material| {
                material.images.iter().chain(&material.mask).map(|upload| upload.file.len()).collect()
            });
            hasher.hash_one((known, job.upstream_fields(), lengths))
        }
        SharedTask::Response(job) => hasher.hash_one((known, job.model(), job.body().len())),
    }
}

// === impl RequestIdentity ===

impl RequestIdentity {
    pub(super) fn new(task: SharedTask) -> Self {
        Self { task: Mutex::new(Some(task)), digest: OnceCell::new() }
    }

    /// Returns the digest. After the first call the task is dropped, and its files with it.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read.
    pub(super) async fn digest(&self) -> io::Result<ReplayDigest> {
        let digest = self.digest.get_or_try_init(|| async {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            digest(&task.ok_or(io::ErrorKind::NotFound)?).await
        });
        let digest = *digest.await?;
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::gateway::rules::check_generation;

    async fn of(body: &str) -> ReplayDigest {
        digest(&check_generation(body.as_bytes(), Utc::now()).unwrap().into()).await.unwrap()
    }

    #[tokio::test]
    async fn the_order_of_fields_means_nothing_and_each_of_them_does() {
        let one = of(r#"{"model":"gpt-image-2","prompt":"red","n":2,"user":null}"#).await;
        assert_eq!(one, of(r#"{"n":2.0,"prompt":"red","model":"gpt-image-2"}"#).await);
        assert_ne!(one, of(r#"{"n":1,"prompt":"red","model":"gpt-image-2"}"#).await);
        assert_ne!(one, of(r#"{"n":2,"prompt":"red ","model":"gpt-image-2"}"#).await);
        assert_ne!(one, of(r#"{"n":2,"prompt":"red","model":"gpt-image-2","user":"u"}"#).await);
    }

    #[tokio::test]
    async fn the_same_request_in_another_turn_of_an_agent_is_another_one() {
        let job = |turn: Option<&str>| {
            let job = check_generation(br#"{"model":"gpt-image-2","prompt":"red"}"#, Utc::now()).unwrap();
            SharedTask::from(job.with_turn(turn.map(str::to_owned)))
        };
        let hasher = std::hash::RandomState::new();
        for (one, other, same) in
            [(Some("a"), Some("a"), true), (Some("a"), Some("b"), false), (Some("a"), None, false)]
        {
            let (one, other) = (job(one), job(other));
            assert_eq!(digest(&one).await.unwrap() == digest(&other).await.unwrap(), same);
            assert_eq!(cheap_hash(&hasher, &one) == cheap_hash(&hasher, &other), same);
        }
    }

    #[test]
    fn what_is_stored_depends_on_the_callers_own_string() {
        assert_ne!(keyed_digest(&[1; 32], "a"), keyed_digest(&[1; 32], "b"));
        assert_ne!(keyed_digest(&[1; 32], "a"), keyed_digest(&[2; 32], "a"));
    }
}
