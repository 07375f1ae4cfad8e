//! Random histories of a fleet: partitions, lost and late messages, processes that stop, go on and die, clocks that differ by a tenth, two control
//! planes that both believe to lead. At every moment all who may load do so under one seating, loads on a server and in the fleet are within
//! their bounds, and once all is well again every server has an owner that may load.

mod seats_world;

use proptest::prelude::*;
use seats_world::{Shape, World};

fn shape() -> impl Strategy<Value = Shape> {
    (1usize..6, 1u32..9, any::<bool>(), any::<bool>()).prop_map(|(gateways, bound, lists, peers)| Shape {
        gateways,
        bound,
        lists,
        peers,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn loads_stay_within_their_bounds_whatever_happens(shape in shape(), seed in any::<u64>()) {
        let mut world = World::new(shape, seed);
        for _ in 0..1_500 {
            world.step();
        }
        world.heal();
        for _ in 0..2_000 {
            world.step();
        }
        world.all_is_well();
    }

    /// No control plane from some moment on: whoever can reach more than half goes on.
    #[test]
    fn a_majority_goes_on_without_a_control_plane(seed in any::<u64>(), gateways in 3usize..6) {
        let mut world = World::new(Shape { gateways, bound: 8, lists: true, peers: true }, seed);
        world.heal();
        for _ in 0..1_000 {
            world.step();
        }
        world.all_is_well();
        world.lose_controls();
        for _ in 0..200 {
            world.step();
        }
        world.all_may_load();
        world.kill(0);
        for _ in 0..200 {
            world.step();
        }
        prop_assert_eq!(world.loading_gateways(), gateways - 1);
    }
}
