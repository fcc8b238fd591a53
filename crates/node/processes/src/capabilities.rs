//! Which capabilities a container has: those that containers have everywhere, with what its `securityContext` adds and
//! drops.

use pods::runtime::Capabilities;
use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
        set_capabilities,
    },
};

/// What Docker and containerd leave a container, without MKNOD: they let it make devices because control groups keep
/// it from using them, which is not so here.
const USUAL: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// The bits of the capabilities that a container may have. None: all that there are.
pub fn allowed(asked: &Capabilities) -> Result<Option<u64>, String> {
    if asked.privileged {
        return Ok(None);
    }
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL") || name.eq_ignore_ascii_case("CAP_ALL");
    let mut found = if asked.add.iter().any(is_all) { CapabilitySet::all() } else { USUAL };
    if asked.drop.iter().any(is_all) {
        found = CapabilitySet::empty();
    }
    for name in asked.add.iter().filter(|name| !is_all(name)) {
        found |= named(name)?;
    }
    for name in asked.drop.iter().filter(|name| !is_all(name)) {
        found -= named(name)?;
    }
    Ok((found != CapabilitySet::all()).then_some(found.bits()))
}

/// With or without `CAP_`, in any case, as runtimes take it.
fn named(name: &str) -> Result<CapabilitySet, String> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
    CapabilitySet::from_name(short).ok_or_else(|| format!("there is no capability {name:?}"))
}

/// No program that this process executes can have others. To be called while it is still root, if it ever was.
pub fn bound(allowed: u64) -> Result<(), String> {
    for bit in (0..u64::BITS).filter(|bit| allowed & (1 << bit) == 0) {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // The kernel has no more.
            Err(Errno::INVAL) => break,
            // A process that is not root may not, and has none either.
            Err(Errno::PERM) => return Ok(()),
            Err(error) => return Err(format!("cannot limit its capabilities: {error}")),
        }
    }
    Ok(())
}

/// This process has no others any more. To be called when it is who it is to be.
pub fn keep_only(allowed: u64) -> Result<(), String> {
    let failed = |error: Errno| format!("cannot limit its capabilities: {error}");
    let has = capabilities(None).map_err(failed)?;
    let allowed = CapabilitySet::from_bits_retain(allowed);
    let keeps = CapabilitySets {
        effective: has.effective & allowed,
        permitted: has.permitted & allowed,
        inheritable: CapabilitySet::empty(),
    };
    // A kernel without ambient capabilities has none.
    let _ = clear_ambient_capability_set();
    set_capabilities(None, keeps).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_may() {
        let strings = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let asked = |add: &[&str], drop: &[&str]| {
            allowed(&Capabilities { add: strings(add), drop: strings(drop), privileged: false })
        };
        let only = |set: CapabilitySet| Ok(Some(set.bits()));
        assert_eq!(asked(&[], &[]), only(USUAL));
        assert_eq!(asked(&["SYS_TIME"], &[]), only(USUAL | CapabilitySet::SYS_TIME));
        assert_eq!(
            asked(&["cap_sys_time"], &["CHOWN"]),
            only((USUAL | CapabilitySet::SYS_TIME) - CapabilitySet::CHOWN)
        );
        assert_eq!(asked(&[], &["ALL"]), only(CapabilitySet::empty()));
        assert_eq!(asked(&["NET_BIND_SERVICE"], &["ALL"]), only(CapabilitySet::NET_BIND_SERVICE));
        assert_eq!(asked(&["ALL"], &[]), Ok(None));
        assert_eq!(asked(&["ALL"], &["SYS_ADMIN"]), only(CapabilitySet::all() - CapabilitySet::SYS_ADMIN));
        assert!(asked(&["FLY"], &[]).unwrap_err().contains("FLY"));
        let privileged = Capabilities { privileged: true, drop: strings(&["ALL"]), ..Capabilities::default() };
        assert_eq!(allowed(&privileged), Ok(None));
        for risky in [CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_PTRACE, CapabilitySet::MKNOD, CapabilitySet::BPF] {
            assert!(!USUAL.contains(risky));
        }
    }
}
