//! Removes the rows and files of answers that are over: expired ones, those of deleted keys, and rows that could not be
//! deleted before.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::AnswerStore;
use crate::gateway::replay::ReplayError;
use crate::gateway::replay::fingerprint::ReplayDigest;
use crate::gateway::store::Timestamp;

/// The pause between two sweeps (our choice).
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of expired rows that are deleted at once (our choice).
const SWEEP_BATCH_SIZE: u32 = 500;
/// The pause after each batch, in which other tasks use the store (our choice).
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// Sweeps as long as the answers exist.
pub(super) async fn run(answers: Weak<AnswerStore>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(answers) = answers.upgrade() else { return };
        if let Err(error) = answers.sweep().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "expired answers could not be deleted; retrying in a minute"
            );
        }
    }
}

// === impl AnswerStore ===

impl AnswerStore {
    /// Removes the answers of API keys that were deleted: nobody can ask for them again.
    async fn remove_of_deleted_keys(&self) -> Result<(), ReplayError> {
        let owners = self.folder.owners();
        let deleted = if owners.is_empty() { Vec::new() } else { self.store.deleted_keys(&owners).await? };
        if deleted.is_empty() {
            return Ok(());
        }
        let folder = Arc::clone(&self.folder);
        let files = tokio::task::spawn_blocking(move || folder.remove_of_owners(&deleted)).await;
        if let Some(shared) = self.store.shared_answers() {
            for file in files.map_err(|_| ReplayError::Stopped)? {
                shared.remove_shared_answer(&file).await?;
            }
        }
        Ok(())
    }

    /// Removes expired rows and files, those of deleted keys, and rows that could not be deleted before.
    pub(in super::super) async fn sweep(&self) -> Result<(), ReplayError> {
        let now = Timestamp::now();
        self.sweep_jobs();
        self.unstored.remove_expired(Instant::now());
        let folder = Arc::clone(&self.folder);
        tokio::task::spawn_blocking(move || folder.remove_expired(now)).await.map_err(|_| ReplayError::Stopped)?;
        self.remove_of_deleted_keys().await?;
        let unreleased = self.unreleased_claims().clone();
        for id in unreleased {
            self.write_release(&id).await?;
            self.unreleased_claims().retain(|known| *known != id);
            self.forget_ended(&id);
        }
        let mut removed_count = SWEEP_BATCH_SIZE;
        while removed_count == SWEEP_BATCH_SIZE {
            let overdue_claims = self.overdue_live_claims();
            removed_count = self.store.remove_expired_replays(now, &overdue_claims, SWEEP_BATCH_SIZE).await?;
            // The pause lets other tasks write records in between.
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
        Ok(())
    }

    /// Returns the scopes of the claims of this process whose rows may have expired although the jobs still run.
    fn overdue_live_claims(&self) -> Vec<ReplayDigest> {
        let live = self.live_claims();
        live.iter()
            .filter(|(_, live)| live.registered_at.elapsed() >= self.windows.replay)
            .map(|(scope, _)| *scope)
            .collect()
    }
}
