//! The files of `imagate generate`: an image that was paid for is never lost, and a file that was not named is never
//! replaced.

use std::fs::{self, File};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tempfile::TempDir;

use super::{FAILED, USAGE, answered, generate};
use crate::kit::{
    CommandOutput, FakeUpstream, Gateway, Program, TEST_TIMEOUT, VerbatimUpstream, ends_within, image_file,
};

/// A service that answers every request with the same images, and a folder for their files.
struct ImageService {
    upstream: VerbatimUpstream,
    images: Vec<Vec<u8>>,
    home: TempDir,
}

// === impl ImageService ===

impl ImageService {
    /// The service answers with this number of images, which all differ.
    fn with_images(count: u32, format: &str) -> Self {
        let images: Vec<Vec<u8>> = (1..=count).map(|number| image_file(number * 16, 16, format).to_vec()).collect();
        let upstream = VerbatimUpstream::start();
        let data: Vec<_> = images.iter().map(|image| json!({"b64_json": BASE64_STANDARD.encode(image)})).collect();
        upstream.set_answer("application/json", json!({"created": 1, "data": data}).to_string());
        Self { upstream, images, home: TempDir::new().expect("a directory") }
    }

    fn program(&self, words: &[&str]) -> Program {
        let program = Program::new(self.home.path()).env("IMAGATE_API_KEY", "sk-test");
        program.env("IMAGATE_BASE_URL", self.upstream.base_url()).args(["generate", "a boat"]).args(words)
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        self.program(words).run()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.home.path().join(name), content).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.home.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The command printed these files, and each has its image.
    #[track_caller]
    fn check_files(&self, done: &CommandOutput, names: &[&str]) {
        assert_eq!(done.ok_stdout().lines().collect::<Vec<_>>(), names, "{done:#?}");
        assert_eq!(names.len(), self.images.len());
        for (name, image) in names.iter().zip(&self.images) {
            assert!(self.read(name) == *image, "{name}");
        }
    }
}

#[test]
fn each_image_has_a_file_of_its_own_also_with_force() {
    let service = ImageService::with_images(3, "png");
    fs::create_dir(service.home.path().join("images")).expect("a folder");
    service.write("images/a-boat.png", "mine");
    let new = ["images/a-boat-2.png", "images/a-boat-3.png", "images/a-boat-4.png"];
    service.check_files(&service.run(&["-n", "3", "-o", "images", "--force"]), &new);
    service.write("fox-2.png", "old");
    let numbered = ["fox-1.png", "fox-2.png", "fox-3.png"];
    service.check_files(&service.run(&["--set", "n=3", "-o", "fox.png", "--force"]), &numbered);
    // The service sends more images than were requested, and only the named file may be replaced.
    service.write("owl.png", "named");
    service.write("owl-1.png", "mine");
    service.check_files(&service.run(&["-o", "owl.png", "--force"]), &["owl-1-2.png", "owl-2.png", "owl-3.png"]);
    for (name, content) in [("images/a-boat.png", "mine"), ("owl.png", "named"), ("owl-1.png", "mine")] {
        assert_eq!(service.read(name), content.as_bytes(), "{name}");
    }
}

#[test]
fn standard_output_takes_one_image_and_the_others_become_files() {
    let service = ImageService::with_images(3, "png");
    let refused = service.run(&["--set", "n=3", "-o", "-"]);
    assert_eq!((refused.code, service.upstream.attempt_count()), (USAGE, 0), "{refused:#?}");
    let output = service.home.path().join("output");
    let mut child = service.program(&["-o", "-"]).spawn_printing_to(File::create(&output).expect("a file"));
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    for (name, image) in ["output", "a-boat.png", "a-boat-2.png"].iter().zip(&service.images) {
        assert!(service.read(name) == *image, "{name}");
    }
}

#[test]
fn a_file_that_was_not_named_is_not_replaced_with_force() {
    let service = ImageService::with_images(1, "jpeg");
    service.write("fox.png", "named");
    service.write("fox.jpg", "mine");
    service.check_files(&service.run(&["-o", "fox.png", "--force"]), &["fox-2.jpg"]);
    assert_eq!((service.read("fox.png"), service.read("fox.jpg")), (b"named".to_vec(), b"mine".to_vec()));
}

#[test]
fn a_description_is_replaced_only_with_force() {
    let service = ImageService::with_images(1, "png");
    service.write("fox.png.json", "mine");
    let refused = service.run(&["-o", "fox.png", "--sidecar"]);
    assert_eq!((refused.code, service.upstream.attempt_count()), (USAGE, 0), "{refused:#?}");
    assert!(refused.stderr.contains("fox.png.json already exists"), "{refused:#?}");
    service.run(&["-o", "fox.png", "--sidecar", "--force"]).ok_stdout();
    assert!(service.read("fox.png.json").starts_with(b"{"));
    service.write("a-boat.png.json", "mine");
    service.run(&["--sidecar"]).ok_stdout();
    assert_eq!(service.read("a-boat.png.json"), b"mine");
    assert!(service.read("a-boat.png-2.json").starts_with(b"{"));
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_anything_is_sent() {
    let service = ImageService::with_images(1, "png");
    let (fits, too_long) = (format!("{}.png", "a".repeat(236)), format!("{}.png", "a".repeat(252)));
    // Nobody can make a file there, not even root.
    for output in ["/proc/fox.png", "/proc", &too_long] {
        let refused = service.run(&["-o", output]);
        assert_eq!((refused.code, service.upstream.attempt_count()), (USAGE, 0), "{output}: {refused:#?}");
        assert!(refused.stderr.contains("cannot be written"), "{refused:#?}");
    }
    service.check_files(&service.run(&["-o", &fits]), &[&fits]);
}

#[test]
fn an_image_that_cannot_be_written_is_kept_in_the_temporary_folder() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("gate=removed");
    let folder = gateway.home().join("out");
    fs::create_dir(&folder).expect("a folder");
    let done = std::thread::scope(|scope| {
        let command = scope.spawn(|| generate(&gateway, &["-o", "out/boat.png", "--json"]));
        upstream.wait_until("the request", |attempts| attempts.len() == 1);
        fs::remove_dir(&folder).expect("an empty folder");
        upstream.open_gate("removed");
        command.join().expect("the command")
    });
    assert_eq!(done.code, FAILED, "{done:#?}");
    let report: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    // The tests have their home as the temporary folder.
    let kept = report["files"][0].as_str().expect("a file");
    assert_eq!(Path::new(kept), gateway.home().join("a-boat.png"));
    assert!(done.stderr.contains("out/boat.png cannot be written") && done.stderr.contains(kept), "{done:#?}");
    assert!(fs::read(kept).expect("the image").starts_with(b"\x89PNG"));
}

#[test]
fn an_answer_whose_image_is_not_base64_is_kept_in_a_file() {
    let body = json!({"created": 1, "data": [{"b64_json": "not base64!"}]});
    let (home, done) = answered(&body, &[]);
    assert!(done.code == FAILED && done.stderr.contains("boat.answer.txt"), "{done:#?}");
    assert_eq!(fs::read_to_string(home.path().join("boat.answer.txt")).expect("the answer"), body.to_string());
    let service = ImageService::with_images(1, "png");
    service.upstream.set_answer("application/json", body.to_string());
    let done = service.run(&["-o", "-"]);
    assert_eq!((done.code, service.read("a-boat.answer.txt")), (FAILED, body.to_string().into_bytes()), "{done:#?}");
}
