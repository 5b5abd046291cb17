//! The settings as written: one type for each table of the file, with everything optional.
//!
//! These types are the only list of settings that exists. The reader takes its names and types from their schema,
//! editors take it as a file, and the messages take their words from it. Nothing here decides what a value means.

#![expect(unused_qualifications, reason = "schemars writes the types of required fields with their whole path")]

mod choice;

pub(super) use choice::{BackgroundOption, CredentialKind, GrantKind, OutputFormatOption};
pub(crate) use choice::{
    BillingTier, ClientAuth, DeliveryPolicy, FallbackPolicy, LogFormat, ModerationErrorPolicy, UpstreamProtocol,
};

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use schemars::r#gen::SchemaGenerator;
use schemars::schema::{InstanceType, Metadata, Schema, SchemaObject, StringValidation};
use serde::{Deserialize, Serialize};

/// Settings of the gateway, as they stand in one TOML file.
///
/// The same type holds what the environment and the command line say.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    /// Where callers connect, as `host:port`; port 0 takes a free one. Default: `127.0.0.1:8080`.
    pub(super) listen: Option<String>,
    /// Where metrics and health are served apart from the callers, as `host:port`. Default: nowhere.
    pub(super) metrics_listen: Option<String>,
    /// The address under which people and callers reach the gateway, such as `https://images.example.com`, where it is
    /// not the one that it listens on. Pages answer under its host only, and over `https` cookies are kept to encrypted
    /// connections. Default: none; pages answer under `localhost` and IP addresses.
    pub(super) public_url: Option<String>,
    /// The reverse proxies in front of the gateway, as IP addresses or networks such as `10.0.0.0/8`. From them
    /// `X-Forwarded-For` is believed: it says from which address somebody signs in. Default: none.
    pub(super) trusted_proxies: Option<Vec<String>>,
    /// Where the gateway keeps its data. A relative path starts at the folder of this file. Default: the data folder of
    /// the platform.
    pub(super) data_dir: Option<PathBuf>,
    /// A folder with `skills.json` and its packages, which is published. A relative path starts at the folder of this
    /// file. Default: none.
    pub(super) skills_dir: Option<PathBuf>,
    /// The database, when it is not the SQLite database in `data_dir`; in this version there is no other. Its address
    /// can carry a password, so it is a secret.
    pub(super) database_url: Option<SecretSource>,
    /// What seals secrets at rest, as 64 hexadecimal digits or 32 bytes in base64. Default: a key that the gateway
    /// makes and keeps in `data_dir`.
    pub(super) master_key: Option<SecretSource>,
    /// What lets operators in under `/admin/v1`: a text of at least 32 characters, sent as a bearer token. Default:
    /// nobody is let in.
    pub(super) admin_token: Option<SecretSource>,
    /// The most keys that a member can have. Admins and commands can give a member more. Default: 50.
    pub(super) max_keys_per_member: Option<u32>,
    /// The time that running requests have to finish after the gateway was asked to stop; those that still wait then
    /// are answered with an error. A second signal ends the wait at once. Default: 30 seconds longer than the longest
    /// deadline, `10m 30s`.
    pub(super) drain_timeout: Option<RawDuration>,
    /// The time that a plain request waits for its answer: less than the time after which its client, or a proxy in
    /// between, gives up. Then it is answered with the 409 `image_in_progress`, and the same request sent again waits
    /// for the same image. Default: `295s`.
    pub(super) answer_deadline: Option<RawDuration>,
    /// The format of a line of the log: `text` for people, `json` for programs. Default: `text`.
    pub(super) log_format: Option<LogFormat>,
    /// The time for which new requests are still taken after the gateway was asked to stop, while `/readyz` answers 503
    /// already: the time that a load balancer needs to notice. Default: `0s`.
    pub(super) shutdown_delay: Option<RawDuration>,
    /// Ids of the text models that callers may name and `GET /v1/models` lists. Default: any may be named, and the list
    /// shows those that the accounts themselves list.
    pub(super) text_models: Option<Vec<String>>,
    /// Image models beside those of the API itself, and what each can be asked for.
    pub(super) models: Option<Vec<RawImageModel>>,
    /// The most connections of callers that are held at once.
    pub(super) connections: Option<RawConnections>,
    /// How long one call to an upstream may take.
    pub(super) deadlines: Option<RawDeadlines>,
    /// What is kept of answers, so that a caller who asks again does not pay again.
    pub(super) replay: Option<RawReplay>,
    /// The time for which records of requests and changes are kept.
    pub(super) retention: Option<RawRetention>,
    /// The bytes that requests may hold while they arrive and run.
    pub(super) uploads: Option<RawUploads>,
    /// The upstream accounts. Without any, the built-in simulator draws the images.
    pub(super) accounts: Option<Vec<RawAccount>>,
    /// The groups that keys belong to. The group `default` is always there.
    pub(super) groups: Option<Vec<RawGroup>>,
}

/// The most connections of callers that are held at once. Beyond that, unused ones are closed for new ones.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConnections {
    /// In all, but at most half of the number of files that the process may open. Default: a third of that number.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max: Option<u32>,
    /// From one IPv4 address, or one IPv6 network of 64 bits. Connections from `trusted_proxies` are not counted.
    /// Default: half of `max`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_per_address: Option<u32>,
}

/// The limits on the time that the work on one request takes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDeadlines {
    /// Until the connection stands, and again until TLS does. Default: `5s`.
    pub(super) connect: Option<RawDuration>,
    /// Until an answer of images, or a plain response, is complete: at most `1h`. One call to an upstream may take all
    /// of it. Default: `600s`.
    pub(super) image: Option<RawDuration>,
}

/// What is kept of answers, so that a caller who asks again does not pay again.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReplay {
    /// Whether an answer whose caller left is kept for the client's own next try. Default: `true`.
    pub(super) orphans: Option<bool>,
    /// How long such an answer is kept. Default: `5m`.
    pub(super) orphan_window: Option<RawDuration>,
    /// How long an answer to a request with an idempotency key is kept. Default: `24h`.
    pub(super) idempotency_window: Option<RawDuration>,
    /// How much all kept answers may hold together, in megabytes of 1048576 bytes. Default: 1024.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_megabytes: Option<u32>,
}

/// The time for which records of requests and changes are kept. Without a period they are kept for ever.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetention {
    /// The records of requests, such as `400d`. The counts by day stay.
    pub(super) records: Option<RawDuration>,
    /// The audit trail.
    pub(super) audit: Option<RawDuration>,
    /// The counts by day and key.
    pub(super) usage: Option<RawDuration>,
}

/// The bytes that requests may hold while they arrive and run, in megabytes of 1048576 bytes. A request beyond the
/// share of its key is answered 429, one beyond the total 503, and nothing is spent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUploads {
    /// Memory for bodies that are still arriving, of all keys together. Default: 32.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) memory_megabytes: Option<u32>,
    /// Memory for the bodies of one key that are still arriving. Default: 8, and never above `memory_megabytes`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) memory_megabytes_per_key: Option<u32>,
    /// Disk for uploads, of all keys together. Default: 8192.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) disk_megabytes: Option<u32>,
    /// Disk for the uploads of one key. Default: 4096, which is four of the largest forms, and never above
    /// `disk_megabytes`.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) disk_megabytes_per_key: Option<u32>,
    /// Free space of the file system that is reserved for the database: uploads are refused while less is free,
    /// and answers are not kept while less than twice as much is free. Default: 64.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub(super) min_free_megabytes: Option<u32>,
}

/// An image model, and what it can be asked for. A rule that is left out is that of `gpt-image-2`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[schemars(title = "a table with the `id` and the rules of an image model; text models stand in `text_models`")]
#[serde(deny_unknown_fields)]
pub(super) struct RawImageModel {
    /// The id, as requests and the upstream spell it.
    #[schemars(required)]
    pub(super) id: Option<String>,
    /// The sizes, such as `auto` and `1536x1024`. Default: every size that obeys the size rules.
    pub(super) sizes: Option<Vec<String>>,
    /// The words for `quality`.
    pub(super) qualities: Option<Vec<String>>,
    /// The words for `output_format`.
    pub(super) formats: Option<Vec<OutputFormatOption>>,
    /// The words for `background`.
    pub(super) backgrounds: Option<Vec<BackgroundOption>>,
    /// Images in one request at most, 10 at the very most.
    pub(super) max_images: Option<u32>,
    /// Intermediate images in a stream at most, 3 at the very most.
    pub(super) max_partial_images: Option<u32>,
    /// Whether `output_compression` below 100 is possible.
    pub(super) compression: Option<bool>,
}

/// One upstream account.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAccount {
    /// What logs and records call the account: letters, digits, `.`, `_` and `-`.
    #[schemars(required)]
    pub(super) name: Option<String>,
    /// What kind of credentials the account has.
    #[schemars(required)]
    pub(super) kind: Option<CredentialKind>,
    /// Which API the upstream speaks. Default: `images`.
    pub(super) protocol: Option<UpstreamProtocol>,
    /// The text model that runs the image tool where an account with the protocol `responses` serves the image
    /// endpoints. It reads the prompt and is paid for beside the image. Default: `gpt-5.5`.
    pub(super) host_model: Option<String>,
    /// The address of the upstream with its version, such as `https://api.openai.com/v1`.
    pub(super) base_url: Option<String>,
    /// Allows a `base_url` or `token_url` of plain `http` that leaves this machine: credentials and images then travel
    /// unencrypted.
    pub(super) allow_http: Option<bool>,
    /// The key that the upstream issued, for `api_key` accounts.
    pub(super) api_key: Option<SecretSource>,
    /// The token endpoint of `oauth` accounts, such as `https://auth.example.com/oauth/token`.
    pub(super) token_url: Option<String>,
    /// What an `oauth` account exchanges for an access token.
    pub(super) grant: Option<GrantKind>,
    /// The client that the access token is issued to. Needed for `client_credentials`, and wherever there is a
    /// `client_secret`.
    pub(super) client_id: Option<String>,
    /// What proves that the client is the one that it says.
    pub(super) client_secret: Option<SecretSource>,
    /// The first refresh token. Those that the token endpoint issues in its place are kept in the data folder.
    pub(super) refresh_token: Option<SecretSource>,
    /// Where the token endpoint expects `client_id` and `client_secret`. Default: `basic`.
    pub(super) client_auth: Option<ClientAuth>,
    /// The scopes that the access token is to have, with spaces between them.
    pub(super) scope: Option<String>,
    /// Whom the access token is for, where the token endpoint asks for it.
    pub(super) audience: Option<String>,
    /// Whether the account is paid for; paid accounts are preferred for images. Default: `paid`.
    pub(super) tier: Option<BillingTier>,
    /// The groups whose keys may use the account. Default: `["default"]`.
    pub(super) groups: Option<Vec<String>>,
    /// Among accounts that are otherwise equal the highest goes first. Default: 0.
    #[schemars(range(min = -1000, max = 1000))]
    pub(super) priority: Option<i32>,
    /// How many images of up to 2560x1440 pixels the account may make at once. Default: 8.
    #[schemars(range(min = 1, max = 10000))]
    pub(super) concurrency: Option<u32>,
    /// How many larger images the account may make at once. Default: 2.
    #[schemars(range(min = 1, max = 10000))]
    pub(super) large_concurrency: Option<u32>,
    /// Further headers for each request to the upstream. Values that are secret are written as secrets.
    pub(super) headers: Option<BTreeMap<String, RawHeader>>,
}

/// One group of keys.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    /// What keys and accounts call the group: letters, digits, `.`, `_` and `-`.
    #[schemars(required)]
    pub(super) name: Option<String>,
    /// What happens when the upstream made another size or format than was asked for. Default: `report`.
    pub(super) delivery: Option<DeliveryPolicy>,
    /// The time until an answer for this group is complete, at most `1h`. Default: `image` of `deadlines`.
    pub(super) image_deadline: Option<RawDuration>,
    /// What happens when a 3840x2160 image of high or medium quality fails. A request decides for itself with the
    /// header `x-imagate-fallback`; the answer and the record say what was made. Default: `never`, because a caller who
    /// has not asked for another image gets the one that was asked for, or an error.
    pub(super) fallback: Option<FallbackPolicy>,
    /// Whether the official coding agents get an image tool put into their requests to `/v1/responses` where they bring
    /// none; the record says so. Default: `false`.
    pub(super) inject_image_tool: Option<bool>,
    /// Ids of the text models that callers of this group may name. Default: the `text_models` above all groups.
    pub(super) text_models: Option<Vec<String>>,
    /// Types of the tools that the upstream may run for this group, such as `image_generation` and `web_search`. Tools
    /// that the caller runs itself (`function`, `custom`, `namespace`) are always allowed. Default: all.
    #[schemars(length(max = 64))]
    pub(super) tools: Option<Vec<String>>,
    /// What may not be asked for.
    pub(super) filter: Option<RawFilter>,
}

/// What may not be asked for; it is found before anything is spent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFilter {
    /// Words and phrases that a prompt must not hold, in any case of letters.
    pub(super) words: Option<Vec<String>>,
    /// Regular expressions that must not match anywhere in a prompt.
    pub(super) patterns: Option<Vec<String>>,
    /// A service that judges prompts.
    pub(super) moderation: Option<RawModeration>,
}

/// A service with the endpoint `/moderations`, which judges prompts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawModeration {
    /// The address of the service with its version, such as `https://api.openai.com/v1`.
    #[schemars(required)]
    pub(super) base_url: Option<String>,
    /// Allows a `base_url` of plain `http` that leaves this machine: prompts and key then travel unencrypted.
    pub(super) allow_http: Option<bool>,
    /// The key that the service issued, if it needs one.
    pub(super) api_key: Option<SecretSource>,
    /// The model that judges. Default: `omni-moderation-latest`.
    pub(super) model: Option<String>,
    /// What happens to a prompt that the service did not judge. There is no default: somebody must want it.
    #[schemars(required)]
    pub(super) on_error: Option<ModerationErrorPolicy>,
    /// How long a judgement may take. Default: `5s`.
    pub(super) timeout: Option<RawDuration>,
}

/// Where a secret is to be found.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[schemars(title = "{ env = \"NAME\" } or { file = \"PATH\" }, because the file itself must not contain secrets")]
#[serde(rename_all = "snake_case")]
pub(crate) enum SecretSource {
    /// In the environment variable of this name.
    Env(String),
    /// In the file at this path; line ends after it are dropped.
    File(PathBuf),
}

/// The value of a header.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(title = "a string, { env = \"NAME\" } or { file = \"PATH\" }")]
#[serde(untagged)]
pub(super) enum RawHeader {
    /// As it stands here.
    Plain(String),
    /// Read from where it is kept.
    Secret(SecretSource),
}

/// A duration as written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct RawDuration(pub(super) String);

impl JsonSchema for RawDuration {
    fn schema_name() -> String {
        "Period".to_owned()
    }

    fn is_referenceable() -> bool {
        false
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = r"^([0-9]{1,9}(ms|s|m|h|d) ?)+$".to_owned();
        Schema::Object(SchemaObject {
            instance_type: Some(InstanceType::String.into()),
            metadata: Some(Box::new(Metadata {
                title: Some(super::duration::EXPECTED.to_owned()),
                ..Metadata::default()
            })),
            string: Some(Box::new(StringValidation { pattern: Some(pattern), ..StringValidation::default() })),
            ..SchemaObject::default()
        })
    }
}
