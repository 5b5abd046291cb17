//! The common part of `generate` and `edit`: the properties of the images, the wait for them, and the output files.

mod advice;
mod delivery;
mod estimate;
mod image_job;
mod name_template;
mod output_image;
mod payment_watch;
mod preview;
mod progress;
mod prompt;
mod report;
mod stop_signal;
mod stream_reader;
mod target;
mod unfinished_request;
pub(super) mod unread_answer;
mod word_parsers;

use std::hash::Hash as _;
use std::path::PathBuf;
use std::time::Duration;

use chrono::Local;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::connection::ConnectionArgs;
use super::failure::CommandFailure;
use super::image_cost::PriceLookup;
use super::output::{ProgressArg, print_event, print_message};
use super::request_digest::RequestDigest;
use crate::client::{
    self, Client, Compression, EditRequest, GenerateRequest, ImageCount, Images, Json, ModelName, OpenWord, Output,
    PartialImages,
};
use crate::image::{Format, SizeRequest};
use crate::wire::types::{Background, Moderation, Quality};
use advice::with_advice;
use delivery::ImageDelivery;
use image_job::ImageJob;
use name_template::NameValues;
pub(super) use output_image::OutputImage;
use preview::PreviewArgs;
pub(super) use progress::ProgressDisplay;
use prompt::PromptArgs;
pub(super) use report::addresses;
use target::OutputTarget;
pub(super) use target::{missing_folder, name_from_prompt, names_file_in_folder};
use unfinished_request::UnfinishedRequest;
use word_parsers::{OpenWordParser, choice_parser, parse_member};

/// Arguments of every command that makes images.
#[derive(Debug, Args)]
pub(super) struct ImageArgs {
    #[command(flatten)]
    prompt_args: PromptArgs,
    /// The prompt, after it has been read.
    #[arg(skip)]
    prompt: String,
    /// Width and height in pixels, such as 1536x1024, or auto.
    #[arg(long, value_name = "SIZE", default_value_t)]
    size: SizeRequest,
    /// The quality of the image: one of the values below, or another word that the service knows.
    #[arg(long, value_name = "QUALITY", value_parser = OpenWordParser::<Quality>::new("quality"))]
    quality: Option<OpenWord<Quality>>,
    /// The file format [default: the format that the file extension of `--output` stands for]
    #[arg(long, value_name = "FORMAT", value_parser = choice_parser::<Format>("output_format"))]
    format: Option<Format>,
    /// Make a quick, cheap image to try out a prompt: jpeg in low quality.
    #[arg(long, conflicts_with_all = ["quality", "format"])]
    draft: bool,
    /// The compression of jpeg and webp: 0 gives the smallest file, 100 the best image.
    #[arg(long, value_name = "NUMBER")]
    compression: Option<Compression>,
    /// The number of images.
    #[arg(short = 'n', long, value_name = "NUMBER", default_value = "1")]
    count: ImageCount,
    /// The model: `gpt-image-2`, its dated snapshot, or another that the gateway offers.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The background of the image: one of the values below, or another word that the service knows.
    #[arg(long, value_name = "BACKGROUND", value_parser = OpenWordParser::<Background>::new("background"))]
    background: Option<OpenWord<Background>>,
    /// The strictness of the content filter of the model: one of the values below, or another word that the service
    /// knows.
    #[arg(long, value_name = "STRICTNESS", value_parser = OpenWordParser::<Moderation>::new("moderation"))]
    moderation: Option<OpenWord<Moderation>>,
    /// An identifier of the end user, which is stored in the usage record.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// An identifier of the end user for the provider's detection of abuse.
    #[arg(long, value_name = "ID")]
    safety_identifier: Option<String>,
    /// Set any field of the request, also one that only the service knows. The value is JSON, or else a text: `seed=7`,
    /// `quality=xhigh`. Can be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_member)]
    members: Vec<(String, Json)>,
    /// The time limit in seconds, for the answer, or with `--stream` for each pause [default: 120, or 300 above
    /// 2560x1440; `edit` adds the time to send the images]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Receive the image as a stream. A slow image does not time out as long as the gateway sends signs of progress.
    #[arg(long)]
    stream: bool,
    /// The number of intermediate images to request. Each adds to the cost.
    #[arg(long, value_name = "NUMBER", requires = "stream")]
    partials: Option<PartialImages>,
    /// Write the intermediate images next to the final one, as NAME.partial-0.png and so on.
    #[arg(long, requires = "partials")]
    keep_partials: bool,
    /// The idempotency key: the same request with the same key returns the same images and is not paid for again.
    #[arg(long, value_name = "NAME")]
    idempotency_key: Option<String>,
    /// Ask for another image although the same command was stopped, or lost its answer, within the last 24 hours. By
    /// default, such a command asks a gateway for the image that it may have made. A command that has its images always
    /// makes new ones when it is repeated.
    #[arg(long, conflicts_with = "idempotency_key")]
    new: bool,
    /// Accept an image of lower quality or smaller size instead of an error if an image of 3840x2160 or 2160x3840 in
    /// high or medium quality fails. Without a value: `unpaid`.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "unpaid")]
    fallback: Option<FallbackArg>,
    /// If an image is delivered smaller than `--size`, resize it on this machine and print a note. If its proportions
    /// differ from those of `--size`, the image is cropped.
    #[arg(long, requires = "size")]
    upscale: bool,
    /// The output: a file, a folder, or `-` for standard output. Several images are numbered. The name of the file may
    /// have the placeholders `{prompt}`, `{number}`, `{ext}`, `{date}`, `{model}` and `{size}` (as requested)
    /// [default: a new file in the current folder, named after the prompt]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file that `--output` names if it exists, and its description.
    #[arg(long, requires = "output")]
    force: bool,
    /// Write a description of each image next to it, as FILE.json.
    #[arg(long)]
    sidecar: bool,
    /// Print a description of the images as JSON instead of the file names.
    #[arg(long)]
    json: bool,
    /// The form of the messages on standard error: text for people, or jsonl, one JSON object per line for programs.
    #[arg(long, value_enum, default_value_t, value_name = "FORM", hide_possible_values = true)]
    progress: ProgressArg,
    #[command(flatten)]
    preview_args: PreviewArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The choice between a smaller image and an error.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FallbackArg {
    /// The command fails.
    Never,
    /// A smaller image is made if the failed one cannot have been charged.
    Unpaid,
    /// A smaller image is made after every failure except a refusal, even if both may be charged.
    Always,
}

/// The request that is sent to the service.
pub(super) enum ClientImageRequest {
    Generate(GenerateRequest),
    Edit(EditRequest),
}

// === impl ImageArgs ===

impl ImageArgs {
    /// Sends the request that `build_request` returns, and writes the images that arrive.
    pub(super) fn run(
        mut self,
        build_request: impl FnOnce(GenerateRequest) -> ClientImageRequest,
    ) -> Result<(), CommandFailure> {
        self.progress.apply();
        self.prompt = self.prompt_args.read()?;
        // Every error that can be detected locally is reported before anything is paid for.
        if self.upscale && self.size.exact().is_none() {
            return Err(CommandFailure::Usage("--upscale needs a --size in pixels".to_owned()));
        }
        let target = OutputTarget::new(self.output.as_deref(), &self.name_values(), self.requested_count())?;
        let output = self.output_format(target.format())?;
        let named_format = output.map_or(Format::Png, Output::format);
        if !self.force {
            target.check_not_existing(named_format, self.sidecar)?;
        }
        if target.is_stdout() && (self.json || self.keep_partials) {
            let option = if self.json { "--json" } else { "--keep-partials" };
            return Err(CommandFailure::Usage(format!("{option} cannot be used with an image on standard output")));
        }
        let job = ImageJob::default();
        let client = self.connection.client_with(job.transport())?;
        let request = build_request(self.request(output));
        job.run(async {
            request.check(self.stream).await.map_err(|error| with_advice(error, &client))?;
            target.check_writable(named_format)?;
            let request = self.begin(&job, request, &client).await?;
            let delivery = ImageDelivery {
                job: &job,
                target: &target,
                replaceable: if self.force { target.named_paths(named_format) } else { Vec::new() },
                preview: self.preview_args.preview(),
                is_edit: matches!(request, ClientImageRequest::Edit(_)),
                // An image on standard output has no report with a cost.
                prices: (!target.is_stdout()).then(|| PriceLookup::start(&client)),
            };
            let images = self.request_images(&client, request, &delivery).await?;
            self.write_images(&images, delivery).await?;
            self.check_all_arrived(&images)
        })
    }

    /// Returns the number of images that the request asks for, also if `--set` sets it.
    fn requested_count(&self) -> usize {
        let set_by_name = self.set_member("n").and_then(Json::read);
        set_by_name.or_else(|| self.count.get().try_into().ok()).unwrap_or(1).max(1)
    }

    /// Returns the value of a field that `--set` sets; the last one counts.
    fn set_member(&self, name: &str) -> Option<&Json> {
        self.members.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value)
    }

    /// Returns the values of the placeholders in `--output`.
    fn name_values(&self) -> NameValues {
        NameValues {
            prompt: name_from_prompt(&self.prompt),
            date: Local::now().format("%Y-%m-%d").to_string(),
            model: self.model.clone().unwrap_or_else(|| ModelName::default().as_str().to_owned()),
            size: self.size.to_string(),
        }
    }

    /// Returns the output format with its compression, or `None` if the service chooses the format. `named_format` is
    /// the format that the file extension of `--output` stands for.
    fn output_format(&self, named_format: Option<Format>) -> Result<Option<Output>, CommandFailure> {
        let requested_format = if self.draft { Some(Format::Jpeg) } else { self.format };
        if let (Some(requested), Some(named)) = (requested_format, named_format)
            && requested != named
        {
            let option = if self.draft { "--draft (jpeg)" } else { &format!("--format {requested}") };
            return Err(CommandFailure::Usage(format!(
                "{option} does not match the file extension of --output, which stands for {named}"
            )));
        }
        let format = requested_format.or(named_format);
        let Some(compression) = self.compression else { return Ok(format.map(Output::from)) };
        match format {
            Some(Format::Jpeg) => Ok(Some(Output::Jpeg { compression })),
            Some(Format::Webp) => Ok(Some(Output::Webp { compression })),
            Some(Format::Png | Format::Gif) | None => {
                Err(CommandFailure::Usage("--compression needs --format jpeg or webp".to_owned()))
            }
        }
    }

    fn request(&self, output: Option<Output>) -> GenerateRequest {
        let mut request = GenerateRequest::new(&self.prompt).size(self.size).count(self.count);
        if let Some(quality) = self.quality.clone().or(self.draft.then_some(Quality::Low.into())) {
            request = request.quality(quality);
        }
        if let Some(output) = output {
            request = request.format(output);
        }
        if let Some(model) = &self.model {
            request = request.model(model.as_str());
        }
        if let Some(background) = &self.background {
            request = request.background(background.clone());
        }
        if let Some(moderation) = &self.moderation {
            request = request.moderation(moderation.clone());
        }
        if let Some(user) = &self.user {
            request = request.user(user);
        }
        if let Some(identifier) = &self.safety_identifier {
            request = request.safety_identifier(identifier);
        }
        if let Some(seconds) = self.timeout {
            request = request.timeout(Duration::from_secs(seconds));
        }
        request = self.members.iter().fold(request, |request, (name, value)| request.set(name, value.clone()));
        if let Some(partials) = self.partials {
            request = request.partial_images(partials);
        }
        if let Some(key) = &self.idempotency_key {
            request = request.idempotency_key(key);
        }
        match self.fallback {
            Some(fallback) => request.fallback(fallback.into()),
            None => request,
        }
    }

    /// Gives the request an idempotency key, unless the user has given one: that of the same command, if its outcome is
    /// unknown.
    async fn begin(
        &self,
        job: &ImageJob,
        request: ClientImageRequest,
        client: &Client,
    ) -> Result<ClientImageRequest, CommandFailure> {
        if self.idempotency_key.is_some() {
            job.begin(None, client);
            return Ok(request);
        }
        let mut digest = RequestDigest::default();
        let (base_url, api_key, headers, _) = client.connection();
        let mut headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        (base_url, api_key, headers, &self.output).hash(&mut digest);
        let digest = request.hash(self.stream, digest).await.map_err(|error| with_advice(error, client))?;
        let unfinished = UnfinishedRequest::find_or_create(&digest.into_text(), self.new)?;
        if unfinished.is_repeat() {
            print_message(
                "note: this command has lost its answer before; a gateway sends the image that it has made since, and \
                 charges nothing for it (`--new` asks for another image)",
            );
        }
        let request = request.idempotency_key(unfinished.key());
        job.begin(Some(unfinished), client);
        Ok(request)
    }

    /// Prints the service too: it may be one that is paid for, because it can come from the environment.
    fn start_progress(&self, client: &Client) -> ProgressDisplay {
        let (size, service) = (self.size.to_string(), client.origin());
        print_event(
            "started",
            json!({ "size": size, "count": self.requested_count(), "prompt": self.prompt, "service": service }),
        );
        ProgressDisplay::start(&format!("waiting for the image, size {size}, from {service}"))
    }

    /// Waits for the images, shows the progress, and prints a summary.
    async fn request_images(
        &self,
        client: &Client,
        request: ClientImageRequest,
        delivery: &ImageDelivery<'_>,
    ) -> Result<Images, CommandFailure> {
        let target = delivery.target;
        let progress = self.start_progress(client);
        let result = if self.stream {
            let partials_target = self.keep_partials.then_some(target);
            stream_reader::read_stream(
                request.stream(client).await,
                self.partials,
                partials_target,
                &progress,
                delivery.preview,
            )
            .await
        } else {
            request.send(client).await
        };
        let elapsed = progress.end();
        let images = result.map_err(|error| {
            // Standard output cannot take it, because its reader expects an image.
            let path =
                if target.is_stdout() { PathBuf::from(name_from_prompt(&self.prompt)) } else { target.path(0, None) };
            unread_answer::keep(&error, &path);
            delivery.job.fail(error, client)
        })?;
        report::print_arrival(&images, self.size, elapsed);
        Ok(images)
    }
}

// === impl Fallback ===

impl From<FallbackArg> for client::Fallback {
    fn from(fallback: FallbackArg) -> Self {
        match fallback {
            FallbackArg::Never => Self::Never,
            FallbackArg::Unpaid => Self::Unpaid,
            FallbackArg::Always => Self::Always,
        }
    }
}

// === impl ClientImageRequest ===

impl ClientImageRequest {
    /// Finds the faults that the client would find before it sends the request.
    async fn check(&self, is_stream: bool) -> Result<(), client::Error> {
        match (self, is_stream) {
            (Self::Generate(request), false) => request.check(),
            (Self::Generate(request), true) => request.check_stream(),
            (Self::Edit(request), false) => request.check().await,
            (Self::Edit(request), true) => request.check_stream().await,
        }
    }

    /// Adds everything to the digest that makes two requests equal.
    async fn hash(&self, is_stream: bool, digest: RequestDigest) -> Result<RequestDigest, client::Error> {
        match self {
            Self::Generate(request) => request.hash(is_stream, digest).await,
            Self::Edit(request) => request.hash(is_stream, digest).await,
        }
    }

    fn idempotency_key(self, key: &str) -> Self {
        match self {
            Self::Generate(request) => Self::Generate(request.idempotency_key(key)),
            Self::Edit(request) => Self::Edit(request.idempotency_key(key)),
        }
    }

    async fn send(self, client: &Client) -> Result<Images, client::Error> {
        match self {
            Self::Generate(request) => client.images().generate(request).await,
            Self::Edit(request) => client.images().edit(request).await,
        }
    }

    async fn stream(self, client: &Client) -> Result<client::ImageStream, client::Error> {
        match self {
            Self::Generate(request) => client.images().generate_stream(request).await,
            Self::Edit(request) => client.images().edit_stream(request).await,
        }
    }
}
