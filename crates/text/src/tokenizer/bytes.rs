//! The printable alphabet in which byte-level vocabularies are written.
//!
//! GPT-2's `bytes_to_unicode`: printable Latin-1 bytes stand for themselves, the other 68 are, in order,
//! U+0100, U+0101, … (<https://github.com/openai/gpt-2/blob/master/src/encoder.py>).

/// Whether the byte is written as the character of the same number.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The byte that a character of the alphabet stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => is_printable(byte).then_some(byte),
        Err(_) => UNPRINTABLE
            .get(usize::try_from(code - 0x100).ok()?)
            .copied(),
    }
}

/// The bytes that are not, in order.
const UNPRINTABLE: [u8; 68] = {
    let mut all = [0; 68];
    let (mut count, mut code) = (0, 0);
    while code < 256 {
        if !is_printable(code as u8) {
            all[count] = code as u8;
            count += 1;
        }
        code += 1;
    }
    all
};

/// Appends the bytes that a token's text stands for; characters outside the alphabet stand for their UTF-8 form.
pub(super) fn decode(text: &str, bytes: &mut Vec<u8>) {
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{byte_of, decode};

    #[test]
    fn the_alphabet_is_gpt2s() {
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('\u{100}'), Some(0));
        assert_eq!(byte_of('\u{143}'), Some(0xAD));
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(byte_of(' '), None);
        assert_eq!(byte_of('é'), Some(0xE9));
        let mut bytes = Vec::new();
        decode("ĠcafÃ©", &mut bytes);
        assert_eq!(bytes, " café".as_bytes());
    }

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen = [0; 256];
        for byte in (0..0x200).filter_map(char::from_u32).filter_map(byte_of) {
            seen[usize::from(byte)] += 1;
        }
        assert_eq!(seen, [1; 256]);
    }
}
