//! Makes one call of a job to the account of a [`Lease`], and classifies its failure.
//!
//! There is one file for each protocol. The module never tries twice and never follows a redirect, and callers see
//! nothing that it reports about an account: addresses and reasons go to the log, a class and a cause go to the request
//! flow. It carries the attempt classes of the money rules.

mod call;
mod calls;
mod classify;
mod edits;
mod images;
mod reply;
mod responses;
mod simulated;
mod simulator;
mod tool;
mod transport;

pub(crate) use calls::ServiceCallError;
pub(crate) use classify::{error_in_answer, is_refusal};
pub(crate) use reply::{AttemptFailure, FailureCause, FailureClass, Reply, ReplyBody, ReplyError};
pub(crate) use transport::TransportError;

use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{AccountEndpoint, Lease};
use super::rules::TaskRef;
use crate::tables::UPSTREAM_TLS_SECONDS;
use simulated::SimulatedUpstream;
use transport::{Transport, TransportSettings};

/// Makes the calls. The process has one client, because connections and budgets are shared.
#[derive(Debug)]
pub(crate) struct UpstreamClient {
    transport: Transport,
    studio: SimulatedUpstream,
}

// === impl UpstreamClient ===

impl UpstreamClient {
    /// Prepares the client; opens no connection. `connect` bounds the name resolution and the connection together. With
    /// `tls` the machine's certificates are read now, so that the start fails instead of every call.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine's certificates cannot be read.
    pub(crate) fn new(connect: Duration, tls: bool) -> Result<Self, TransportError> {
        let settings = TransportSettings {
            connect_timeout: connect,
            tls_timeout: Duration::from_secs(UPSTREAM_TLS_SECONDS),
            ..TransportSettings::default()
        };
        let transport = Transport::new(settings)?;
        if tls {
            transport.prepare_tls()?;
        }
        Ok(Self { transport, studio: SimulatedUpstream::new() })
    }

    /// Loads the machine's certificates now, if that has not happened yet.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be read.
    pub(crate) fn prepare_tls(&self) -> Result<(), TransportError> {
        self.transport.prepare_tls()
    }

    /// Makes one attempt. Returns when the upstream has answered with a head, or has failed.
    pub(crate) async fn send<'a>(
        &self,
        lease: &Lease,
        task: impl Into<TaskRef<'a>>,
        until: Instant,
    ) -> Result<Reply, AttemptFailure> {
        match (lease.endpoint(), task.into()) {
            (AccountEndpoint::Simulator, TaskRef::Images(job)) => self.studio.send(job).await,
            (AccountEndpoint::Simulator, TaskRef::Response(job)) => self.studio.respond(job).await,
            (AccountEndpoint::Images(address), TaskRef::Images(job)) => {
                images::send(&self.transport, lease, address, job, until).await
            }
            (AccountEndpoint::Responses(host), TaskRef::Response(job)) => {
                responses::send(&self.transport, lease, host.address(), job, until).await
            }
            (AccountEndpoint::Responses(host), TaskRef::Images(job)) => {
                tool::send(&self.transport, lease, host, job, until).await
            }
            // No lease is granted for this: an account that only draws cannot answer a response request.
            (AccountEndpoint::Images(_), TaskRef::Response(_)) => {
                Err(AttemptFailure::new(FailureClass::N, FailureCause::Unreachable))
            }
        }
    }
}
