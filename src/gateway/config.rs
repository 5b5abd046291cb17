//! Reads and checks the settings, and reports all problems at once.
//!
//! The module decides which settings exist, what their defaults are, and which source takes precedence if several set a
//! value: first the command line, then the environment, then the file. It does not know how other modules use the
//! settings. This is the only reader of the environment in the gateway; after [`load`] no module looks anything up
//! again.
//!
//! Rules of the specification that are implemented here: the time limits of the two size classes, and the low
//! concurrency for large images.

mod account;
mod address;
mod address_policy;
mod alerts;
mod config_file;
mod config_printer;
mod cors;
mod dialect_set;
mod difference;
mod duration;
mod group;
mod headers;
mod host_environment;
mod limits;
mod model;
mod oidc;
mod pattern;
mod price;
mod problem;
mod proxies;
mod public_url;
mod raw;
mod remote_images;
mod resolve;
mod schema;
mod secret;
mod stored_config;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config_printer::EffectiveSetting;
use http::Uri;
use resolve::{WrittenConfig, resolve};

use crate::tables::{ADMIN_MAX_IMAGE_DEADLINE_MS, MAX_RESPONSES_BODY_BYTES};
pub(crate) use account::{
    AccountConfig, AccountCredentials, EndpointConfig, FailurePhrases, GrantConfig, OauthConfig, UpstreamConfig,
};
pub(crate) use address::ListenAddress;
pub(crate) use address_policy::AddressPolicy;
pub(crate) use alerts::{AlertConfig, EmailConfig, WebhookConfig};
pub(crate) use config_file::allowed_words;
pub(crate) use cors::CorsOrigins;
pub(crate) use dialect_set::DialectSet;
pub(crate) use difference::ConfigDifference;
pub(crate) use group::{FilterConfig, GroupConfig, ModerationConfig, ResponseBudget};
pub(crate) use host_environment::{HostEnvironment, Platform, SystemEnvironment};
pub(crate) use limits::{Budget, RequestLimits};
pub(crate) use model::{FilePart, ImageModelSpec, ModelAlias, ModelField, ModelFieldKind, SizeRules};
pub(crate) use oidc::OidcConfig;
pub(crate) use price::{FIGURE_NAMES, ModelPrice, PriceFault, PriceFigures, PriceInput, PriceTerms, TermsInput};
pub(crate) use problem::ConfigProblem;
pub(crate) use proxies::TrustedProxies;
pub(crate) use public_url::PublicUrl;
pub(crate) use raw::{
    AccountImageUrls, AccountProtocol, AccountTier, BudgetMode, BudgetPeriod, DeliveryPolicy, Dialect, Durability,
    FallbackPolicy, FieldOperations, FilterFilePolicy, LogFormat, ModerationErrorPolicy, OauthClientAuth, QualityLimit,
    SecondFactorPolicy, SmtpTls, StoredContextPolicy,
};
pub(crate) use remote_images::{HostPattern, RemoteImageConfig};
pub(crate) use schema::schema_json;
pub(crate) use secret::ConfigSecret;
pub(crate) use stored_config::{account_from_json, check_limits, group_from_json, limits_from_json};

/// The group that always exists.
pub(crate) const DEFAULT_GROUP: &str = "default";

/// The default of `work_per_minute` (our choice): about ten times the work of a busy agent with twenty turns of a megabyte
/// in a minute, or of a program that sends four edits of 50 MB at once; 20 s of one core in a minute.
pub(crate) const DEFAULT_WORK_PER_MINUTE: u32 = 200_000;

/// The environment variable that holds the path of the configuration file.
const CONFIG_VARIABLE: &str = "IMAGATE_CONFIG";

/// The settings of the command line. They take precedence over every other source.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigOverrides {
    /// `--config FILE`.
    pub(crate) config: Option<PathBuf>,
    /// `--listen ADDR`.
    pub(crate) listen: Option<String>,
    /// `--data-dir DIR`.
    pub(crate) data_dir: Option<PathBuf>,
}

/// The complete and checked settings.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The address that callers connect to.
    pub(crate) listen: ListenAddress,
    /// The separate address for metrics and health, if there is one.
    pub(crate) metrics_listen: Option<ListenAddress>,
    /// The address under which people and callers reach the gateway, if it is configured.
    pub(crate) public_url: Option<PublicUrl>,
    /// The proxies whose `X-Forwarded-For` header is trusted.
    pub(crate) trusted_proxies: TrustedProxies,
    /// The origins of the pages that may call the API from a browser.
    pub(crate) cors_origins: CorsOrigins,
    /// The folder for all stored data.
    pub(crate) data_dir: PathBuf,
    /// The folder with the skills that are published, if any are.
    pub(crate) skills_dir: Option<PathBuf>,
    /// The maximum number of keys of a member; an admin may create more for the member.
    pub(crate) max_keys_per_member: u32,
    /// The most work units of a user within any minute, if no limit of the user sets another number.
    pub(crate) work_per_minute: u32,
    /// The maximum number of admin tokens of a user.
    pub(crate) max_tokens_per_user: u32,
    /// True if accounts and moderation services may be at link-local addresses.
    pub(crate) allow_link_local: bool,
    /// The users who must have a second factor.
    pub(crate) require_second_factor: SecondFactorPolicy,
    /// The failures that the records of requests survive.
    pub(crate) durability: Durability,
    /// The time that running requests have to finish at shutdown.
    pub(crate) drain_timeout: Duration,
    /// The format of a line of the log.
    pub(crate) log_format: LogFormat,
    /// The time for which new requests are still accepted after the process was asked to stop, so that a load balancer
    /// can notice.
    pub(crate) shutdown_delay: Duration,
    /// The ids that `GET /v1/models` lists, in order, if they are configured.
    pub(crate) text_models: Option<Vec<String>>,
    /// The image models in addition to those of the API document.
    pub(crate) image_models: Vec<ImageModelSpec>,
    /// Other names for image models.
    pub(crate) model_aliases: Vec<ModelAlias>,
    /// True if the list of models has the image models too.
    pub(crate) list_image_models: bool,
    /// The prices of models: at most one entry for each model and day.
    pub(crate) prices: Vec<ModelPrice>,
    /// The channels by which alerts are sent.
    pub(crate) alerts: AlertConfig,
    /// The provider with which users sign in, if there is one.
    pub(crate) oidc: Option<OidcConfig>,
    /// The limits on open connections.
    pub(crate) connections: ConnectionLimits,
    /// The time limits for one request.
    pub(crate) deadlines: DeadlineConfig,
    /// The time after which a plain request is answered even if its job is still running.
    pub(crate) answer_deadline: Duration,
    /// The accounts: at least one.
    pub(crate) accounts: Vec<AccountConfig>,
    /// The groups: at least [`DEFAULT_GROUP`].
    pub(crate) groups: Vec<GroupConfig>,
    /// The storage of answers for replays.
    pub(crate) replay: ReplayConfig,
    /// The time for which rows of the database are kept.
    pub(crate) retention: RetentionPeriods,
    /// The bytes that requests may hold while they arrive and run.
    pub(crate) uploads: UploadLimits,
    /// The addresses from which input images are fetched; `None` if none are.
    pub(crate) remote_images: Option<RemoteImageConfig>,
    /// The address of the PostgreSQL database; `None` for the SQLite database in `data_dir`.
    pub(crate) database_url: Option<ConfigSecret>,
    /// The master key of the installation, if it is not the one in `data_dir`: 32 bytes as text.
    pub(crate) master_key: Option<ConfigSecret>,
    /// The token that authenticates operators, if there is one: at least 32 visible characters.
    pub(crate) admin_token: Option<ConfigSecret>,
    /// The environment variables that the file names as sources of secrets, each with the base URL that its secret is
    /// sent to; `None` if the secret is not sent to a base URL.
    named_secrets: Vec<(String, Option<Uri>)>,
    /// One problem for each secret that is absent. Only commands may start without a secret, so this is empty for the
    /// gateway itself.
    absent_secrets: Vec<ConfigProblem>,
    /// The value of each setting, for people.
    settings: Vec<EffectiveSetting>,
    sources: BTreeMap<String, SettingSource>,
    /// The path given with `--config` or its variable, if any.
    file: Option<PathBuf>,
}

/// The longest `image` deadline that can be set. A retry looks for the record of its job as far back as this time plus the
/// orphan window.
pub(crate) const LONGEST_IMAGE_DEADLINE: Duration = Duration::from_millis(ADMIN_MAX_IMAGE_DEADLINE_MS);

/// The time limits for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadlineConfig {
    /// The time limit for connecting to an upstream.
    pub(crate) connect: Duration,
    /// The time limit for a complete answer of images or a plain response. One call to an upstream may take all of it.
    pub(crate) image: Duration,
}

/// The maximum number of open connections of callers. If a number is absent, it follows from the limit of open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// The limit for all addresses together.
    pub(crate) max: Option<usize>,
    /// The limit for one address.
    pub(crate) max_per_address: Option<usize>,
}

/// The storage of answers. With a stored answer, a caller that repeats a request does not pay again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayConfig {
    /// True if the answer is stored when the caller leaves, for a repeat of the request.
    pub(crate) orphans: bool,
    /// The time for which such an answer is stored.
    pub(crate) orphan_window: Duration,
    /// The time for which an answer under an idempotency key is stored.
    pub(crate) idempotency_window: Duration,
    /// The maximum size of all stored answers together, in bytes.
    pub(crate) max_bytes: u64,
}

/// The time for which rows of the database are kept: at least a day, or without limit if it is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetentionPeriods {
    /// Records of requests.
    pub(crate) records: Option<Duration>,
    /// The audit trail.
    pub(crate) audit: Option<Duration>,
    /// Counts by day and key.
    pub(crate) usage: Option<Duration>,
}

/// The bytes that requests may hold while they arrive and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UploadLimits {
    /// Memory for all requests together.
    pub(crate) memory: u64,
    /// Memory for the requests of one user; at most `memory`.
    pub(crate) memory_per_user: u64,
    /// Memory for the requests of one key; at most `memory`.
    pub(crate) memory_per_key: u64,
    /// Disk space for the uploads of all requests together.
    pub(crate) disk: u64,
    /// Disk space for the uploads of one user; at most `disk`.
    pub(crate) disk_per_user: u64,
    /// Disk space for the uploads of one key; at most `disk`.
    pub(crate) disk_per_key: u64,
    /// Free space of the file system that is reserved for the database.
    pub(crate) min_free: u64,
    /// The bytes of the largest body of a response.
    pub(crate) response_body: u64,
}

impl UploadLimits {
    /// The defaults. One key may have four multipart forms of the maximum size on disk, and several JSON bodies of the
    /// maximum size in memory; one user may have half of all.
    pub(crate) const DEFAULT: Self = Self {
        memory: 64 << 20,
        memory_per_user: 32 << 20,
        memory_per_key: 16 << 20,
        disk: 8 << 30,
        disk_per_user: 4 << 30,
        disk_per_key: 4 << 30,
        min_free: 64 << 20,
        response_body: MAX_RESPONSES_BODY_BYTES,
    };
}

/// The source that set a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SettingSource {
    /// No source set the value.
    #[default]
    Default,
    File,
    /// An environment variable or an argument, by its name.
    Named(&'static str),
}

/// Reads the file that `--config` or its variable names, if any, and merges it with the environment and the command
/// line.
///
/// # Errors
///
/// Returns all problems with the settings, in the order of the file.
pub(crate) fn load(overrides: ConfigOverrides, host: &dyn HostEnvironment) -> Result<Config, Vec<ConfigProblem>> {
    load_with(overrides, host, false)
}

/// Does the same as [`load`] for a command that is not the gateway: only the secrets that open the store must be
/// present.
///
/// # Errors
///
/// Returns all other problems with the settings, in the order of the file.
pub(crate) fn load_for_command(
    overrides: ConfigOverrides,
    host: &dyn HostEnvironment,
) -> Result<Config, Vec<ConfigProblem>> {
    load_with(overrides, host, true)
}

fn load_with(
    overrides: ConfigOverrides,
    host: &dyn HostEnvironment,
    allows_absent_secrets: bool,
) -> Result<Config, Vec<ConfigProblem>> {
    let file = overrides.config.clone().or_else(|| host.variable(CONFIG_VARIABLE).map(PathBuf::from));
    let written = WrittenConfig::read(overrides, host).map_err(|problem| vec![problem])?;
    let config = resolve(&written, host, allows_absent_secrets)?;
    Ok(Config { file, ..config })
}

// === impl Config ===

impl Config {
    /// True if the file names this variable as the source of secrets, but of no secret for this address. The names are
    /// compared without regard to case, because some platforms do so.
    fn is_secret_of_other_address(&self, variable: &str, address: Option<&Uri>) -> bool {
        let secrets = self.named_secrets.iter().filter(|(name, _)| name.eq_ignore_ascii_case(variable));
        let mut addresses = secrets.map(|(_, address)| address.as_ref()).peekable();
        addresses.peek().is_some() && !addresses.any(|known| known.is_some() && known == address)
    }

    /// Returns the problems of absent secrets of this account, without which it cannot be called.
    pub(crate) fn absent_secrets_of(&self, account: &str) -> Vec<ConfigProblem> {
        let index = self.accounts.iter().position(|known| known.name == account && !known.implicit);
        index.map(|index| self.absent_secrets_below(&format!("accounts[{index}]."))).unwrap_or_default()
    }

    /// Returns the problems of absent secrets of the settings whose names begin with `prefix`.
    pub(crate) fn absent_secrets_below(&self, prefix: &str) -> Vec<ConfigProblem> {
        let is_below = |problem: &&ConfigProblem| problem.setting().is_some_and(|setting| setting.starts_with(prefix));
        self.absent_secrets.iter().filter(is_below).cloned().collect()
    }

    /// The path of the settings file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the arguments with which another command uses the same installation, with a space before each.
    pub(crate) fn arguments(&self) -> String {
        let is_data_dir_given = matches!(self.sources.get("data_dir"), Some(SettingSource::Named(_)));
        let data_dir = is_data_dir_given.then_some(&self.data_dir);
        let arguments = [("--config", self.file.as_ref()), ("--data-dir", data_dir)];
        let arguments = arguments.into_iter().filter_map(|(name, path)| Some((name, path?)));
        arguments.map(|(name, path)| format!(" {name} {}", shell_word(&path.display().to_string()))).collect()
    }
}

/// Quotes a word for a shell if necessary.
fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%=,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests;
