//! Tests of replays with a real store and real files. The tests control the answers.

mod announced_repeats;
mod claims_of_other_nodes;
mod commits;
mod expected_repeat;
mod jobs;
mod keyed_requests;
mod one_time_use;
mod reserved_space;
mod shared_answers;
mod stored_answer;
mod stored_jobs;

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use chrono::Utc;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answer_reader::AnswerReaderError;
use super::*;
use crate::error::{Error, UpstreamFault};
use crate::gateway::group_policies::GroupPolicies;
use crate::gateway::keys::{ApiKeys, Pepper};
use crate::gateway::ledger::Ledger;
use crate::gateway::rules::{self, Job};
use crate::gateway::spool::{EditForm, FreeSpace, ImageUpload, Spool};
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::testing::{RecordStoreDouble, new_store};
use crate::gateway::store::{NodeId, ReplayStore, SqlStore, Timestamp};

/// The size of the pieces in which [`ChannelAnswer::complete`] sends a body.
const PIECE_BYTES: usize = 10_000;
const MIB: u64 = 1024 * 1024;

/// Returns an answer deadline that no test reaches.
fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Returns the registration of a request whose client does not mark its retries.
fn registration() -> JobRegistration {
    static REQUESTS: AtomicU32 = AtomicU32::new(1_000);
    let request_id = format!("req_{}", REQUESTS.fetch_add(1, Ordering::Relaxed));
    JobRegistration { request_id, ..JobRegistration::default() }
}

impl AnswerStore {
    /// Returns the answer of an earlier request, as a request gets it that is marked as a retry.
    async fn adopt_job(self: &Arc<Self>, caller: &Caller, task: impl Into<SharedTask>) -> Option<AnswerReader> {
        let task = task.into();
        let marked = JobRegistration { announces_retries: true, ..registration() };
        let registration = self.with_fingerprint(caller, &task, marked).await;
        self.find_earlier_answer(caller, &task, &registration).await.unwrap()
    }

    async fn fingerprint(&self, caller: &Caller, task: &SharedTask, announces_retries: bool) -> Option<[u8; 32]> {
        self.with_fingerprint(caller, task, JobRegistration { announces_retries, ..registration() }).await.fingerprint
    }
}

struct ReplayFixture {
    dir: TempDir,
    store: Arc<SqlStore>,
    double: Arc<RecordStoreDouble>,
    ledger: Ledger,
    settings: config::ReplayConfig,
    ada: Caller,
    bob: Caller,
}

impl ReplayFixture {
    async fn new() -> Self {
        Self::with_double(RecordStoreDouble::wrapping).await
    }

    async fn with_double(wrap: fn(&Arc<SqlStore>) -> Arc<RecordStoreDouble>) -> Self {
        let (dir, store) = new_store().await;
        let keys = ApiKeys::new(&(Arc::clone(&store) as _), Pepper::new(store.pepper_key()));
        let mut callers = Vec::new();
        for name in ["ada", "bob"] {
            let secret = keys.create_for_test(name, name, "default").await.secret;
            callers.push(
                keys.authenticate(Some(format!("Bearer {}", secret.expose()).as_bytes()), &GroupPolicies::for_test())
                    .await
                    .unwrap(),
            );
        }
        let [ada, bob] = <[Caller; 2]>::try_from(callers).unwrap();
        let settings = config::ReplayConfig {
            orphans: true,
            orphan_window: Duration::from_secs(300),
            idempotency_window: Duration::from_secs(86_400),
            max_bytes: 64 * MIB,
        };
        let double = wrap(&store);
        let ledger = Ledger::start_for_test(Arc::clone(&double)).await;
        Self { dir, store, double, ledger, settings, ada, bob }
    }

    /// Opens the replays, as a start of the gateway does. If this is called while an earlier value still exists, the
    /// new value finds the files and rows that a kill of the process would leave.
    async fn open(&self) -> Arc<AnswerStore> {
        self.open_as(NodeId::only()).await
    }

    async fn open_as(&self, node: NodeId) -> Arc<AnswerStore> {
        self.open_in(self.free(), node).await
    }

    /// Opens the replays of a node with a data directory of its own.
    async fn open_in(&self, free: FreeSpace, node: NodeId) -> Arc<AnswerStore> {
        let (store, ledger) = (Arc::clone(&self.double) as Arc<dyn ReplayStore>, self.ledger.clone());
        AnswerStore::open(&self.settings, free, store, ledger, self.store.vault().clone(), node).await.unwrap()
    }

    /// Returns the free space of the disk; none of it is reserved for other data.
    fn free(&self) -> FreeSpace {
        FreeSpace::new(self.dir.path().to_owned(), 0)
    }

    async fn wait_until(&self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the paths and sizes of the files on disk.
    fn files(&self) -> Vec<(std::path::PathBuf, u64)> {
        let entries = std::fs::read_dir(self.dir.path().join(FOLDER)).unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect()
    }

    /// Waits until no file is left. Files are removed on other threads.
    async fn wait_until_no_files(&self) {
        wait_until_empty(&self.dir.path().join(FOLDER)).await;
    }

    fn edit(&self, image: u8) -> Arc<Job> {
        let spool = Spool::new(self.dir.path()).unwrap();
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 2, 2);
        encoder.set_color(png::ColorType::Rgba);
        // The image is not compressed, so that every image has the same length.
        encoder.set_compression(png::Compression::NoCompression);
        encoder.write_header().unwrap().write_image_data(&[image; 16]).unwrap();
        let mut writer = spool.create_writer_blocking().unwrap();
        writer.write(&file).unwrap();
        let images = vec![ImageUpload::new("image", writer.finish())];
        let fields: Map<String, Value> = json!({"model": "gpt-image-2", "prompt": "red"}).as_object().unwrap().clone();
        Arc::new(rules::check_edit(EditForm { fields, images, ..EditForm::default() }, Utc::now()).unwrap())
    }
}

async fn wait_until_empty(folder: &Path) {
    let file_count = || std::fs::read_dir(folder).unwrap().count();
    for _ in 0..1000 {
        if file_count() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(file_count(), 0);
}

fn job(prompt: &str) -> Arc<Job> {
    let body = json!({"model": "gpt-image-2", "prompt": prompt}).to_string();
    Arc::new(rules::check_generation(body.as_bytes(), Utc::now()).unwrap())
}

fn head() -> AnswerHead {
    let headers = BTreeMap::from([("x-imagate-delivery".to_owned(), "match".to_owned())]);
    AnswerHead { status: 200, content_type: "application/json".to_owned(), headers }
}

/// Returns bytes whose frames are all different.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from((index ^ (index / 251)) % 256).unwrap()).collect()
}

/// An answer whose body a test sends.
struct ChannelAnswer(mpsc::Receiver<Result<Bytes, &'static str>>);

type BodySender = mpsc::Sender<Result<Bytes, &'static str>>;

impl ChannelAnswer {
    fn new() -> (BodySender, Self) {
        let (body_sender, body) = mpsc::channel(4096);
        (body_sender, Self(body))
    }

    /// Returns an answer whose complete body is available at once.
    fn complete(bytes: &[u8]) -> Self {
        let (body_sender, answer) = Self::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            body_sender.try_send(Ok(Bytes::copy_from_slice(piece))).unwrap();
        }
        answer
    }

    /// Returns an answer whose body breaks off after these bytes.
    fn broken(bytes: &[u8]) -> Self {
        let (body_sender, answer) = Self::new();
        body_sender.try_send(Ok(Bytes::copy_from_slice(bytes))).unwrap();
        body_sender.try_send(Err("the body broke off")).unwrap();
        answer
    }
}

impl RecordableAnswer for ChannelAnswer {
    type Body = Self;

    fn into_parts(self) -> (AnswerHead, Self) {
        (head(), self)
    }
}

impl Body for ChannelAnswer {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

async fn read(reader: AnswerReader) -> Result<Vec<u8>, AnswerReaderError> {
    reader.collect().await.map(|collected| collected.to_bytes().to_vec())
}

/// Reads whole frames until they have at least this number of bytes.
async fn read_some(reader: &mut AnswerReader, length: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < length {
        read.extend_from_slice(&reader.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    read
}

/// Returns the `reason` in the body of an error, which must have the status 502.
async fn reason(reader: AnswerReader) -> String {
    assert_eq!(reader.head().await.unwrap().status, 502);
    let body: Value = serde_json::from_slice(&read(reader).await.unwrap()).unwrap();
    body["error"]["reason"].as_str().unwrap().to_owned()
}
