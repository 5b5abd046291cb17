//! Resolves the upstream of an account: the settings that each kind needs, and those that have no meaning for it.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::ConfigResolver;
use super::values::{REDACTED, quoted};
use super::written::written_settings;
use crate::gateway::config::raw::{AccountImageUrls, AccountKind, AccountProtocol, RawAccount, RawHeader};
use crate::gateway::config::{
    AccountCredentials, AddressPolicy, ConfigSecret, EndpointConfig, FailurePhrases, UpstreamConfig, address, headers,
};

/// The model that runs the image tool if an account names none (our choice): the text model in the examples of the API.
const DEFAULT_HOST_MODEL: &str = "gpt-5.5";
/// The lengths of phrases, in bytes (our choice): the shortest one of letters without accents, and the longest.
const SHORTEST_ASCII_PHRASE: usize = 6;
const LONGEST_PHRASE: usize = 300;
/// The prefix of the ids of image models.
const IMAGE_MODEL_PREFIX: &str = "gpt-image-";
/// The settings of accounts that call an API.
const API_SETTINGS: &[&str] =
    &["base_url", "allow_http", "headers", "host_model", "refusal_phrases", "limit_phrases", "image_urls"];
/// The settings of accounts of the kind `api_key`.
const KEY_SETTINGS: &[&str] = &["api_key"];
/// The settings of accounts of the kind `oauth`.
const TOKEN_SETTINGS: &[&str] =
    &["token_url", "grant", "client_id", "client_secret", "refresh_token", "client_auth", "scope", "audience"];

impl ConfigResolver<'_> {
    /// Resolves the address and the credentials of an account's calls; `None` for a simulator, or if one of them cannot be
    /// used.
    pub(super) fn call_target(&mut self, path: &str, raw: &RawAccount) -> Option<EndpointConfig> {
        let kind = self.value(path, "kind", raw.kind?);
        self.report_unused_settings(path, raw, kind);
        if kind == AccountKind::Simulator {
            return None;
        }
        let protocol = self.value_or(path, "protocol", raw.protocol, AccountProtocol::Images);
        let host_model = self.host_model(path, raw, protocol);
        let image_urls = self.value_or(path, "image_urls", raw.image_urls, AccountImageUrls::Refuse);
        let base_url = self.base_url(path, raw);
        let credentials = if kind == AccountKind::Oauth {
            self.oauth(path, raw).map(AccountCredentials::Oauth)
        } else {
            self.api_key(path, raw).map(AccountCredentials::ApiKey)
        };
        let (headers, phrases) = (HeaderMap::new(), FailurePhrases::default());
        let (base_url, credentials) = (base_url?, credentials?);
        Some(EndpointConfig { base_url, protocol, host_model, image_urls, credentials, headers, phrases })
    }

    /// Resolves the upstream of an account from the target of its calls.
    pub(super) fn upstream(&mut self, path: &str, raw: &RawAccount, target: Option<EndpointConfig>) -> UpstreamConfig {
        if raw.kind.is_none_or(|kind| kind == AccountKind::Simulator) {
            return UpstreamConfig::Simulator;
        }
        let phrases = FailurePhrases {
            refusals: self.phrases(path, "refusal_phrases", raw.refusal_phrases.as_deref()),
            limits: self.phrases(path, "limit_phrases", raw.limit_phrases.as_deref()),
        };
        let headers = self.headers(path, raw);
        let endpoint = target.map(|target| EndpointConfig { headers, phrases, ..target });
        endpoint.map_or(UpstreamConfig::Simulator, UpstreamConfig::Api)
    }

    /// Reports settings that have no effect for this kind, because the operator expects an effect. For example, a
    /// simulator with an address would be mistaken for an upstream with real images.
    fn report_unused_settings(&mut self, path: &str, raw: &RawAccount, kind: AccountKind) {
        let (unused, reason) = match kind {
            AccountKind::Simulator => (
                [API_SETTINGS, KEY_SETTINGS, TOKEN_SETTINGS].concat(),
                "has no meaning for a simulator, which calls no upstream",
            ),
            AccountKind::ApiKey => {
                (TOKEN_SETTINGS.to_vec(), "has no meaning for an account of kind \"api_key\", only for \"oauth\"")
            }
            AccountKind::Oauth => (
                KEY_SETTINGS.to_vec(),
                "has no meaning for an account of kind \"oauth\", which gets its tokens from `token_url`",
            ),
        };
        for setting in written_settings(raw).keys().filter(|setting| unused.contains(&setting.as_str())) {
            self.report(&format!("{path}.{setting}"), reason);
        }
    }

    /// Resolves phrases. A phrase of few letters would be found in most errors.
    fn phrases(&mut self, path: &str, name: &str, phrases: Option<&[String]>) -> Vec<String> {
        let phrases: Vec<String> = phrases.unwrap_or_default().iter().map(|phrase| phrase.trim().to_owned()).collect();
        for (index, phrase) in phrases.iter().enumerate() {
            let is_short = phrase.is_ascii() && phrase.len() < SHORTEST_ASCII_PHRASE || phrase.chars().count() < 2;
            if is_short || phrase.len() > LONGEST_PHRASE || phrase.chars().any(char::is_control) {
                self.report(
                    &format!("{path}.{name}[{index}]"),
                    &format!(
                        "must be a phrase of {SHORTEST_ASCII_PHRASE} to {LONGEST_PHRASE} bytes in one line; Chinese ones can \
                         have two characters"
                    ),
                );
            }
        }
        self.texts(path, name, phrases)
    }

    /// Resolves the text model that runs the image tool. An image model cannot run the tool, because image models use
    /// no tools.
    fn host_model(&mut self, path: &str, raw: &RawAccount, protocol: AccountProtocol) -> String {
        let setting = &format!("{path}.host_model");
        let model = raw.host_model.clone().unwrap_or_else(|| DEFAULT_HOST_MODEL.to_owned());
        if protocol != AccountProtocol::Responses {
            if raw.host_model.is_some() {
                self.report(setting, "has no meaning for an account without the protocol \"responses\"");
            }
            return model;
        }
        if model.is_empty() || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report(setting, "must be the id of a text model, such as \"gpt-5.5\"");
        } else if model.starts_with(IMAGE_MODEL_PREFIX) {
            self.report(setting, "must be a text model: an image model cannot run the image tool");
        }
        self.text(path, "host_model", model)
    }

    fn base_url(&mut self, path: &str, raw: &RawAccount) -> Option<Uri> {
        let Some(text) = &raw.base_url else {
            let fault = "is missing; it must be a URL, such as \"https://api.openai.com/v1\"";
            self.report(&format!("{path}.base_url"), fault);
            return None;
        };
        self.service_url(path, text, raw.allow_http)
    }

    /// Resolves the `base_url` of an account or a service.
    pub(super) fn service_url(&mut self, path: &str, text: &str, allow_http: Option<bool>) -> Option<Uri> {
        let url = address::service_url(text, allow_http.unwrap_or_default());
        self.service_address(path, "base_url", url)
    }

    /// Accepts an address that an operator's service has.
    pub(super) fn service_address(&mut self, path: &str, name: &str, url: Result<Uri, impl AsRef<str>>) -> Option<Uri> {
        let setting = format!("{path}.{name}");
        let url = self.accept(&setting, url)?;
        self.check_link_local(&setting, &url);
        Some(self.text(path, name, url))
    }

    /// Reports an address at which clouds offer the credentials of a machine, unless the file allows it.
    fn check_link_local(&mut self, setting: &str, uri: &Uri) {
        let policy = AddressPolicy::for_services(self.raw.allow_link_local.unwrap_or_default());
        if !policy.allows_host(uri.host().unwrap_or_default()) {
            self.report(
                setting,
                "is a link-local address, which only `allow_link_local = true` in the settings file allows",
            );
        }
    }

    fn api_key(&mut self, path: &str, raw: &RawAccount) -> Option<ConfigSecret> {
        let Some(source) = &raw.api_key else {
            let fault = "is missing; set it, for example to { env = \"OPENAI_API_KEY\" }";
            self.report(&format!("{path}.api_key"), fault);
            return None;
        };
        self.bearer_key(path, "api_key", source)
    }

    fn headers(&mut self, path: &str, raw: &RawAccount) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (text, raw_header) in raw.headers.iter().flatten() {
            let setting = format!("{path}.headers.{text}");
            let Some((name, value)) = self.header(&setting, text, raw_header) else { continue };
            if map.insert(name, value).is_some() {
                self.report(&setting, "is given twice, in different case");
            }
        }
        let shown: BTreeMap<&str, String> =
            map.iter().map(|(name, value)| (name.as_str(), shown_header(value))).collect();
        self.entries(path, "headers", shown.into_iter());
        map
    }

    fn header(&mut self, setting: &str, text: &str, raw_header: &RawHeader) -> Option<(HeaderName, HeaderValue)> {
        let name = headers::parse_name(text).map_err(|fault| format!("cannot be sent: {fault}"));
        let name = self.accept(setting, name)?;
        let (text, sensitive) = match raw_header {
            RawHeader::Plain(_) if headers::is_secret(&name) => {
                self.report(setting, "carries a credential and must be { env = \"NAME\" } or { file = \"PATH\" }");
                return None;
            }
            RawHeader::Plain(text) => (text.clone(), false),
            RawHeader::Secret(source) => (self.header_secret(setting, source)?.expose().to_owned(), true),
        };
        let Ok(mut value) = HeaderValue::from_str(&text) else {
            self.report(setting, "contains a character that is not allowed in a header");
            return None;
        };
        value.set_sensitive(sensitive);
        Some((name, value))
    }
}

/// Returns the value of a header as TOML, without a secret.
fn shown_header(value: &HeaderValue) -> String {
    if value.is_sensitive() { quoted(REDACTED) } else { quoted(&String::from_utf8_lossy(value.as_bytes())) }
}
