//! Resolves the settings about the way to the gateway: its public address, its proxies, and the pages that may call it;
//! and about the hosts that it fetches images from.

use super::{ConfigResolver, PUBLIC_URL, SHORTEST_DEADLINE};
use crate::gateway::config::remote_images::DEFAULT_FETCH_TIMEOUT;
use crate::gateway::config::{CorsOrigins, HostPattern, PublicUrl, RemoteImageConfig, TrustedProxies, cors, proxies};

impl ConfigResolver<'_> {
    pub(super) fn public_url(&mut self) -> Option<PublicUrl> {
        let text = self.winning_value("public_url", PUBLIC_URL, |raw| raw.public_url.as_ref())?;
        let url = PublicUrl::parse(text);
        url.map_err(|fault| self.report("public_url", fault)).ok()
    }

    pub(super) fn trusted_proxies(&mut self) -> TrustedProxies {
        let raw = self.layers.file.raw.trusted_proxies.as_deref();
        TrustedProxies::new(self.each("trusted_proxies", raw, proxies::parse_network))
    }

    pub(super) fn cors_origins(&mut self) -> CorsOrigins {
        let raw = self.layers.file.raw.cors_origins.as_deref();
        CorsOrigins::new(self.each("cors_origins", raw, cors::parse_origin))
    }

    pub(super) fn remote_images(&mut self) -> Option<RemoteImageConfig> {
        let raw = self.layers.file.raw.remote_images.as_ref()?;
        let hosts = self.each("remote_images.hosts", raw.hosts.as_deref(), HostPattern::parse);
        if raw.hosts.as_ref().is_none_or(Vec::is_empty) {
            self.report("remote_images.hosts", "must name at least one host");
        }
        let networks = self.each("remote_images.networks", raw.networks.as_deref(), proxies::parse_network);
        let timeout = self.duration("remote_images.timeout", raw.timeout.as_ref(), SHORTEST_DEADLINE);
        let timeout = timeout.unwrap_or(DEFAULT_FETCH_TIMEOUT);
        Some(RemoteImageConfig { hosts, networks: networks.into(), timeout })
    }

    /// Parses each text of a list; an invalid one is reported with its place and left out.
    fn each<T>(
        &mut self,
        setting: &str,
        raw: Option<&[String]>,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Vec<T> {
        let parsed = raw.unwrap_or_default().iter().enumerate().filter_map(|(index, text)| {
            parse(text).map_err(|fault| self.report(&format!("{setting}[{index}]"), fault)).ok()
        });
        parsed.collect()
    }
}
