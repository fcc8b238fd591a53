//! Labels and annotations with a meaning.

/// On a SyncTarget: the workspace whose objects the edge shall hold, until placements say so.
pub const WORKSPACE: &str = "edge.selvedge.dev/workspace";
/// On a SyncTarget: how many deletions somebody allows that the deletion fuse holds.
pub const CONFIRM_DELETION: &str = "edge.selvedge.dev/confirm-deletion";
/// On a SyncTarget: follow this center although its history is another one than the edge has seen. Any value; taken away once done.
pub const ADOPT: &str = "edge.selvedge.dev/adopt";
/// On a placed object: `queue` lets clients on the edge write to it while the center is away.
pub const OFFLINE_WRITES: &str = "edge.selvedge.dev/offline-writes";
/// On every object that a center sent: the workspace that it comes from.
pub const SOURCE: &str = "edge.selvedge.dev/source";
/// On every object that a center sent, as a label with the value `yes`.
pub const PROJECTED: &str = "edge.kcp.io/projected";
/// On a Namespace that a center sent, `true`: its workspace may have it only if nobody else has it on the edge, nor the edge itself.
pub const EXCLUSIVE: &str = "edge.selvedge.dev/exclusive";
/// On a SyncTarget: that somebody who may has decided that the edge holds the objects of the workspace that [`WORKSPACE`] names, as
/// JSON. Written by the server only.
pub const WORKSPACE_GRANTED: &str = "edge.selvedge.dev/workspace-granted";
/// On a placed object at the center: how many edges hold it.
pub const EXECUTING_COUNT: &str = "kubestellar.io/executing-count";
/// On a placed object at the center whose status is that of several edges: on how many of them it is ready, as in
/// `1 of 2 ready`.
pub const EDGES: &str = "edge.selvedge.dev/edges";
/// On a SyncTarget, with the value `cut`: the center drops and refuses the edge's link as a dead network would.
pub const LINK: &str = "edge.selvedge.dev/link";
/// On a SyncTarget: which of several machines with the edge's identity is let in, as JSON. Written by the center.
pub const INSTANCES: &str = "edge.selvedge.dev/instances";
/// On a SyncTarget: the machine to let in from now on, by its number in [`INSTANCES`], or `any` when only one is left.
/// Taken away once done.
pub const ACCEPT_INSTANCE: &str = "edge.selvedge.dev/accept-instance";
/// On an object of an edge: the center has not yet said whether it takes what was written here while it was away.
pub const PENDING: &str = "edge.selvedge.dev/pending-write";
/// On a SyncTarget: what the certificate of its edge has to say besides the SyncTarget's uid. New with every joining; another
/// value, such as a revocation leaves there, shuts out the certificates of before.
pub const CREDENTIAL: &str = "edge.selvedge.dev/credential";
/// On an object at the center, with the value `edge`: it is meant for edges and does nothing at the center. Rules of access, webhooks,
/// APIServices and definitions of kinds can be declared and placed that way.
pub const ONLY: &str = "edge.selvedge.dev/only";
pub const ONLY_EDGE: &str = "edge";
/// The other value of [`ONLY`]: the object stays at the center, also if a placement selects it. On a Namespace: with
/// all that is in it.
pub const ONLY_CENTER: &str = "center";
/// On a placed object, `true`: the edge makes it if it is not there, and never changes it after that.
pub const CREATE_ONLY: &str = "edge.selvedge.dev/create-only";
/// On a placed object, `true`: it stays on the edge, as the edge's own, when it is no longer placed there.
pub const ORPHAN: &str = "edge.selvedge.dev/orphan";
/// On a Namespace of an edge: the workspace that placed it there before. It stayed because users of the edge have
/// objects of their own in it.
pub const LEFT_BY: &str = "edge.selvedge.dev/left-by";
/// On an object in a mailbox, as a label with the value `yes`: the edge made it, and reported it.
pub const UPSYNCED: &str = "edge.kcp.io/upsynced";
/// On every object that an edge has applied to a cluster, as a label: `yes` if it may delete it, `adopted` if it was there before.
pub const DOWNSYNCED: &str = "edge.kcp.io/downsynced";
/// On the same objects: which edge.
pub const EDGE: &str = "edge.selvedge.dev/edge";
/// On an object of an edge: why the cluster that it is meant for did not take it. Reported to the center.
pub const REFUSED: &str = "edge.selvedge.dev/refused";
/// On an object of an edge: whose changes in the cluster were taken back. Reported to the center.
pub const OVERRULED: &str = "edge.selvedge.dev/overruled";
