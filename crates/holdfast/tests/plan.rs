//! The planners: the worked figures, the output that the guide shows, the keys of their JSON, and what they refuse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plan_support;

use plan_support::{holdfast, json_of, plan, refused, row};
use serde_json::{Value, json};

#[test]
fn the_guide_shows_what_the_commands_print() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for planner in ["quorum", "ring", "residency", "lease", "fairshare", "limits"] {
        let guide = std::fs::read_to_string(docs.join(format!("plans/{planner}.md"))).unwrap();
        let mut blocks = 0;
        for block in guide.split("```\n$ holdfast ").skip(1) {
            let block = block.split("\n```").next().unwrap();
            let (line, shown) = block.split_once('\n').unwrap();
            assert_eq!(plan(line).trim_end(), shown, "holdfast {line}");
            blocks += 1;
        }
        assert!(blocks > 0, "the page of {planner} has its worked case");
    }
}

#[test]
fn quorums_have_the_worked_digits() {
    let text = plan("plan quorum --n 5 --a 0.95");
    for (k, told) in [("k = 2", "0.0030 %,"), ("k = 3", "0.1158 %, 38.6 times"), ("k = 4", "2.2593 %, 19.5 times")] {
        assert!(row(&text, k).contains(told), "{text}");
    }
    assert!(row(&text, "(2,4)").starts_with("(2,4) 1 1/3 2.2593 % 0.0030 %"), "{text}");
    assert!(row(&text, "(3,3)").starts_with("(3,3) 1 2/2 0.1158 % 0.1158 % 3: reads, writes | 2: refuses"), "{text}");
    assert!(row(&text, "(4,2)").starts_with("(4,2) 1 3/1 0.0030 % 2.2593 %"), "{text}");
    for (shape, overlap, writes, reads) in
        [("--n 5 --r 3 --w 3", 1, 2, 2), ("--n 3 --r 2 --w 2", 1, 1, 1), ("--n 3 --r 1 --w 1", 0, 2, 2)]
    {
        let told = json_of(&format!("plan quorum --a 0.95 {shape}"));
        assert_eq!(told["overlap"], overlap, "{told}");
        assert_eq!(told["losses_tolerated"], json!({ "writes": writes, "reads": reads }), "{told}");
        assert_eq!(told["warnings"].as_array().unwrap().is_empty(), overlap > 0, "R + W <= N is warned of: {told}");
    }
    let weak = json_of("plan quorum --n 5 --a 0.95 --r 1 --w 1");
    assert_eq!((&weak["losses_tolerated"]["writes"], &weak["diverges_when_cut"]), (&json!(4), &json!(true)));
    let percents = json_of("plan quorum --n 5 --a 0.95")["unavailability"].clone();
    let percents = [1, 2, 3].map(|i: usize| percents[i]["unavailability_percent"].clone());
    assert_eq!(percents, [json!(0.003), json!(0.1158), json!(2.2593)]);
}

#[test]
fn shared_fates_and_distances_make_quorums_worse() {
    let figure = |more: &str| json_of(&format!("plan quorum --n 5 --a 0.95 --r 3 --w 3 {more}"));
    let down = |told: &Value| told["quorums"][0]["unavailability"]["writes"].as_f64().unwrap();
    assert!(down(&figure("--groups 3,2 --group-a 0.99")) > 5.0 * down(&figure("")));
    let far = figure("--latency 50:2,100:20 --distances 0,0,40,80,80");
    assert!(far["latency_ms"]["read"]["p50"].as_f64().unwrap() > 40.0, "{far}");
    assert!(figure("")["latency_ms"].is_null());
}

#[test]
fn quorums_that_cannot_be_are_refused() {
    for (line, field, value) in [
        ("--n 0 --a 0.9", "--n", "0"),
        ("--n 1001 --a 0.9", "--n", "1001"),
        ("--n 5 --a 1.2", "--a", "1.2"),
        ("--n 5 --a -0.1", "--a", "-0.1"),
        ("--n 5 --a NaN", "--a", "NaN"),
        ("--n 5 --a 0.9 --r 3 --w 6", "--w", "6"),
        ("--n 5 --a 0.9 --r 0 --w 3", "--r", "0"),
        ("--n 5 --a 0.9 --groups 2,2", "--groups", "2,2"),
        ("--n 5 --a 0.9 --groups 5 --group-a 7", "--group-a", "7"),
        ("--n 5 --a 0.9 --latency fast", "--latency", "fast"),
        ("--n 5 --a 0.9 --latency 50:9,99:2", "--latency", "50:9,99:2"),
        ("--n 5 --a 0.9 --latency 50:9 --distances 1,2", "--distances", "1,2"),
        ("--n 51 --a 0.9 --latency 50:9", "--n", "51"),
    ] {
        assert_eq!(refused(&format!("plan quorum {line}")), (field.to_owned(), value.to_owned()));
    }
    for wrong in ["--n 5", "--n five --a 0.9", "--n 5 --a 0.9 --r 3", "--n -5 --a 0.9"] {
        let args: Vec<&str> = ["plan", "quorum"].into_iter().chain(wrong.split_whitespace()).collect();
        assert_eq!(holdfast(&args).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn rings_have_the_worked_digits() {
    let join = plan("plan ring --from 4 --to 5");
    assert!(row(&join, "modulo").starts_with("modulo 80.0 % 20.0 %"), "{join}");
    for way in ["ring", "rendezvous", "slots"] {
        assert!(row(&join, way).starts_with(&format!("{way} 20.0 % 80.0 %")), "{join}");
    }
    let loss = plan("plan ring --from 4 --to 3");
    assert_eq!(row(&loss, "modulo"), "modulo 75.0 % 25.0 % - 7,400 14,900");
    let ring = row(&loss, "ring ");
    assert!(ring.starts_with("ring 25.0 % 75.0 %") && ring.ends_with(" 2,500 10,000"), "{loss}");
    assert!(loss.contains("The origin bears about 7,500/s before: 17,400 reads/s, hit rate 57 %"), "{loss}");
    assert!(loss.contains("ceiling 15,000"), "{loss}");
    for (nodes, deviation) in [("10 ", "31.6 %"), ("100 ", "10.0 %"), ("1000 ", "3.2 %")] {
        assert!(row(&loss, nodes).contains(deviation), "{loss}");
    }
    let hot = plan("plan ring --from 4 --to 3 --hottest 0.5");
    assert!(
        hot.contains("A key with 50 % of the reads stays on one node, whatever the virtual nodes: 8,700/s there"),
        "{hot}"
    );
    for n in 2u32..12 {
        let told = json_of(&format!("plan ring --from {n} --to {}", n + 1));
        let keeps = told["modulo"]["keeps"].as_f64().unwrap();
        assert!((keeps - 1.0 / f64::from(n + 1)).abs() < 1e-9, "modulo keeps 1/(N+1): {told}");
        for way in ["ring", "rendezvous", "slots"] {
            let [moves, measured] = ["moves", "measured"].map(|k| told[way][k].as_f64().unwrap());
            assert!((measured - moves).abs() < 0.15 * moves, "{way} does as it says: {told}");
        }
    }
}

#[test]
fn the_load_on_an_origin_decays_and_a_ceiling_is_warned_of() {
    let told = json_of("plan ring --from 4 --to 3 --ceiling 14000");
    let warnings = told["warnings"].as_array().unwrap();
    assert_eq!((warnings.len(), told["modulo"]["over_ceiling"].as_bool()), (1, Some(true)), "{told}");
    let decay: Vec<f64> =
        told["ring"]["decay"].as_array().unwrap().iter().map(|d| d["origin"].as_f64().unwrap()).collect();
    assert!(decay.windows(2).all(|w| w[1] <= w[0]), "{told}");
    assert_eq!((decay[0], decay[4]), (9_961.5, 7_482.0), "gone within a TTL: {told}");
    let one = &told["spread"][0];
    assert!(one["largest"].as_f64().unwrap() > 1.8, "one node can own twice its share: {told}");
}

#[test]
fn rings_that_cannot_be_are_refused() {
    for (line, field, value) in [
        ("--from 0 --to 5", "--from", "0"),
        ("--from 4 --to 1001", "--to", "1001"),
        ("--from 4 --to 5 --virtual-nodes 0", "--virtual-nodes", "0"),
        ("--from 4 --to 5 --hit-rate 57", "--hit-rate", "57"),
        ("--from 4 --to 5 --hottest 2", "--hottest", "2"),
        ("--from 4 --to 5 --reads -1", "--reads", "-1"),
        ("--from 4 --to 5 --ttl 0", "--ttl", "0"),
        ("--from 4 --to 5 --ceiling inf", "--ceiling", "inf"),
        ("--from 1000 --to 999 --virtual-nodes 10000", "--virtual-nodes", "10000"),
    ] {
        assert_eq!(refused(&format!("plan ring {line}")), (field.to_owned(), value.to_owned()));
    }
}

#[test]
fn leases_have_the_worked_digits() {
    let told = |line: &str| {
        let told = json_of(&format!("plan lease {line}"));
        ["chunk", "bound", "bound_share", "wait_ms", "store_calls_per_second"].map(|key| told[key].as_f64().unwrap())
    };
    assert_eq!(told("--limit 1000 --gateways 4"), [25.0, 100.0, 0.1, 25.0, 40.0]);
    let [chunk, _, share, ..] = told("--limit 50000 --gateways 4");
    assert!((1_000.0..=1_500.0).contains(&chunk) && share <= 0.4);
    let fleet = told("--limit 50000 --gateways 50 --chunk 25 --messages 1500000");
    assert_eq!((fleet[3], fleet[4]), (0.5, 60_000.0));
    let unleased = json_of("plan lease --limit 50000 --gateways 50 --chunk 25 --messages 1500000");
    assert_eq!(unleased["unleased_store_calls_per_second"], 1_500_000.0);
    assert_eq!(told("--limit 1000 --gateways 50")[0], 8.0, "never more than fraction x limit / gateways");
    let text = plan("plan lease --limit 1000 --gateways 4");
    assert_eq!(row(&text, "25*"), "25* 100 10.0 % 25 ms 40");
    assert_eq!(row(&text, "100 "), "100 400 40.0 % 100 ms 10");
    let small = json_of("plan lease --limit 20 --gateways 50");
    assert_eq!((&small["shareable"], small["warnings"].as_array().unwrap().len()), (&json!(false), 1), "{small}");
}

#[test]
fn fair_shares_have_the_worked_digits() {
    let told = json_of("plan fairshare --capacity 1000 --weights 1,2,5");
    assert_eq!((&told["floors"], &told["shares"]), (&json!([125, 250, 625]), &json!([125, 250, 625])));
    let lent = json_of("plan fairshare --capacity 1000 --weights 1,2,5 --demands 2000,100,0");
    assert_eq!((&lent["shares"], &lent["idle"]), (&json!([900, 100, 0]), &json!(0)));
    assert_eq!(lent["tenants"][0]["borrowed"], 775);
}

#[test]
fn leases_and_shares_that_cannot_be_are_refused() {
    for (line, field, value) in [
        ("lease --limit 0 --gateways 4", "--limit", "0"),
        ("lease --limit 1000 --gateways 0", "--gateways", "0"),
        ("lease --limit 1000 --gateways 4 --chunk 0", "--chunk", "0"),
        ("lease --limit 1000 --gateways 4 --chunk 1001", "--chunk", "1001"),
        ("lease --limit 1000 --gateways 4 --part 2.5", "--part", "2.5"),
        ("lease --limit 1000 --gateways 4 --messages -1", "--messages", "-1"),
        ("fairshare --capacity 0 --weights 1", "--capacity", "0"),
        ("fairshare --capacity 10 --weights 1,0", "--weights", "1,0"),
        ("fairshare --capacity 10 --weights 1,2 --demands 5", "--demands", "5"),
    ] {
        assert_eq!(refused(&format!("plan {line}")), (field.to_owned(), value.to_owned()));
    }
    assert_eq!(holdfast(&["plan", "fairshare", "--capacity", "10", "--weights", ""]).status.code(), Some(2));
}

#[test]
fn a_chart_is_written_as_a_picture() {
    let folder = std::env::temp_dir().join(format!("holdfast-plan-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("chart.svg");
    plan(&format!("plan quorum --n 5 --a 0.95 --plot {}", file.display()));
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("0.1158 %"), "{svg}");
    let nowhere = holdfast(&["plan", "quorum", "--n", "5", "--a", "0.95", "--plot", "/nowhere/at/all.svg"]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    let raster = folder.with_extension("png");
    for command in [&["plan", "quorum", "--n", "5", "--a", "0.95"][..], &["sim", "run", "pin-flip", "--seeds", "1"][..]]
    {
        let refused = holdfast(&[command, &["--plot", raster.to_str().unwrap()]].concat());
        let words = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && words.contains("--plot") && words.contains("SVG"), "{words}");
        assert!(!raster.exists(), "no SVG under a name that says otherwise");
    }
}

#[test]
fn every_planner_draws_in_the_terminal_and_as_a_picture_and_speaks_json() {
    let folder = std::env::temp_dir().join(format!("holdfast-plans-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let traffic = folder.join("traffic.csv");
    std::fs::write(&traffic, "1,acme,1\n1,acme,1\n2,globex,1\n").unwrap();
    let limits = format!("limits --limit 1:1 --traffic {}", traffic.display());
    for (line, drawn) in [
        ("quorum --n 5 --a 0.95", "0.1158 %"),
        ("ring --from 4 --to 5", "rendezvous"),
        ("residency --versions 40 --size 2GB --replicas 6 --memory 24GB --layouts 10", "to 100 %"),
        ("lease --limit 1000 --gateways 4", "chunk 25"),
        ("fairshare --capacity 1000 --weights 1,2,5", "625"),
        (&limits, "acme"),
    ] {
        let picture = folder.join("chart.svg");
        let shown = plan(&format!("plan {line} --plot {}", picture.display()));
        let svg = std::fs::read_to_string(&picture).unwrap();
        std::fs::remove_file(&picture).unwrap();
        assert!(shown.contains('█') && shown.contains(drawn), "{line}: {shown}");
        assert!(svg.starts_with("<svg ") && svg.contains(drawn) && svg.ends_with("</svg>\n"), "{line}: {svg}");
        assert!(json_of(&format!("plan {line}"))["warnings"].is_array(), "{line}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
