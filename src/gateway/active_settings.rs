//! The settings in force, and the values that are made from them. A reload replaces these and nothing else; services that
//! outlast a reload, such as the accounts, are told of new settings.

use std::sync::Arc;

use tokio::task::JoinError;

use super::config::{Config, GroupConfig};
use super::filter::FilterError;
use super::group_policies::GroupPolicies;
use super::oidc::OidcProvider;
use super::people::{AdminTokenError, ConfigAdminToken};
use super::rules::ImageModels;
use super::upstream::{ImageDownloader, TransportError, UpstreamClient};
use super::{accounts, manage};

/// The settings in force, and the values that are made from them.
pub(crate) struct ActiveSettings {
    /// The settings, with the groups of the store.
    pub(crate) config: Arc<Config>,
    /// The policies of groups.
    pub(crate) groups: GroupPolicies,
    /// The properties that can be requested from each image model.
    pub(crate) image_models: ImageModels,
    /// Fetches the images that callers name by a web address, if the settings allow any.
    pub(crate) image_downloader: Option<Arc<ImageDownloader>>,
    /// The admin token of the settings, if there is one.
    pub(crate) admin_token: Option<ConfigAdminToken>,
    /// The provider with which users sign in, if there is one.
    pub(crate) oidc: Option<Arc<OidcProvider>>,
}

/// The reason why settings cannot be brought into force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A content filter cannot be used.
    #[error("a content filter cannot be used")]
    Filter(#[from] FilterError),
    /// The task that compiles the filters panicked or was cancelled.
    #[error("the groups of the store cannot be read")]
    Task(#[from] JoinError),
    /// Upstream connections cannot be prepared.
    #[error("upstream connections cannot be prepared")]
    Transport(#[from] TransportError),
    /// The admin token has the form of an API key or of a user's admin token, and could be mistaken for one.
    #[error(transparent)]
    AdminToken(#[from] AdminTokenError),
}

// === impl ActiveSettings ===

impl ActiveSettings {
    /// Prepares settings for use, with the groups of the store, which are given as pairs of a name and stored settings. The
    /// patterns are compiled on a blocking thread. The provider that `former` has loaded is kept, if its settings are the
    /// same.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings cannot be used. Groups of the store do not cause one.
    pub(crate) async fn prepare(
        config: &Config,
        stored_groups: Vec<(String, String)>,
        upstream: &Arc<UpstreamClient>,
        former: Option<&Self>,
    ) -> Result<Arc<Self>, SettingsError> {
        if accounts::need_tls(&config.accounts) || config.groups.iter().any(GroupConfig::needs_tls) {
            upstream.prepare_tls()?;
        }
        let (config, upstream) = (config.clone(), Arc::clone(upstream));
        let task = tokio::task::spawn_blocking(move || {
            let config = manage::with_store_groups(&config, &stored_groups, &upstream);
            // The settings of every group that nothing names.
            let others = GroupConfig::implicit("", config.deadlines, config.text_models.as_deref());
            GroupPolicies::new(&config.groups, others).map(|groups| (config, groups))
        });
        let (config, groups) = task.await??;
        Ok(Arc::new(Self {
            groups,
            image_models: ImageModels::from_config(&config),
            image_downloader: ImageDownloader::for_settings(config.remote_images.as_ref())?,
            admin_token: config.admin_token.as_ref().map(ConfigAdminToken::new).transpose()?,
            oidc: OidcProvider::renew(former.and_then(|former| former.oidc.as_ref()), config.oidc.as_ref())?,
            config: Arc::new(config),
        }))
    }
}
