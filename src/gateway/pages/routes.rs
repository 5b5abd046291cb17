//! The routes of the pages.

use http::Method;
use percent_encoding::percent_decode_str;

use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::PageError;
use super::{
    account, accounts, alerts, audit, docs, first_steps, group, groups, key, key_selection, keys, people, person,
    playground, playground_run, preferences, prices, profile, provider_sign_in, records, second_factor, sign_in,
    sign_in_code, stored_images, usage,
};

/// A page, or the target of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageRoute {
    Root,
    Asset(String),
    SignIn,
    SubmitSignIn,
    SignInCode,
    SubmitSignInCode,
    SignOut,
    Setup(String),
    SubmitSetup(String),
    Invitation(String),
    SubmitInvitation(String),
    Preferences,
    Docs,
    DocsDocument(String),
    /// The name of a document, and that of an operation or a schema in it.
    DocsEntry(String, String),
    Start,
    Playground,
    SubmitPlayground,
    PreviewPlayground,
    /// The key and the nonce of a form that was sent.
    PlaygroundRun(String, String),
    /// The key, the nonce and the index of an image.
    PlaygroundImage(String, String, String),
    Keys,
    CreateKey,
    Key(String),
    KeyAction(String, KeyFormAction),
    DeleteKey(String),
    ChangeSelectedKeys,
    Usage,
    UsageCsv,
    Records,
    RecordsCsv,
    Record(String),
    /// The record and the index of an image.
    RecordImage(String, String),
    People,
    Invite,
    Person(String),
    PersonAction(String, PersonFormAction),
    Alerts,
    Groups,
    CreateGroup,
    Group(String),
    ChangeGroup(String),
    AssignAccounts(String),
    DeleteGroup(String),
    Accounts,
    CreateAccount,
    Account(String),
    AccountAction(String, AccountFormAction),
    /// The page that asks for confirmation before an account is disabled, or deleted if the value is true.
    ConfirmAccount(String, bool),
    Prices,
    SetPrice,
    /// The model and the first day of the price.
    DeletePrice(String, String),
    Audit,
    Profile,
    ChangePassword,
    SignOutEverywhere,
    EndSession(String),
    EndOtherSessions,
    SecondFactor,
    ConfirmSecondFactor,
    RenewRecoveryCodes,
    TurnOffSecondFactor,
    StartProviderSignIn,
    ReceiveProviderResponse,
    ConnectProvider,
    DisconnectProvider,
    ConfirmWithProvider,
    SubmitProviderCode,
    CreateToken,
    RevokeToken(String),
}

/// The action of a form on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFormAction {
    Disable,
    Enable,
    Change,
    Limit,
    Dialects,
    Rotate,
    Delete,
}

/// The action of a form on an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccountFormAction {
    Disable,
    Enable,
    Change,
    Secret,
    Test,
    Delete,
}

/// The action of a form on a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PersonFormAction {
    Change,
    Limit,
    Disable,
    Enable,
    Reset,
    SignOut,
    ResetFactor,
    Disconnect,
}

/// The result of looking up a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RouteMatch {
    Found(PageRoute),
    /// The path exists only for other methods. The value is that of the header `Allow`.
    MethodNotAllowed(&'static str),
    NotFound,
}

/// Finds the route of a request.
pub(super) fn find_route(method: &Method, path: &str) -> RouteMatch {
    let Some(path) = path.strip_prefix('/') else { return RouteMatch::NotFound };
    let segments: Option<Vec<String>> = path
        .split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned))
        .collect();
    let Some(segments) = segments else { return RouteMatch::NotFound };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (for_get, for_post) = (get_route(&segments), post_route(&segments));
    let route = match *method {
        Method::GET | Method::HEAD => for_get.clone(),
        Method::POST => for_post.clone(),
        _ => None,
    };
    match (route, for_get, for_post) {
        (Some(route), _, _) => RouteMatch::Found(route),
        (None, None, None) => RouteMatch::NotFound,
        (None, Some(_), None) => RouteMatch::MethodNotAllowed("GET, HEAD"),
        (None, None, Some(_)) => RouteMatch::MethodNotAllowed("POST"),
        (None, Some(_), Some(_)) => RouteMatch::MethodNotAllowed("GET, HEAD, POST"),
    }
}

/// The route of a GET or HEAD request.
fn get_route(segments: &[&str]) -> Option<PageRoute> {
    Some(match *segments {
        [""] => PageRoute::Root,
        ["assets", name] => PageRoute::Asset(name.to_owned()),
        ["sign-in"] => PageRoute::SignIn,
        ["sign-in", "code"] => PageRoute::SignInCode,
        ["sign-in", "provider"] => PageRoute::StartProviderSignIn,
        ["sign-in", "provider", "callback"] => PageRoute::ReceiveProviderResponse,
        ["setup", link] => PageRoute::Setup(link.to_owned()),
        ["invitation", link] => PageRoute::Invitation(link.to_owned()),
        ["docs"] => PageRoute::Docs,
        ["docs", document] => PageRoute::DocsDocument(document.to_owned()),
        ["docs", document, entry] => PageRoute::DocsEntry(document.to_owned(), entry.to_owned()),
        ["start"] => PageRoute::Start,
        ["studio"] => PageRoute::Playground,
        ["studio", key, nonce] => PageRoute::PlaygroundRun(key.to_owned(), nonce.to_owned()),
        ["studio", key, nonce, image] => PageRoute::PlaygroundImage(key.to_owned(), nonce.to_owned(), image.to_owned()),
        ["keys"] => PageRoute::Keys,
        ["keys", key] if !key.is_empty() => PageRoute::Key(key.to_owned()),
        ["keys", key, "delete"] => PageRoute::DeleteKey(key.to_owned()),
        ["usage"] => PageRoute::Usage,
        ["usage.csv"] => PageRoute::UsageCsv,
        ["records"] => PageRoute::Records,
        ["records.csv"] => PageRoute::RecordsCsv,
        ["records", record] if !record.is_empty() => PageRoute::Record(record.to_owned()),
        ["records", record, "images", image] => PageRoute::RecordImage(record.to_owned(), image.to_owned()),
        ["people"] => PageRoute::People,
        ["people", user] if !user.is_empty() => PageRoute::Person(user.to_owned()),
        ["alerts"] => PageRoute::Alerts,
        ["groups"] => PageRoute::Groups,
        ["groups", group] if !group.is_empty() => PageRoute::Group(group.to_owned()),
        ["accounts"] => PageRoute::Accounts,
        ["accounts", account] if !account.is_empty() => PageRoute::Account(account.to_owned()),
        ["accounts", account, "disable"] => PageRoute::ConfirmAccount(account.to_owned(), false),
        ["accounts", account, "delete"] => PageRoute::ConfirmAccount(account.to_owned(), true),
        ["prices"] => PageRoute::Prices,
        ["audit"] => PageRoute::Audit,
        ["profile"] => PageRoute::Profile,
        ["profile", "second-factor"] => PageRoute::SecondFactor,
        ["profile", "provider", "confirm"] => PageRoute::ConfirmWithProvider,
        _ => return None,
    })
}

/// The route of a POST request.
fn post_route(segments: &[&str]) -> Option<PageRoute> {
    Some(match *segments {
        ["sign-in"] => PageRoute::SubmitSignIn,
        ["sign-in", "code"] => PageRoute::SubmitSignInCode,
        ["sign-out"] => PageRoute::SignOut,
        ["setup", link] => PageRoute::SubmitSetup(link.to_owned()),
        ["invitation", link] => PageRoute::SubmitInvitation(link.to_owned()),
        ["preferences"] => PageRoute::Preferences,
        ["studio"] => PageRoute::SubmitPlayground,
        ["studio", "preview"] => PageRoute::PreviewPlayground,
        ["keys"] => PageRoute::CreateKey,
        ["keys", "selected"] => PageRoute::ChangeSelectedKeys,
        ["keys", key, action] => PageRoute::KeyAction(key.to_owned(), parse_key_action(action)?),
        ["people"] => PageRoute::Invite,
        ["people", user, action] => PageRoute::PersonAction(user.to_owned(), parse_person_action(action)?),
        ["groups"] => PageRoute::CreateGroup,
        ["groups", group, "change"] => PageRoute::ChangeGroup(group.to_owned()),
        ["groups", group, "accounts"] => PageRoute::AssignAccounts(group.to_owned()),
        ["groups", group, "delete"] => PageRoute::DeleteGroup(group.to_owned()),
        ["accounts"] => PageRoute::CreateAccount,
        ["accounts", account, action] => PageRoute::AccountAction(account.to_owned(), parse_account_action(action)?),
        ["prices"] => PageRoute::SetPrice,
        ["prices", model, from, "delete"] => PageRoute::DeletePrice(model.to_owned(), from.to_owned()),
        ["profile", "password"] => PageRoute::ChangePassword,
        ["profile", "sign-out"] => PageRoute::SignOutEverywhere,
        ["profile", "sessions", "end-others"] => PageRoute::EndOtherSessions,
        ["profile", "sessions", session, "end"] => PageRoute::EndSession(session.to_owned()),
        ["profile", "second-factor"] => PageRoute::ConfirmSecondFactor,
        ["profile", "second-factor", "codes"] => PageRoute::RenewRecoveryCodes,
        ["profile", "second-factor", "off"] => PageRoute::TurnOffSecondFactor,
        ["profile", "provider", "connect"] => PageRoute::ConnectProvider,
        ["profile", "provider", "disconnect"] => PageRoute::DisconnectProvider,
        ["profile", "provider", "confirm"] => PageRoute::SubmitProviderCode,
        ["profile", "tokens"] => PageRoute::CreateToken,
        ["profile", "tokens", token, "revoke"] => PageRoute::RevokeToken(token.to_owned()),
        _ => return None,
    })
}

fn parse_key_action(word: &str) -> Option<KeyFormAction> {
    Some(match word {
        "disable" => KeyFormAction::Disable,
        "enable" => KeyFormAction::Enable,
        "change" => KeyFormAction::Change,
        "limit" => KeyFormAction::Limit,
        "dialects" => KeyFormAction::Dialects,
        "rotate" => KeyFormAction::Rotate,
        "delete" => KeyFormAction::Delete,
        _ => return None,
    })
}

fn parse_account_action(word: &str) -> Option<AccountFormAction> {
    Some(match word {
        "disable" => AccountFormAction::Disable,
        "enable" => AccountFormAction::Enable,
        "change" => AccountFormAction::Change,
        "secret" => AccountFormAction::Secret,
        "test" => AccountFormAction::Test,
        "delete" => AccountFormAction::Delete,
        _ => return None,
    })
}

fn parse_person_action(word: &str) -> Option<PersonFormAction> {
    Some(match word {
        "change" => PersonFormAction::Change,
        "limit" => PersonFormAction::Limit,
        "disable" => PersonFormAction::Disable,
        "enable" => PersonFormAction::Enable,
        "reset" => PersonFormAction::Reset,
        "sign-out" => PersonFormAction::SignOut,
        "reset-factor" => PersonFormAction::ResetFactor,
        "disconnect" => PersonFormAction::Disconnect,
        _ => return None,
    })
}

/// Serves a route. Without a session, a route that requires one redirects to the sign-in page.
pub(super) async fn handle(context: &PageContext<'_>, route: PageRoute) -> Result<PageResponse, PageError> {
    match route {
        PageRoute::Root => Ok(PageResponse::redirect("/studio")),
        PageRoute::Asset(_) => Err(PageError::NotFound),
        PageRoute::SignIn => sign_in::show_sign_in_page(context).await,
        PageRoute::SubmitSignIn => sign_in::submit_sign_in(context).await,
        PageRoute::SignInCode => sign_in_code::show(context).await,
        PageRoute::SubmitSignInCode => sign_in_code::submit(context).await,
        PageRoute::SignOut => sign_in::sign_out(context).await,
        PageRoute::StartProviderSignIn => provider_sign_in::start(context).await,
        PageRoute::ReceiveProviderResponse => provider_sign_in::receive(context).await,
        PageRoute::Setup(link) => sign_in::show_setup_page(context, &link).await,
        PageRoute::SubmitSetup(link) => sign_in::submit_setup(context, &link).await,
        PageRoute::Invitation(link) => sign_in::show_invitation_page(context, &link).await,
        PageRoute::SubmitInvitation(link) => sign_in::submit_invitation(context, &link).await,
        PageRoute::Preferences => Ok(preferences::change(context)),
        PageRoute::Docs => Ok(docs::show_overview(context)),
        PageRoute::DocsDocument(name) => docs::send_document(&name),
        PageRoute::DocsEntry(document, name) => docs::show_entry(context, &document, &name),
        route => {
            if context.session.is_none() {
                return Err(PageError::Redirect(context.sign_in_path()));
            }
            if context.must_enrol() && !route.is_for_enrolment() {
                return Err(PageError::Redirect(second_factor::PATH.to_owned()));
            }
            handle_signed_in(context, route).await
        }
    }
}

/// Serves a route that requires a session.
async fn handle_signed_in(context: &PageContext<'_>, route: PageRoute) -> Result<PageResponse, PageError> {
    match route {
        PageRoute::Start => first_steps::show(context).await,
        PageRoute::Playground => playground::show(context).await,
        PageRoute::SubmitPlayground => Box::pin(playground_run::submit(context)).await,
        PageRoute::PreviewPlayground => playground::preview(context).await,
        PageRoute::PlaygroundRun(key, nonce) => playground_run::show(context, &key, &nonce).await,
        PageRoute::PlaygroundImage(key, nonce, image) => {
            playground_run::send_image(context, &key, &nonce, &image).await
        }
        PageRoute::Keys => keys::show(context).await,
        PageRoute::CreateKey => keys::create(context).await,
        PageRoute::Key(id) => key::show(context, &id).await,
        PageRoute::KeyAction(id, action) => key::perform(context, &id, action).await,
        PageRoute::DeleteKey(id) => key::confirm_delete(context, &id).await,
        PageRoute::ChangeSelectedKeys => key_selection::submit(context).await,
        PageRoute::Usage => usage::show(context).await,
        PageRoute::UsageCsv => usage::download_csv(context).await,
        PageRoute::Records => records::show(context).await,
        PageRoute::RecordsCsv => records::download_csv(context).await,
        PageRoute::Record(id) => records::show_record(context, &id).await,
        PageRoute::RecordImage(record, image) => stored_images::send_record_image(context, &record, &image).await,
        PageRoute::People => people::show(context).await,
        PageRoute::Invite => people::invite(context).await,
        PageRoute::Person(id) => person::show(context, &id).await,
        PageRoute::PersonAction(id, action) => person::perform(context, &id, action).await,
        PageRoute::Alerts => alerts::show(context).await,
        PageRoute::Groups => groups::show(context).await,
        PageRoute::CreateGroup => groups::create(context).await,
        PageRoute::Group(name) => group::show(context, &name).await,
        PageRoute::ChangeGroup(name) => group::submit_policy(context, &name).await,
        PageRoute::AssignAccounts(name) => group::submit_accounts(context, &name).await,
        PageRoute::DeleteGroup(name) => groups::delete(context, &name).await,
        PageRoute::Accounts => accounts::show(context).await,
        PageRoute::CreateAccount => accounts::create(context).await,
        PageRoute::Account(handle) => account::show(context, &handle).await,
        PageRoute::AccountAction(handle, action) => account::perform(context, &handle, action).await,
        PageRoute::ConfirmAccount(handle, deletes) => account::confirm(context, &handle, deletes).await,
        PageRoute::Prices => prices::show(context).await,
        PageRoute::SetPrice => prices::set(context).await,
        PageRoute::DeletePrice(model, from) => prices::delete(context, &model, &from).await,
        PageRoute::Audit => audit::show(context).await,
        PageRoute::Profile => profile::show(context).await,
        PageRoute::ChangePassword => profile::change_password(context).await,
        PageRoute::SignOutEverywhere => profile::sign_out_everywhere(context).await,
        PageRoute::EndSession(id) => profile::end_session(context, &id).await,
        PageRoute::EndOtherSessions => profile::end_other_sessions(context).await,
        PageRoute::SecondFactor => second_factor::show(context),
        PageRoute::ConfirmSecondFactor => second_factor::confirm(context).await,
        PageRoute::RenewRecoveryCodes => second_factor::renew_codes(context).await,
        PageRoute::TurnOffSecondFactor => second_factor::turn_off(context).await,
        PageRoute::ConnectProvider => provider_sign_in::connect(context).await,
        PageRoute::DisconnectProvider => provider_sign_in::disconnect(context).await,
        PageRoute::ConfirmWithProvider => provider_sign_in::confirm(context).await,
        PageRoute::SubmitProviderCode => provider_sign_in::submit_code(context).await,
        PageRoute::CreateToken => profile::create_token(context).await,
        PageRoute::RevokeToken(id) => profile::revoke_token(context, &id).await,
        _ => Err(PageError::NotFound),
    }
}

// === impl PageRoute ===

impl PageRoute {
    /// True for the routes that a user needs for setting up a second factor.
    const fn is_for_enrolment(&self) -> bool {
        matches!(self, Self::SecondFactor | Self::ConfirmSecondFactor | Self::ConfirmWithProvider)
    }

    /// True for the routes of visitors without a session, whose forms are bound to the form cookie.
    pub(super) const fn is_for_signed_out(&self) -> bool {
        matches!(
            self,
            Self::SignIn
                | Self::SubmitSignIn
                | Self::SignInCode
                | Self::SubmitSignInCode
                | Self::StartProviderSignIn
                | Self::ReceiveProviderResponse
                | Self::Setup(_)
                | Self::SubmitSetup(_)
                | Self::Invitation(_)
                | Self::SubmitInvitation(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_to_routes_and_methods() {
        assert_eq!(find_route(&Method::GET, "/"), RouteMatch::Found(PageRoute::Root));
        assert_eq!(find_route(&Method::HEAD, "/keys"), RouteMatch::Found(PageRoute::Keys));
        assert_eq!(find_route(&Method::POST, "/keys"), RouteMatch::Found(PageRoute::CreateKey));
        assert_eq!(find_route(&Method::GET, "/keys/a%20b"), RouteMatch::Found(PageRoute::Key("a b".to_owned())));
        assert_eq!(
            find_route(&Method::GET, "/keys/a%2Fdelete"),
            RouteMatch::Found(PageRoute::Key("a/delete".to_owned()))
        );
        assert_eq!(find_route(&Method::PUT, "/keys"), RouteMatch::MethodNotAllowed("GET, HEAD, POST"));
        assert_eq!(find_route(&Method::GET, "/sign-out"), RouteMatch::MethodNotAllowed("POST"));
        assert_eq!(find_route(&Method::POST, "/usage"), RouteMatch::MethodNotAllowed("GET, HEAD"));
        for path in ["/keys/", "/keys/a/b", "/nothing", "/keys/%ff", "keys", "/keys/a/rotate/b", "//keys"] {
            assert_eq!(find_route(&Method::GET, path), RouteMatch::NotFound, "{path}");
        }
    }
}
