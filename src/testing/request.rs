//! The requests that a stub server has received, and how they are read from a connection.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use bytes::Bytes;
use serde_json::Value;

use super::form::{FormPart, split_form};

/// A request as it arrived. `Debug` leaves out its headers and its body, because they may hold a secret.
#[derive(Clone)]
pub struct ReceivedRequest {
    method: String,
    path: String,
    /// The names are in lower case.
    headers: Vec<(String, String)>,
    body: Bytes,
}

// === impl ReceivedRequest ===

impl ReceivedRequest {
    /// Returns the method, such as `POST`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the path with the query, as it was sent, such as `/v1/images/generations`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the first header with this name, whatever its case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns all headers in order, with their names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the bytes of the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as JSON; null if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the parts of a body of the type `multipart/form-data` in order; none if the body is not such a form.
    #[must_use]
    pub fn parts(&self) -> Vec<FormPart> {
        let content_type = self.header("content-type").unwrap_or_default();
        let boundary = content_type.split(';').find_map(|parameter| parameter.trim().strip_prefix("boundary="));
        boundary.and_then(|boundary| split_form(&self.body, boundary.trim_matches('"'))).unwrap_or_default()
    }

    /// Reads a request to its end.
    pub(super) fn read(stream: &TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let request_line = read_line(&mut reader)?;
        let mut words = request_line.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Err(invalid()) };
        let headers = read_headers(&mut reader)?;
        let mut request = Self { method, path, headers, body: Bytes::new() };
        if request.header("expect").is_some() {
            (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = request.read_body(&mut reader)?.into();
        Ok(request)
    }

    fn read_body(&self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        if self.header("transfer-encoding").is_some() {
            return read_chunks(reader);
        }
        let length = self.header("content-length").map_or(Ok(0), str::parse).map_err(|_| invalid())?;
        read_bytes(reader, length)
    }
}

impl fmt::Debug for ReceivedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path, body_bytes) = (&self.method, &self.path, self.body.len());
        f.debug_struct("ReceivedRequest")
            .field("method", method)
            .field("path", path)
            .field("body_bytes", &body_bytes)
            .finish_non_exhaustive()
    }
}

fn read_headers(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let (name, value) = line.split_once(':').ok_or_else(invalid)?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a body with `transfer-encoding: chunked`, whose length is not known before its end.
fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).map_err(|_| invalid())?;
        if length == 0 {
            // Headers may follow the last chunk.
            read_headers(reader)?;
            return Ok(body);
        }
        body.extend(read_bytes(reader, length)?);
        read_line(reader)?;
    }
}

fn read_bytes(reader: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a line and returns it without its end.
fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
