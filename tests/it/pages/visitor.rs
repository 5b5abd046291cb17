//! A client without a browser that keeps cookies. It can also send requests that no browser sends.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::kit::{Answer, Call, Gateway};

/// A client of one gateway, with its cookies.
#[derive(Clone)]
pub(crate) struct Visitor<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) cookies: BTreeMap<String, String>,
    /// The local address of connections, if it is not the default.
    local_address: Option<IpAddr>,
    /// The value of `x-forwarded-for`, if the client is behind a proxy.
    forwarded: Option<&'static str>,
    /// Host and origin, if they are not the gateway's address.
    host: Option<(&'static str, &'static str)>,
}

/// A form of a page, with the values of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) action: String,
    pub(crate) fields: Vec<(String, String)>,
}

// === impl Visitor ===

impl<'a> Visitor<'a> {
    pub(crate) fn new(gateway: &'a Gateway) -> Self {
        Self { gateway, cookies: BTreeMap::new(), local_address: None, forwarded: None, host: None }
    }

    /// A client that was at another gateway before. Behind one proxy both would have the same address; here they have not,
    /// and the names of cookies have the port.
    pub(crate) fn with_cookies(gateway: &'a Gateway, cookies: &BTreeMap<String, String>) -> Self {
        let here = |name: &String| match name.rsplit_once('_') {
            Some((stem, port)) if port.parse::<u16>().is_ok() => format!("{stem}_{}", gateway.address().port()),
            _ => name.clone(),
        };
        let cookies = cookies.iter().map(|(name, value)| (here(name), value.clone())).collect();
        Self { cookies, ..Self::new(gateway) }
    }

    /// A client at the address 127.0.0.`last` of this machine.
    pub(crate) fn at_address(gateway: &'a Gateway, last: u8) -> Self {
        Self { local_address: Some([127, 0, 0, last].into()), ..Self::new(gateway) }
    }

    /// A client behind a proxy on this machine.
    pub(crate) fn behind_proxy(gateway: &'a Gateway, forwarded: &'static str) -> Self {
        Self { forwarded: Some(forwarded), ..Self::new(gateway) }
    }

    /// A client that reaches the gateway by a host name.
    pub(crate) fn to_host(gateway: &'a Gateway, host: &'static str, origin: &'static str) -> Self {
        Self { host: Some((host, origin)), ..Self::new(gateway) }
    }

    /// The same client at another gateway, which gets its cookies.
    pub(crate) fn at_gateway<'b>(&self, gateway: &'b Gateway) -> Visitor<'b> {
        Visitor { local_address: self.local_address, ..Visitor::with_cookies(gateway, &self.cookies) }
    }

    pub(crate) fn origin(&self) -> String {
        if let Some((_, origin)) = self.host {
            return origin.to_owned();
        }
        format!("http://{}", self.gateway.address())
    }

    /// Sends a request with the client's cookies, and keeps the cookies of the answer.
    #[track_caller]
    pub(crate) fn send(&mut self, call: Call) -> Answer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let call = if cookies.is_empty() { call } else { call.header("cookie", &cookies.join("; ")) };
        let call = self.local_address.into_iter().fold(call, Call::coming_from);
        let call = self.forwarded.into_iter().fold(call, |call, from| call.header("x-forwarded-for", from));
        let call = self.host.into_iter().fold(call, |call, (host, _)| call.header("host", host));
        let answer = call.send(self.gateway.address());
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie");
            let is_deleted = value.is_empty() || cookie.contains("Max-Age=0");
            if is_deleted {
                self.cookies.remove(name)
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned())
            };
        }
        answer
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(Call::get(path))
    }

    /// Sends a form as a page of the gateway does, with the gateway's origin.
    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, fields: &[(String, String)]) -> Answer {
        let origin = self.origin();
        self.send(post(path, fields).header("origin", &origin))
    }

    /// The form with this action on a page.
    #[track_caller]
    pub(crate) fn form(&mut self, page: &str, action: &str) -> Form {
        let answer = self.get(page);
        let found = forms(&answer.text()).into_iter().find(|form| form.action == action);
        found.unwrap_or_else(|| panic!("no form {action} on {page}: {} {}", answer.status, answer.text()))
    }

    /// Fills in the form with this action on a page, and sends it.
    #[track_caller]
    pub(crate) fn submit(&mut self, page: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
        let form = self.form(page, action).with(fields);
        self.post(action, &form.fields)
    }
}

/// A request with the fields of a form, without `origin`.
pub(crate) fn post(path: &str, fields: &[(String, String)]) -> Call {
    let body: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", percent_encoded(name), percent_encoded(value))).collect();
    Call::post(path).header("content-type", "application/x-www-form-urlencoded").bytes(body.join("&"))
}

pub(crate) fn percent_encoded(text: &str) -> String {
    let encode_byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(encode_byte).collect()
}

// === impl Form ===

impl Form {
    /// The form with these values instead of its own.
    pub(crate) fn with(mut self, fields: &[(&str, &str)]) -> Self {
        for (name, value) in fields {
            self.fields.retain(|(known, _)| known != name);
            self.fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// Every form of a page that changes something.
pub(crate) fn forms(html: &str) -> Vec<Form> {
    let mut found = Vec::new();
    for piece in html.split("<form ").skip(1) {
        let (head, rest) = piece.split_once('>').unwrap_or_default();
        if attribute(head, "method").as_deref() != Some("post") {
            continue;
        }
        let inner_html = rest.split("</form>").next().unwrap_or_default();
        found.push(Form { action: attribute(head, "action").unwrap_or_default(), fields: fields(inner_html) });
    }
    found
}

fn fields(inner_html: &str) -> Vec<(String, String)> {
    let inputs = inner_html.split('<').filter(|tag| tag.starts_with("input ") || tag.starts_with("button "));
    let of_input = |tag: &str| {
        let is_unchecked = tag.contains("type=\"checkbox\"") && !tag.contains(" checked");
        let name = attribute(tag, "name").filter(|_| !is_unchecked)?;
        Some((name, attribute(tag, "value").unwrap_or_default()))
    };
    let mut found: Vec<(String, String)> = inputs.filter_map(of_input).collect();
    for piece in inner_html.split("<select ").skip(1) {
        let options = piece.split("</select>").next().unwrap_or_default();
        let options: Vec<&str> = options.split("<option ").skip(1).collect();
        let selected = options.iter().find(|option| option.contains(" selected")).or(options.first());
        let value = selected.and_then(|option| attribute(option, "value"));
        found.extend(attribute(piece, "name").zip(value));
    }
    for piece in inner_html.split("<textarea ").skip(1) {
        let (head, rest) = piece.split_once('>').unwrap_or_default();
        // HTML ignores the first line break of a text area; browsers send each other line break as CRLF.
        let text = rest.split("</textarea>").next().unwrap_or_default();
        let text = unescaped(text.strip_prefix('\n').unwrap_or(text)).replace('\n', "\r\n");
        found.extend(attribute(head, "name").zip(Some(text)));
    }
    found
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let rest = tag.split_once(&format!("{name}=\""))?.1;
    Some(unescaped(rest.split('"').next()?))
}

/// Text with its HTML entities decoded.
pub(crate) fn unescaped(text: &str) -> String {
    let mut pieces = text.split('&');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (entity, rest) = piece.split_once(';').unwrap_or_default();
        let character = match entity {
            "lt" => Some('<'),
            "gt" => Some('>'),
            "amp" => Some('&'),
            "quot" => Some('"'),
            _ => entity.strip_prefix('#').and_then(|digits| char::from_u32(digits.parse().ok()?)),
        };
        plain.push(character.unwrap_or('&'));
        plain.push_str(if character.is_some() { rest } else { piece });
    }
    plain
}

#[test]
fn a_form_is_read_as_a_browser_reads_it() {
    let html = "<form method=\"get\" action=\"/x\"><input name=\"q\"></form><form class=\"a\" method=\"post\" \
        action=\"/y?a=1&#38;b=2\"><input type=\"hidden\" name=\"csrf\" value=\"&#34;t&lt;\"><select name=\"s\">\
        <option value=\"1\">A</option><option value=\"2\" selected>B</option></select></form>";
    let [form] = forms(html).try_into().expect("one form");
    assert_eq!(form.action, "/y?a=1&b=2");
    assert_eq!((form.value("csrf"), form.value("s")), ("\"t<", "2"));
}
