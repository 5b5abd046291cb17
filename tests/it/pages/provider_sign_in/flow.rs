//! The steps of a sign-in as a client sees them: the redirect to the provider, and the callback.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::users::{sign_in_ada, watch_cookies};
use super::super::visitor::{Visitor, percent_encoded, unescaped};
use super::real_provider::ProviderVisitor;
use crate::kit::{Answer, CLIENT_ID, CLIENT_SECRET, FakeProvider, Gateway, decoded_fields};

pub(super) const START: &str = "/sign-in/provider";
pub(super) const CALLBACK: &str = "/sign-in/provider/callback";
pub(super) const CONNECT: &str = "/profile/provider/connect";
pub(super) const DISCONNECT: &str = "/profile/provider/disconnect";
pub(super) const CONFIRM: &str = "/profile/provider/confirm";
pub(super) const LABEL: &str = "Sign in with Example";

/// The setting that lets a first sign-in create a user.
pub(super) const CREATES_USERS: &str = "create_users = true";

/// The variable with the client secret. The kit watches for the values of variables with this prefix.
const SECRET_VARIABLE: &str = "IT_OIDC_SECRET";

/// The request that the gateway lets the browser carry to the provider.
#[derive(Clone, Debug)]
pub(super) struct AuthorizationRequest {
    pub(super) url: String,
    pub(super) fields: BTreeMap<String, String>,
}

// === impl AuthorizationRequest ===

impl AuthorizationRequest {
    #[track_caller]
    fn parse(url: &str) -> Self {
        let (_, query) = url.split_once('?').unwrap_or_else(|| panic!("no query: {url}"));
        Self { url: url.to_owned(), fields: decoded_fields(query.as_bytes()) }
    }

    #[track_caller]
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name}: {}", self.url))
    }

    /// The path of the callback with this code.
    #[track_caller]
    pub(super) fn callback(&self, code: &str, issuer: &str) -> String {
        callback_path(&[("code", code), ("state", self.field("state")), ("iss", issuer)])
    }

    /// The path of the callback with which this provider answers for the person with these claims.
    #[track_caller]
    pub(super) fn answer_of(&self, provider: &FakeProvider, claims: &Value) -> String {
        self.callback(&provider.issue_code(&self.fields, claims), provider.issuer())
    }
}

/// The path of the callback with these parameters.
pub(super) fn callback_path(parameters: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", percent_encoded(value))).collect();
    format!("{CALLBACK}?{}", pairs.join("&"))
}

/// The parameters of the path of a callback.
pub(super) fn callback_fields(path: &str) -> BTreeMap<String, String> {
    let (_, query) = path.split_once('?').unwrap_or_default();
    decoded_fields(query.as_bytes())
}

/// The settings for a provider with this issuer, and further lines of the table.
pub(super) fn settings(issuer: &str, has_secret: bool, further: &str) -> String {
    let secret =
        if has_secret { format!("client_secret = {{ env = \"{SECRET_VARIABLE}\" }}\n") } else { String::new() };
    format!("[oidc]\nissuer = \"{issuer}\"\nclient_id = \"{CLIENT_ID}\"\n{secret}label = \"Example\"\n{further}\n")
}

/// A gateway whose users can sign in with the provider of this issuer.
#[track_caller]
pub(super) fn gateway_for(issuer: &str, further: &str) -> Gateway {
    gateway_with("", issuer, further)
}

/// The same, with settings that come before those of the provider.
#[track_caller]
pub(super) fn gateway_with(top: &str, issuer: &str, further: &str) -> Gateway {
    let top = format!("{top}\n{}", settings(issuer, true, further));
    Gateway::with_secrets(&top, &[], &[(SECRET_VARIABLE, CLIENT_SECRET)])
}

/// Begins a sign-in.
#[track_caller]
pub(super) fn begin(visitor: &mut Visitor<'_>, next: &str) -> AuthorizationRequest {
    let answer = visitor.get(&format!("{START}?next={}", percent_encoded(next)));
    redirect_of(&answer)
}

/// The request of an answer that redirects to the provider.
#[track_caller]
pub(super) fn redirect_of(answer: &Answer) -> AuthorizationRequest {
    assert_eq!(answer.status, 303, "{}", answer.text());
    AuthorizationRequest::parse(answer.header("location").expect("a location"))
}

/// A provider, a gateway that creates users, and its first admin.
#[track_caller]
pub(super) fn start() -> (FakeProvider, Gateway) {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), CREATES_USERS);
    gateway.watch_provider(&provider);
    drop(sign_in_ada(&gateway));
    (provider, gateway)
}

/// The first admin of a gateway, connected with the identity of kim at this provider.
#[track_caller]
pub(super) fn connect_ada<'a>(gateway: &'a Gateway, provider: &FakeProvider) -> Visitor<'a> {
    gateway.watch_provider(provider);
    let mut ada = sign_in_ada(gateway);
    let request = begin_connection(&mut ada);
    let answer = open_callback(&mut ada, &request.answer_of(provider, &claims_of("kim")));
    assert_connected(&mut ada, &answer);
    ada
}

/// Begins the connection of the user to an identity.
#[track_caller]
pub(super) fn begin_connection(visitor: &mut Visitor<'_>) -> AuthorizationRequest {
    let answer = visitor.submit("/profile", CONNECT, &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let html = answer.text();
    let mut links = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let link = links.find(|link| link.contains("code_challenge")).unwrap_or_else(|| panic!("no link: {html}"));
    AuthorizationRequest::parse(&unescaped(link))
}

/// Opens the callback to which the provider has sent the person. From now on, the code is watched for.
#[track_caller]
pub(super) fn open_callback(visitor: &mut Visitor<'_>, path: &str) -> Answer {
    if let Some(code) = callback_fields(path).get("code").filter(|code| !code.is_empty()) {
        visitor.gateway.watch_secret("a code", code, &[]);
    }
    let answer = visitor.get(path);
    watch_cookies(visitor.gateway, &visitor.cookies);
    answer
}

/// Signs in as this account of the provider, and returns the answer of the callback.
#[track_caller]
pub(super) fn sign_in_as(visitor: &mut Visitor<'_>, person: &mut ProviderVisitor<'_>, account: &str) -> Answer {
    let request = begin(visitor, "/studio");
    let path = person.choose(&request, account);
    open_callback(visitor, &path)
}

/// Signs in as the person with these claims at the fake provider, and returns the answer of the callback.
#[track_caller]
pub(super) fn sign_in_with(visitor: &mut Visitor<'_>, provider: &FakeProvider, claims: &Value) -> Answer {
    let request = begin(visitor, "/studio");
    open_callback(visitor, &request.answer_of(provider, claims))
}

/// Claims of a person with this name, whose subject has the same name in it.
pub(super) fn claims_of(name: &str) -> Value {
    json!({"sub": format!("subject-of-{name}"), "preferred_username": name})
}

/// The message of a page.
#[track_caller]
pub(super) fn alert_on(answer: &Answer) -> String {
    let html = answer.text();
    let (_, rest) = html.split_once("role=\"alert\"").unwrap_or_else(|| panic!("no message: {html}"));
    let element = rest.split("</div></div>").next().unwrap_or_default();
    let texts = element.split('>').skip(1).map(|piece| piece.split('<').next().unwrap_or_default().trim());
    let text = texts.collect::<Vec<_>>().join(" ").trim().to_owned();
    assert!(text.contains(' '), "the message has no words: {html}");
    text
}

pub(super) fn has_session(visitor: &mut Visitor<'_>) -> bool {
    visitor.get("/keys").status == 200
}

/// The answer is the sign-in page with a message, and the visitor has no session.
#[track_caller]
pub(super) fn assert_refused(visitor: &mut Visitor<'_>, answer: &Answer, case: &str) {
    assert_eq!(answer.status, 422, "{case}: {}", answer.text());
    drop(alert_on(answer));
    assert!(answer.text().contains(LABEL), "{case}: the sign-in page has the link: {}", answer.text());
    let cookies = &visitor.cookies;
    assert!(!cookies.keys().any(|name| name.contains("imagate_session")), "{case}: {cookies:?}");
    assert!(!has_session(visitor), "{case}");
}

/// The answer redirects to this page, and the visitor has a session.
#[track_caller]
pub(super) fn assert_signed_in(visitor: &mut Visitor<'_>, answer: &Answer, next: &str) {
    assert_eq!((answer.status, answer.header("location")), (303, Some(next)), "{}", answer.text());
    assert!(has_session(visitor), "no session: {:?}", visitor.cookies.keys());
}

/// The callback of a connection has no fault.
#[track_caller]
pub(super) fn assert_connected(visitor: &mut Visitor<'_>, answer: &Answer) {
    assert!([200, 303].contains(&answer.status), "{} {}", answer.status, answer.text());
    assert!(is_connected(visitor), "the profile shows no connection");
}

/// True if the profile of the visitor offers to disconnect.
#[track_caller]
pub(super) fn is_connected(visitor: &mut Visitor<'_>) -> bool {
    let page = visitor.get("/profile");
    assert_eq!(page.status, 200, "{}", page.text());
    let html = page.text();
    assert!(html.contains("id=\"provider-title\""), "no card: {html}");
    assert_ne!(html.contains(DISCONNECT), html.contains(CONNECT), "{html}");
    html.contains(DISCONNECT)
}

/// All users, as the command lists them.
#[track_caller]
fn users(gateway: &Gateway) -> Vec<Value> {
    let list = gateway.run_command(&["user", "list", "--json"]).json();
    list.as_array().expect("a list").clone()
}

/// The names of all users.
#[track_caller]
pub(super) fn user_names(gateway: &Gateway) -> Vec<String> {
    users(gateway).iter().map(|user| user["name"].as_str().expect("a name").to_owned()).collect()
}

/// The user with this name.
#[track_caller]
pub(super) fn user(gateway: &Gateway, name: &str) -> Value {
    let all = users(gateway);
    let found = all.iter().find(|user| user["name"] == name);
    found.unwrap_or_else(|| panic!("no user {name}: {all:?}")).clone()
}

/// The path of the page about the user with this name, for an admin.
#[track_caller]
pub(super) fn person_page(admin: &mut Visitor<'_>, name: &str) -> String {
    let people = admin.get("/people").text();
    let link = people.split("href=\"").find(|link| link.starts_with("/people/") && link.contains(name));
    let link = link.unwrap_or_else(|| panic!("no link to {name}: {people}"));
    link.split('"').next().unwrap_or_default().to_owned()
}
