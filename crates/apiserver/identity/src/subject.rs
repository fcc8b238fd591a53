//! The subject of a certificate, whole: a name may have several attributes of one type (an `O` for each group), in
//! order. The library that makes certificates keeps one of each type, so the subject is put into what it has made, and
//! that is signed again.

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, SigningKey};
use x509_parser::x509::X509Name;

use super::Error;

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
/// DER's tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const UTF8: u8 = 0x0c;
const BITS: u8 = 0x03;
/// Where the subject is in what is signed of a certificate: behind version, serial number, algorithm, issuer and
/// validity.
const SUBJECT: usize = 5;

/// The attributes of a name: the encoded type and the value of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject(Vec<(Vec<u8>, String)>);

impl Subject {
    /// Every value must be text that is read here, or somebody else might read more in the certificate than was looked
    /// at.
    pub fn read(name: &X509Name<'_>) -> Result<Self, String> {
        let attribute = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            let value =
                part.as_str().map_err(|_| format!("the value of {} in its subject is no text", part.attr_type()))?;
            Ok((part.attr_type().as_bytes().to_vec(), value.to_owned()))
        };
        name.iter().flat_map(|rdn| rdn.iter()).map(attribute).collect::<Result<_, _>>().map(Self)
    }

    pub fn organizations(&self) -> Vec<String> {
        self.all(ORGANIZATION).map(str::to_owned).collect()
    }

    /// The last one counts, as everybody reads it.
    pub fn common_name(&self) -> &str {
        self.all(COMMON_NAME).last().unwrap_or_default()
    }

    fn all<'a>(&'a self, ty: &'a [u8]) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(of, _)| of == ty).map(|(_, value)| value.as_str())
    }

    fn der(&self) -> Vec<u8> {
        let attribute = |(ty, value): &(Vec<u8>, String)| {
            let pair = [encode(OID, ty), encode(UTF8, value.as_bytes())].concat();
            encode(SET, &encode(SEQUENCE, &pair))
        };
        encode(SEQUENCE, &self.0.iter().flat_map(attribute).collect::<Vec<u8>>())
    }

    /// The certificate with this subject instead of its own, signed with the key of its issuer. In PEM.
    pub fn put_into(&self, certificate: &[u8], key: &KeyPair) -> Result<String, Error> {
        let unreadable = || Error::Key("a certificate that was just made cannot be read".to_owned());
        let outer = decode(certificate).filter(|(_, rest)| rest.is_empty()).ok_or_else(unreadable)?;
        let parts = elements(outer.0).filter(|parts| parts.len() == 3).ok_or_else(unreadable)?;
        let mut signed = decode(parts[0]).and_then(|(content, _)| elements(content)).ok_or_else(unreadable)?;
        let subject = self.der();
        *signed.get_mut(SUBJECT).ok_or_else(unreadable)? = &subject;
        let signed = encode(SEQUENCE, &signed.concat());
        let signature = key.sign(&signed)?;
        let signature = encode(BITS, &[&[0], signature.as_slice()].concat());
        Ok(pem(&encode(SEQUENCE, &[&signed, parts[1], &signature].concat())))
    }
}

fn encode(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

/// The content of the first element, and what is behind it.
fn decode(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = (*der.get(1)?, der.get(2..)?);
    let (length, behind) = match length {
        ..=0x7f => (usize::from(length), behind),
        0x81..=0x84 => {
            let (digits, behind) = behind.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |all, digit| all << 8 | usize::from(*digit)), behind)
        }
        _ => return None,
    };
    behind.split_at_checked(length)
}

/// All elements, each whole.
fn elements(mut der: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !der.is_empty() {
        let (_, rest) = decode(der)?;
        let (one, rest) = der.split_at_checked(der.len() - rest.len())?;
        all.push(one);
        der = rest;
    }
    Some(all)
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, letter) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            out.push('\n');
        }
        out.push(letter);
    }
    out.push_str("\n-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use x509_parser::prelude::FromDer;

    use super::*;

    proptest! {
        #[test]
        fn names_read_back(parts in vec((0u8..3, "\\PC{0,200}"), 0..6)) {
            let types = [COMMON_NAME, ORGANIZATION, &[0x55, 4, 11]];
            let typed = parts.into_iter().map(|(ty, value)| (types[usize::from(ty)].to_vec(), value));
            let subject = Subject(typed.collect());
            let der = subject.der();
            let (rest, name) = X509Name::from_der(&der).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(Subject::read(&name), Ok(subject));
        }

        #[test]
        fn elements_are_cut_where_they_end(parts in vec(vec(any::<u8>(), 0..300), 0..5)) {
            let each: Vec<Vec<u8>> = parts.iter().map(|part| encode(SEQUENCE, part)).collect();
            let all = each.concat();
            prop_assert_eq!(elements(&all), Some(each.iter().map(Vec::as_slice).collect::<Vec<_>>()));
            if let Some(cut) = all.len().checked_sub(1) {
                prop_assert_eq!(elements(&all[..cut]), None);
            }
        }

        #[test]
        fn no_bytes_panic(der in vec(any::<u8>(), 0..64)) {
            let _ = (elements(&der), decode(&der));
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_refused() {
        // "system:masters" in UTF-16.
        let wide: Vec<u8> = "system:masters".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let pair = [encode(OID, ORGANIZATION), encode(0x1e, &wide)].concat();
        let der = encode(SEQUENCE, &encode(SET, &encode(SEQUENCE, &pair)));
        let (_, name) = X509Name::from_der(&der).unwrap();
        assert!(Subject::read(&name).unwrap_err().contains("2.5.4.10"));
    }
}
