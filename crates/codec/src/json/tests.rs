use super::*;
use proptest::prelude::*;

const KEYS: &[&str] = &["model_name", "model_version"];

fn scan<'c>(chunks: &[&'c [u8]]) -> Vec<(usize, Value<'c>)> {
    let mut scanner = Scanner::new(KEYS);
    let mut found = Vec::new();
    for chunk in chunks {
        let mut from = 0;
        while let Some(event) = scanner.next_event(chunk, &mut from) {
            if let Event::ValueEnd { key, value, .. } = event {
                found.push((key, value));
            }
        }
    }
    found
}

fn text(s: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(s))
}

#[test]
fn only_top_level_members_count() {
    let cases: [(&str, Vec<(usize, Value<'_>)>); 10] = [
        (r#"{"model_name":"m","model_version":"7"}"#, vec![(0, text("m")), (1, text("7"))]),
        (r#"{"outputs":[{"model_name":"x"}],"model_name":"m"}"#, vec![(0, text("m"))]),
        (r#"{"id":"\"model_name\":\"x\"","model_name":"m"}"#, vec![(0, text("m"))]),
        (r#"{"p":{"model_name":"x"}}"#, vec![]),
        (r#"{"model\u005fname":"m"}"#, vec![(0, text("m"))]),
        (r#"{"model_version": null ,"a":1}"#, vec![(1, Value::Null)]),
        (r#"{"model_version": 7}"#, vec![(1, Value::Other)]),
        (r#"{"model_version": {"a":[1,2]},"model_name":"m"}"#, vec![(1, Value::Other), (0, text("m"))]),
        (r#"[{"model_name":"m"}]"#, vec![]),
        (r#"{"model_name":"a","model_name":"b"}"#, vec![(0, text("a")), (0, text("b"))]),
    ];
    for (json, want) in cases {
        assert_eq!(scan(&[json.as_bytes()]), want, "{json}");
    }
}

#[test]
fn offsets_frame_the_value() {
    let json = br#"{"id":1, "model_name" : "ab", "x":2}"#;
    let mut scanner = Scanner::new(KEYS);
    let mut from = 0;
    let Some(Event::ValueStart { at: start, .. }) = scanner.next_event(json, &mut from) else { panic!("no start") };
    let Some(Event::ValueEnd { at: end, .. }) = scanner.next_event(json, &mut from) else { panic!("no end") };
    assert_eq!(&json[start..end], br#""ab""#);
}

#[test]
fn an_overlong_value_is_not_taken_for_its_beginning() {
    let json = format!(r#"{{"model_name":"{}"}}"#, "m".repeat(MAX_VALUE * 6 + 1));
    assert_eq!(scan(&[json.as_bytes()]), vec![(0, Value::Other)]);
}

proptest! {
    #[test]
    fn the_first_quote_or_backslash_is_found_wherever_it_is(bytes in proptest::collection::vec(proptest::sample::select(&b"ab!#[]\"\\\x00\xff\xa2\xdc"[..]), 0..80), clean in 0usize..70) {
        let bytes = [vec![b'a'; clean], bytes].concat();
        prop_assert_eq!(quote_or_escape(&bytes), bytes.iter().position(|b| matches!(b, b'"' | b'\\')));
    }

    #[test]
    fn cuts_between_chunks_change_nothing(cut in 0usize..90, cut2 in 0usize..90) {
        let json = r#"{"a":[1,{"b":"\\\"}"}],"model_name":"m\u00e9\n","c":{"d":[]},"model_version":"12"}"#.as_bytes();
        let (a, b) = (cut.min(cut2).min(json.len()), cut.max(cut2).min(json.len()));
        prop_assert_eq!(scan(&[&json[..a], &json[a..b], &json[b..]]), scan(&[json]));
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        scan(&[&bytes]);
    }

    #[test]
    fn strings_are_read_as_a_json_library_reads_them(name in "\\PC{0,40}") {
        let json = serde_json::json!({ "x": [&name, {"model_name": 1}], "model_name": &name }).to_string();
        let want = if json.len() > MAX_VALUE { return Ok(()) } else { vec![(0, text(&name))] };
        prop_assert_eq!(scan(&[json.as_bytes()]), want);
    }
}
