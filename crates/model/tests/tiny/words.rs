//! Words that follow from a name, in any language: what the weights of test models are made of.

/// splitmix64 seeded with the FNV-1a hash of `name`.
pub(super) fn words(name: &str, count: u64) -> impl Iterator<Item = u64> {
    let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    (1..=count).map(move |i| {
        let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
