use super::*;
use proptest::prelude::*;

fn expected(up: (&str, &str), client: (&str, &str)) -> Expected {
    Expected {
        upstream_model: up.0.into(),
        upstream_version: up.1.into(),
        model: client.0.into(),
        version: client.1.into(),
    }
}

fn run(expected: &Expected, chunks: &[&[u8]]) -> Result<(String, Checker), Wrong> {
    let mut state = Checker::default();
    let mut out = Vec::new();
    for chunk in chunks {
        let mut pieces = Pieces::new();
        state.feed(expected, chunk, &mut pieces)?;
        for piece in pieces {
            match piece {
                Piece::Chunk(range) => out.extend_from_slice(&chunk[range]),
                Piece::Owned(bytes) => out.extend_from_slice(&bytes),
            }
        }
    }
    out.extend(state.finish());
    Ok((String::from_utf8_lossy(&out).into_owned(), state))
}

#[test]
fn the_client_reads_its_own_names() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    let json = br#"{"model_name":"screen-1","model_version":"1","outputs":[{"name":"screen-1"}]}"#;
    let (out, state) = run(&e, &[json]).unwrap();
    assert_eq!(out, r#"{"model_name":"screen","model_version":"1","outputs":[{"name":"screen-1"}]}"#);
    assert!(state.has_model() && state.has_version());
    assert_eq!(state.delta(), -2);
}

#[test]
fn an_answer_that_needs_no_change_is_passed_on_in_one_piece() {
    let e = expected(("m", "7"), ("m", "7"));
    let mut out = Pieces::new();
    let json = br#"{"model_name":"m","model_version":"7","id":"x"}"#;
    Checker::default().feed(&e, json, &mut out).unwrap();
    assert_eq!(out.to_vec(), vec![Piece::Chunk(0..json.len())]);
}

#[test]
fn an_inferences_answer_has_outputs_at_its_top_level_and_is_no_metadata() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    for (json, is_inference) in [
        (r#"{"outputs":[]}"#, true),
        (r#"{"model_name":"screen-1","outputs":[{"name":"x"}]}"#, true),
        (r#"{"out\u0070uts":[{"name":"x"}],"id":"7"}"#, true),
        (r#"{"name":"x","outputs":[],"model_name":"screen-1"}"#, true),
        (r#"{}"#, false),
        (r#"{"model_name":"screen-1","parameters":{"outputs":[]}}"#, false),
        (r#"{"name":"screen-1","versions":["1"],"inputs":[],"outputs":[]}"#, false),
        (r#"{"name":"screen-1","outputs":[],"model_name":null}"#, false),
    ] {
        for cut in 0..json.len() {
            let (out, state) = run(&e, &[&json.as_bytes()[..cut], &json.as_bytes()[cut..]]).unwrap();
            assert_eq!(state.is_inference(), is_inference, "{json} at {cut}");
            assert_eq!(out.matches("outputs").count(), json.matches("outputs").count(), "its value passes as it is");
        }
    }
}

#[test]
fn the_id_is_found_however_the_text_is_cut_and_passes_as_it_is() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    let json = br#"{"id":"request-7","model_name":"screen-1","model_version":"1","outputs":[{"id":"x"}]}"#;
    for cut in 0..json.len() {
        let (out, state) = run(&e, &[&json[..cut], &json[cut..]]).unwrap();
        assert_eq!(out, r#"{"id":"request-7","model_name":"screen","model_version":"1","outputs":[{"id":"x"}]}"#);
        let id = state.id().expect("its id");
        let compared = [br#"{"id":"request-7"}"#, br#"{"id":"request-8"}"#].map(|request| id.compare(request));
        assert_eq!(compared, [Compared::Same, Compared::Other]);
    }
    assert_eq!(run(&e, &[br#"{"model_name":"screen-1","id":7}"#]).unwrap().1.id(), None);
}

#[test]
fn every_other_name_is_a_mismatch() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    for json in [
        r#"{"model_name":"screen-2","model_version":"1"}"#,
        r#"{"model_name":"screen","model_version":"1"}"#,
        r#"{"model_name":"screen-1","model_version":"2"}"#,
        r#"{"model_name":"screen-1","model_version":1}"#,
        r#"{"model_name":"screen-1","outputs":[],"model_version":"1","model_version":"2"}"#,
        r#"{"model_name":"screen-1","model_version":"1","model_name":"screen-1"}"#,
        r#"{"model_name":["screen-1"]}"#,
        r#"{"model_version":"1","model\u005fname":"screen-2"}"#,
        r#"{"Model_Name":"screen-2"}"#,
        r#"{"model_name":"screen-1","model_version":"1"}{"model_name":"screen-2"}"#,
        "{}\n{\"model_name\":\"screen-2\"}",
        r#"[{"model_name":"screen-1"}]"#,
        "data: {\"model_name\":\"screen-1\"}",
        "\u{c}{\"model_name\":\"screen-1\"}",
        "{\0\"\0m\0",
        "\"text\"",
        // What a reader of JSON5 sees in it is another answer.
        "{\"a\": '\"', \"model_name\": \"screen-2\", \"b\": '\"'}",
        "{\"a\": 1 /* \" */, \"model_name\": \"screen-2\" /* \" */}",
        "{\"a\": [1, # \"\n2], \"model_name\": \"screen-2\"}",
        "{\"a\": é}",
        // Commas, colons and brackets that are not where they belong: a reader that mends them sees another version.
        r#"{"model_name":"screen-1" "a":1 "model_version":"2"}"#,
        r#"{"model_name":"screen-1","x" "model_version":"2"}"#,
        r#"{"model_name":"screen-1","model_version"::"1","a":"model_version":"2"}"#,
        r#"{"model_name":"screen-1","a":"model_version":"2"}"#,
        r#"{"model_name":"screen-1","x":{"a":[1},"model_version":"2"]}"#,
        r#"{"model_name":"screen-1","x":[1}]}"#,
        r#"{"model_name":"screen-1",,"a":1}"#,
        r#"{"model_name":"screen-1","a":1,}"#,
        r#"{,"model_name":"screen-1"}"#,
        r#"{"model_name":"screen-1","a":}"#,
        r#"{"model_name":"screen-1","a":1 2}"#,
        r#"{"model_name":"screen-1","a":"b" 2}"#,
        r#"{"model_name":"screen-1","a":[] []}"#,
        r#"{"model_name":"screen-1","a"}"#,
        "{\"model_name\":\"screen-1\",\"model_\0version\":\"2\"}",
        // Go's and Java's readers take these for the member's name.
        "{\"model_ver\u{17f}ion\":\"2\"}",
        "{\"model_vers\u{131}on\":\"2\"}",
        "{\"model_vers\\u0130on\":\"2\"}",
    ] {
        assert!(run(&e, &[json.as_bytes()]).is_err(), "{json}");
    }
}

#[test]
fn bytes_that_are_no_utf8_are_refused_wherever_they_are() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    let answers: [&[u8]; 6] = [
        b"{\"model_ver\xffsion\":\"2\"}",
        b"{\"model_ver\\x\xffsion\":\"2\"}",
        b"{\"model_name\":\"screen-1\",\"outputs\":[{\"data\":[\"caf\xe9\"]}]}",
        b"{\"model_name\":\"screen-1\",\"id\":\"\xed\xa0\x80\"}",
        b"{\"model_name\":\"screen-1\",\"a key that is longer than every name that is watched\xc3\":1}",
        b"{\"id\":\"\xff\",\"model_name\":\"screen-2\"}",
    ];
    for answer in answers {
        for cut in 0..answer.len() {
            let verdict = run(&e, &[&answer[..cut], &answer[cut..]]).map(|_| ());
            assert_eq!(verdict, Err(Wrong::NotUtf8), "{} cut at {cut}", answer.escape_ascii());
        }
    }
    let well = "{\"model_name\":\"screen-1\",\"id\":\"é€\u{1f600}\"}".as_bytes();
    for cut in 0..well.len() {
        assert!(run(&e, &[&well[..cut], &well[cut..]]).is_ok(), "cut at {cut}");
    }
    // A mismatch that comes before is one.
    for answer in [&b"{\"model_name\":\"screen-2\",\"id\":\"\xff\"}"[..], b"{\"a\": \xc3(}"] {
        for cut in 0..answer.len() {
            let verdict = run(&e, &[&answer[..cut], &answer[cut..]]).map(|_| ());
            assert!(matches!(verdict, Err(Wrong::Mismatch(_))), "{} cut at {cut}", answer.escape_ascii());
        }
    }
}

#[test]
fn a_refusal_may_name_nothing_or_the_same() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    for body in [
        "",
        "no",
        "<html>",
        r#"{"error":"model_version 2 is too large"}"#,
        r#"{"error":{"model_version":"2"}}"#,
        r#"{"model_name":"screen-1","model_version":"1"}"#,
        r#"{"model_name":"screen","model_version":null}"#,
    ] {
        assert!(!names_another(&e, body.as_bytes()), "{body}");
    }
    for body in [
        r#"{"model_name":"screen-1","model_version":"2","outputs":[]}"#,
        r#"{"Model_Version":"2"}"#,
        r#"{"model_version":2}"#,
        r#"{"model_version":"1","model_version":"2"}"#,
        r#"{"model_name":"other"}"#,
    ] {
        assert!(names_another(&e, body.as_bytes()), "{body}");
    }
}

#[test]
fn numbers_that_are_none_are_let_through() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    let json = r#"{"model_name":"screen-1","outputs":[{"data":[NaN,-Infinity,1.5e+3,null,true,"'é/#"]}]}"#;
    let (_, state) = run(&e, &[json.as_bytes()]).unwrap();
    assert!(state.is_complete());
}

#[test]
fn a_wrong_name_is_told_up_to_a_bound() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    let got = |name: &str| match run(&e, &[format!("{{\"model_name\":\"{name}\"}}").as_bytes()]) {
        Err(Wrong::Mismatch(mismatch)) => mismatch.got,
        other => panic!("{other:?}"),
    };
    assert_eq!(got(&"x".repeat(64)), "x".repeat(64));
    assert_eq!(got(&"x".repeat(65)), format!("{}(cut)", "x".repeat(64)));
    assert_eq!(got(&"x".repeat(128)), format!("{}(cut)", "x".repeat(64)));
    for no_name in ["x".repeat(129), "a\\nb".into(), "a b".into(), "<b>".into(), "é".into()] {
        assert_eq!(got(&no_name), "(a text that is no name)", "{no_name}");
    }
}

#[test]
fn a_blank_version_counts_as_absent_and_is_filled_in() {
    let e = expected(("screen-1", "1"), ("screen", "1"));
    for version in [r#""""#, "null"] {
        let json = format!(r#"{{"model_name":"screen-1","model_version":{version}}}"#);
        let (out, state) = run(&e, &[json.as_bytes()]).unwrap();
        assert!(state.has_model() && !state.has_version());
        assert_eq!(out, r#"{"model_name":"screen","model_version":"1"}"#);
    }
    for blank in ["", " \r\n"] {
        let (_, state) = run(&e, &[blank.as_bytes()]).unwrap();
        assert!(!state.has_model() && !state.is_complete());
    }
    let (_, state) = run(&e, &[br#"{"outputs":[]}"#]).unwrap();
    assert!(!state.has_model() && !state.has_version() && state.is_decided());
}

proptest! {
    #[test]
    fn chunking_changes_neither_bytes_nor_verdict(cuts in proptest::collection::vec(0usize..120, 0..6), version in "[12]") {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        let json = format!(r#"{{"id":"a","model_name":"screen-1","o":[{{"d":[1,2]}}],"model_version":"{version}","z":1}}"#);
        let json = json.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(json.len())).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut last = 0;
        for cut in cuts { chunks.push(&json[last..cut]); last = cut; }
        chunks.push(&json[last..]);
        let whole = run(&e, &[json]).map(|(text, state)| (text, state.delta()));
        let cut = run(&e, &chunks).map(|(text, state)| (text, state.delta()));
        if let Ok((text, delta)) = &whole {
            prop_assert_eq!(text.len() as i64 - json.len() as i64, *delta);
        }
        prop_assert_eq!(whole, cut);
    }
}
