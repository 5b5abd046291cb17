//! The settings as written: one type for each table of the file, with everything optional.
//!
//! These types are the only list of settings. The reader of the file takes names and types from their schema, editors
//! use the schema as a file, and messages take their words from it. The module does not decide what a value means.

#![expect(unused_qualifications, reason = "schemars writes the types of required fields with their whole path")]

mod alerts;
mod choice;
mod document_schema;
mod duration_text;
mod model;
mod model_choice;
mod oidc;
mod price;
mod remote_images;

pub(crate) use alerts::SmtpTls;
pub(super) use alerts::{RawAlerts, RawEmail, RawWebhook};
pub(crate) use choice::{
    AccountImageUrls, AccountProtocol, AccountTier, BudgetMode, BudgetPeriod, DeliveryPolicy, Dialect, Durability,
    FallbackPolicy, FilterFilePolicy, LogFormat, ModerationErrorPolicy, OauthClientAuth, QualityLimit,
    SecondFactorPolicy, StoredContextPolicy,
};
pub(super) use choice::{AccountKind, OauthGrant, RequestLimits as WrittenLimits};
pub(super) use document_schema::add_bounds;
pub(super) use duration_text::RawDuration;
pub(super) use model::{RawFilePart, RawImageModel, RawModelField};
pub(super) use model_choice::FieldKindOption;
pub(crate) use model_choice::FieldOperations;
pub(super) use oidc::{RawOidc, RawRequiredClaim};
pub(super) use price::RawPrice;
pub(super) use remote_images::RawRemoteImages;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of the gateway, as written in the TOML settings file.
///
/// The same type holds the settings of the environment and the command line.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    /// The address to listen on, as `host:port`; port 0 selects a free port. Default: `127.0.0.1:8080`.
    pub(super) listen: Option<String>,
    /// A separate address for metrics and health checks, as `host:port`. Default: none.
    pub(super) metrics_listen: Option<String>,
    /// The address at which users and callers reach the gateway, such as `https://images.example.com`, if it differs
    /// from the listen address. Pages are then served only for its host, and with `https`, cookies are sent only over
    /// encrypted connections. Default: none; pages are served for `localhost` and IP addresses.
    pub(super) public_url: Option<String>,
    /// The reverse proxies in front of the gateway, as IP addresses or networks such as `10.0.0.0/8`. Their
    /// `X-Forwarded-For` header is trusted for the client address of sign-ins. Default: none.
    pub(super) trusted_proxies: Option<Vec<String>>,
    /// The origins of the pages that may call the API from a browser (CORS), such as `https://studio.example.com`: each
    /// with scheme, host and port, exactly as the browser sends it. Default: none.
    pub(super) cors_origins: Option<Vec<String>>,
    /// The data folder of the gateway. A relative path starts at the folder of this file. Default: the data folder of
    /// the platform.
    pub(super) data_dir: Option<PathBuf>,
    /// A folder with `skills.json` and its packages, which the gateway publishes. A relative path starts at the folder
    /// of this file. Default: none.
    pub(super) skills_dir: Option<PathBuf>,
    /// The PostgreSQL database that several gateways share, as `postgres://user:password@host:5432/database`, version 14
    /// or newer. The address may contain a password, so it is given as a secret. Default: the SQLite database in
    /// `data_dir`, which only one gateway can use.
    pub(super) database_url: Option<SecretSource>,
    /// The failures that the records and idempotency keys of requests survive. `process` makes small requests faster,
    /// because a commit does not wait for the disk. Keys, users, accounts and settings are always stored with `power`.
    /// Default: `power`.
    pub(super) durability: Option<Durability>,
    /// The key that encrypts stored secrets, as 64 hexadecimal digits or 32 bytes in base64. Default: a key that the
    /// gateway generates and keeps in `data_dir`.
    pub(super) master_key: Option<SecretSource>,
    /// The bearer token of operators for `/admin/v1`: a text of at least 32 characters. Default: none.
    pub(super) admin_token: Option<SecretSource>,
    /// The users who must sign in with a second factor: the code of an authenticator app. A user who must and has none can
    /// do nothing in the console before setting it up. Admin tokens and keys need none. Default: `off`.
    pub(super) require_second_factor: Option<SecondFactorPolicy>,
    /// The maximum number of keys that a member can have. Admins and commands can give a member more. Default: 50.
    pub(super) max_keys_per_member: Option<u32>,
    /// The maximum number of work units of each user within any minute, for all keys, tokens and sessions of the user
    /// together. A unit is about a tenth of a millisecond of one core. A key without a user counts by itself. The limit
    /// `work_per_minute` of a user takes its place. Default: 200000.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) work_per_minute: Option<u32>,
    /// The maximum number of admin tokens that a user can have. Default: 50.
    pub(super) max_tokens_per_user: Option<u32>,
    /// Allows link-local addresses, at which clouds offer the credentials of a machine, for accounts, their token endpoints
    /// and moderation services. Default: `false`.
    pub(super) allow_link_local: Option<bool>,
    /// The time that running requests have to finish after the gateway receives the signal to stop. Requests that still
    /// wait for an answer then are answered with an error. A second signal ends the wait at once. Default: 30 seconds
    /// longer than the longest deadline, `10m 30s`.
    pub(super) drain_timeout: Option<RawDuration>,
    /// The time that a plain request waits for its answer. It should be shorter than the timeouts of clients and of
    /// proxies in between. After that time, the answer is the 409 `image_in_progress`, and the same request sent again
    /// waits for the same image. A request that states its own wait (`Prefer: wait=N`) waits so long, at most
    /// `image_deadline`. Default: `299s`.
    pub(super) answer_deadline: Option<RawDuration>,
    /// The format of log lines: `text` for people, `json` for programs. Default: `text`.
    pub(super) log_format: Option<LogFormat>,
    /// The time for which new requests are still accepted after the gateway receives the signal to stop. `/readyz`
    /// already answers 503 during that time, so that a load balancer can react. Default: `0s`.
    pub(super) shutdown_delay: Option<RawDuration>,
    /// The ids of the text models that callers may use and `GET /v1/models` lists. Default: all may be used, and the
    /// list shows the models that the accounts list.
    pub(super) text_models: Option<Vec<String>>,
    /// If `true`, `GET /v1/models` also lists the image models that the key may use, each with its `capabilities`.
    /// Default: `false`.
    pub(super) list_image_models: Option<bool>,
    /// Image models in addition to the built-in ones, with the values that requests may use for each.
    pub(super) models: Option<Vec<RawImageModel>>,
    /// The prices of models, by which records get their cost. Default: the prices that providers publish for the built-in
    /// models.
    pub(super) prices: Option<Vec<RawPrice>>,
    /// The maximum number of concurrent connections of callers.
    pub(super) connections: Option<RawConnections>,
    /// The time limits of calls to upstreams.
    pub(super) deadlines: Option<RawDeadlines>,
    /// The storage of answers, so that a repeated request is not paid for again.
    pub(super) replay: Option<RawReplay>,
    /// The time for which records of requests and changes are kept.
    pub(super) retention: Option<RawRetention>,
    /// The memory and disk space that requests may use while they arrive and run.
    pub(super) uploads: Option<RawUploads>,
    /// The web addresses from which input images are fetched.
    pub(super) remote_images: Option<RawRemoteImages>,
    /// The channels by which alerts are sent, for example if most of a budget is spent. Default: none.
    pub(super) alerts: Option<RawAlerts>,
    /// A provider of OpenID Connect with which users sign in, in addition to passwords. Default: none.
    pub(super) oidc: Option<RawOidc>,
    /// The upstream accounts. Without any, the built-in simulator draws the images.
    pub(super) accounts: Option<Vec<RawAccount>>,
    /// The groups that keys belong to. The group `default` is always there.
    pub(super) groups: Option<Vec<RawGroup>>,
}

/// The maximum number of concurrent connections of callers. At the limit, unused connections are closed to accept new
/// ones.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConnections {
    /// The maximum in all, but at most half of the number of files that the process may open. Default: a third of that
    /// number.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max: Option<u32>,
    /// The maximum from one IPv4 address, or from one IPv6 network of 64 bits. Connections from `trusted_proxies` are
    /// not counted. Default: half of `max`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_per_address: Option<u32>,
}

/// The time limits for the work on one request.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDeadlines {
    /// The time limit for connecting, and again for the TLS handshake. Default: `5s`.
    pub(super) connect: Option<RawDuration>,
    /// The time limit for a complete answer with images or a complete plain response: at most `1h`. A single call to an
    /// upstream may use all of it. Default: `600s`.
    pub(super) image: Option<RawDuration>,
}

/// The storage of answers, so that a repeated request is not paid for again.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReplay {
    /// If `true`, the answer of a request whose client disconnected is kept for a retry of that client. Default:
    /// `true`.
    pub(super) orphans: Option<bool>,
    /// The time for which the answer of a client that disconnected is kept. Default: `5m`.
    pub(super) orphan_window: Option<RawDuration>,
    /// The time for which an answer to a request with an idempotency key is kept. Default: `24h`.
    pub(super) idempotency_window: Option<RawDuration>,
    /// The maximum size of all stored answers together, in megabytes of 1048576 bytes. With PostgreSQL, it applies to
    /// the data folder of each node, and to the database. Default: 1024.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_megabytes: Option<u32>,
}

/// The time for which records of requests and changes are kept. By default they are kept forever.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetention {
    /// The time for the records of requests, such as `400d`. The counts by day are not affected.
    pub(super) records: Option<RawDuration>,
    /// The time for the audit trail.
    pub(super) audit: Option<RawDuration>,
    /// The time for the counts by day and key, also for those of end users. The counts by day and key of the current
    /// week and month are kept in any case, because budgets are computed from them.
    pub(super) usage: Option<RawDuration>,
}

/// The memory and disk space that requests may use while they arrive and run, in megabytes of 1048576 bytes. A request
/// that exceeds the part of its user or key is answered with 429, and one that exceeds the total with 503; neither costs
/// anything.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUploads {
    /// Memory for request bodies and what is made of them, for all requests together. Default: 64.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) memory_megabytes: Option<u32>,
    /// Memory for the requests of one user, with all of its keys, tokens and sessions. Default: 32, but at most half of
    /// `memory_megabytes`, and at least `memory_megabytes_per_key`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) memory_megabytes_per_user: Option<u32>,
    /// Memory for the requests of one key. Default: 16, but at most `memory_megabytes`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) memory_megabytes_per_key: Option<u32>,
    /// Disk space for uploads, for all requests together. Default: 8192.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) disk_megabytes: Option<u32>,
    /// Disk space for the uploads of one user, with all of its keys, tokens and sessions. Default: 4096, but at most half
    /// of `disk_megabytes`, and at least `disk_megabytes_per_key`.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) disk_megabytes_per_user: Option<u32>,
    /// Disk space for the uploads of one key. Default: 4096, which is four of the largest forms, but at most
    /// `disk_megabytes`.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) disk_megabytes_per_key: Option<u32>,
    /// Free space of the file system that is reserved for the database. Uploads are refused while less is free, and
    /// answers are not stored while less than twice as much is free. Default: 64.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub(super) min_free_megabytes: Option<u32>,
    /// The largest body of `POST /v1/responses`, after decompression. A conversation with many pictures is sent whole with
    /// each turn. Default: 64.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) response_body_megabytes: Option<u32>,
}

/// One upstream account.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAccount {
    /// The name of the account in logs and records: letters, digits, `.`, `_` and `-`.
    #[schemars(required)]
    pub(super) name: Option<String>,
    /// The kind of credentials that the account has.
    #[schemars(required)]
    pub(super) kind: Option<AccountKind>,
    /// The API that the upstream implements. Default: `images`.
    pub(super) protocol: Option<AccountProtocol>,
    /// The text model that runs the image tool if an account with the protocol `responses` serves the image endpoints.
    /// It reads the prompt and is charged in addition to the image. Default: `gpt-5.5`.
    pub(super) host_model: Option<String>,
    /// The treatment of an answer that has the address of an image in place of the image. With `fetch`, the gateway fetches
    /// it: from any host on port 443 with `https`, from those of `remote_images`, and from the host of `base_url`; never
    /// from a private network that `remote_images` does not name. Default: `refuse`.
    pub(super) image_urls: Option<AccountImageUrls>,
    /// The address of the upstream with its version, such as `https://api.openai.com/v1`.
    pub(super) base_url: Option<String>,
    /// Allows a plain `http` `base_url` or `token_url` on another machine: credentials and images are then sent
    /// unencrypted.
    pub(super) allow_http: Option<bool>,
    /// The key that the upstream issued, for `api_key` accounts.
    pub(super) api_key: Option<SecretSource>,
    /// The token endpoint of `oauth` accounts, such as `https://auth.example.com/oauth/token`.
    pub(super) token_url: Option<String>,
    /// The grant that an `oauth` account exchanges for an access token.
    pub(super) grant: Option<OauthGrant>,
    /// The OAuth client id. Required for `client_credentials`, and if there is a `client_secret`.
    pub(super) client_id: Option<String>,
    /// The OAuth client secret.
    pub(super) client_secret: Option<SecretSource>,
    /// The first refresh token. Refresh tokens that the token endpoint issues later are kept in the data folder.
    pub(super) refresh_token: Option<SecretSource>,
    /// The place of `client_id` and `client_secret` in requests to the token endpoint. Default: `basic`.
    pub(super) client_auth: Option<OauthClientAuth>,
    /// The requested scopes of the access token, separated by spaces.
    pub(super) scope: Option<String>,
    /// The audience of the access token, if the token endpoint requires one.
    pub(super) audience: Option<String>,
    /// The billing tier of the account. Paid accounts are preferred for images. Default: `paid`.
    pub(super) tier: Option<AccountTier>,
    /// The groups whose keys may use the account. Default: `["default"]`.
    pub(super) groups: Option<Vec<String>>,
    /// The priority: among otherwise equal accounts, the highest is used first. Default: 0.
    pub(super) priority: Option<i32>,
    /// The maximum number of concurrent images of up to 2560x1440 pixels. Default: 8.
    pub(super) concurrency: Option<u32>,
    /// The maximum number of concurrent larger images. Default: 2.
    pub(super) large_concurrency: Option<u32>,
    /// Phrases with which the upstream refuses content, in addition to the known ones: an answer with one of them is not
    /// sent to another account. Compared without regard to case and to traditional characters. Default: none.
    pub(super) refusal_phrases: Option<Vec<String>>,
    /// Phrases with which the upstream states that the usage window of the account is used up, in addition to the known
    /// ones. Default: none.
    pub(super) limit_phrases: Option<Vec<String>>,
    /// Additional headers for each request to the upstream. Secret values are written as secrets.
    pub(super) headers: Option<BTreeMap<String, RawHeader>>,
}

/// One group of keys.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    /// The name of the group for keys and accounts: letters, digits, `.`, `_` and `-`.
    #[schemars(required)]
    pub(super) name: Option<String>,
    /// The treatment of an image whose size or format differs from the request. Default: `report`.
    pub(super) delivery: Option<DeliveryPolicy>,
    /// The time limit for a complete answer for this group, at most `1h`. Default: `image` of `deadlines`.
    pub(super) image_deadline: Option<RawDuration>,
    /// The fallback for a 3840x2160 image of high or medium quality that fails. The header `x-imagate-fallback` of a
    /// request takes precedence; the answer and the record state the image that was made. Default: `never`: a caller
    /// that does not ask for a fallback gets the requested image or an error.
    pub(super) fallback: Option<FallbackPolicy>,
    /// If `true`, an image tool is added to requests of the official coding agents to `/v1/responses` that have none;
    /// the record states it. Default: `false`.
    pub(super) inject_image_tool: Option<bool>,
    /// The ids of context that an upstream stores, such as `previous_response_id`, `conversation` and `file_id`, which
    /// callers may name. Ids that are known as another user's are always refused. Default: `any` if all keys of the group
    /// belong to one user and its accounts serve no other group, otherwise `own`.
    pub(super) stored_context: Option<StoredContextPolicy>,
    /// The dialects that callers of this group may use besides the API itself, in addition to those of their keys.
    /// Default: none. `docs/dialects.md` describes each.
    pub(super) dialects: Option<Vec<Dialect>>,
    /// The ids of the text models that callers of this group may use. Default: the top-level `text_models`.
    pub(super) text_models: Option<Vec<String>>,
    /// The types of tools that the upstream may run for this group, such as `image_generation` and `web_search`. Tools
    /// that the caller runs itself (`function`, `custom`, `namespace`) are always allowed. Default: all.
    pub(super) tools: Option<Vec<String>>,
    /// The rule by which responses keep within the budgets of the group, its users and its keys. Default: `paced`.
    pub(super) budget_mode: Option<BudgetMode>,
    /// The most that a response of the group costs, in US dollars, in the mode `paced`: what it reserves in budgets, in
    /// place of what the limits of its model allow. Default: those.
    pub(super) max_response_usd: Option<f64>,
    /// The content filter for prompts.
    pub(super) filter: Option<RawFilter>,
    /// The treatment of files in requests to `/v1/responses`, and of files, prompts and unknown conversations that the
    /// upstream stores, if the group has a filter: it cannot see their texts. Default: `refuse`.
    pub(super) filter_files: Option<FilterFilePolicy>,
    /// The limits of the group: all of its keys together.
    pub(super) limits: Option<WrittenLimits>,
}

/// The content filter for prompts. It runs before anything is charged.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFilter {
    /// Words and phrases that a prompt must not contain, regardless of case.
    pub(super) words: Option<Vec<String>>,
    /// Regular expressions that must not match anywhere in a prompt.
    pub(super) patterns: Option<Vec<String>>,
    /// A moderation service that checks prompts.
    pub(super) moderation: Option<RawModeration>,
}

/// A service with the endpoint `/moderations`, which checks prompts.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawModeration {
    /// The address of the service with its version, such as `https://api.openai.com/v1`.
    #[schemars(required)]
    pub(super) base_url: Option<String>,
    /// Allows a plain `http` `base_url` on another machine: prompts and key are then sent unencrypted.
    pub(super) allow_http: Option<bool>,
    /// The key that the service issued, if it needs one.
    pub(super) api_key: Option<SecretSource>,
    /// The moderation model. Default: `omni-moderation-latest`.
    pub(super) model: Option<String>,
    /// The treatment of a prompt that the service did not check. There is no default, so that the choice is deliberate.
    #[schemars(required)]
    pub(super) on_error: Option<ModerationErrorPolicy>,
    /// The time limit for one check. Default: `5s`.
    pub(super) timeout: Option<RawDuration>,
}

/// The source of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "{ env = \"NAME\" } or { file = \"PATH\" }, because the file itself must not contain secrets")]
#[serde(rename_all = "snake_case")]
pub(crate) enum SecretSource {
    /// In the environment variable of this name.
    Env(String),
    /// In the file at this path; line ends at its end are removed.
    File(PathBuf),
}

/// The value of a header.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "a string, { env = \"NAME\" } or { file = \"PATH\" }")]
#[serde(untagged)]
pub(super) enum RawHeader {
    /// The value itself.
    Plain(String),
    /// A secret that is read from its source.
    Secret(SecretSource),
}
