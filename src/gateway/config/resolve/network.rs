//! Resolves the settings about the way to the gateway: its public address, its proxies, and the pages that may call it.

use super::{ConfigResolver, PUBLIC_URL};
use crate::gateway::config::{CorsOrigins, PublicUrl, TrustedProxies, cors, proxies};

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
