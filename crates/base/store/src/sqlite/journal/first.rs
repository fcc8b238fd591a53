//! The first format of the journal, which is only read: what a store of version 2 has left is applied when it is
//! upgraded.
//!
//! A header of a magic number and a salt, then records of a length, a digest and a body. Each digest covers the one
//! before it.

use aws_lc_rs::digest;

use super::batches::{self, Reader};
use crate::Batch;

const MAGIC: &[u8; 8] = b"SELVJNL1";
const LINK: usize = 16;

type Link = [u8; LINK];

/// The batches up to the first record that is not whole. `None` if the file has another format.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<Batch>> {
    let mut rest = Reader(bytes);
    if rest.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let mut link = rest.array::<LINK>()?;
    let mut all = Vec::new();
    while let Some((found, follows)) = record(&mut rest, &link) {
        all.extend(found);
        link = follows;
    }
    Some(all)
}

fn record(rest: &mut Reader<'_>, link: &Link) -> Option<(Vec<Batch>, Link)> {
    let length = rest.array::<4>()?;
    let follows = rest.array::<LINK>()?;
    let body = rest.take(u32::from_le_bytes(length) as usize)?;
    if body.is_empty() || digest(link, &length, body) != follows {
        return None;
    }
    Some((batches::decode(body)?, follows))
}

fn digest(link: &Link, length: &[u8; 4], body: &[u8]) -> Link {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(link);
    context.update(length);
    context.update(body);
    let mut short = [0; LINK];
    short.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    short
}

#[cfg(test)]
pub(in super::super) fn write(salt: Link, batches: &[Batch]) -> Vec<u8> {
    let mut bytes = [MAGIC.as_slice(), &salt].concat();
    let mut link = salt;
    for batch in batches {
        let mut body = Vec::new();
        batches::encode(batch, &mut body);
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        link = digest(&link, &length, &body);
        bytes.extend(length.iter().chain(&link).chain(&body));
    }
    bytes.resize(1 << 20, 0);
    bytes
}
