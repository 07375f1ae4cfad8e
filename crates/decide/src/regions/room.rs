//! The room that regions need beforehand: what each would bear if one were lost.

/// Clients that prefer the regions in one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The regions that may have them, the nearest first.
    pub order: Vec<usize>,
    /// What they ask for in a second.
    pub rate: u64,
}

/// What each of so many regions bears; with `lost`, what it bears without that one. Demand that may go nowhere else is in the last place.
#[must_use]
pub fn after_loss(count: usize, demand: &[Demand], lost: Option<usize>) -> Vec<u64> {
    let mut loads = vec![0u64; count + 1];
    for one in demand {
        let nearest = one.order.iter().copied().find(|region| *region < count && Some(*region) != lost);
        let load = &mut loads[nearest.unwrap_or(count)];
        *load = load.saturating_add(one.rate);
    }
    loads
}

/// Losses of one region that the others have no room for: the lost one, the crowded one, and by how much. A crowded one past the last region is demand
/// that may go nowhere else.
#[must_use]
pub fn crowded(capacities: &[u64], demand: &[Demand]) -> Vec<(usize, usize, u64)> {
    let mut found = Vec::new();
    for lost in 0..capacities.len() {
        let loads = after_loss(capacities.len(), demand, Some(lost));
        for (region, load) in loads.into_iter().enumerate() {
            let room = capacities.get(region).copied().unwrap_or(0);
            if load > room && region != lost {
                found.push((lost, region, load - room));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(order: &[usize], rate: u64) -> Demand {
        Demand { order: order.to_vec(), rate }
    }

    #[test]
    fn the_nearest_that_is_left_takes_it() {
        let all = [demand(&[0, 1, 2], 100), demand(&[1, 0, 2], 50), demand(&[2, 1, 0], 70), demand(&[0], 5)];
        assert_eq!(after_loss(3, &all, None), [105, 50, 70, 0]);
        assert_eq!(after_loss(3, &all, Some(0)), [0, 150, 70, 5]);
        assert_eq!(after_loss(3, &all, Some(2)), [105, 120, 0, 0]);
    }

    #[test]
    fn room_that_is_missing_is_told_for_each_loss() {
        let all = [demand(&[0, 1, 2], 100), demand(&[1, 0, 2], 50), demand(&[2, 1, 0], 70)];
        assert_eq!(crowded(&[150, 150, 70], &all), []);
        assert_eq!(crowded(&[149, 140, 70], &all), [(0, 1, 10), (1, 0, 1)]);
        assert_eq!(crowded(&[150], &[demand(&[0], 5)]), [(0, 1, 5)], "where there is no other region");
    }
}
