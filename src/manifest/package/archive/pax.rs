//! Reads the pax records of a tar, which come before an entry and change its header.

/// The values that a block of records sets for the next entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

/// Reads `length key=value\n` records. Times, owners and comments are ignored.
pub(super) fn read_records(mut bytes: &[u8]) -> Result<PaxRecords, &'static str> {
    const BROKEN: &str = "has records that cannot be read";
    let mut records = PaxRecords::default();
    while !bytes.is_empty() {
        let space = bytes.iter().take(8).position(|byte| *byte == b' ').ok_or(BROKEN)?;
        let (digits, _) = bytes.split_at(space);
        let length = decimal(digits).and_then(|length| usize::try_from(length).ok()).ok_or(BROKEN)?;
        let record = bytes.get(space + 1..length).ok_or(BROKEN)?;
        let (b'\n', record) = record.split_last().ok_or(BROKEN)? else { return Err(BROKEN) };
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BROKEN)?;
        let (key, value) = record.split_at(equals);
        let value = value.get(1..).ok_or(BROKEN)?;
        add_record(&mut records, key, value)?;
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(records)
}

fn add_record(records: &mut PaxRecords, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
    match key {
        b"path" if records.path.is_none() => records.path = Some(value.to_owned()),
        b"size" if records.size.is_none() => {
            records.size = Some(decimal(value).ok_or("has a size that is not a number")?);
        }
        b"path" | b"size" => return Err("has the same record twice"),
        b"linkpath" => return Err("is a link"),
        _ if key.starts_with(b"GNU.sparse.") || key.starts_with(b"SCHILY.realsize") => return Err("is a sparse file"),
        _ => {}
    }
    Ok(())
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_sizes_are_read_and_other_records_are_ignored() {
        let read = read_records(b"30 mtime=1700000000.123456789\n19 path=a/SKILL.md\n9 size=7\n");
        assert_eq!(read, Ok(PaxRecords { path: Some(b"a/SKILL.md".to_vec()), size: Some(7) }));
        assert_eq!(read_records(b""), Ok(PaxRecords::default()));
    }

    #[test]
    fn malformed_records_and_links_are_refused() {
        for bytes in [
            &b"99 path=a\n"[..],
            b"path=a\n",
            b"0 path=a\n",
            b"3 \n",
            b"10 path=ab",
            b"11 path=a=b",
            b" 10 path=a\n",
            b"99999999999999999999 path=a\n",
            b"9 path=a\n9 path=b\n",
            b"10 path=a\n10 path=b\n",
            b"14 linkpath=a\n",
            b"22 GNU.sparse.major=1\n",
            b"10 size=-1\n",
        ] {
            assert!(read_records(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
