//! Claims of what may happen once, such as the use of a form of the console.
//!
//! They are rows like the claims of idempotency keys: of all requests on all nodes, exactly one gets the claim, also
//! after a restart. A repeat learns only the id of what was created. The same claims let requests that would create the
//! same thing take turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::ReplayError;
use super::answer_store::AnswerStore;
use super::pending_work::PendingGuard;
use crate::gateway::ledger::{LedgerError, OPEN_TIMEOUT};
use crate::gateway::store::{
    ReplayClaim, ReplayState, ReplayWrite, RowWriteOutcome, StoredAnswerRow, StoredReplay, Timestamp,
};

/// The status in the row of a completed claim.
const CREATED: u16 = 201;
/// The name of the created id among the headers in the row of a completed claim.
const CREATED_ID: &str = "created-id";

/// The time after which the turn of a process that has died ends (our choice): much longer than a write to the store.
const TURN_LIFETIME: Duration = Duration::from_secs(30);
/// The longest wait for a turn (our choice): the turn of a process that has died ends before.
const TURN_WAIT_MAX: Duration = Duration::from_secs(35);
/// The pause between two attempts to get a turn (our choice).
const TURN_PAUSE: Duration = Duration::from_millis(50);

/// The answer to the question who may use something first.
pub(crate) enum OneTimeUse {
    /// This request is the first, and has the claim.
    First(OneTimeClaim),
    /// An earlier request has the claim. The value is the id of what it created, if it has created something with an id.
    Repeated(Option<String>),
}

/// The right to do something once. If it is dropped, the right is used up.
pub(crate) struct OneTimeClaim {
    answers: Arc<AnswerStore>,
    row: ReplayClaim,
    /// Keeps the store open until the claim is completed, released or dropped.
    _pending: PendingGuard,
}

// === impl AnswerStore ===

impl AnswerStore {
    /// Claims what `scope` identifies, until `expires_at`.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails or is too slow. Then nothing may be done, and the right may be used up.
    pub(crate) async fn claim_once(
        self: &Arc<Self>,
        scope: [u8; 32],
        expires_at: Timestamp,
    ) -> Result<OneTimeUse, ReplayError> {
        claim_in(self, scope, expires_at).await
    }

    /// Runs `work` while no other request, on any node, runs work of the same scope. The work is run to its end even if
    /// the caller leaves: a browser drops the first of two forms that it sends.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the others take too long. The work was not run then.
    pub(crate) async fn run_alone<T: Send + 'static>(
        self: &Arc<Self>,
        scope: [u8; 32],
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ReplayError> {
        let answers = Arc::clone(self);
        let turn = async move {
            let claim = claim_turn(&answers, scope).await?;
            let result = work.await;
            claim.release().await;
            Ok(result)
        };
        Handle::current().spawn(turn.in_current_span()).await.map_err(|_| ReplayError::Stopped)?
    }
}

/// Waits for the turn of a scope.
async fn claim_turn(answers: &Arc<AnswerStore>, scope: [u8; 32]) -> Result<OneTimeClaim, ReplayError> {
    let deadline = Instant::now() + TURN_WAIT_MAX;
    loop {
        match claim_in(answers, scope, Timestamp::now() + TURN_LIFETIME).await? {
            OneTimeUse::First(claim) => return Ok(claim),
            OneTimeUse::Repeated(_) if Instant::now() >= deadline => return Err(LedgerError::Overloaded.into()),
            OneTimeUse::Repeated(_) => sleep(TURN_PAUSE).await,
        }
    }
}

async fn claim_in(
    answers: &Arc<AnswerStore>,
    scope: [u8; 32],
    expires_at: Timestamp,
) -> Result<OneTimeUse, ReplayError> {
    let answers = Arc::clone(answers);
    let request_id = format!("once_{}", uuid::Uuid::new_v4().simple()).into();
    let row = ReplayClaim::new(scope, scope, request_id, answers.node.clone(), expires_at);
    let write = answers.ledger.write_replay(ReplayWrite::Claim(row.clone()));
    let outcome = timeout(OPEN_TIMEOUT, write).await.map_err(|_| LedgerError::Overloaded)??;
    Ok(match outcome {
        RowWriteOutcome::Done => {
            let _pending = answers.begin_work();
            OneTimeUse::First(OneTimeClaim { answers, row, _pending })
        }
        RowWriteOutcome::AlreadyClaimed(existing) => OneTimeUse::Repeated(created_id(*existing)),
        // The owner of the claim is unknown.
        RowWriteOutcome::NoEffect => OneTimeUse::Repeated(None),
    })
}

// === impl OneTimeClaim ===

impl OneTimeClaim {
    /// Stores the id of what was created, for repeats. A failure is only logged: repeats then learn no id.
    pub(crate) async fn complete(self, created_id: &str) {
        let headers = BTreeMap::from([(CREATED_ID, created_id)]);
        let answer = StoredAnswerRow {
            status: CREATED,
            content_type: String::new(),
            headers: serde_json::to_string(&headers).unwrap_or_default(),
            file: String::new(),
            size: 0,
            sealed_key: Vec::new(),
        };
        let ReplayClaim { scope, request_id, expires_at, retry_until, .. } = self.row.clone();
        let write = ReplayWrite::Finish { scope, request_id, expires_at, retry_until, answer, shared_bytes: None };
        if let Err(error) = self.answers.ledger.write_replay(write).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a repeated form will not show what the first one created");
        }
    }

    /// Gives the right back, because nothing was done.
    pub(crate) async fn release(self) {
        self.answers.release_claim(&(&self.row).into()).await;
    }
}

fn created_id(existing: StoredReplay) -> Option<String> {
    let ReplayState::Stored(answer) = existing.state else { return None };
    serde_json::from_str::<BTreeMap<String, String>>(&answer.headers).ok()?.remove(CREATED_ID)
}
