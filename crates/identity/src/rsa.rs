//! What an RSA key must be, beside being one: long enough, with an exponent that does its work, and not of a generator whose keys can be factored.

/// Primes up to 167, and of each the powers of 65537 as a bit set are what a weak modulus is confined to.
const PRIMES: [u32; 39] = [
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109,
    113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
];

/// Why an RSA key is not taken. None: nothing is known against it.
#[must_use]
pub fn fault(modulus: &[u8], exponent: &[u8]) -> Option<&'static str> {
    let bits = modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
    let e = exponent.iter().try_fold(0u64, |e, byte| e.checked_mul(256).map(|e| e + u64::from(*byte)));
    if modulus.first() == Some(&0) || exponent.first() == Some(&0) {
        return Some("a number of the key begins with a zero byte");
    }
    if !(2048..=8192).contains(&bits) {
        return Some("an RSA key must have 2048 to 8192 bits");
    }
    match e {
        Some(e) if e >= 3 && e % 2 == 1 && e < 1 << 33 => {}
        _ => return Some("the key's exponent must be odd, from 3 to 2^33"),
    }
    if modulus.last().is_some_and(|last| last % 2 == 0) {
        return Some("the key's modulus is even");
    }
    is_roca(modulus).then_some("the key is of a generator whose keys can be factored (CVE-2017-15361)")
}

/// Nemec, Sys, Svenda, Klinec, Matyas, "The Return of Coppersmith's Attack", CCS 2017, 2.2: a modulus of the faulty generator is a power of 65537 modulo
/// every small prime. Of other moduli one in about 2^27 is.
fn is_roca(modulus: &[u8]) -> bool {
    PRIMES.iter().all(|prime| {
        let rest = modulus.iter().fold(0u32, |rest, byte| (rest * 256 + u32::from(*byte)) % prime);
        let (generator, mut power) = (65_537 % prime, 1 % prime);
        for _ in 0..*prime {
            if power == rest {
                return true;
            }
            power = power * generator % prime;
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_exponents() {
        let mut modulus = vec![0xc1; 256];
        modulus[255] = 0x0d;
        assert_eq!(fault(&modulus, &[1, 0, 1]), None);
        assert_eq!(fault(&modulus, &[3]), None);
        for (modulus, exponent) in [
            (vec![0xc1; 128], vec![1, 0, 1]),
            (vec![0x71; 256], vec![1, 0, 1]),
            (vec![0xc1; 1025], vec![1, 0, 1]),
            (modulus.clone(), vec![1]),
            (modulus.clone(), vec![]),
            (modulus.clone(), vec![0, 1, 0, 1]),
            (modulus.clone(), vec![1, 0, 0]),
            (modulus.clone(), vec![1; 20]),
            ([vec![0], modulus.clone()].concat(), vec![1, 0, 1]),
            (vec![0xc2; 256], vec![1, 0, 1]),
            (vec![], vec![1, 0, 1]),
        ] {
            assert!(fault(&modulus, &exponent).is_some(), "{} bytes, {exponent:?}", modulus.len());
        }
    }
}
