//! Tests of JPEG files: frame headers, the order of segments, and limits.

use super::files::{frame, jpeg, jpeg_by_encoder, scan, segment};
use super::{CountingSource, MAX_PARTS, check, probe, size};

#[test]
fn a_jpeg_never_has_alpha() {
    for color in [jpeg_encoder::ColorType::Rgba, jpeg_encoder::ColorType::Cmyk] {
        for progressive in [false, true] {
            let file = jpeg_by_encoder(color, progressive);
            check(&file, Ok(false));
            assert_eq!(size(&file), (24, 16));
        }
    }
}

#[test]
fn every_kind_of_frame_gives_the_size() {
    for marker in 0xc0..=0xcf {
        let file = jpeg(&[segment(marker, &frame(40, 30)), scan()]);
        match marker {
            0xc4 | 0xcc => check(&file, Err("before its frame header")),
            0xc8 => check(&file, Err("a kind that does not exist")),
            _ => assert_eq!(size(&file), (40, 30), "{marker:x}"),
        }
    }
}

#[test]
fn rotation_is_ignored() {
    let rotated = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    assert_eq!(size(&jpeg(&[segment(0xe1, rotated), segment(0xc0, &frame(40, 30)), scan()])), (40, 30));
}

#[test]
fn a_preview_inside_a_segment_is_not_the_image() {
    let preview = jpeg(&[segment(0xc0, &frame(8, 8)), scan()]);
    assert_eq!(size(&jpeg(&[segment(0xe1, &preview), segment(0xc2, &frame(40, 30)), scan()])), (40, 30));
}

#[test]
fn segments_in_a_wrong_order_are_refused() {
    let frame_segment = || segment(0xc0, &frame(40, 30));
    check(&jpeg(&[scan(), frame_segment()]), Err("before its frame header"));
    check(&jpeg(&[frame_segment(), frame_segment(), scan()]), Err("second frame header"));
    check(&jpeg(&[frame_segment()]), Err("a marker is missing"));
    check(b"\xff\xd8\xff\xd9", Err("ends before its image begins"));
    check(&jpeg(&[frame_segment(), b"\xff\xd9".to_vec(), scan()]), Err("ends before its image begins"));
    for marker in [0x00, 0xd0, 0xd7, 0xd8] {
        check(&jpeg(&[vec![0xff, marker], frame_segment(), scan()]), Err("not allowed before the image data"));
    }
    check(&jpeg(&[vec![0xff, 0xfe, 0, 1], frame_segment(), scan()]), Err("shorter than its own length"));
    check(&jpeg(&[vec![0xff, 0xfe, 0, 0], frame_segment(), scan()]), Err("shorter than its own length"));
    check(&jpeg(&[vec![0xff, 0xfe, 0, 2], frame_segment(), scan()]), Ok(false));
    check(&jpeg(&[segment(0xfe, b"words"), b"words".to_vec(), frame_segment(), scan()]), Err("a marker is missing"));
    check(&jpeg(&[vec![0xff, 0xfe, 0xff, 0xff], frame_segment(), scan()]), Err("ends too early"));
    // Fill bytes and TEM may precede a marker.
    check(&jpeg(&[vec![0xff; 9], frame_segment(), vec![0xff, 0x01], vec![0xff; 3], scan()]), Ok(false));
}

#[test]
fn a_scan_without_data_is_refused() {
    let file = jpeg(&[segment(0xc0, &frame(40, 30)), scan()]);
    check(&file[..file.len() - 2], Ok(false));
    check(&file[..file.len() - 3], Err("JPEG file ends too early"));
}

#[test]
fn impossible_sizes_are_refused() {
    for (width, height) in [(0, 30), (40, 0)] {
        let file = jpeg(&[segment(0xc0, &frame(width, height)), scan()]);
        check(&file, Err(&format!("claims to be {width}x{height} px")));
        assert_eq!(probe(&file), None);
    }
    assert_eq!(size(&jpeg(&[segment(0xc0, &frame(65_535, 65_535)), scan()])), (65_535, 65_535));
}

#[test]
fn a_contradictory_frame_header_is_refused() {
    for (index, value) in [(0, 0), (0, 1), (0, 17), (5, 0), (5, 2), (5, 5)] {
        let mut body = frame(40, 30);
        body[index] = value;
        check(&jpeg(&[segment(0xc0, &body), scan()]), Err("frame header contradicts itself"));
    }
    check(&jpeg(&[segment(0xc0, &frame(40, 30)[..6]), scan()]), Err("frame header contradicts itself"));
}

#[test]
fn a_file_with_too_many_segments_is_refused() {
    let parts = usize::try_from(MAX_PARTS).unwrap();
    let frame_segment = || segment(0xc0, &frame(40, 30));
    check(&jpeg(&[segment(0xfe, b"").repeat(parts - 2), frame_segment(), scan()]), Ok(false));
    check(&jpeg(&[segment(0xfe, b"").repeat(parts - 1), frame_segment(), scan()]), Err("more than 16384 parts"));
    check(&jpeg(&[frame_segment(), vec![0xff; parts * 4], scan()]), Err("more than 16384 parts"));
}

#[test]
fn nothing_but_markers_and_the_frame_is_read() {
    let file = jpeg(&[segment(0xe2, &[7; 60_000]).repeat(20), segment(0xc0, &frame(40, 30)), scan()]);
    let counted = CountingSource::new(&file);
    counted.inspect().unwrap();
    assert!(counted.bytes.get() < 200, "{} bytes read", counted.bytes.get());
}
