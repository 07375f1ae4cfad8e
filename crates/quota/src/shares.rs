//! Shares of a capacity by weight: what is everybody's floor, and who is lent what others leave idle. Integers only.

/// What each weight's floor is: its part of the capacity. What division leaves goes by one to the largest remainders, then to the first. Without any
/// weight there are no floors.
#[must_use]
pub fn floors(capacity: u64, weights: &[u32]) -> Vec<u64> {
    let all: Vec<usize> = (0..weights.len()).collect();
    let mut out = vec![0; weights.len()];
    divide(capacity, weights, &all, &mut out);
    out
}

/// What each gets who asks for `demands`: nobody more than it asks for, everybody its floor if it asks for that much, and what is idle goes by weight to
/// whoever can use it (weighted max-min fairness). A demand that is missing is none.
#[must_use]
pub fn lent(capacity: u64, weights: &[u32], demands: &[u64]) -> Vec<u64> {
    let mut out = vec![0; weights.len()];
    let weight = |index: usize| u128::from(weights.get(index).copied().unwrap_or(0));
    let demand = |index: usize| demands.get(index).copied().unwrap_or(0);
    let mut hungry: Vec<usize> = (0..weights.len()).filter(|index| weight(*index) > 0).collect();
    let mut left = capacity;
    loop {
        let total: u128 = hungry.iter().map(|index| weight(*index)).sum();
        // Whoever asks for no more than its part of what is left gets all that it asks for; the others share what that leaves.
        let is_fed = |index: usize| u128::from(demand(index)) * total <= u128::from(left) * weight(index);
        let fed: Vec<usize> = hungry.iter().copied().filter(|index| is_fed(*index)).collect();
        if fed.is_empty() {
            divide(left, weights, &hungry, &mut out);
            return out;
        }
        for index in fed {
            left = left.saturating_sub(demand(index));
            hungry.retain(|other| *other != index);
            if let Some(slot) = out.get_mut(index) {
                *slot = demand(index);
            }
        }
    }
}

/// Divides all of the capacity among some by weight.
fn divide(capacity: u64, weights: &[u32], among: &[usize], out: &mut [u64]) {
    let weight = |index: usize| u128::from(weights.get(index).copied().unwrap_or(0));
    let total: u128 = among.iter().map(|index| weight(*index)).sum();
    if total == 0 {
        return;
    }
    let mut rests: Vec<(std::cmp::Reverse<u128>, usize)> = Vec::with_capacity(among.len());
    let mut left = capacity;
    for index in among {
        let product = u128::from(capacity) * weight(*index);
        let part = u64::try_from(product / total).unwrap_or(u64::MAX);
        if let Some(slot) = out.get_mut(*index) {
            *slot = part;
        }
        left = left.saturating_sub(part);
        rests.push((std::cmp::Reverse(product % total), *index));
    }
    rests.sort_unstable();
    let most = usize::try_from(left).unwrap_or(usize::MAX);
    for (_, index) in rests.into_iter().take(most) {
        if let Some(slot) = out.get_mut(index) {
            *slot += 1;
        }
    }
}
