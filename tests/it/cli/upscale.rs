//! `imagate upscale`: makes an image file larger, without a server.

use std::path::Path;

use tempfile::TempDir;

use super::{FAILED, USAGE};
use crate::kit::{CommandOutput, Program, format_and_size, image_file};

/// A folder with one image of 1536x1024 in each format.
fn folder() -> TempDir {
    let home = TempDir::new().expect("a directory");
    for (format, name) in [("png", "in.png"), ("jpeg", "in.jpg"), ("webp", "in.webp")] {
        std::fs::write(home.path().join(name), &image_file(1536, 1024, format)[..]).expect("a file");
    }
    home
}

fn upscale(home: &Path, words: &[&str]) -> CommandOutput {
    Program::new(home).args(["upscale"]).args(words).run()
}

#[test]
fn upscale_writes_the_format_of_the_output_or_the_input() {
    let home = folder();
    for (source, size, output, expected, format) in [
        ("in.png", "3840x2160", "out", "out.png", "png"),
        ("in.jpg", "2304x1536", "out", "out.jpg", "jpeg"),
        ("in.webp", "2048x1152", "out", "out.webp", "webp"),
        ("in.png", "2304x1536", "other.jpg", "other.jpg", "jpeg"),
        ("in.jpg", "2304x1536", "other.webp", "other.webp", "webp"),
        ("in.webp", "2304x1536", "other.png", "other.png", "png"),
    ] {
        let result = upscale(home.path(), &[source, "--size", size, "-o", output]);
        assert_eq!(result.ok_stdout(), format!("{expected}\n"), "{result:#?}");
        assert!(result.stderr.contains(&format!("from 1536x1024 to {size}")), "{result:#?}");
        let file = std::fs::read(home.path().join(expected)).expect("the file");
        assert_eq!(format_and_size(&file), (format.to_owned(), size.to_owned()), "{source} {output}");
    }
}

#[test]
fn a_folder_gets_a_new_file_with_the_name_of_the_image() {
    let home = folder();
    std::fs::create_dir(home.path().join("large")).expect("a folder");
    for (source, output, expected) in
        [("in.png", "large", "large/in.png"), ("in.png", "large/", "large/in-2.png"), ("in.jpg", ".", "./in-2.jpg")]
    {
        let result = upscale(home.path(), &[source, "--size", "2304x1536", "-o", output, "--force"]);
        assert_eq!(result.ok_stdout(), format!("{expected}\n"), "{source} {output} {result:#?}");
    }
    assert!(!home.path().join("large.png").exists());
    let file = std::fs::read(home.path().join("in.jpg")).expect("the image");
    assert_eq!(format_and_size(&file).1, "1536x1024", "the image itself is not replaced");
    let missing = upscale(home.path(), &["in.png", "--size", "2304x1536", "-o", "none/"]);
    assert!(missing.code == USAGE && missing.stderr.contains("does not exist"), "{missing:#?}");
}

#[test]
fn an_image_may_come_from_standard_input() {
    let home = folder();
    let program = Program::new(home.path()).stdin(&home.path().join("in.jpg"));
    let result = program.args(["upscale", "-", "--size", "2048x2048", "-o", "out", "--fit", "stretch"]).run();
    assert_eq!(result.ok_stdout(), "out.jpg\n");
}

#[test]
fn invalid_upscale_arguments_are_wrong_usage_and_change_nothing() {
    let home = folder();
    std::fs::write(home.path().join("there.png"), "mine").expect("a file");
    for (words, reason) in [
        (&["in.png", "--size", "3840x2170", "-o", "out.png"][..], "divisible by 16"),
        (&["in.png", "--size", "auto", "-o", "out.png"], "--size"),
        (&["in.png", "--size", "3840x2160"], "--output"),
        (&["in.png", "-o", "out.png"], "--size"),
        (&["in.png", "--size", "1024x640", "-o", "out.png"], "larger than 1024x640"),
        (&["in.png", "--size", "3840x2160", "-o", "out.png", "--format", "webp"], "--format webp"),
        (&["in.png", "--size", "3840x2160", "-o", "there.png"], "--force"),
        (&["in.png", "--size", "3840x2160", "-o", "there"], "there.png already exists"),
    ] {
        let result = upscale(home.path(), words);
        assert!(result.code == USAGE && result.stderr.contains(reason), "{words:?} {result:#?}");
    }
    assert_eq!(std::fs::read(home.path().join("there.png")).expect("the file"), b"mine");
    assert!(!home.path().join("out.png").exists());
    let result = upscale(home.path(), &["in.png", "--size", "3840x2160", "-o", "there.png", "--force"]);
    assert_eq!(result.ok_stdout(), "there.png\n");
}

#[test]
fn a_file_that_cannot_be_resized_is_a_failure_that_says_why() {
    let home = folder();
    std::fs::write(home.path().join("text.png"), "no image").expect("a file");
    std::fs::write(home.path().join("wide.png"), &image_file(4096, 2048, "png")[..]).expect("a file");
    std::fs::write(home.path().join("half.jpg"), &image_file(1536, 1024, "jpeg")[..2000]).expect("a file");
    for (file, reason) in [
        ("absent.png", "absent.png cannot be read"),
        ("text.png", "not a PNG, JPEG or WebP image"),
        ("wide.png", "4096x2048 px; the limit is"),
        ("half.jpg", "cannot be resized"),
    ] {
        let result = upscale(home.path(), &[file, "--size", "3840x2160", "-o", "out"]);
        assert!(result.code == FAILED && result.stderr.contains(reason), "{file} {result:#?}");
    }
    assert_eq!(std::fs::read_dir(home.path()).expect("the folder").count(), 6, "no file is written");
}
