use std::time::Instant;

use super::*;

fn event(name: &str, data: &str) -> SseEvent {
    SseEvent { name: name.to_owned(), data: data.as_bytes().to_vec() }
}

/// Reads a stream that comes in these pieces, to its end.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<SseEvent>, SseEventTooLarge> {
    let mut reader = SseEventReader::default();
    let mut events = Vec::new();
    for piece in pieces {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(event) = reader.next(&mut piece)? {
            events.push(event);
        }
        assert!(piece.is_empty());
    }
    events.extend(reader.finish());
    Ok(events)
}

/// Checks the stream in one piece and in pieces of every length: the places of the cuts make no difference.
#[track_caller]
fn check(stream: &str, expected: &[SseEvent]) {
    for length in 1..=stream.len() {
        let events = read(stream.as_bytes().chunks(length)).unwrap();
        assert_eq!(events, expected, "{stream:?} in pieces of {length}");
    }
}

/// Checks the stream, cut in two at every byte.
#[track_caller]
fn check_cut(stream: &str, expected: &[SseEvent]) {
    for cut in 0..=stream.len() {
        let (left, right) = stream.as_bytes().split_at(cut);
        assert_eq!(read([left, right]).unwrap(), expected, "{stream:?} cut at {cut}");
    }
}

#[test]
fn events_are_the_same_wherever_they_are_cut() {
    let expected = [event("a", "{\"x\":1}"), event("", "two\nlines"), event("b", "3")];
    for end in ["\n", "\r\n", "\r"] {
        let stream = ["event: a", "data: {\"x\":1}", "", "data: two", "data: lines", "", "event:b", "data:3", "", ""];
        let stream = stream.join(end);
        check(&stream, &expected);
        check_cut(&stream, &expected);
    }
}

#[test]
fn line_ends_may_be_mixed() {
    check("data: 1\r\n\ndata: 2\n\r\ndata: 3\r\rdata: 4\n\n", &["1", "2", "3", "4"].map(|data| event("", data)));
}

#[test]
fn comments_and_unknown_fields_say_nothing() {
    check(": keep-alive\n\n: keep-alive\n\n", &[]);
    check(":\nid: 1\nretry: 5\nnonsense\nevent: a\ndata: 1\n: in between\n\n", &[event("a", "1")]);
    check("database: 1\nDATA: 2\n data: 3\n\n", &[]);
}

#[test]
fn one_space_after_the_colon_is_no_content() {
    check("data:1\n\ndata: 1\n\ndata:  1 \n\n", &[event("", "1"), event("", "1"), event("", " 1 ")]);
    check("data\n\ndata:\n\ndata: \n\n", &[event("", ""), event("", ""), event("", "")]);
}

#[test]
fn a_type_belongs_to_one_event_and_none_without_data() {
    check(
        "event: a\n\ndata: 1\n\nevent: a\nevent: b\ndata: 2\n\ndata: 3\n\n",
        &[event("", "1"), event("b", "2"), event("", "3")],
    );
}

#[test]
fn a_mark_of_the_encoding_is_skipped_at_the_beginning_only() {
    check("\u{feff}data: 1\n\n\u{feff}data: 2\n\n", &[event("", "1")]);
}

#[test]
fn an_event_without_its_empty_line_counts_at_the_end() {
    check("event: a\ndata: 1\n", &[event("a", "1")]);
    check("event: a\ndata: 1", &[event("a", "1")]);
    check("event: a\n", &[]);
    check("", &[]);
}

#[test]
fn the_largest_event_passes_and_one_byte_more_does_not() {
    let line = |data: usize| [b"data:".to_vec(), vec![b'x'; data], b"\n\n".to_vec()].concat();
    let largest = EVENT_MAX_BYTES - b"data:".len();
    let events = read(line(largest).chunks(1 << 20)).unwrap();
    assert_eq!(events[0].data.len(), largest);
    assert_eq!(read(line(largest + 1).chunks(1 << 20)), Err(SseEventTooLarge));
}

#[test]
fn many_lines_do_not_get_around_the_limit() {
    let line = [b"data:".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    assert_eq!(read(std::iter::repeat_n(&*line, 70)), Err(SseEventTooLarge));
    let comment = [b":".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    assert_eq!(read(std::iter::repeat_n(&*comment, 70)), Ok(Vec::new()));
}

/// Returns the seconds that one event of this many megabytes takes in pieces of this many kilobytes, the best of
/// several runs.
fn time(megabytes: usize, kilobytes: usize) -> f64 {
    let line = Bytes::from([b"data: ".to_vec(), vec![b'x'; megabytes << 20], b"\n\n".to_vec()].concat());
    let measure = || {
        let (mut reader, mut rest, mut events) = (SseEventReader::default(), line.clone(), 0);
        let begun = Instant::now();
        while !rest.is_empty() {
            let mut piece = rest.split_to(rest.len().min(kilobytes << 10));
            events += usize::from(reader.next(&mut piece).unwrap().is_some());
        }
        assert_eq!(events, 1);
        begun.elapsed().as_secs_f64()
    };
    (0..5).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// Returns the best ratio of several runs, because other work on the machine slows down only one of the two.
fn ratio(of: impl Fn() -> f64, to: impl Fn() -> f64) -> f64 {
    (0..3).map(|_| of() / to()).fold(f64::INFINITY, f64::min)
}

#[test]
fn three_times_the_image_takes_about_three_times_as_long() {
    // A reader that searches a line again with each piece takes nine times as long. Both sizes are ones for which the
    // allocator asks the system: below that, memory alone is many times cheaper.
    let ratio = ratio(|| time(60, 16), || time(20, 16));
    assert!(ratio < 6.0, "60 MB take {ratio:.1} times as long as 20 MB");
}

#[test]
fn small_pieces_take_about_as_long_as_large_ones() {
    // A reader that searches a line again with each piece takes thirty-two times as long.
    let ratio = ratio(|| time(30, 16), || time(30, 512));
    assert!(ratio < 4.0, "30 MB in small pieces take {ratio:.1} times as long as in large ones");
}
