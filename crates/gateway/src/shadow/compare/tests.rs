//! What counts as the same answer, by examples and by properties.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn said(live: &[u8], other: &[u8]) -> Verdict {
    compare(Answer { body: live, json: None }, Answer { body: other, json: None })
}

fn of(live: &Value, other: &Value) -> Verdict {
    said(live.to_string().as_bytes(), other.to_string().as_bytes())
}

/// An answer with one output.
fn one(datatype: &str, data: &Value) -> Value {
    json!({ "outputs": [{ "name": "score", "datatype": datatype, "shape": [2], "data": data }] })
}

fn differs(verdict: Verdict) -> Difference {
    match verdict {
        Verdict::Differs(difference) => difference,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_beside_the_outputs_is_not_looked_at() {
    let a = json!({
        "id": "1", "model_name": "screen-1", "model_version": "1", "parameters": { "took": 3 },
        "outputs": [
            { "name": "score", "datatype": "FP32", "shape": [1, 2], "data": [[0.5, 1]], "parameters": { "x": 1 } },
            { "name": "label", "datatype": "BYTES", "shape": [1], "data": ["clean"] },
        ],
    });
    let b = json!({
        "model_name": "screen-2", "model_version": "2",
        "outputs": [
            { "name": "label", "datatype": "BYTES", "shape": [1], "data": ["clean"], "parameters": null },
            { "name": "score", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.0] },
        ],
    });
    assert_eq!((of(&a, &b), of(&b, &a)), (Verdict::Agrees, Verdict::Agrees));
}

#[test]
fn each_kind_of_difference_has_its_place() {
    let at = |kind, index, magnitude| Difference {
        kind,
        output: Some("score".to_owned()),
        datatype: Some("FP32"),
        index,
        magnitude,
    };
    let base = one("FP32", &json!([0.5, 100.0]));
    let mut shape = base.clone();
    shape["outputs"][0]["shape"] = json!([1, 2]);
    let mut renamed = base.clone();
    renamed["outputs"][0]["name"] = json!("scores");
    let mut more = base.clone();
    more["outputs"].as_array_mut().unwrap().push(json!({ "name": "z", "data": [] }));
    let value = |index, magnitude| at(Kind::Value, Some(index), Some(magnitude));
    for (other, want) in [
        (one("FP64", &json!([0.5, 100.0])), at(Kind::Datatype, None, None)),
        (shape, at(Kind::Shape, None, None)),
        (renamed, at(Kind::OutputMissing, None, None)),
        (one("FP32", &json!([0.5])), at(Kind::Length, None, None)),
        (one("FP32", &json!([0.5, 100.001])), value(1, Magnitude::Slight)),
        (one("FP32", &json!([0.504, 100.0])), value(0, Magnitude::Small)),
        (one("FP32", &json!([0.6, 7.0])), value(0, Magnitude::Large)),
        (one("FP32", &json!([-0.5, 100.0])), value(0, Magnitude::Other)),
        (one("FP32", &json!(["0.5", 100.0])), at(Kind::Value, Some(0), None)),
    ] {
        assert_eq!(differs(of(&base, &other)), want, "{other}");
    }
    let extra = differs(of(&base, &more));
    assert_eq!((extra.kind, extra.output.as_deref(), extra.datatype), (Kind::OutputExtra, Some("z"), None));
}

#[test]
fn floating_point_has_a_tolerance_and_nothing_else_has() {
    let pair = |datatype, a: Value, b: Value| of(&one(datatype, &json!([a, 0])), &one(datatype, &json!([b, 0])));
    assert_eq!(pair("FP32", json!(1.0), json!(1.000_000_9)), Verdict::Agrees);
    assert_eq!(pair("FP64", json!(0.0), json!(-0.0)), Verdict::Agrees);
    assert_eq!(pair("FP16", json!(2), json!(2.0)), Verdict::Agrees);
    differs(pair("FP32", json!(1.0), json!(1.000_001_1)));
    differs(pair("FP32", json!(0.0), json!(1e-30)));
    // As floating-point numbers these two would be one.
    differs(pair("INT64", json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)));
    differs(pair("FP32", json!(1), Value::Null));
    differs(pair("BYTES", json!("clean"), json!("Clean")));
    differs(pair("BOOL", json!(true), json!(1)));
    assert_eq!(pair("INT32", json!(3), json!(3.0)), Verdict::Agrees, "the same number, written another way");
}

#[test]
fn what_the_client_got_decides_whether_there_is_a_comparison() {
    let good = one("FP32", &json!([1.0, 2.0])).to_string();
    for bad in [
        "",
        "{}",
        "[]",
        "{\"outputs\":[{}]}",
        "{\"outputs\":[{\"name\":\"a\"}]}",
        "{\"outputs\":[{\"name\":\"a\",\"data\":null}]}",
        "{\"outputs\":[{\"name\":\"a\",\"data\":[1]},{\"name\":\"a\",\"data\":[1]}]}",
        "{\"outputs\":[{\"name\":\"a\",\"data\":[NaN]}]}",
        "{\"outputs\":[],\"outputs\":[]}",
        "{\"outputs\":[{\"name\":\"a\",\"data\":[1],\"parameters\":{\"binary_data_size\":0}}]}",
        &good[..good.len() - 1],
    ] {
        assert_eq!(said(bad.as_bytes(), good.as_bytes()), Verdict::NotComparable, "{bad}");
        assert_eq!(differs(said(good.as_bytes(), bad.as_bytes())).kind, Kind::Malformed, "{bad}");
    }
}

#[test]
fn binary_tensors_are_compared_by_their_bytes() {
    let text = |sizes: [usize; 2]| {
        let output = |name, size| json!({ "name": name, "datatype": "FP32", "shape": [1], "parameters": { "binary_data_size": size } });
        json!({ "outputs": [output("a", sizes[0]), output("b", sizes[1])] }).to_string()
    };
    let verdict = |sizes: [usize; 2], tail: &[u8], other_sizes: [usize; 2], other_tail: &[u8]| {
        let (json, other_json) = (text(sizes), text(other_sizes));
        let (body, other) = ([json.as_bytes(), tail].concat(), [other_json.as_bytes(), other_tail].concat());
        let answer = |body, json: &str| Answer { body, json: Some(json.len() as u64) };
        compare(answer(&body, &json), answer(&other, &other_json))
    };
    assert_eq!(verdict([2, 1], b"abc", [2, 1], b"abc"), Verdict::Agrees);
    let value = differs(verdict([2, 1], b"abc", [2, 1], b"abd"));
    assert_eq!((value.kind, value.output.as_deref(), value.index), (Kind::Value, Some("b"), None));
    assert_eq!(differs(verdict([2, 1], b"abc", [1, 2], b"abc")).kind, Kind::Length);
    assert_eq!(verdict([2, 2], b"abc", [2, 1], b"abc"), Verdict::NotComparable, "cut short");
    assert_eq!(verdict([2, 0], b"abc", [2, 1], b"abc"), Verdict::NotComparable, "bytes of nobody");
    assert_eq!(differs(verdict([2, 1], b"abc", [2, usize::MAX], b"abc")).kind, Kind::Malformed);
    let plain = br#"{"outputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[1]},{"name":"b","datatype":"FP32","shape":[1],"data":[1]}]}"#;
    let json = text([2, 1]);
    let binary = [json.as_bytes(), b"abc"].concat();
    let mixed = compare(Answer { body: plain, json: None }, Answer { body: &binary, json: Some(json.len() as u64) });
    assert_eq!(differs(mixed).kind, Kind::Encoding);
}

#[test]
fn a_difference_repeats_nothing_of_the_answers() {
    let secret = "Mallory Q. Customer";
    let with = |name: &str, datatype: &str, data: Value| json!({ "outputs": [{ "name": name, "datatype": datatype, "shape": [1], "data": [data] }] });
    for (live, other) in [
        (with("label", "BYTES", json!(secret)), with("label", "BYTES", json!("x"))),
        (with("label", "BYTES", json!("x")), with("label", "BYTES", json!(secret))),
        (with(secret, "BYTES", json!(1)), with(secret, "BYTES", json!(2))),
        (with("label", secret, json!(1)), with("label", secret, json!(2))),
        (with("label", "INT64", json!(1)), with(secret, "INT64", json!(1))),
        (with("label", "INT64", json!(424_242)), with("label", "INT64", json!(7))),
    ] {
        let told = format!("{:?}", differs(of(&live, &other)));
        assert!(!told.contains("Mallory") && !told.contains("424242"), "{told}");
    }
}

fn tensors() -> impl Strategy<Value = Vec<Value>> {
    let datatype = prop::sample::select(DATATYPES.to_vec());
    let number = prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        (-1e6..1e6).prop_map(|n: f64| json!(n)),
        "[a-z]{0,3}".prop_map(|t| json!(t))
    ];
    let tensor = (datatype, prop::collection::vec(number, 0..5));
    let named = |(at, (datatype, data)): (usize, (&str, Vec<Value>))| json!({ "name": format!("o{at}"), "datatype": datatype, "shape": [data.len()], "data": data });
    prop::collection::vec(tensor, 0..5).prop_map(move |all| all.into_iter().enumerate().map(named).collect())
}

proptest! {
    #[test]
    fn an_answer_agrees_with_itself_in_any_order(tensors in tensors(), turn in 0usize..5) {
        let mut turned = tensors.clone();
        turned.rotate_left(turn.min(tensors.len()));
        prop_assert_eq!(of(&json!({ "outputs": tensors }), &json!({ "id": "x", "outputs": turned })), Verdict::Agrees);
    }

    #[test]
    fn who_differs_first_does_not_matter(a in tensors(), b in tensors()) {
        let (a, b) = (json!({ "outputs": a }), json!({ "outputs": b }));
        prop_assert_eq!(of(&a, &b) == Verdict::Agrees, of(&b, &a) == Verdict::Agrees);
    }

    #[test]
    fn one_changed_value_is_found_where_it_is(tensors in tensors(), which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>()) {
        prop_assume!(!tensors.is_empty());
        let which = which.index(tensors.len());
        let length = tensors[which]["data"].as_array().unwrap().len();
        prop_assume!(length > 0);
        let (at, mut changed) = (at.index(length), tensors.clone());
        changed[which]["data"][at] = json!("another value");
        let difference = differs(of(&json!({ "outputs": tensors }), &json!({ "outputs": changed })));
        prop_assert_eq!(difference.kind, Kind::Value);
        prop_assert_eq!((difference.output, difference.index), (Some(format!("o{which}")), Some(at as u64)));
    }

    #[test]
    fn any_bytes_at_all_give_a_verdict(a in prop::collection::vec(any::<u8>(), 0..64), b in prop::collection::vec(any::<u8>(), 0..64), json in prop::option::of(0u64..80)) {
        let good = one("FP32", &json!([1.0])).to_string();
        let answer = |body| Answer { body, json };
        prop_assert_eq!(compare(answer(&a), answer(good.as_bytes())), Verdict::NotComparable);
        prop_assert!(compare(answer(&a), answer(&b)) != Verdict::Agrees);
    }
}
