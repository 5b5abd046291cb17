//! Turns the settings as written into settings as usable, and reports every problem at once.
//!
//! Decides which settings exist, what they are when nobody sets them, and who wins when several do: the command line
//! before the environment before the file. Refuses to know what the rooms do with them. The only reader of the
//! environment in the gateway; after [`load`] no room looks anything up again.
//!
//! Carries from the specification: the time limits of the two size classes, and the low concurrency for large images.

mod address;
mod duration;
mod headers;
mod problem;
mod raw;
mod resolve;
mod schema;
mod secret;
mod show;
mod surroundings;
mod written;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, Uri};
use resolve::{Layers, resolve};

pub(crate) use address::Listen;
pub(crate) use problem::Problem;
pub(crate) use raw::{Delivery, Tier};
pub(crate) use schema::schema_json;
pub(crate) use secret::Secret;
pub(crate) use surroundings::{Machine, Surroundings};

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
    /// The folder for everything that is kept.
    pub(crate) data_dir: PathBuf,
    /// How long running requests may take to finish at the end.
    pub(crate) drain_timeout: Duration,
    /// The ids that `GET /v1/models` lists, in order.
    pub(crate) models: Vec<String>,
    /// How long one call to an upstream may take.
    pub(crate) deadlines: Deadlines,
    /// At least one.
    pub(crate) accounts: Vec<Account>,
    /// At least [`DEFAULT_GROUP`].
    pub(crate) groups: Vec<Group>,
    sources: BTreeMap<String, Source>,
}

/// How long one call to an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// Until the connection stands.
    pub(crate) connect: Duration,
    /// For a standard image.
    pub(crate) standard: Duration,
    /// For a large image; never below `standard`.
    pub(crate) large: Duration,
}

/// One upstream account.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Unique.
    pub(crate) name: String,
    /// What it is an account of.
    pub(crate) upstream: Upstream,
    /// Whether it is paid for.
    pub(crate) tier: Tier,
    /// The groups that it serves: at least one, each of which exists.
    pub(crate) groups: Vec<String>,
    /// The highest goes first.
    pub(crate) priority: i32,
    /// Standard images at once.
    pub(crate) concurrency: NonZeroU32,
    /// Large images at once.
    pub(crate) large_concurrency: NonZeroU32,
    /// Nobody configured it: it is there because nothing else is, and `serve` says so.
    pub(crate) implicit: bool,
}

/// What stands behind an account.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a handful of accounts, made once")]
pub(crate) enum Upstream {
    /// The built-in upstream, which draws images itself.
    Simulator,
    /// An API with the image endpoints, behind a key.
    Images(Endpoint),
}

/// An API at an address, and what it needs to let a request in.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Scheme, host, port and path, rebuilt from checked parts; the path does not end in `/`, except when it is only that.
    pub(crate) base_url: Uri,
    /// Fits into a header.
    pub(crate) api_key: Secret,
    /// Further headers for each request; secret values are marked as sensitive.
    pub(crate) headers: HeaderMap,
}

/// One group of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Unique.
    pub(crate) name: String,
    /// What happens when another size or format came than was asked for.
    pub(crate) delivery: Delivery,
    /// How long one call for it may take.
    pub(crate) deadlines: Deadlines,
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
    let layers = Layers::read(overrides, surroundings).map_err(|problem| vec![problem])?;
    resolve(&layers, surroundings)
}

#[cfg(test)]
mod tests;
