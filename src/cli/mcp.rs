//! The command `imagate mcp`: gives an agent the image tools of a gateway, over standard input and output.
//!
//! It passes messages on between the agent and `/mcp` of the gateway, and has no tools of its own. The key is in the
//! environment of the command, so the agent does not see it.

use std::collections::HashSet;

use anyhow::anyhow;
use clap::Args;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RoleClient, RoleServer};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, Transport, stdio_pipes};
use tokio::task::JoinSet;

use super::connection::ConnectionArgs;
use super::failure::CommandFailure;
use super::installation::block_on;
use crate::client::reqwest::header::AUTHORIZATION;

/// The end of the base URL of an API, in whose place the path of the protocol is.
const API_PATH: &str = "/v1";
const MCP_PATH: &str = "/mcp";

/// Arguments of `mcp`.
#[derive(Debug, Args)]
pub(super) struct McpCommand {
    #[command(flatten)]
    connection: ConnectionArgs,
}

// === impl McpCommand ===

impl McpCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let client = self.connection.client()?;
        let (base_url, key, headers, http) = client.connection();
        let url = mcp_url(&base_url);
        let config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
        // As in the other commands, a header that was given replaces the one with the key.
        let config = if headers.contains_key(AUTHORIZATION) { config } else { config.auth_header(key) };
        let config = config.custom_headers(headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect());
        block_on(async {
            let gateway = StreamableHttpClientTransport::with_client(http.clone(), config);
            let agent = IntoTransport::<RoleServer, _, _>::into_transport(stdio_pipes());
            pass_messages(agent, gateway)
                .await
                .map_err(|error| CommandFailure::Failed(error.context(format!("the connection to {url} has ended"))))
        })
    }
}

/// Returns the address of the protocol on the service with this base URL.
fn mcp_url(base_url: &str) -> String {
    let base_url = base_url.trim_end_matches('/');
    format!("{}{MCP_PATH}", base_url.strip_suffix(API_PATH).unwrap_or(base_url))
}

/// Passes messages on in both directions. After the agent has closed its side, requests without an answer are still
/// answered: they may be paid for.
async fn pass_messages(
    mut agent: impl Transport<RoleServer>,
    mut gateway: impl Transport<RoleClient>,
) -> Result<(), anyhow::Error> {
    let mut sending = JoinSet::new();
    let (mut is_open, mut unanswered) = (true, HashSet::new());
    while is_open || !unanswered.is_empty() {
        tokio::select! {
            message = agent.receive(), if is_open => {
                let Some(message) = message else {
                    is_open = false;
                    continue;
                };
                let id = request_id(&message);
                unanswered.extend(id.clone());
                let sent = gateway.send(message);
                sending.spawn(async move { (id, sent.await.err()) });
            }
            message = gateway.receive() => {
                let message = message.ok_or_else(|| anyhow!("the gateway does not answer"))?;
                if let Some(id) = answered_id(&message) {
                    unanswered.remove(id);
                }
                agent.send(message).await?;
            }
            Some(sent) = sending.join_next() => {
                if let Ok((Some(id), Some(error))) = sent {
                    unanswered.remove(&id);
                    let error = ErrorData::internal_error(format!("The gateway cannot be reached: {error}"), None);
                    agent.send(ServerJsonRpcMessage::error(error, Some(id))).await?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the id of the request that a message answers.
fn answered_id(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ServerJsonRpcMessage::Response(response) => Some(&response.id),
        ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// Returns the id of a message that expects an answer.
fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_protocol_is_beside_that_of_the_api() {
        for (base_url, expected) in [
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/mcp"),
            ("https://host/images/v1/", "https://host/images/mcp"),
            ("https://host/openai", "https://host/openai/mcp"),
        ] {
            assert_eq!(mcp_url(base_url), expected);
        }
    }
}
