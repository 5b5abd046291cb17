//! Resolves the upstream of an account: the settings that each kind needs, and those that have no meaning for it.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::ConfigResolver;
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

impl ConfigResolver<'_> {
    /// Resolves the upstream of an account; `None` if its kind is missing, or its base URL or credentials cannot be
    /// used.
    pub(super) fn upstream(&mut self, path: &str, account: &RawAccount) -> Option<UpstreamConfig> {
        let kind = account.kind?;
        self.report_unused_settings(path, account, kind);
        match kind {
            AccountKind::Simulator => Some(UpstreamConfig::Simulator),
            AccountKind::ApiKey | AccountKind::Oauth => self.endpoint(path, account, kind).map(UpstreamConfig::Api),
        }
    }

    /// Reports settings that have no effect for this kind, because the operator expects an effect. For example, a
    /// simulator with an address would be mistaken for an upstream with real images.
    fn report_unused_settings(&mut self, path: &str, account: &RawAccount, kind: AccountKind) {
        let api = [
            ("base_url", account.base_url.is_some()),
            ("allow_http", account.allow_http.is_some()),
            ("headers", account.headers.is_some()),
            ("host_model", account.host_model.is_some()),
            ("refusal_phrases", account.refusal_phrases.is_some()),
            ("limit_phrases", account.limit_phrases.is_some()),
            ("image_urls", account.image_urls.is_some()),
        ];
        let key = [("api_key", account.api_key.is_some())];
        let tokens = [
            ("token_url", account.token_url.is_some()),
            ("grant", account.grant.is_some()),
            ("client_id", account.client_id.is_some()),
            ("client_secret", account.client_secret.is_some()),
            ("refresh_token", account.refresh_token.is_some()),
            ("client_auth", account.client_auth.is_some()),
            ("scope", account.scope.is_some()),
            ("audience", account.audience.is_some()),
        ];
        let (settings, reason): (Vec<&[(&str, bool)]>, _) = match kind {
            AccountKind::Simulator => {
                (vec![&api, &key, &tokens], "has no meaning for a simulator, which calls no upstream")
            }
            AccountKind::ApiKey => {
                (vec![&tokens], "has no meaning for an account of kind \"api_key\", only for \"oauth\"")
            }
            AccountKind::Oauth => {
                (vec![&key], "has no meaning for an account of kind \"oauth\", which gets its tokens from `token_url`")
            }
        };
        for (setting, _) in settings.into_iter().flatten().filter(|(_, is_given)| *is_given) {
            self.report(&format!("{path}.{setting}"), reason);
        }
    }

    fn endpoint(&mut self, path: &str, account: &RawAccount, kind: AccountKind) -> Option<EndpointConfig> {
        let base_url = self.base_url(&format!("{path}.base_url"), account);
        let credentials = match kind {
            AccountKind::Oauth => self.oauth(path, account).map(AccountCredentials::Oauth),
            AccountKind::ApiKey | AccountKind::Simulator => {
                self.api_key(&format!("{path}.api_key"), account).map(AccountCredentials::ApiKey)
            }
        };
        let headers = self.headers(&format!("{path}.headers"), account);
        let protocol = account.protocol.unwrap_or(AccountProtocol::Images);
        let host_model = self.host_model(&format!("{path}.host_model"), account, protocol);
        let phrases = FailurePhrases {
            refusals: self.phrases(&format!("{path}.refusal_phrases"), account.refusal_phrases.as_deref()),
            limits: self.phrases(&format!("{path}.limit_phrases"), account.limit_phrases.as_deref()),
        };
        let (base_url, credentials, image_urls) =
            (base_url?, credentials?, account.image_urls.unwrap_or(AccountImageUrls::Refuse));
        Some(EndpointConfig { base_url, protocol, host_model, image_urls, credentials, headers, phrases })
    }

    /// Resolves phrases. A phrase of few letters would be found in most errors.
    fn phrases(&mut self, setting: &str, phrases: Option<&[String]>) -> Vec<String> {
        let phrases: Vec<String> = phrases.unwrap_or_default().iter().map(|phrase| phrase.trim().to_owned()).collect();
        for (index, phrase) in phrases.iter().enumerate() {
            let is_short = phrase.is_ascii() && phrase.len() < SHORTEST_ASCII_PHRASE || phrase.chars().count() < 2;
            if is_short || phrase.len() > LONGEST_PHRASE || phrase.chars().any(char::is_control) {
                self.report(
                    &format!("{setting}[{index}]"),
                    &format!(
                        "must be a phrase of {SHORTEST_ASCII_PHRASE} to {LONGEST_PHRASE} bytes in one line; Chinese ones can \
                         have two characters"
                    ),
                );
            }
        }
        phrases
    }

    /// Resolves the text model that runs the image tool. An image model cannot run the tool, because image models use
    /// no tools.
    fn host_model(&mut self, setting: &str, account: &RawAccount, protocol: AccountProtocol) -> String {
        let Some(model) = &account.host_model else { return DEFAULT_HOST_MODEL.to_owned() };
        if protocol != AccountProtocol::Responses {
            self.report(setting, "has no meaning for an account without the protocol \"responses\"");
        } else if model.is_empty() || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report(setting, "must be the id of a text model, such as \"gpt-5.5\"");
        } else if model.starts_with(IMAGE_MODEL_PREFIX) {
            self.report(setting, "must be a text model: an image model cannot run the image tool");
        }
        model.clone()
    }

    fn base_url(&mut self, setting: &str, account: &RawAccount) -> Option<Uri> {
        let Some(text) = &account.base_url else {
            self.report(setting, "is missing; it must be a URL, such as \"https://api.openai.com/v1\"");
            return None;
        };
        let uri = address::service_url(text, account.allow_http.unwrap_or_default());
        let uri = uri.map_err(|fault| self.report(setting, &fault)).ok()?;
        self.check_link_local(setting, &uri);
        Some(uri)
    }

    /// Reports an address at which clouds offer the credentials of a machine, unless the file allows it.
    pub(super) fn check_link_local(&mut self, setting: &str, uri: &Uri) {
        let policy = AddressPolicy::for_services(self.layers.file.raw.allow_link_local.unwrap_or_default());
        if !policy.allows_host(uri.host().unwrap_or_default()) {
            self.report(
                setting,
                "is a link-local address, which only `allow_link_local = true` in the settings file allows",
            );
        }
    }

    fn api_key(&mut self, setting: &str, account: &RawAccount) -> Option<ConfigSecret> {
        let Some(source) = &account.api_key else {
            self.report(setting, "is missing; set it, for example to { env = \"OPENAI_API_KEY\" }");
            return None;
        };
        self.bearer_key(setting, source)
    }

    fn headers(&mut self, path: &str, account: &RawAccount) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (text, raw_header) in account.headers.iter().flatten() {
            let setting = format!("{path}.{text}");
            let Some((name, value)) = self.header(&setting, text, raw_header) else { continue };
            if map.insert(name, value).is_some() {
                self.report(&setting, "is given twice, in different case");
            }
        }
        map
    }

    fn header(&mut self, setting: &str, text: &str, raw_header: &RawHeader) -> Option<(HeaderName, HeaderValue)> {
        let name = headers::parse_name(text)
            .map_err(|fault| self.report(setting, &format!("cannot be sent: {fault}")))
            .ok()?;
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
