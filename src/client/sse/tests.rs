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
