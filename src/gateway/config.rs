//! Turns the settings as written into settings as usable, and reports every problem at once.
//!
//! Decides which settings exist, what they are when nobody sets them, and who wins when several do: the command line
//! before the environment before the file. Refuses to know what the rooms do with them. The only reader of the
//! environment in the gateway; after [`load`] no room looks anything up again.
//!
//! Carries from the specification: the time limits of the two size classes, and the low concurrency for large images.

mod account;
mod address;
mod difference;
mod duration;
mod group;
mod headers;
mod kept;
mod model;
mod pattern;
mod problem;
mod proxies;
mod public_url;
mod raw;
mod resolve;
mod schema;
mod secret;
mod show;
mod surroundings;
mod written;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use resolve::{Layers, resolve, resolve_for_command};

pub(crate) use account::{Account, Credentials, Endpoint, Grant, Oauth, Upstream};
pub(crate) use address::Listen;
pub(crate) use difference::Difference;
pub(crate) use group::{Filter, Group, Moderation};
pub(crate) use kept::{account_from_json, group_from_json};
pub(crate) use model::ImageModel;
pub(crate) use problem::Problem;
pub(crate) use proxies::Proxies;
pub(crate) use public_url::PublicUrl;
pub(crate) use raw::{ClientAuth, Delivery, Fallback, LogFormat, OnError, Protocol, Tier};
pub(crate) use schema::schema_json;
pub(crate) use secret::Secret;
pub(crate) use surroundings::{Machine, Surroundings};
pub(crate) use written::words_of;

/// The group that is always there.
pub(crate) const DEFAULT_GROUP: &str = "default";

/// The environment variable that names the file.
const CONFIG_VARIABLE: &str = "IMAGATE_CONFIG";

/// What the command line says. It wins over everything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// `--config FILE`.
    pub(crate) config: Option<PathBuf>,
    /// `--listen ADDR`.
    pub(crate) listen: Option<String>,
    /// `--data-dir DIR`.
    pub(crate) data_dir: Option<PathBuf>,
}

/// The settings, checked and complete.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Where callers connect.
    pub(crate) listen: Listen,
    /// Where metrics and health are served apart from the callers, if anywhere.
    pub(crate) metrics_listen: Option<Listen>,
    /// The address under which people and callers reach the gateway, where somebody has said so.
    pub(crate) public_url: Option<PublicUrl>,
    /// The proxies whose word on who is calling is believed.
    pub(crate) trusted_proxies: Proxies,
    /// The folder for everything that is kept.
    pub(crate) data_dir: PathBuf,
    /// The folder with the skills that are published, if any are.
    pub(crate) skills_dir: Option<PathBuf>,
    /// The most keys that a member can have, unless an admin makes them.
    pub(crate) max_keys_per_member: u32,
    /// How long running requests may take to finish at the end.
    pub(crate) drain_timeout: Duration,
    /// The format of a line of the log.
    pub(crate) log_format: LogFormat,
    /// The time for which new requests are still taken after the process was asked to stop, so that a load balancer can
    /// notice.
    pub(crate) shutdown_delay: Duration,
    /// The ids that `GET /v1/models` lists, in order, where somebody has chosen them.
    pub(crate) text_models: Option<Vec<String>>,
    /// The image models beside those of the document.
    pub(crate) image_models: Vec<ImageModel>,
    /// The most connections that are held at once.
    pub(crate) connections: ConnectionLimits,
    /// The limits on the time that the work on one request takes.
    pub(crate) deadlines: Deadlines,
    /// The time after which a plain request is answered although the work on it goes on.
    pub(crate) answer_deadline: Duration,
    /// At least one.
    pub(crate) accounts: Vec<Account>,
    /// At least [`DEFAULT_GROUP`].
    pub(crate) groups: Vec<Group>,
    /// What is kept of answers.
    pub(crate) replay: Replay,
    /// The time for which rows of the database are kept.
    pub(crate) retention: Retention,
    /// The bytes that requests may hold while they arrive and run.
    pub(crate) uploads: Uploads,
    /// The master key of the installation, where it is not the one in `data_dir`: text that holds 32 bytes.
    pub(crate) master_key: Option<Secret>,
    /// What lets operators in, if anybody: at least 32 visible characters.
    pub(crate) admin_token: Option<Secret>,
    /// The variables of secrets that the file names, and the address that each is sent to, if it is a base URL.
    named_secrets: Vec<(String, Option<Uri>)>,
    /// Secrets that a command does without, and why they are not there. Empty for the gateway itself.
    absent: Vec<Problem>,
    sources: BTreeMap<String, Source>,
    /// The path given with `--config` or its variable, if any.
    file: Option<PathBuf>,
}

/// The longest `image` deadline that can be set (ours): an answer is looked for in the records of this time.
pub(crate) const LONGEST_IMAGE_DEADLINE: Duration = Duration::from_secs(3600);

/// The limits on the time that the work on one request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// Until a connection to an upstream stands.
    pub(crate) connect: Duration,
    /// Until an answer of images, or a plain response, is complete. One call to an upstream may take all of it.
    pub(crate) image: Duration,
}

/// The most connections of callers that are held at once. Without a number it follows from the limit of open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Of all addresses together.
    pub(crate) max: Option<usize>,
    /// Of one address.
    pub(crate) max_per_address: Option<usize>,
}

/// What is kept of answers, so that a caller who asks again does not pay again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// Whether the answer of a caller who left is kept for the one who comes back.
    pub(crate) orphans: bool,
    /// How long it is kept.
    pub(crate) orphan_window: Duration,
    /// How long an answer under an idempotency key is kept.
    pub(crate) idempotency_window: Duration,
    /// How much all kept answers may hold.
    pub(crate) max_bytes: u64,
}

/// The time for which rows of the database are kept: at least a day, or for ever if there is no period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Records of requests.
    pub(crate) records: Option<Duration>,
    /// The audit trail.
    pub(crate) audit: Option<Duration>,
    /// Counts by day and key.
    pub(crate) usage: Option<Duration>,
}

/// The bytes that requests may hold while they arrive and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uploads {
    /// Memory for bodies that are still arriving, of all keys together.
    pub(crate) memory: u64,
    /// Memory for the bodies of one key; never above `memory`.
    pub(crate) memory_per_key: u64,
    /// Disk for uploads, of all keys together.
    pub(crate) disk: u64,
    /// Disk for the uploads of one key; never above `disk`.
    pub(crate) disk_per_key: u64,
    /// Free space of the file system that is reserved for the database.
    pub(crate) min_free: u64,
}

impl Uploads {
    /// Disk for four of the largest forms of one key, and memory for a handful of the largest bodies.
    pub(crate) const DEFAULT: Self =
        Self { memory: 32 << 20, memory_per_key: 8 << 20, disk: 8 << 30, disk_per_key: 4 << 30, min_free: 64 << 20 };
}

/// Who set a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// Nobody.
    #[default]
    Default,
    File,
    Environment(&'static str),
    Flag(&'static str),
}

/// Reads the file that was named, if any, and resolves it with the environment and the command line.
///
/// # Errors
///
/// Everything that is wrong with the settings, in the order of the file.
pub(crate) fn load(overrides: Overrides, surroundings: &dyn Surroundings) -> Result<Config, Vec<Problem>> {
    load_with(overrides, surroundings, resolve)
}

/// The same for a command beside the gateway: of the secrets only those that open the store must be there.
///
/// # Errors
///
/// Everything else that is wrong with the settings, in the order of the file.
pub(crate) fn load_for_command(overrides: Overrides, surroundings: &dyn Surroundings) -> Result<Config, Vec<Problem>> {
    load_with(overrides, surroundings, resolve_for_command)
}

fn load_with(
    overrides: Overrides,
    surroundings: &dyn Surroundings,
    resolve: fn(&Layers, &dyn Surroundings) -> Result<Config, Vec<Problem>>,
) -> Result<Config, Vec<Problem>> {
    let file = overrides.config.clone().or_else(|| surroundings.variable(CONFIG_VARIABLE).map(PathBuf::from));
    let layers = Layers::read(overrides, surroundings).map_err(|problem| vec![problem])?;
    let config = resolve(&layers, surroundings)?;
    Ok(Config { file, ..config })
}

// === impl Config ===

impl Config {
    /// True if the file names this variable as that of a secret, and not for this address. On some platforms the case of
    /// letters does not matter.
    fn names_elsewhere(&self, variable: &str, address: Option<&Uri>) -> bool {
        let named = self.named_secrets.iter().filter(|(name, _)| name.eq_ignore_ascii_case(variable));
        let mut named = named.map(|(_, known)| known.as_ref()).peekable();
        named.peek().is_some() && !named.any(|known| known.is_some() && known == address)
    }

    /// The secrets of this account that are not there, without which it cannot be called.
    pub(crate) fn absent_of(&self, account: &str) -> Vec<Problem> {
        let index = self.accounts.iter().position(|known| known.name == account && !known.implicit);
        let Some(table) = index.map(|index| format!("accounts[{index}].")) else { return Vec::new() };
        let is_its = |problem: &&Problem| problem.setting().is_some_and(|setting| setting.starts_with(&table));
        self.absent.iter().filter(is_its).cloned().collect()
    }

    /// The arguments, each with a space before it, with which another command finds the same installation.
    pub(crate) fn arguments(&self) -> String {
        let is_given = matches!(self.sources.get("data_dir"), Some(Source::Flag(_) | Source::Environment(_)));
        let data_dir = is_given.then_some(&self.data_dir);
        let given = [("--config", self.file.as_ref()), ("--data-dir", data_dir)];
        let given = given.into_iter().filter_map(|(name, path)| Some((name, path?)));
        given.map(|(name, path)| format!(" {name} {}", shell_word(&path.display().to_string()))).collect()
    }
}

/// A word, quoted for a shell if necessary.
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
