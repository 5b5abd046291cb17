//! The command `imagate account explain`.

use clap::Args;

use super::state_text;
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::ManagedGateway;
use crate::cli::output::{Column, print, print_json, print_message, table};
use crate::client::admin::types::AccountExplanation;
use crate::gateway::config::DEFAULT_GROUP;
use crate::image::Size;

/// Arguments of `account explain`.
#[derive(Debug, Args)]
pub(super) struct AccountExplainCommand {
    /// The group of the key that sends the request.
    #[arg(long, value_name = "GROUP", default_value = DEFAULT_GROUP)]
    group: String,
    /// The requested size, such as 3840x2160; accounts have fewer slots for large images.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// The `session-id` of a conversation at `/v1/responses`, to show the account that it is bound to.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// The order of the accounts, as a sentence.
const ORDER: &str = "of the accounts that can serve it, paid comes before free, oauth before api_key, higher priority before lower, then the account that the conversation is bound to, and then the account with the most free slots";

// === impl AccountExplainCommand ===

impl AccountExplainCommand {
    pub(super) async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let mut request = gateway.admin.explain_accounts().group(&self.group);
        if let Some(size) = self.size {
            request = request.size(size.to_string());
        }
        if let Some(session) = &self.session {
            request = request.session(session);
        }
        let accounts = request.send().await?.data;
        if json {
            return Ok(print_json(&accounts)?);
        }
        let [tier, kind, priority, slots] = ["TIER", "KIND", "PRIORITY", "SLOTS"].map(Column::from);
        let rows: Vec<[String; 6]> = accounts.iter().map(table_row).collect();
        print(&table(["NAME".into(), Column::state("STATE"), tier, kind, priority, slots], &rows))?;
        print_message(&match accounts.iter().find(|account| account.chosen) {
            Some(account) => format!("{} would be used: {}", account.name, ORDER),
            None if self.session.is_some() => format!("no account can serve the group {} now", self.group),
            None => format!("no account can make an image for the group {} now", self.group),
        });
        Ok(())
    }
}

fn table_row(account: &AccountExplanation) -> [String; 6] {
    [
        account.name.clone(),
        state_text(
            &account.state,
            (account.cooling_until, account.cooling_cause.as_ref()),
            account.disabled_reason.as_ref(),
        ),
        account.tier.to_string(),
        account.kind.to_string(),
        account.priority.to_string(),
        account.slots.to_string(),
    ]
}
