//! `holdfast plan ring`.

use holdfast_placement::members::{Member, MemberList};
use holdfast_placement::movement::{self, Share};
use holdfast_placement::origin::Tier;
use holdfast_placement::owners::Owners;
use holdfast_placement::rendezvous::Rendezvous;
use holdfast_placement::ring::Ring;
use holdfast_placement::slots::SlotMap;
use holdfast_types::{Revision, Weight};
use serde_json::{Map, Value, json};

use super::chart::Chart;
use super::figure::{about, number, percent, round, things};
use super::refusal::{Refusal, count, positive, share};
use super::{Report, output};
use crate::cli::RingArgs;

/// More members than this would take minutes to measure.
const MOST_MEMBERS: u32 = 1_000;
/// Virtual nodes of one member.
const MOST_NODES: u32 = 10_000;
/// Points of rings, and scores of keys, that are computed for one figure.
const WORK: u32 = 2_000_000;
/// Slots of the measured map are two to this power.
const SLOT_BITS: u32 = 12;
/// Moments of the decay, in parts of a TTL.
const MOMENTS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// One way to place keys, and what it moves.
struct Way {
    name: &'static str,
    moves: f64,
    measured: Option<f64>,
}

struct Spread {
    virtual_nodes: u32,
    deviation: f64,
    largest: f64,
}

struct Input<'a> {
    args: &'a RingArgs,
    tier: Tier,
    ways: Vec<Way>,
    spreads: Vec<Spread>,
}

/// Plans.
pub fn plan(args: &RingArgs) -> Result<Report, Refusal> {
    count("--from", args.from, MOST_MEMBERS)?;
    count("--to", args.to, MOST_MEMBERS)?;
    count("--virtual-nodes", args.virtual_nodes, MOST_NODES)?;
    let ttl = positive("--ttl", args.ttl)?;
    positive("--ceiling", args.ceiling)?;
    args.hottest.map(|hottest| share("--hottest", hottest)).transpose()?;
    let tier = Tier { reads: positive("--reads", args.reads)?, hit_rate: share("--hit-rate", args.hit_rate)?, ttl };
    let ways = ways(args)?;
    let spreads = [1, 10, 100, 1_000].into_iter().map(|nodes| spread(args.from, nodes)).collect::<Result<_, _>>()?;
    let input = Input { args, tier, ways, spreads };
    Ok(Report { text: text(&input), json: told(&input), chart: chart(&input), warnings: warnings(&input) })
}

fn members(set: u32, many: u32) -> Result<MemberList, Refusal> {
    let list = (0..many).map(|index| Member::new(format!("node-{set}-{index}"), Weight(1))).collect();
    MemberList::new(Revision(1), list).map_err(|e| Refusal::new("--to", many, e.to_string()))
}

fn ring(set: u32, many: u32, virtual_nodes: u32) -> Result<Ring, Refusal> {
    Ring::new(members(set, many)?, virtual_nodes)
        .map_err(|e| Refusal::new("--virtual-nodes", virtual_nodes, e.to_string()))
}

/// How many sets of names a figure is the mean of.
fn sets(points: u32) -> u32 {
    (WORK / points.max(1)).clamp(1, 30)
}

fn ways(args: &RingArgs) -> Result<Vec<Way>, Refusal> {
    let (from, to) = (args.from, args.to);
    let most = from.max(to);
    let sets = sets(most.saturating_mul(args.virtual_nodes));
    let mut on_rings = 0.0;
    for set in 0..sets {
        let (before, after) = (ring(set, from, args.virtual_nodes)?, ring(set, to, args.virtual_nodes)?);
        on_rings += movement::ring(&before, &after).of_one() / f64::from(sets);
    }
    let (few, many) = (members(0, from)?, members(0, to)?);
    let ranks = |list: &MemberList| Owners::Rendezvous(Rendezvous::new(list.clone()));
    let keys = (WORK / most).clamp(1_000, 20_000);
    let by_rank = movement::sampled(&ranks(&few), &ranks(&many), keys);
    let map = SlotMap::new(SLOT_BITS, few).map_err(|e| Refusal::new("--from", from, e.to_string()))?;
    let in_slots = movement::slots(&map, many);
    let least = movement::least(from, to).of_one();
    let way = |name, moves: f64, measured: Option<Share>| Way { name, moves, measured: measured.map(Share::of_one) };
    Ok(vec![
        way("modulo", movement::modulo(from, to).of_one(), None),
        Way { name: "ring", moves: least, measured: Some(on_rings) },
        way("rendezvous", least, Some(by_rank)),
        way("slots", least, Some(in_slots)),
    ])
}

fn spread(many: u32, virtual_nodes: u32) -> Result<Spread, Refusal> {
    let sets = sets(many.saturating_mul(virtual_nodes));
    let (mut variance, mut largest) = (0.0, 0.0);
    for set in 0..sets {
        let found = movement::spread(&ring(set, many, virtual_nodes)?);
        variance += found.variance / f64::from(sets);
        largest += found.largest / f64::from(sets);
    }
    Ok(Spread { virtual_nodes, deviation: variance.sqrt(), largest })
}

fn told(input: &Input) -> Value {
    let (args, tier) = (input.args, input.tier);
    let way = |way: &Way| {
        let (extra, total) = (tier.extra(way.moves), tier.origin() + tier.extra(way.moves));
        let later = MOMENTS.map(|part| {
            let bears = tier.origin() + tier.extra_after(way.moves, part * tier.ttl);
            json!({ "after_seconds": round(part * tier.ttl, 3), "origin": round(bears, 1) })
        });
        let value = json!({
            "moves": way.moves, "keeps": 1.0 - way.moves, "measured": way.measured.map(|m| round(m, 4)),
            "extra": round(extra, 1), "extra_about": about(extra), "origin": round(total, 1), "origin_about": about(total),
            "over_ceiling": total > args.ceiling, "decay": later,
        });
        (way.name.to_owned(), value)
    };
    let mut members: Map<String, Value> = input.ways.iter().map(way).collect();
    let spreads = input.spreads.iter().map(|s| {
        let expected = 1.0 / f64::from(s.virtual_nodes).sqrt();
        let [expected, measured, largest] = [expected, s.deviation, s.largest].map(|figure| round(figure, 4));
        json!({ "virtual_nodes": s.virtual_nodes, "deviation_about": expected, "deviation": measured, "largest": largest })
    });
    members.insert("spread".to_owned(), spreads.collect());
    members.insert(
        "origin".to_owned(),
        json!({
            "reads": args.reads, "hit_rate": args.hit_rate, "ttl_seconds": args.ttl, "ceiling": args.ceiling,
            "before": round(tier.origin(), 1), "before_about": about(tier.origin()),
            "settled_after_seconds": round(tier.settled_after(), 1),
        }),
    );
    let hottest = args.hottest.map(|hottest| {
        json!({ "share": hottest, "reads": round(hottest * args.reads, 1), "even": round(args.reads / f64::from(args.from), 1) })
    });
    members.insert("hottest".to_owned(), json!(hottest));
    for (key, value) in [("from", args.from), ("to", args.to), ("virtual_nodes", args.virtual_nodes)] {
        members.insert(key.to_owned(), json!(value));
    }
    Value::Object(members)
}

fn text(input: &Input) -> String {
    let (args, tier) = (input.args, input.tier);
    let moved = input.ways.iter().map(|way| {
        let extra = tier.extra(way.moves);
        vec![
            way.name.to_owned(),
            percent(way.moves, 1),
            percent(1.0 - way.moves, 1),
            way.measured.map_or("-".to_owned(), |m| percent(m, 1)),
            number(about(extra), 0),
            number(about(tier.origin() + extra), 0),
        ]
    });
    let head = ["placement", "moves", "keeps", "measured", "origin, more/s", "origin/s"];
    let later = input.ways.iter().take(2).map(|way| {
        let at = MOMENTS.map(|part| number(tier.origin() + tier.extra_after(way.moves, part * tier.ttl), 0));
        [vec![way.name.to_owned()], at.to_vec()].concat()
    });
    let moments = MOMENTS.map(|part| format!("at {} s", number(part * tier.ttl, 0)));
    let later_head: Vec<&str> = ["origin/s"].into_iter().chain(moments.iter().map(String::as_str)).collect();
    let spreads = input.spreads.iter().map(|s| {
        let even = percent(1.0 / f64::from(s.virtual_nodes).sqrt(), 1);
        vec![s.virtual_nodes.to_string(), even, percent(s.deviation, 1), format!("{} x", number(s.largest, 2))]
    });
    let spread_head = ["virtual nodes", "deviation, 1/sqrt(v)", "measured", "largest share"];
    format!(
        "{} to {}; {} each on the ring\n\n{}\n\n\
         The origin bears about {}/s before: {} reads/s, hit rate {}. Moved keys miss; their load is gone {} s later, within a TTL:\n\n{}\n\n\
         Shares of {} on a ring, as parts of an even share:\n\n{}{}",
        args.from,
        things(args.to.into(), "member"),
        things(args.virtual_nodes.into(), "virtual node"),
        output::table(&head, moved),
        number(about(tier.origin()), 0),
        number(args.reads, 0),
        percent(args.hit_rate, 0),
        number(tier.settled_after(), 0),
        output::table(&later_head, later),
        things(args.from.into(), "member"),
        output::table(&spread_head, spreads),
        hottest(args)
    )
}

/// What one key brings to the node that has it.
fn hottest(args: &RingArgs) -> String {
    let Some(hottest) = args.hottest else { return String::new() };
    format!(
        "\n\nA key with {} of the reads stays on one node, whatever the virtual nodes: {}/s there, where an even part of all is {}/s.",
        percent(hottest, 0),
        number(hottest * args.reads, 0),
        number(args.reads / f64::from(args.from), 0)
    )
}

fn warnings(input: &Input) -> Vec<String> {
    let (ceiling, tier) = (input.args.ceiling, input.tier);
    let over = input.ways.iter().filter(|way| tier.origin() + tier.extra(way.moves) > ceiling);
    let over = over.map(|way| {
        let bears = number(tier.origin() + tier.extra(way.moves), 0);
        format!("{}: the origin would have to bear {bears}/s, over its ceiling of {}/s", way.name, number(ceiling, 0))
    });
    over.collect()
}

fn chart(input: &Input) -> Chart {
    let tier = input.tier;
    let mut chart = Chart::new("origin, reads per second in the first moment");
    chart.bar("before", tier.origin(), number(tier.origin(), 0));
    for way in &input.ways {
        let bears = tier.origin() + tier.extra(way.moves);
        chart.bar(way.name, bears, number(bears, 0));
    }
    chart.limit = Some((format!("ceiling {}", number(input.args.ceiling, 0)), input.args.ceiling));
    chart
}
