//! Resolves the settings about the way to the gateway: its public address, its proxies, and the pages that may call it;
//! and about the hosts that it fetches images from.

use super::{ConfigResolver, DEADLINES};
use crate::gateway::config::remote_images::DEFAULT_FETCH_TIMEOUT;
use crate::gateway::config::{CorsOrigins, HostPattern, PublicUrl, RemoteImageConfig, TrustedProxies, cors, proxies};

impl ConfigResolver<'_> {
    pub(super) fn public_url(&mut self) -> Option<PublicUrl> {
        let url = PublicUrl::parse(self.raw.public_url.as_deref()?);
        let url = self.accept("public_url", url)?;
        self.text("", "public_url", url.as_str());
        Some(url)
    }

    pub(super) fn trusted_proxies(&mut self) -> TrustedProxies {
        let networks = self.each("trusted_proxies", self.raw.trusted_proxies.as_deref(), proxies::parse_network);
        TrustedProxies::new(self.texts("", "trusted_proxies", networks))
    }

    pub(super) fn cors_origins(&mut self) -> CorsOrigins {
        let origins = self.each("cors_origins", self.raw.cors_origins.as_deref(), cors::parse_origin);
        CorsOrigins::new(self.texts("", "cors_origins", origins))
    }

    pub(super) fn remote_images(&mut self) -> Option<RemoteImageConfig> {
        const TABLE: &str = "remote_images";
        let raw = self.raw.remote_images.as_ref()?;
        let hosts = self.each("remote_images.hosts", raw.hosts.as_deref(), HostPattern::parse);
        if raw.hosts.as_ref().is_none_or(Vec::is_empty) {
            self.report("remote_images.hosts", "must name at least one host");
        }
        let networks = self.each("remote_images.networks", raw.networks.as_deref(), proxies::parse_network);
        Some(RemoteImageConfig {
            hosts: self.texts(TABLE, "hosts", hosts),
            networks: self.texts(TABLE, "networks", networks).into(),
            timeout: self.duration((TABLE, "timeout"), raw.timeout.as_ref(), DEADLINES, DEFAULT_FETCH_TIMEOUT),
        })
    }
}
