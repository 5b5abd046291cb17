//! A client of the pages and of the admin API: an admin who is signed in, and programs with tokens.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

const PASSWORD: &str = "a-password-of-the-load-tests";

/// The role in which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientRole {
    /// A browser with the session of an admin.
    SignedInAdmin,
    /// A program with the admin token of the settings.
    AdminToken,
    /// A program with a token of a member.
    MemberToken,
    /// A client without credentials.
    Anonymous,
}

/// A client of one gateway.
pub(crate) struct ConsoleClient {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    admin_token: String,
    member_token: String,
    session: String,
}

/// A complete answer.
pub(crate) struct ConsoleAnswer {
    pub(crate) status: u16,
    pub(crate) time: Duration,
    pub(crate) body: Bytes,
    /// The names and values of the cookies that the answer sets, as a client sends them back.
    cookies: String,
}

impl ConsoleClient {
    /// Creates an admin and signs in as that admin, and creates a token of the member of this name.
    pub(crate) async fn sign_in(address: SocketAddr, admin_token: &str, member: &str) -> Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let admin_token = format!("Bearer {admin_token}");
        let mut client = Self { client, address, admin_token, member_token: String::new(), session: String::new() };
        let token = client.create("/admin/v1/tokens", &json!({"name": "bench", "user": member})).await?;
        client.member_token = format!("Bearer {}", token["secret"].as_str().context("no secret")?);
        // The name is new in each run, because a folder can be used again.
        let name = format!("bench-{}", std::process::id());
        let created = client.create("/admin/v1/users", &json!({"name": name, "role": "admin"})).await?;
        let link = created["link"]["path"].as_str().context("no link")?;
        client.session = client.accept(link).await?;
        Ok(client)
    }

    /// Fetches a path of the gateway, or of another address of the same process.
    pub(crate) async fn get(&self, role: ClientRole, address: Option<SocketAddr>, path: &str) -> Result<ConsoleAnswer> {
        let request = Request::get(format!("http://{}{path}", address.unwrap_or(self.address)));
        let request = match role {
            ClientRole::SignedInAdmin => request.header(COOKIE, &self.session),
            ClientRole::AdminToken => request.header(AUTHORIZATION, &self.admin_token),
            ClientRole::MemberToken => request.header(AUTHORIZATION, &self.member_token),
            ClientRole::Anonymous => request,
        };
        self.exchange(request.body(Full::default())?).await.with_context(|| path.to_owned())
    }

    /// Creates an object by the admin API.
    async fn create(&self, path: &str, body: &Value) -> Result<Value> {
        let request = Request::post(format!("http://{}{path}", self.address))
            .header(AUTHORIZATION, &self.admin_token)
            .header(CONTENT_TYPE, "application/json");
        let answer = self.exchange(request.body(Full::from(body.to_string()))?).await?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200, "{path}: {} {text}", answer.status);
        serde_json::from_str(&text).with_context(|| path.to_owned())
    }

    /// Sets the password of an invited user, and returns the cookie of the session that begins with it.
    async fn accept(&self, link: &str) -> Result<String> {
        let page = self.get(ClientRole::Anonymous, None, link).await?;
        let html = String::from_utf8_lossy(&page.body).into_owned();
        let token = html.split_once("name=\"csrf\" value=\"").and_then(|(_, rest)| rest.split('"').next());
        let fields = format!("csrf={}&password={PASSWORD}&again={PASSWORD}", token.context("the form has no token")?);
        let origin = format!("http://{}", self.address);
        let request = Request::builder().method(Method::POST).uri(format!("{origin}{link}"));
        let request = request.header(ORIGIN, &origin).header(COOKIE, &page.cookies);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = self.exchange(request.body(Full::from(fields))?).await?;
        ensure!(answer.status == 303, "the sign-in was answered with {}", answer.status);
        Ok(answer.cookies)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<ConsoleAnswer> {
        let begun = Instant::now();
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let time = begun.elapsed();
        let cookies =
            head.headers.get_all(SET_COOKIE).iter().filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        Ok(ConsoleAnswer { status: head.status.as_u16(), time, body, cookies })
    }
}
