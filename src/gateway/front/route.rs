//! The routes of the gateway's own connections.
//!
//! A path has one spelling ([`is_canonical_path`](super::request_head::is_canonical_path)), so the literal parts of a
//! path are compared as they come, and only the values of variables are decoded.

use std::collections::HashMap;
use std::pin::Pin;

use dropshot::Body;
use http::{Method, Request, Response};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::path_parameters::PathParameters;
use super::query::Query;
use super::request::RequestHead;
use super::server::ServerError;

/// A method and a path, and the function that answers their requests.
pub(crate) struct Route<C> {
    /// The name of the operation.
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// The path, or the first segment of the paths of a folder.
    pub(super) path: &'static str,
    is_folder: bool,
    pub(super) handler: RouteHandler<C>,
}

/// The function that answers the requests of a route.
pub(crate) type RouteHandler<C> = fn(RouteRequest<C>) -> HandlerFuture;

/// The answer of a handler.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A request whose route is known.
pub(crate) struct RouteRequest<C> {
    pub(crate) head: RequestHead<C>,
    /// The request with its unread body.
    pub(crate) request: Request<Body>,
    pub(super) variables: PathVariables,
}

/// The decoded values of the variables of a path, by name.
pub(super) type PathVariables = Vec<(&'static str, String)>;

/// The routes of a server.
pub(super) struct RouteTable<C> {
    /// The routes whose paths have no variables.
    by_path: HashMap<&'static str, Vec<Route<C>>>,
    /// The other routes, those of a path together.
    by_pattern: Vec<Vec<Route<C>>>,
}

/// The reason why a request has no route.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RouteFault {
    /// The path is not UTF-8 when it is decoded.
    Encoding,
    /// There is no such path.
    Path,
    /// The path has these other methods.
    Method(String),
}

/// Turns the future of an answer into the one that a route has.
pub(crate) fn boxed_answer<R: Into<Response<Body>>>(answer: impl Future<Output = R> + Send + 'static) -> HandlerFuture {
    Box::pin(async move { answer.await.into() })
}

// === impl Route ===

impl<C> Route<C> {
    /// A route with this path, in which a segment in braces is a variable: it stands for any one segment.
    pub(crate) fn new(operation: &'static str, method: Method, path: &'static str, handler: RouteHandler<C>) -> Self {
        Self { operation, method, path, is_folder: false, handler }
    }

    /// A route with every path whose first segment is `folder`.
    pub(crate) fn for_folder(
        operation: &'static str,
        method: Method,
        folder: &'static str,
        handler: RouteHandler<C>,
    ) -> Self {
        Self { operation, method, path: folder, is_folder: true, handler }
    }

    /// The name of the operation, the method, and the path; the path of a folder ends with `/*`.
    pub(crate) fn description(&self) -> [String; 3] {
        let path = if self.is_folder { format!("/{}/*", self.path) } else { self.path.to_owned() };
        [self.operation.to_owned(), self.method.to_string(), path]
    }

    /// Returns the values of the variables if the route has the path.
    fn match_path(&self, path: &str) -> Option<PathVariables> {
        if self.is_folder {
            let rest = path.strip_prefix('/')?.strip_prefix(self.path)?;
            return (rest.is_empty() || rest.starts_with('/')).then(Vec::new);
        }
        let mut variables = Vec::new();
        let (mut expected, mut segments) = (self.path.split('/'), path.split('/'));
        loop {
            match (expected.next(), segments.next()) {
                (Some(expected), Some(segment)) => match variable_name(expected) {
                    Some(name) => variables.push((name, percent_decode_str(segment).decode_utf8_lossy().into_owned())),
                    None if expected == segment => {}
                    None => return None,
                },
                (None, None) => return Some(variables),
                _ => return None,
            }
        }
    }
}

/// Returns the name of the variable if the segment of a route is one.
fn variable_name(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

// === impl RouteRequest ===

impl<C> RouteRequest<C> {
    /// Returns the value of a variable of the path.
    pub(crate) fn take_variable(&mut self, name: &str) -> Option<String> {
        let index = self.variables.iter().position(|(known, _)| *known == name)?;
        Some(self.variables.swap_remove(index).1)
    }

    /// Returns the variables of the path as the parameters of an operation.
    pub(crate) fn take_path<T: DeserializeOwned>(&mut self) -> PathParameters<T> {
        PathParameters::from_variables(std::mem::take(&mut self.variables))
    }

    /// Returns the unread query.
    pub(crate) fn query<T>(&self) -> Query<T> {
        Query::new(self.head.uri())
    }
}

// === impl RouteTable ===

impl<C> RouteTable<C> {
    /// # Errors
    ///
    /// Returns an error if two routes have the same method and path.
    pub(super) fn new(routes: Vec<Route<C>>) -> Result<Self, ServerError> {
        let mut table = Self { by_path: HashMap::new(), by_pattern: Vec::new() };
        for route in routes {
            let routes = table.routes_of_path(&route);
            if routes.iter().any(|known| known.method == route.method) {
                return Err(ServerError::Routes(format!("{} {}", route.method, route.path)));
            }
            routes.push(route);
        }
        Ok(table)
    }

    /// Returns the routes that have the path of this route.
    fn routes_of_path(&mut self, route: &Route<C>) -> &mut Vec<Route<C>> {
        if !route.is_folder && !route.path.contains('{') {
            return self.by_path.entry(route.path).or_default();
        }
        let is_same = |known: &Vec<Route<C>>| known.iter().all(|known| known.path == route.path);
        let index = self.by_pattern.iter().position(is_same).unwrap_or(self.by_pattern.len());
        if index == self.by_pattern.len() {
            self.by_pattern.push(Vec::new());
        }
        &mut self.by_pattern[index]
    }

    /// Returns the route of a method and a path, with the values of the variables in the path. Every route of GET also
    /// answers HEAD (RFC 9110, section 9.3.2); the connection leaves out the body.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no such route.
    pub(super) fn find(&self, method: &Method, path: &str) -> Result<(&Route<C>, PathVariables), RouteFault> {
        if path.contains('%') && percent_decode_str(path).decode_utf8().is_err() {
            return Err(RouteFault::Encoding);
        }
        let (routes, variables) = self.find_path(path).ok_or(RouteFault::Path)?;
        let is_get_for_head = |route: &&Route<C>| *method == Method::HEAD && route.method == Method::GET;
        let route = routes.iter().find(|route| route.method == *method);
        let route = route.or_else(|| routes.iter().find(is_get_for_head));
        route.map(|route| (route, variables)).ok_or_else(|| RouteFault::Method(allowed_methods(routes)))
    }

    fn find_path(&self, path: &str) -> Option<(&[Route<C>], PathVariables)> {
        if let Some(routes) = self.by_path.get(path) {
            return Some((routes, Vec::new()));
        }
        self.by_pattern.iter().find_map(|routes| Some((routes.as_slice(), routes.first()?.match_path(path)?)))
    }
}

/// The value of the header `Allow` for a path with these routes.
fn allowed_methods<C>(routes: &[Route<C>]) -> String {
    let mut methods: Vec<&str> = routes.iter().map(|route| route.method.as_str()).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    methods.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(routes: &[(Method, &'static str)]) -> Result<RouteTable<()>, ServerError> {
        let answer = |_: RouteRequest<()>| boxed_answer(std::future::ready(Response::new(Body::empty())));
        let route = |(method, path): &(Method, &'static str)| match path.strip_suffix("/*") {
            Some(folder) => Route::for_folder(path, method.clone(), folder, answer),
            None => Route::new(path, method.clone(), path, answer),
        };
        RouteTable::new(routes.iter().map(route).collect())
    }

    #[test]
    fn a_path_finds_its_route_with_the_decoded_variables() {
        let keys = "/admin/v1/keys/{id}";
        let routes = [
            (Method::GET, "/"),
            (Method::GET, "/admin/v1/keys"),
            (Method::GET, keys),
            (Method::PATCH, keys),
            (Method::POST, "/admin/v1/keys/{id}/rotate"),
            (Method::DELETE, "/admin/v1/prices/{model}/{from}"),
            (Method::GET, "keys/*"),
        ];
        let table = table(&routes).unwrap();
        let found = |method: Method, path: &str| {
            table.find(&method, path).map(|(route, variables)| {
                (route.path, variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
            })
        };
        let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        for (method, path, route, variables) in [
            (Method::GET, "/", "/", &[][..]),
            (Method::HEAD, "/admin/v1/keys", "/admin/v1/keys", &[]),
            (Method::PATCH, "/admin/v1/keys/a%2Fb", keys, &["id=a/b"]),
            (Method::HEAD, "/admin/v1/keys/rotate", keys, &["id=rotate"]),
            (Method::POST, "/admin/v1/keys/a/rotate", "/admin/v1/keys/{id}/rotate", &["id=a"]),
            (Method::DELETE, "/admin/v1/prices/m/now", "/admin/v1/prices/{model}/{from}", &["model=m", "from=now"]),
            (Method::GET, "/keys", "keys", &[]),
            (Method::GET, "/keys/a/b", "keys", &[]),
        ] {
            assert_eq!(found(method, path), Ok((route, values(variables))), "{path}");
        }
        for path in ["/admin", "/admin/v1/keys/a/b", "/keysa", "/admin/v1/prices/m", "/nowhere"] {
            assert_eq!(found(Method::GET, path), Err(RouteFault::Path), "{path}");
        }
        assert_eq!(found(Method::GET, "/nowhere/%FF"), Err(RouteFault::Encoding));
        assert_eq!(found(Method::POST, "/admin/v1/keys/a"), Err(RouteFault::Method("GET, HEAD, PATCH".to_owned())));
    }

    #[test]
    fn two_routes_with_the_same_method_and_path_are_an_error() {
        for path in ["/a", "/a/{b}", "a/*"] {
            assert!(table(&[(Method::GET, path), (Method::POST, path)]).is_ok(), "{path}");
            let message = table(&[(Method::GET, path), (Method::GET, path)]).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(&format!("GET {}", path.trim_end_matches("/*"))), "{message}");
        }
    }
}
