//! Makes one call of a job to the account of a [`Lease`], and classifies its failure.
//!
//! There is one file for each protocol. The module never tries twice and never follows a redirect, and callers see
//! nothing that it reports about an account: addresses and reasons go to the log, a class and a cause go to the request
//! flow. It carries the attempt classes of the money rules.

mod failure_classification;
mod generation_call;
mod image_tool;
mod images;
mod multipart_form;
mod reply;
mod responses;
mod service_calls;
mod simulated_upstream;
mod simulator;
mod transport;

pub(crate) use failure_classification::{classify_imageless_answer, is_refusal};
pub(crate) use reply::{AttemptFailure, FailureCause, FailureClass, Reply, ReplyBody, ReplyError};
pub(crate) use service_calls::ServiceCallError;
pub(crate) use transport::TransportError;

use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{AccountEndpoint, Lease};
use super::rules::TaskRef;
use crate::tables::UPSTREAM_TLS_SECONDS;
use simulated_upstream::SimulatedUpstream;
use transport::{Transport, TransportSettings};

/// Makes the calls. The process has one client, because connections and budgets are shared.
#[derive(Debug)]
pub(crate) struct UpstreamClient {
    transport: Transport,
    simulator: SimulatedUpstream,
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
        Ok(Self { transport, simulator: SimulatedUpstream::new() })
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
            (AccountEndpoint::Simulator, TaskRef::Images(job)) => self.simulator.draw_images(job).await,
            (AccountEndpoint::Simulator, TaskRef::Response(job)) => self.simulator.begin_response(job).await,
            (AccountEndpoint::Images(address), TaskRef::Images(job)) => {
                images::send(&self.transport, lease, address, job, until).await
            }
            (AccountEndpoint::Responses(host), TaskRef::Response(job)) => {
                responses::send(&self.transport, lease, host.address(), job, until).await
            }
            (AccountEndpoint::Responses(host), TaskRef::Images(job)) => {
                image_tool::send(&self.transport, lease, host, job, until).await
            }
            // No lease is granted for this: an account that only draws cannot answer a response request.
            (AccountEndpoint::Images(_), TaskRef::Response(_)) => {
                Err(AttemptFailure::new(FailureClass::N, FailureCause::Unreachable))
            }
        }
    }
}
