use std::time::Instant;

use super::*;

fn event(name: &str, data: &str) -> SseEvent {
    SseEvent { name: name.to_owned(), data: data.as_bytes().to_vec() }
}

/// Returns the events of a stream that arrives in these chunks.
fn read_events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<SseEvent>, SseEventTooLarge> {
    let mut reader = SseEventReader::default();
    let mut events = Vec::new();
    for chunk in chunks {
        let mut chunk = Bytes::copy_from_slice(chunk);
        while let Some(event) = reader.next(&mut chunk)? {
            events.push(event);
        }
        assert!(chunk.is_empty());
    }
    events.extend(reader.finish());
    Ok(events)
}

/// Checks that the events are the same for chunks of every length.
#[track_caller]
fn check(stream: &str, expected: &[SseEvent]) {
    for length in 1..=stream.len() {
        let events = read_events(stream.as_bytes().chunks(length)).unwrap();
        assert_eq!(events, expected, "{stream:?} in chunks of {length}");
    }
}

/// Checks that the events are the same if the stream is split in two at any byte.
#[track_caller]
fn check_split(stream: &str, expected: &[SseEvent]) {
    for position in 0..=stream.len() {
        let (first, second) = stream.as_bytes().split_at(position);
        assert_eq!(read_events([first, second]).unwrap(), expected, "{stream:?} split at {position}");
    }
}

#[test]
fn events_do_not_depend_on_chunk_boundaries() {
    let expected = [event("a", "{\"x\":1}"), event("", "two\nlines"), event("b", "3")];
    for end in ["\n", "\r\n", "\r"] {
        let stream = ["event: a", "data: {\"x\":1}", "", "data: two", "data: lines", "", "event:b", "data:3", "", ""];
        let stream = stream.join(end);
        check(&stream, &expected);
        check_split(&stream, &expected);
    }
}

#[test]
fn line_ends_may_be_mixed() {
    check("data: 1\r\n\ndata: 2\n\r\ndata: 3\r\rdata: 4\n\n", &["1", "2", "3", "4"].map(|data| event("", data)));
}

#[test]
fn comments_and_unknown_fields_are_ignored() {
    check(": keep-alive\n\n: keep-alive\n\n", &[]);
    check(":\nid: 1\nretry: 5\nnonsense\nevent: a\ndata: 1\n: in between\n\n", &[event("a", "1")]);
    check("database: 1\nDATA: 2\n data: 3\n\n", &[]);
}

#[test]
fn one_space_after_the_colon_is_not_part_of_the_value() {
    check("data:1\n\ndata: 1\n\ndata:  1 \n\n", &[event("", "1"), event("", "1"), event("", " 1 ")]);
    check("data\n\ndata:\n\ndata: \n\n", &[event("", ""), event("", ""), event("", "")]);
}

#[test]
fn a_type_applies_to_one_event_and_an_event_needs_data() {
    check(
        "event: a\n\ndata: 1\n\nevent: a\nevent: b\ndata: 2\n\ndata: 3\n\n",
        &[event("", "1"), event("b", "2"), event("", "3")],
    );
}

#[test]
fn a_byte_order_mark_is_skipped_only_at_the_beginning() {
    check("\u{feff}data: 1\n\n\u{feff}data: 2\n\n", &[event("", "1")]);
}

#[test]
fn the_last_event_needs_no_empty_line() {
    check("event: a\ndata: 1\n", &[event("a", "1")]);
    check("event: a\ndata: 1", &[event("a", "1")]);
    check("event: a\n", &[]);
    check("", &[]);
}

#[test]
fn an_event_of_the_maximum_size_passes_and_one_more_byte_does_not() {
    let line = |data: usize| [b"data:".to_vec(), vec![b'x'; data], b"\n\n".to_vec()].concat();
    let events = read_events(line(EVENT_MAX_BYTES).chunks(1 << 20)).unwrap();
    assert_eq!(events[0].data.len(), EVENT_MAX_BYTES);
    assert_eq!(read_events(line(EVENT_MAX_BYTES + 1).chunks(1 << 20)), Err(SseEventTooLarge));
}

#[test]
fn the_limit_applies_to_the_sum_of_all_data_lines() {
    let line = [b"data:".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    assert_eq!(read_events(std::iter::repeat_n(&*line, 70)), Err(SseEventTooLarge));
    let comment = [b":".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    assert_eq!(read_events(std::iter::repeat_n(&*comment, 70)), Ok(Vec::new()));
}

/// Returns the seconds that the reader needs for one event of this many MiB in chunks of this many KiB: the fastest of
/// five runs.
fn fastest_run(mebibytes: usize, kibibytes: usize) -> f64 {
    let line = Bytes::from([b"data: ".to_vec(), vec![b'x'; mebibytes << 20], b"\n\n".to_vec()].concat());
    let measure = || {
        let (mut reader, mut remaining, mut events) = (SseEventReader::default(), line.clone(), 0);
        let started_at = Instant::now();
        while !remaining.is_empty() {
            let mut chunk = remaining.split_to(remaining.len().min(kibibytes << 10));
            events += usize::from(reader.next(&mut chunk).unwrap().is_some());
        }
        assert_eq!(events, 1);
        started_at.elapsed().as_secs_f64()
    };
    (0..5).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// Returns the smallest ratio of three runs, because other work on the machine may slow down only one of the two.
fn smallest_ratio(numerator: impl Fn() -> f64, denominator: impl Fn() -> f64) -> f64 {
    (0..3).map(|_| numerator() / denominator()).fold(f64::INFINITY, f64::min)
}

#[test]
fn parsing_time_is_linear_in_the_size_of_the_image() {
    // A reader that searches a line again with each chunk would take nine times as long. For both sizes the allocator
    // requests memory from the system; smaller allocations are many times cheaper and would distort the ratio.
    let ratio = smallest_ratio(|| fastest_run(60, 16), || fastest_run(20, 16));
    assert!(ratio < 6.0, "60 MiB take {ratio:.1} times as long as 20 MiB");
}

#[test]
fn small_chunks_take_about_as_long_as_large_chunks() {
    // A reader that searches a line again with each chunk would take thirty-two times as long.
    let ratio = smallest_ratio(|| fastest_run(30, 16), || fastest_run(30, 512));
    assert!(ratio < 4.0, "30 MiB in small chunks take {ratio:.1} times as long as in large chunks");
}
