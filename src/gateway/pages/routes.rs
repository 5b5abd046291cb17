//! The routes of the pages.

use std::future::ready;
use std::pin::Pin;

use http::Method;
use percent_encoding::percent_decode_str;

use super::account::AccountFormAction;
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::PageError;
use super::person::PersonFormAction;
use super::{
    account, accounts, alerts, assets, audit, docs, first_steps, group, groups, key, key_selection, keys, people,
    person, playground, playground_run, preferences, prices, profile, provider_sign_in, records, second_factor,
    sign_in, sign_in_code, stored_images, usage,
};

type PageFuture<'c> = Pin<Box<dyn Future<Output = Result<PageResponse, PageError>> + Send + 'c>>;

/// A function that serves a route. It gets the segments of the path.
type PageHandler = for<'c> fn(&'c PageContext<'_>, &'c [String]) -> PageFuture<'c>;

/// A page, or the target of a form.
pub(super) struct PageRoute {
    segments: Vec<String>,
    endpoint: PageEndpoint,
}

/// The handler of a route, and who may call it.
#[derive(Clone, Copy)]
struct PageEndpoint {
    access: PageAccess,
    handler: PageHandler,
}

/// The people who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageAccess {
    /// Everybody.
    Anyone,
    /// Visitors without a session, whose forms are bound to the form cookie.
    Visitors,
    /// Visitors, and users with a session who come back from the provider.
    VisitorsAndUsers,
    /// Signed-in users, also those who must set up a second factor first.
    EnrollingUsers,
    /// Signed-in users.
    Users,
}

/// The result of looking up a path.
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
    let names: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (for_get, for_post) = (get_endpoint(&names), post_endpoint(&names));
    let endpoint = match *method {
        Method::GET | Method::HEAD => for_get,
        Method::POST => for_post,
        _ => None,
    };
    match (endpoint, for_get, for_post) {
        (Some(endpoint), _, _) => RouteMatch::Found(PageRoute { segments, endpoint }),
        (None, None, None) => RouteMatch::NotFound,
        (None, Some(_), None) => RouteMatch::MethodNotAllowed("GET, HEAD"),
        (None, None, Some(_)) => RouteMatch::MethodNotAllowed("POST"),
        (None, Some(_), Some(_)) => RouteMatch::MethodNotAllowed("GET, HEAD, POST"),
    }
}

fn get_endpoint(segments: &[&str]) -> Option<PageEndpoint> {
    Some(match *segments {
        [""] => anyone(|_, _| Box::pin(ready(Ok(PageResponse::redirect("/studio"))))),
        ["assets", _] => anyone(|context, path| {
            Box::pin(ready(assets::serve_asset(context.request, &path[1]).ok_or(PageError::NotFound)))
        }),
        ["sign-in"] => visitors(|context, _| Box::pin(sign_in::show_sign_in_page(context))),
        ["sign-in", "code"] => visitors(|context, _| Box::pin(sign_in_code::show(context))),
        ["sign-in", "provider"] => visitors(|context, _| Box::pin(provider_sign_in::start(context))),
        ["sign-in", "provider", "callback"] => PageEndpoint {
            access: PageAccess::VisitorsAndUsers,
            handler: |context, _| Box::pin(provider_sign_in::receive(context)),
        },
        ["setup", _link] => visitors(|context, path| Box::pin(sign_in::show_setup_page(context, &path[1]))),
        ["invitation", _link] => visitors(|context, path| Box::pin(sign_in::show_invitation_page(context, &path[1]))),
        ["docs"] => anyone(|context, _| Box::pin(ready(Ok(docs::show_overview(context))))),
        ["docs", _] => anyone(|_, path| Box::pin(ready(docs::send_document(&path[1])))),
        ["docs", _, _] => anyone(|context, path| Box::pin(ready(docs::show_entry(context, &path[1], &path[2])))),
        ["start"] => users(|context, _| Box::pin(first_steps::show(context))),
        ["studio"] => users(|context, _| Box::pin(playground::show(context))),
        ["studio", _, _] => users(|context, path| Box::pin(playground_run::show(context, &path[1], &path[2]))),
        ["studio", _, _, _] => {
            users(|context, path| Box::pin(playground_run::send_image(context, &path[1], &path[2], &path[3])))
        }
        ["keys"] => users(|context, _| Box::pin(keys::show(context))),
        ["keys", key] if !key.is_empty() => users(|context, path| Box::pin(key::show(context, &path[1]))),
        ["keys", _, "delete"] => users(|context, path| Box::pin(key::confirm_delete(context, &path[1]))),
        ["usage"] => users(|context, _| Box::pin(usage::show(context))),
        ["usage.csv"] => users(|context, _| Box::pin(usage::download_csv(context))),
        ["records"] => users(|context, _| Box::pin(records::show(context))),
        ["records.csv"] => users(|context, _| Box::pin(records::download_csv(context))),
        ["records", record] if !record.is_empty() => {
            users(|context, path| Box::pin(records::show_record(context, &path[1])))
        }
        ["records", _, "images", _] => {
            users(|context, path| Box::pin(stored_images::send_record_image(context, &path[1], &path[3])))
        }
        ["people"] => users(|context, _| Box::pin(people::show(context))),
        ["people", user] if !user.is_empty() => users(|context, path| Box::pin(person::show(context, &path[1]))),
        ["alerts"] => users(|context, _| Box::pin(alerts::show(context))),
        ["groups"] => users(|context, _| Box::pin(groups::show(context))),
        ["groups", group] if !group.is_empty() => users(|context, path| Box::pin(group::show(context, &path[1]))),
        ["accounts"] => users(|context, _| Box::pin(accounts::show(context))),
        ["accounts", account] if !account.is_empty() => {
            users(|context, path| Box::pin(account::show(context, &path[1])))
        }
        ["accounts", _, "disable"] => users(|context, path| Box::pin(account::confirm(context, &path[1], false))),
        ["accounts", _, "delete"] => users(|context, path| Box::pin(account::confirm(context, &path[1], true))),
        ["prices"] => users(|context, _| Box::pin(prices::show(context))),
        ["audit"] => users(|context, _| Box::pin(audit::show(context))),
        ["profile"] => users(|context, _| Box::pin(profile::show(context))),
        ["profile", "second-factor"] => enrolling_users(|context, _| Box::pin(ready(second_factor::show(context)))),
        ["profile", "provider", "confirm"] => {
            enrolling_users(|context, _| Box::pin(provider_sign_in::confirm(context)))
        }
        _ => return None,
    })
}

fn post_endpoint(segments: &[&str]) -> Option<PageEndpoint> {
    Some(match *segments {
        ["sign-in"] => visitors(|context, _| Box::pin(sign_in::submit_sign_in(context))),
        ["sign-in", "code"] => visitors(|context, _| Box::pin(sign_in_code::submit(context))),
        ["sign-out"] => anyone(|context, _| Box::pin(sign_in::sign_out(context))),
        ["setup", _link] => visitors(|context, path| Box::pin(sign_in::submit_setup(context, &path[1]))),
        ["invitation", _link] => visitors(|context, path| Box::pin(sign_in::submit_invitation(context, &path[1]))),
        ["preferences"] => anyone(|context, _| Box::pin(ready(Ok(preferences::change(context))))),
        ["studio"] => users(|context, _| Box::pin(playground_run::submit(context))),
        ["studio", "preview"] => users(|context, _| Box::pin(playground::preview(context))),
        ["keys"] => users(|context, _| Box::pin(keys::create(context))),
        ["keys", "selected"] => users(|context, _| Box::pin(key_selection::submit(context))),
        ["keys", _, "disable"] => users(|context, path| Box::pin(key::set_enabled(context, &path[1], false))),
        ["keys", _, "enable"] => users(|context, path| Box::pin(key::set_enabled(context, &path[1], true))),
        ["keys", _, "change"] => users(|context, path| Box::pin(key::submit_change(context, &path[1]))),
        ["keys", _, "limit"] => users(|context, path| Box::pin(key::submit_limits(context, &path[1]))),
        ["keys", _, "dialects"] => users(|context, path| Box::pin(key::submit_dialects(context, &path[1]))),
        ["keys", _, "rotate"] => users(|context, path| Box::pin(key::rotate(context, &path[1]))),
        ["keys", _, "delete"] => users(|context, path| Box::pin(key::delete(context, &path[1]))),
        ["people"] => users(|context, _| Box::pin(people::invite(context))),
        ["people", _, action] => return person_endpoint(action),
        ["groups"] => users(|context, _| Box::pin(groups::create(context))),
        ["groups", _, "change"] => users(|context, path| Box::pin(group::submit_policy(context, &path[1]))),
        ["groups", _, "accounts"] => users(|context, path| Box::pin(group::submit_accounts(context, &path[1]))),
        ["groups", _, "delete"] => users(|context, path| Box::pin(groups::delete(context, &path[1]))),
        ["accounts"] => users(|context, _| Box::pin(accounts::create(context))),
        ["accounts", _, action] => return account_endpoint(action),
        ["prices"] => users(|context, _| Box::pin(prices::set(context))),
        ["prices", _, _, "delete"] => users(|context, path| Box::pin(prices::delete(context, &path[1], &path[2]))),
        ["profile", "password"] => users(|context, _| Box::pin(profile::change_password(context))),
        ["profile", "sign-out"] => users(|context, _| Box::pin(profile::sign_out_everywhere(context))),
        ["profile", "sessions", "end-others"] => users(|context, _| Box::pin(profile::end_other_sessions(context))),
        ["profile", "sessions", _, "end"] => users(|context, path| Box::pin(profile::end_session(context, &path[2]))),
        ["profile", "second-factor"] => enrolling_users(|context, _| Box::pin(second_factor::confirm(context))),
        ["profile", "second-factor", "codes"] => users(|context, _| Box::pin(second_factor::renew_codes(context))),
        ["profile", "second-factor", "off"] => users(|context, _| Box::pin(second_factor::turn_off(context))),
        ["profile", "provider", "connect"] => users(|context, _| Box::pin(provider_sign_in::connect(context))),
        ["profile", "provider", "disconnect"] => users(|context, _| Box::pin(provider_sign_in::disconnect(context))),
        ["profile", "provider", "confirm"] => users(|context, _| Box::pin(provider_sign_in::submit_code(context))),
        ["profile", "tokens"] => users(|context, _| Box::pin(profile::create_token(context))),
        ["profile", "tokens", _, "revoke"] => users(|context, path| Box::pin(profile::revoke_token(context, &path[2]))),
        _ => return None,
    })
}

fn person_endpoint(action: &str) -> Option<PageEndpoint> {
    Some(match action {
        "change" => users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::Change))),
        "limit" => users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::Limit))),
        "disable" => users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::Disable))),
        "enable" => users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::Enable))),
        "reset" => users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::Reset))),
        "sign-out" => users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::SignOut))),
        "reset-factor" => {
            users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::ResetFactor)))
        }
        "disconnect" => {
            users(|context, path| Box::pin(person::perform(context, &path[1], PersonFormAction::Disconnect)))
        }
        _ => return None,
    })
}

fn account_endpoint(action: &str) -> Option<PageEndpoint> {
    Some(match action {
        "disable" => users(|context, path| Box::pin(account::perform(context, &path[1], AccountFormAction::Disable))),
        "enable" => users(|context, path| Box::pin(account::perform(context, &path[1], AccountFormAction::Enable))),
        "change" => users(|context, path| Box::pin(account::perform(context, &path[1], AccountFormAction::Change))),
        "secret" => users(|context, path| Box::pin(account::perform(context, &path[1], AccountFormAction::Secret))),
        "test" => users(|context, path| Box::pin(account::perform(context, &path[1], AccountFormAction::Test))),
        "delete" => users(|context, path| Box::pin(account::perform(context, &path[1], AccountFormAction::Delete))),
        _ => return None,
    })
}

const fn anyone(handler: PageHandler) -> PageEndpoint {
    PageEndpoint { access: PageAccess::Anyone, handler }
}

const fn visitors(handler: PageHandler) -> PageEndpoint {
    PageEndpoint { access: PageAccess::Visitors, handler }
}

const fn enrolling_users(handler: PageHandler) -> PageEndpoint {
    PageEndpoint { access: PageAccess::EnrollingUsers, handler }
}

const fn users(handler: PageHandler) -> PageEndpoint {
    PageEndpoint { access: PageAccess::Users, handler }
}

// === impl PageRoute ===

impl PageRoute {
    /// True if the forms of the route are bound to the form cookie, and not to a session.
    pub(super) const fn needs_form_cookie(&self, has_session: bool) -> bool {
        match self.endpoint.access {
            PageAccess::Visitors => true,
            PageAccess::VisitorsAndUsers => !has_session,
            PageAccess::Anyone | PageAccess::EnrollingUsers | PageAccess::Users => false,
        }
    }

    /// Serves the route. A page for signed-in users leads visitors to the sign-in, and users who must set up a second
    /// factor to that page.
    pub(super) async fn serve(&self, context: &PageContext<'_>) -> Result<PageResponse, PageError> {
        let access = self.endpoint.access;
        if matches!(access, PageAccess::EnrollingUsers | PageAccess::Users) {
            if context.session.is_none() {
                return Err(PageError::Redirect(context.sign_in_path()));
            }
            if context.must_enrol() && access == PageAccess::Users {
                return Err(PageError::Redirect(second_factor::PATH.to_owned()));
            }
        }
        (self.endpoint.handler)(context, &self.segments).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decoded segments and the access of the route that is found.
    fn found(method: &Method, path: &str) -> Option<(Vec<String>, PageAccess)> {
        match find_route(method, path) {
            RouteMatch::Found(route) => Some((route.segments, route.endpoint.access)),
            RouteMatch::MethodNotAllowed(_) | RouteMatch::NotFound => None,
        }
    }

    #[test]
    fn paths_are_matched_to_routes_and_methods() {
        for (method, path, segments, access) in [
            (Method::GET, "/", &[""][..], PageAccess::Anyone),
            (Method::HEAD, "/keys", &["keys"], PageAccess::Users),
            (Method::POST, "/keys", &["keys"], PageAccess::Users),
            (Method::GET, "/keys/a%20b", &["keys", "a b"], PageAccess::Users),
            (Method::GET, "/keys/a%2Fdelete", &["keys", "a/delete"], PageAccess::Users),
            (Method::POST, "/people/a/reset-factor", &["people", "a", "reset-factor"], PageAccess::Users),
            (Method::POST, "/sign-in", &["sign-in"], PageAccess::Visitors),
            (
                Method::GET,
                "/sign-in/provider/c%61llback",
                &["sign-in", "provider", "callback"],
                PageAccess::VisitorsAndUsers,
            ),
            (Method::POST, "/profile/second-factor", &["profile", "second-factor"], PageAccess::EnrollingUsers),
        ] {
            let segments = segments.iter().map(|segment| (*segment).to_owned()).collect();
            assert_eq!(found(&method, path), Some((segments, access)), "{path}");
        }
        for (method, path, expected) in [
            (Method::PUT, "/keys", "GET, HEAD, POST"),
            (Method::GET, "/sign-out", "POST"),
            (Method::POST, "/usage", "GET, HEAD"),
        ] {
            let is_refused =
                matches!(find_route(&method, path), RouteMatch::MethodNotAllowed(allowed) if allowed == expected);
            assert!(is_refused, "{path}");
        }
        for path in ["/keys/", "/keys/a/b", "/nothing", "/keys/%ff", "keys", "/keys/a/rotate/b", "//keys"] {
            assert!(matches!(find_route(&Method::GET, path), RouteMatch::NotFound), "{path}");
        }
    }
}
