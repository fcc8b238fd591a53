//! Short names for templates, in letters and digits that spell nothing, as upstream's names have them.

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a of 32 bits over what is given and how often that collided with something else.
pub fn of(bytes: &[u8], collisions: Option<i32>) -> String {
    let collided = collisions.map(i32::to_le_bytes);
    let all = bytes.iter().chain(collided.iter().flatten());
    let hash = all.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}
