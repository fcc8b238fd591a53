//! `base64.*` and `jsonpatch.escapeKey`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

use super::super::value::Value;
use super::super::{Evaluated, error, no_overload};

/// Padding may be there or not, and bits that say nothing may be anything, as Go has it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

pub fn base64(name: &str, args: &[Value]) -> Evaluated {
    match (name, args) {
        ("encode", [Value::Bytes(bytes)]) => Ok(STANDARD.encode(bytes).into()),
        ("decode", [Value::String(text)]) => {
            let kept: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            LENIENT.decode(&kept).map(|bytes| Value::Bytes(bytes.into())).or_else(|why| match why {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
                    error(format!("illegal base64 data at input byte {at}"))
                }
                _ => error(format!("illegal base64 data at input byte {}", kept.trim_end_matches('=').len())),
            })
        }
        _ => no_overload(),
    }
}

/// A key as a part of a JSON pointer.
pub fn escape_key(text: &str) -> Value {
    text.replace('~', "~0").replace('/', "~1").into()
}
