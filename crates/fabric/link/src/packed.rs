//! The `bytes` fields that have a layout of their own: hashes, prefixes and nodes of the hash tree. The layouts are
//! described in `docs/reference/link.proto`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};

use crate::decode::WireError;
use crate::tree::{NodeSummary, Prefix};
use crate::walk::TreeNode;

pub(crate) fn write_hashes(hashes: &[u64]) -> Bytes {
    let mut out = BytesMut::with_capacity(size_of_val(hashes));
    hashes.iter().for_each(|hash| out.put_u64(*hash));
    out.freeze()
}

/// At most `limit` of them; further ones are left alone.
pub(crate) fn read_hashes(mut bytes: Bytes, limit: usize) -> Result<Vec<u64>, WireError> {
    let mut hashes = Vec::with_capacity(limit.min(bytes.len() / size_of::<u64>()));
    while bytes.has_remaining() && hashes.len() < limit {
        hashes.push(bytes.try_get_u64()?);
    }
    Ok(hashes)
}

pub(crate) fn write_prefix(prefix: Prefix) -> Bytes {
    let mut out = BytesMut::new();
    put_prefix(&mut out, prefix);
    out.freeze()
}

fn put_prefix(out: &mut BytesMut, prefix: Prefix) {
    out.put_u8(prefix.depth());
    let digits = usize::from(prefix.depth().div_ceil(2));
    out.put_slice(&prefix.first().to_be_bytes()[..digits]);
}

pub(crate) fn read_prefix(bytes: &mut Bytes) -> Result<Prefix, WireError> {
    let depth = bytes.try_get_u8()?;
    let mut bits = [0; 8];
    let digits = bits.get_mut(..usize::from(depth.div_ceil(2))).ok_or(WireError::Malformed)?;
    bytes.try_copy_to_slice(digits)?;
    Prefix::new(depth, u64::from_be_bytes(bits)).ok_or(WireError::Malformed)
}

pub(crate) fn write_node(node: &TreeNode) -> Bytes {
    let mut out = BytesMut::new();
    match node {
        TreeNode::Children(prefix, children) => {
            out.put_u8(0);
            put_prefix(&mut out, *prefix);
            for child in children.iter() {
                encode_varint(child.count, &mut out);
                if child.count > 0 {
                    out.put_u64(child.digest);
                }
            }
        }
        TreeNode::Entries(prefix, entries) => {
            out.put_u8(1);
            put_prefix(&mut out, *prefix);
            for (at, hash) in entries {
                out.put_u64(*at);
                out.put_u128(*hash);
            }
        }
    }
    out.freeze()
}

pub(crate) fn read_node(mut bytes: Bytes) -> Result<TreeNode, WireError> {
    let kind = bytes.try_get_u8()?;
    let prefix = read_prefix(&mut bytes)?;
    match kind {
        0 => {
            let mut children = Box::new([NodeSummary::default(); 16]);
            for child in children.iter_mut() {
                child.count = decode_varint(&mut bytes)?;
                if child.count > 0 {
                    child.digest = bytes.try_get_u64()?;
                }
            }
            Ok(TreeNode::Children(prefix, children))
        }
        1 => {
            let mut entries = Vec::new();
            while bytes.has_remaining() {
                entries.push((bytes.try_get_u64()?, bytes.try_get_u128()?));
            }
            Ok(TreeNode::Entries(prefix, entries))
        }
        _ => Err(WireError::Malformed),
    }
}
