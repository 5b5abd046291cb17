//! The fields of the forms for accounts: settings, the address and the secrets. A secret is never part of a page.

use serde_json::{Map, Value, json};

use super::form::{DIGEST_FIELD, PageForm, WHOLE_FORM, digest_of};
use super::http_messages::PageRequest;
use super::language::PageTexts;
use super::page_error::PageError;
use super::setting_fields::{
    SettingField, SettingFieldKind, field_for_setting, settings_from_form, with_settings, with_submitted,
};
use crate::error::{Error, RejectionReason};
use crate::gateway::console::Console;

/// The fields for settings that can change without the secrets.
const SETTING_FIELDS: [SettingField; 9] = [
    SettingField::new("protocol", "accounts.protocol", "/protocol", SettingFieldKind::Text),
    SettingField::new("host_model", "accounts.host_model", "/host_model", SettingFieldKind::Text),
    SettingField::new("image_urls", "accounts.image_urls", "/image_urls", SettingFieldKind::Text),
    SettingField::new("tier", "accounts.tier", "/tier", SettingFieldKind::Text),
    SettingField::new("priority", "accounts.priority", "/priority", SettingFieldKind::Number),
    SettingField::new("concurrency", "accounts.concurrency", "/concurrency", SettingFieldKind::Number),
    SettingField::new(
        "large_concurrency",
        "accounts.large_concurrency",
        "/large_concurrency",
        SettingFieldKind::Number,
    ),
    SettingField::new("refusal_phrases", "accounts.refusal_phrases", "/refusal_phrases", SettingFieldKind::Lines),
    SettingField::new("limit_phrases", "accounts.limit_phrases", "/limit_phrases", SettingFieldKind::Lines),
];
/// The fields for the addresses to which the secrets are sent, and for the requests to the token endpoint.
const ADDRESS_FIELDS: [SettingField; 8] = [
    SettingField::new("base_url", "accounts.base_url", "/base_url", SettingFieldKind::Text),
    SettingField::new("allow_http", "accounts.allow_http", "/allow_http", SettingFieldKind::Checkbox),
    SettingField::new("token_url", "accounts.token_url", "/token_url", SettingFieldKind::Text),
    SettingField::new("grant", "accounts.grant", "/grant", SettingFieldKind::Text),
    SettingField::new("client_id", "accounts.client_id", "/client_id", SettingFieldKind::Text),
    SettingField::new("client_auth", "accounts.client_auth", "/client_auth", SettingFieldKind::Text),
    SettingField::new("scope", "accounts.scope", "/scope", SettingFieldKind::Text),
    SettingField::new("audience", "accounts.audience", "/audience", SettingFieldKind::Text),
];
/// The fields for secrets.
const SECRET_FIELDS: [&str; 3] = ["api_key", "client_secret", "refresh_token"];
/// The setting with the groups, which the forms show as checkboxes.
const GROUPS: &str = "groups";
/// The group of an account that names none.
const DEFAULT_GROUP: &str = "default";

/// The part of the settings that a form shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsPart {
    /// The settings that can change without the secrets.
    Settings,
    /// The addresses.
    Address,
}

/// The words among which the fields let the reader choose.
pub(super) struct AccountWords {
    pub(super) kinds: Vec<String>,
    pub(super) protocols: Vec<String>,
    pub(super) image_urls: Vec<String>,
    pub(super) tiers: Vec<String>,
    pub(super) grants: Vec<String>,
    pub(super) client_auths: Vec<String>,
}

// === impl AccountWords ===

impl AccountWords {
    pub(super) fn new() -> Self {
        let words = Console::account_setting_values;
        Self {
            kinds: words("kind"),
            protocols: words("protocol"),
            image_urls: words("image_urls"),
            tiers: words("tier"),
            grants: words("grant"),
            client_auths: words("client_auth"),
        }
    }
}

// === impl SettingsPart ===

impl SettingsPart {
    fn fields(self) -> &'static [SettingField] {
        match self {
            Self::Settings => &SETTING_FIELDS,
            Self::Address => &ADDRESS_FIELDS,
        }
    }

    /// All stored settings, in which the values of the submitted form replace those of this part.
    pub(super) fn revised(self, stored: &Map<String, Value>, request: &PageRequest) -> Map<String, Value> {
        let mut settings = stored.clone();
        settings.retain(|name, _| self.fields().iter().all(|field| field.name != name));
        settings.extend(settings_from_form(self.fields(), &|name| request.raw_form_field(name)));
        if self == Self::Settings {
            settings.insert(GROUPS.to_owned(), submitted_groups(request).into());
        }
        settings
    }

    /// The form with the submitted values of this part.
    pub(super) fn with_submitted_values(self, form: PageForm, request: &PageRequest) -> PageForm {
        let form = with_submitted(form, self.fields(), request);
        match self {
            Self::Settings => with_groups(form, &submitted_groups(request)),
            Self::Address => form,
        }
    }
}

fn all_fields() -> impl Iterator<Item = &'static SettingField> {
    SETTING_FIELDS.iter().chain(&ADDRESS_FIELDS)
}

/// The body of the request that adds the account of a submitted form.
pub(super) fn new_account(request: &PageRequest) -> Map<String, Value> {
    let mut body = settings_from_form(all_fields(), &|name| request.raw_form_field(name));
    body.insert(GROUPS.to_owned(), submitted_groups(request).into());
    for name in ["name", "kind"] {
        body.insert(name.to_owned(), request.form_field(name).into());
    }
    body.extend(submitted_secrets(request));
    body
}

/// The secrets of a submitted form. An empty field is no secret.
pub(super) fn submitted_secrets(request: &PageRequest) -> Map<String, Value> {
    let secrets = SECRET_FIELDS.map(|name| (name.to_owned(), Value::from(request.form_field(name))));
    secrets.into_iter().filter(|(_, secret)| secret != "").collect()
}

fn submitted_groups(request: &PageRequest) -> Vec<String> {
    let groups = request.form.as_ref().map(|form| form.get_all(GROUPS).map(str::to_owned).collect());
    groups.unwrap_or_default()
}

fn with_groups(form: PageForm, groups: &[String]) -> PageForm {
    groups.iter().fold(form, |form, group| form.with_value(GROUPS, group.clone()))
}

/// The form for a new account before anything is entered.
pub(super) fn empty_form() -> PageForm {
    PageForm::default().with_value("kind", "api_key").with_value(GROUPS, DEFAULT_GROUP)
}

/// The form for a new account with the submitted values, without secrets.
pub(super) fn submitted_form(request: &PageRequest) -> PageForm {
    let form = PageForm::from_request(request, &["name", "kind"]);
    let form = with_submitted(form, all_fields(), request);
    with_groups(form, &submitted_groups(request))
}

/// The forms of an account, filled in from its stored settings.
pub(super) fn stored_form(settings: &Map<String, Value>) -> PageForm {
    let form = PageForm::default().with_value(DIGEST_FIELD, settings_digest(settings));
    stored_part(SettingsPart::Address, stored_part(SettingsPart::Settings, form, settings), settings)
}

/// The form with the stored values of one part.
pub(super) fn stored_part(part: SettingsPart, form: PageForm, settings: &Map<String, Value>) -> PageForm {
    let form = with_settings(form, part.fields(), &Value::Object(settings.clone()));
    match part {
        SettingsPart::Settings => with_groups(form, &stored_groups(settings)),
        SettingsPart::Address => form,
    }
}

/// The groups of stored settings; the default group if they name none.
pub(super) fn stored_groups(settings: &Map<String, Value>) -> Vec<String> {
    let names = settings.get(GROUPS).and_then(Value::as_array);
    names.map_or_else(
        || vec![DEFAULT_GROUP.to_owned()],
        |names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    )
}

/// A digest that detects changes of the stored settings.
pub(super) fn settings_digest(settings: &Map<String, Value>) -> String {
    digest_of(json!(settings).to_string())
}

// === impl PageForm ===

impl PageForm {
    /// Adds an error of the console to the field of an account that it concerns, or to the whole form.
    ///
    /// # Errors
    ///
    /// Returns the console's error as a page error if it does not concern the form.
    pub(super) fn with_account_error(self, texts: PageTexts, error: Error) -> Result<Self, PageError> {
        let Error::Invalid(rejection) = error else { return self.with_console_error(texts, error) };
        let param = rejection.param.as_deref().unwrap_or_default();
        let setting = param.strip_prefix("settings.").unwrap_or(param);
        let setting = setting.split(['[', '.']).next().unwrap_or_default();
        let field = ["name", "kind", GROUPS, "reason"].into_iter().chain(SECRET_FIELDS).find(|name| *name == setting);
        let field = field.unwrap_or_else(|| field_for_setting(all_fields(), setting));
        let is_secret = SECRET_FIELDS.contains(&field);
        let text = match rejection.reason {
            Some(RejectionReason::MissingParameter) if is_secret => texts.get("error.secret_again").to_owned(),
            Some(RejectionReason::MissingParameter) if field != WHOLE_FORM => texts.get("error.missing").to_owned(),
            Some(RejectionReason::StringBelowMin) => texts.get("error.missing").to_owned(),
            _ => rejection.message,
        };
        Ok(self.with_error(field, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Rejection;
    use crate::gateway::pages::language::Language;

    fn request(form: &str) -> PageRequest {
        PageRequest::with_form(form.as_bytes())
    }

    #[test]
    fn a_new_account_has_the_filled_in_fields() {
        let body = new_account(&request(
            "csrf=t&name=a&kind=api_key&base_url=+https://a.example/v1+&api_key=+k+&client_secret=&tier=&priority=-3&\
             concurrency=many&groups=default&groups=art&allow_http=yes",
        ));
        let expected = json!({
            "name": "a", "kind": "api_key", "base_url": "https://a.example/v1", "api_key": "k", "priority": -3,
            "concurrency": "many", "groups": ["default", "art"], "allow_http": true,
        });
        assert_eq!(Value::Object(body), expected);
    }

    #[test]
    fn a_form_changes_only_its_own_part_of_the_settings() {
        let stored = json!({
            "base_url": "https://a.example", "priority": 3, "tier": "free", "headers": {"x": "1"}, "groups": ["art"],
        });
        let stored = stored.as_object().unwrap();
        let changed = SettingsPart::Settings.revised(stored, &request("priority=5&tier=&groups=default&base_url=evil"));
        let expected = json!({
            "base_url": "https://a.example", "priority": 5, "headers": {"x": "1"}, "groups": ["default"],
        });
        assert_eq!(Value::Object(changed), expected);
        let changed = SettingsPart::Address.revised(stored, &request("base_url=https://b.example&priority=5"));
        let expected = json!({
            "base_url": "https://b.example", "priority": 3, "tier": "free", "headers": {"x": "1"}, "groups": ["art"],
        });
        assert_eq!(Value::Object(changed), expected);
    }

    #[test]
    fn no_form_contains_a_secret() {
        let form = submitted_form(&request("name=a&kind=oauth&api_key=k1&client_secret=k2&refresh_token=k3"));
        assert!(SECRET_FIELDS.iter().all(|name| form.value(name).is_empty()));
    }

    #[test]
    fn an_error_is_shown_at_its_field() {
        let field_of = |param: &str| {
            let rejection = Rejection::new(param, RejectionReason::InvalidValue, "it is wrong");
            let form = PageForm::default().with_account_error(PageTexts(Language::En), rejection.into()).unwrap();
            let names = all_fields().map(|field| field.name);
            let names = names.chain(["name", "kind", GROUPS, "reason", WHOLE_FORM]).chain(SECRET_FIELDS);
            names.filter(|name| form.error(name) == Some("it is wrong")).collect::<Vec<_>>().join(",")
        };
        for field in all_fields() {
            assert_eq!(field_of(field.name), field.name);
            assert_eq!(field_of(&format!("settings.{}", field.name)), field.name);
        }
        for (param, field) in
            [("name", "name"), ("settings.groups[1]", "groups"), ("api_key", "api_key"), ("secret_headers.x", "form")]
        {
            assert_eq!(field_of(param), field);
        }
    }
}
