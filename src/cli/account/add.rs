//! The command `imagate account add`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Map, Value};

use super::print_change;
use super::secrets::AccountSecretArgs;
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{LocalInstallation, ManagedGateway};
use crate::cli::output::print_message;
use crate::client::admin::types::{Account, NewAccount};
use crate::gateway::config::{self, AccountConfig};
use crate::gateway::manage;
use crate::wire::admin::types::{
    AccountImageUrls, AccountKind, AccountProtocol, AccountTier, OauthClientAuth, OauthGrant,
};

/// Arguments of `account add`: the settings of `[[accounts]]`.
#[derive(Debug, Args)]
pub(super) struct AccountAddCommand {
    /// The name of the account in logs and records: letters, digits, `.`, `_` and `-`.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The kind of credentials that the account has.
    #[arg(long, value_name = "KIND", default_value = "api_key", value_parser = AccountKind::ALL.map(AccountKind::as_str))]
    kind: String,
    /// The API that the upstream implements [default: images]
    #[arg(long, value_name = "API", value_parser = AccountProtocol::ALL.map(AccountProtocol::as_str))]
    protocol: Option<String>,
    /// The text model that runs the image tool of an account with the protocol `responses` [default: gpt-5.5]
    #[arg(long, value_name = "MODEL")]
    host_model: Option<String>,
    /// The treatment of an answer that has the address of an image in place of the image [default: refuse]
    #[arg(long, value_name = "WORD", value_parser = AccountImageUrls::ALL.map(AccountImageUrls::as_str))]
    image_urls: Option<String>,
    /// The address of the upstream with its version, such as <https://api.openai.com/v1>
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Allow plain http to other machines: credentials and images are then sent unencrypted.
    #[arg(long)]
    allow_http: bool,
    #[command(flatten)]
    secrets: AccountSecretArgs,
    #[command(flatten)]
    tokens: OauthArgs,
    /// The billing tier of the account [default: paid]
    #[arg(long, value_name = "TIER", value_parser = AccountTier::ALL.map(AccountTier::as_str))]
    tier: Option<String>,
    /// A group whose keys may use the account; may be given several times [default: default]
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// The priority: among otherwise equal accounts, the highest is used first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The maximum number of concurrent images of up to 2560x1440 pixels [default: 8]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// The maximum number of concurrent larger images [default: 2]
    #[arg(long, value_name = "N")]
    large_concurrency: Option<u32>,
    /// A phrase with which the upstream refuses content, in addition to the known ones; may be given several times.
    #[arg(long, value_name = "PHRASE")]
    refusal_phrase: Vec<String>,
    /// A phrase with which the upstream states a used-up window, in addition to the known ones; may be given several times.
    #[arg(long, value_name = "PHRASE")]
    limit_phrase: Vec<String>,
}

#[derive(Debug, Args)]
struct OauthArgs {
    /// The token endpoint of an oauth account.
    #[arg(long, value_name = "URL")]
    token_url: Option<String>,
    /// The grant that an oauth account exchanges for an access token.
    #[arg(long, value_name = "GRANT", value_parser = OauthGrant::ALL.map(OauthGrant::as_str))]
    grant: Option<String>,
    /// The OAuth client id.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The place of the client id and client secret in token requests: the `Authorization` header or the body [default:
    /// basic]
    #[arg(long, value_name = "PLACE", value_parser = OauthClientAuth::ALL.map(OauthClientAuth::as_str))]
    client_auth: Option<String>,
    /// The requested scopes of the access token, separated by spaces.
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// The audience of the access token, if the token endpoint requires one.
    #[arg(long, value_name = "NAME")]
    audience: Option<String>,
}

/// An account that is to be added, with its secrets.
pub(super) struct PendingAccount {
    name: String,
    settings: Map<String, Value>,
    secrets: BTreeMap<String, String>,
}

// === impl AccountAddCommand ===

impl AccountAddCommand {
    /// Collects the settings and reads the secrets from their sources.
    pub(super) fn prepare(self) -> Result<PendingAccount, CommandFailure> {
        let secrets = self.secrets.read_secrets()?;
        Ok(PendingAccount { settings: self.settings(), name: self.name, secrets })
    }

    /// Returns the given settings, by their names in the settings file. A setting that is not given is left
    /// out, so that it follows later changes of the default.
    fn settings(&self) -> Map<String, Value> {
        let to_value = |text: &Option<String>| text.clone().map(Value::from);
        let to_list = |texts: &[String]| (!texts.is_empty()).then(|| Value::from(texts.to_vec()));
        let Self { tokens, .. } = self;
        let fields = [
            ("kind", Some(Value::from(self.kind.clone()))),
            ("protocol", to_value(&self.protocol)),
            ("host_model", to_value(&self.host_model)),
            ("image_urls", to_value(&self.image_urls)),
            ("base_url", to_value(&self.base_url)),
            ("allow_http", self.allow_http.then(|| Value::from(true))),
            ("token_url", to_value(&tokens.token_url)),
            ("grant", to_value(&tokens.grant)),
            ("client_id", to_value(&tokens.client_id)),
            ("client_auth", to_value(&tokens.client_auth)),
            ("scope", to_value(&tokens.scope)),
            ("audience", to_value(&tokens.audience)),
            ("tier", to_value(&self.tier)),
            ("groups", to_list(&self.group)),
            ("priority", self.priority.map(Value::from)),
            ("concurrency", self.concurrency.map(Value::from)),
            ("large_concurrency", self.large_concurrency.map(Value::from)),
            ("refusal_phrases", to_list(&self.refusal_phrase)),
            ("limit_phrases", to_list(&self.limit_phrase)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

// === impl PendingAccount ===

impl PendingAccount {
    /// Checks the account. The admin API states only the first problem.
    fn check(&self, local: &LocalInstallation) -> Result<AccountConfig, CommandFailure> {
        let settings = Value::Object(self.settings.clone()).to_string();
        config::account_from_json(&self.name, &settings, self.secrets.clone(), local.config.allow_link_local)
            .map_err(|problems| CommandFailure::Input(problems.iter().map(ToString::to_string).collect()))
    }

    fn into_request(self) -> Result<NewAccount, CommandFailure> {
        let Self { name, mut settings, secrets } = self;
        settings.insert("name".to_owned(), name.into());
        settings.extend(secrets.into_iter().map(|(name, secret)| (name, secret.into())));
        Ok(serde_json::from_value(settings.into())?)
    }
}

pub(super) async fn add(pending: PendingAccount, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
    let ends_first_key = match &gateway.local {
        Some(local) => {
            let account = pending.check(local)?;
            manage::is_billable(&account) && manage::is_first_key_active(&*local.store).await?
        }
        None => false,
    };
    let account = gateway.admin.create_account().body(pending.into_request()?).send().await?;
    print_change(&account, "added", json)?;
    let Some(local) = &gateway.local else { return Ok(()) };
    if ends_first_key {
        print_message(&format!(
            "the key that the first start printed is disabled, because this account can incur costs; create another key with: imagate key create --name NAME{}",
            local.config.arguments()
        ));
    }
    warn_about_groups(&account, local);
    Ok(())
}

/// Warns about groups that the settings do not define: such a group is valid, but its name may be a typing error.
fn warn_about_groups(account: &Account, local: &LocalInstallation) {
    let known = |name: &str| local.config.groups.iter().any(|group| group.name == name);
    for group in account.groups.iter().filter(|group| !known(group)) {
        print_message(&format!(
            "the group {group} is not in the settings; the account serves keys that are created in a group of that name"
        ));
    }
}
