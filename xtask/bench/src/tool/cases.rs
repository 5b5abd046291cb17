//! The cases: the requests that clients send, how many clients send them at a time, and for how long.

use std::fmt;

use anyhow::{Result, bail};

use super::picture;

/// A kind of request and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BenchCase {
    /// A generation with an answer of 1 KB.
    Small,
    /// A generation with an answer of 2 MB, as of an image of 1024x1024 pixels.
    Medium,
    /// A generation with an answer of 28 MB, as of an image of 3840x2160 pixels.
    Large,
    /// A generation as a stream of three intermediate images and the image.
    Stream,
    /// An edit of two images of 10 MB with an answer of 1 KB.
    Upload,
    /// A request to `/v1/responses` with the image tool and an answer of 2 MB.
    Response,
    /// Large answers, which the clients read slowly.
    Slow,
}

/// One measurement: a case with a number of concurrent clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BenchCell {
    pub(crate) case: BenchCase,
    pub(crate) connections: usize,
}

/// The size of each image that an edit uploads.
const UPLOAD_BYTES: usize = 10 << 20;
/// The time between two events of a stream, in milliseconds.
const EVENT_GAP_MS: u32 = 20;
/// The boundary of the parts of an upload.
const BOUNDARY: &str = "xtask-bench-7c1f";
/// The cells of a complete run.
const GRID: [(BenchCase, &[usize]); 7] = [
    (BenchCase::Small, &[1, 16, 64]),
    (BenchCase::Medium, &[1, 16, 64]),
    (BenchCase::Large, &[1, 16, 64]),
    (BenchCase::Stream, &[1, 16]),
    (BenchCase::Upload, &[1, 16]),
    (BenchCase::Response, &[16]),
    (BenchCase::Slow, &[64]),
];

impl BenchCase {
    pub(crate) const ALL: [Self; 7] =
        [Self::Small, Self::Medium, Self::Large, Self::Stream, Self::Upload, Self::Response, Self::Slow];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Small => "S",
            Self::Medium => "M",
            Self::Large => "L",
            Self::Stream => "SSE",
            Self::Upload => "U",
            Self::Response => "R",
            Self::Slow => "SLOW",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|case| case.name() == name) {
            Some(case) => Ok(case),
            None => bail!("unknown case `{name}`; the cases are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }

    /// The case whose check covers this one.
    pub(crate) const fn checked_as(self) -> Self {
        if matches!(self, Self::Slow) { Self::Large } else { self }
    }

    /// The length of the final image in an answer, in base64.
    const fn image_length(self) -> usize {
        match self {
            Self::Small | Self::Upload => 1_000,
            Self::Medium | Self::Stream | Self::Response => 2_000_000,
            Self::Large | Self::Slow => 28_000_000,
        }
    }

    /// The complete HTTP request, with these header lines.
    pub(crate) fn request(self, headers: &str) -> Vec<u8> {
        let size = self.image_length();
        let json = "application/json".to_owned();
        let image = |more: &str| {
            format!(
                "{{\"model\":\"gpt-image-2\",\"prompt\":\"a harbour at dawn, image={size}\",\"n\":1,\
                 \"size\":\"1024x1024\",\"quality\":\"high\"{more}}}"
            )
        };
        let (path, content_type, body) = match self {
            Self::Small | Self::Medium | Self::Large | Self::Slow => {
                ("/v1/images/generations", json, image(",\"output_format\":\"png\"").into_bytes())
            }
            Self::Stream => {
                let more = ",\"stream\":true,\"partial_images\":3";
                let body =
                    image(more).replace("dawn,", &format!("dawn, partials=3 partial=1000000 gap={EVENT_GAP_MS}"));
                ("/v1/images/generations", json, body.into_bytes())
            }
            Self::Upload => {
                let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
                ("/v1/images/edits", content_type, upload_form(&format!("make it night, image={size}")))
            }
            Self::Response => {
                let body = format!(
                    "{{\"model\":\"gpt-5.5\",\"input\":\"draw a harbour, image={size}\",\"tools\":\
                     [{{\"type\":\"image_generation\",\"quality\":\"high\",\"size\":\"1024x1024\"}}]}}"
                );
                ("/v1/responses", json, body.into_bytes())
            }
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}accept: */*\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    }
}

impl fmt::Display for BenchCell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} c={}", self.case.name(), self.connections)
    }
}

/// The cells that a list such as `S,L:64` names: all of a case, or only those with this number of connections.
pub(crate) fn select(list: Option<&str>) -> Result<Vec<BenchCell>> {
    let all = GRID.into_iter().flat_map(|(case, counts)| counts.iter().map(move |count| (case, *count)));
    let all: Vec<BenchCell> = all.map(|(case, connections)| BenchCell { case, connections }).collect();
    let Some(list) = list else { return Ok(all) };
    let mut selected = Vec::new();
    for word in list.split(',') {
        let (name, count) = word.split_once(':').map_or((word, None), |(name, count)| (name, Some(count)));
        let case = BenchCase::from_name(name)?;
        match count {
            None => selected.extend(all.iter().filter(|cell| cell.case == case)),
            Some(count) => match count.parse() {
                Ok(connections @ 1..=4096) => selected.push(BenchCell { case, connections }),
                _ => bail!("`{word}`: expected 1 to 4096 connections after the colon"),
            },
        }
    }
    selected.sort_unstable();
    selected.dedup();
    Ok(selected)
}

/// A form with two images.
fn upload_form(prompt: &str) -> Vec<u8> {
    let mut form = Vec::with_capacity(2 * UPLOAD_BYTES + 4096);
    for (name, value) in [("model", "gpt-image-2"), ("prompt", prompt), ("size", "1024x1024")] {
        let part = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        form.extend_from_slice(part.as_bytes());
    }
    for number in 0..2_u64 {
        let head = format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"image[]\"; filename=\"{number}.png\"\r\n\
             content-type: image/png\r\n\r\n"
        );
        form.extend_from_slice(head.as_bytes());
        form.extend_from_slice(&picture::png_file(UPLOAD_BYTES, number + 1));
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        select(Some(list)).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_selects_whole_cases_and_single_cells() {
        assert_eq!(select(None).unwrap().len(), 15);
        assert_eq!(names("L:64,S"), ["S c=1", "S c=16", "S c=64", "L c=64"]);
        assert_eq!(names("S:3,SLOW,S:3"), ["S c=3", "SLOW c=64"]);
    }

    #[test]
    fn unknown_cases_and_numbers_are_refused() {
        for wrong in ["", "s", "S:", "S:0", "S:x", "S:5000", "S,,L"] {
            assert!(select(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_length_in_the_head_is_that_of_the_body() {
        for case in BenchCase::ALL {
            let request = case.request("k");
            let end = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            let head = String::from_utf8(request[..end].to_vec()).unwrap();
            assert!(head.contains(&format!("content-length: {}\r\n", request.len() - end)), "{head}");
        }
    }
}
