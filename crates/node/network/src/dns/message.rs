//! Questions and answers of DNS as bytes. Only what a resolver of Services needs. Pure.

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const PTR: u16 = 12;
pub const AAAA: u16 = 28;
pub const SRV: u16 = 33;
pub const OPT: u16 = 41;
pub const ANY: u16 = 255;
const INTERNET: u16 = 1;
const LONGEST_NAME: usize = 253;
/// What fits into a datagram if nobody says more, and the most that is ever sent in one.
const PLAIN: usize = 512;
const LARGEST: usize = 1232;
/// Others may ask again after so many seconds.
pub const TTL: u32 = 5;

pub const BAD_FORMAT: u8 = 1;
pub const FAILED: u8 = 2;
pub const NO_SUCH_NAME: u8 = 3;
pub const NOT_DONE: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub id: u16,
    /// In lower case, without the last dot.
    pub name: String,
    pub kind: u16,
    /// Where in the message the question ends.
    end: usize,
    /// How much the client takes in one datagram; none without EDNS.
    room: Option<u16>,
    wants_recursion: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    A(std::net::Ipv4Addr),
    Aaaa(std::net::Ipv6Addr),
    Cname(String),
    Ptr(String),
    Srv { port: u16, target: String },
    Soa(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub data: Data,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub code: u8,
    pub answers: Vec<Record>,
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// What is asked. An error is the answer that says what was wrong, if the message can be answered at all.
pub fn question(bytes: &[u8]) -> Result<Question, Option<Vec<u8>>> {
    let (Some(id), Some(flags)) = (number(bytes, 0), number(bytes, 2)) else { return Err(None) };
    if bytes.len() < 12 || flags & 0x8000 != 0 {
        // An answer is never answered.
        return Err(None);
    }
    let wrong = |code: u8| Some(header(id, flags & 0x7900 | 0x8000 | u16::from(code), [0; 4]));
    if flags & 0x7800 != 0 {
        return Err(wrong(NOT_DONE));
    }
    if number(bytes, 4) != Some(1) {
        return Err(wrong(BAD_FORMAT));
    }
    let (name, at) = name(bytes, 12).ok_or_else(|| wrong(BAD_FORMAT))?;
    let (Some(kind), Some(_)) = (number(bytes, at), number(bytes, at + 2)) else { return Err(wrong(BAD_FORMAT)) };
    let end = at + 4;
    let additional = number(bytes, 10).unwrap_or(0);
    let others = number(bytes, 6).unwrap_or(0) > 0 || number(bytes, 8).unwrap_or(0) > 0;
    // The only record that clients send along is OPT, whose name is the root.
    let is_opt = additional > 0 && !others && bytes.get(end) == Some(&0) && number(bytes, end + 1) == Some(OPT);
    let room = number(bytes, end + 3).filter(|_| is_opt);
    Ok(Question { id, name, kind, end, room, wants_recursion: flags & 0x0100 != 0 })
}

/// A name, and where it ends. Questions have no pointers that would have to be followed.
fn name(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((text, at));
        }
        if length > 63 || text.len() + length > LONGEST_NAME {
            return None;
        }
        let label = bytes.get(at..at + length)?;
        if !text.is_empty() {
            text.push('.');
        }
        // Names of Services are ASCII; whatever else comes is looked for as it is, and not found.
        text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        at += length;
    }
}

fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    for one in [id, flags].into_iter().chain(counts) {
        bytes.extend(one.to_be_bytes());
    }
    bytes
}

fn write_name(into: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label: Vec<u8> = label.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).take(63).collect();
        into.push(u8::try_from(label.len()).unwrap_or(0));
        into.extend(label);
    }
    into.push(0);
}

impl Data {
    fn kind(&self) -> u16 {
        match self {
            Self::A(_) => A,
            Self::Aaaa(_) => AAAA,
            Self::Cname(_) => CNAME,
            Self::Ptr(_) => PTR,
            Self::Srv { .. } => SRV,
            Self::Soa(_) => SOA,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::A(ip) => bytes.extend(ip.octets()),
            Self::Aaaa(ip) => bytes.extend(ip.octets()),
            Self::Cname(name) | Self::Ptr(name) => write_name(&mut bytes, name),
            Self::Srv { port, target } => {
                for one in [0, 100, *port] {
                    bytes.extend(one.to_be_bytes());
                }
                write_name(&mut bytes, target);
            }
            Self::Soa(zone) => {
                write_name(&mut bytes, &format!("ns.dns.{zone}"));
                write_name(&mut bytes, &format!("hostmaster.{zone}"));
                // That a name is not there is remembered as long as that it is.
                for one in [1_u32, 7200, 1800, 86400, TTL] {
                    bytes.extend(one.to_be_bytes());
                }
            }
        }
        bytes
    }
}

fn write_record(into: &mut Vec<u8>, record: &Record, asked: &str) {
    if record.name == asked {
        // Where the question has it.
        into.extend([0xc0, 12]);
    } else {
        write_name(into, &record.name);
    }
    into.extend(record.data.kind().to_be_bytes());
    into.extend(INTERNET.to_be_bytes());
    into.extend(TTL.to_be_bytes());
    let data = record.data.bytes();
    into.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
    into.extend(data);
}

/// The answer to `query`, in which `question` was. A stream has no limit but its own.
pub fn answer(query: &[u8], question: &Question, reply: &Reply, is_stream: bool) -> Vec<u8> {
    let room = match (is_stream, question.room) {
        (true, _) => usize::from(u16::MAX),
        (false, Some(room)) => usize::from(room).clamp(PLAIN, LARGEST),
        (false, None) => PLAIN,
    };
    let whole = encode(query, question, reply, false);
    if whole.len() <= room {
        return whole;
    }
    let short = encode(query, question, &Reply { additional: Vec::new(), ..reply.clone() }, false);
    if short.len() <= room {
        return short;
    }
    // Truncated: the client asks again over TCP.
    encode(query, question, &Reply { code: reply.code, ..Reply::default() }, true)
}

fn encode(query: &[u8], question: &Question, reply: &Reply, truncated: bool) -> Vec<u8> {
    let count = |records: &[Record]| u16::try_from(records.len()).unwrap_or(u16::MAX);
    let flags =
        0x8480 | u16::from(question.wants_recursion) << 8 | u16::from(truncated) << 9 | u16::from(reply.code & 0xf);
    let opt = u16::from(question.room.is_some());
    let counts = [1, count(&reply.answers), count(&reply.authority), count(&reply.additional).saturating_add(opt)];
    let mut bytes = header(question.id, flags, counts);
    bytes.extend(query.get(12..question.end).unwrap_or_default());
    for record in reply.answers.iter().chain(&reply.authority).chain(&reply.additional) {
        write_record(&mut bytes, record, &question.name);
    }
    if opt == 1 {
        bytes.push(0);
        bytes.extend(OPT.to_be_bytes());
        bytes.extend(u16::try_from(LARGEST).unwrap_or(512).to_be_bytes());
        bytes.extend([0; 6]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = header(7, 0x0100, [1, 0, 0, 0]);
        write_name(&mut bytes, name);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(1_u16.to_be_bytes());
        bytes
    }

    #[test]
    fn a_question_and_its_answer() {
        let query = query("Web.ns.svc.cluster.LOCAL", A);
        let question = question(&query).unwrap();
        assert_eq!((question.name.as_str(), question.kind, question.id), ("web.ns.svc.cluster.local", A, 7));
        let record = Record { name: question.name.clone(), data: Data::A([127, 9, 128, 5].into()) };
        let bytes = answer(&query, &question, &Reply { answers: vec![record], ..Reply::default() }, false);
        assert_eq!(&bytes[..12], [0, 7, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(&bytes[bytes.len() - 16..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 9, 128, 5]);
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_cut() {
        let query = query("h.ns.svc.cluster.local", A);
        let question = question(&query).unwrap();
        let records = |count: u8| -> Vec<Record> {
            (0..count).map(|n| Record { name: question.name.clone(), data: Data::A([127, 0, 0, n].into()) }).collect()
        };
        let reply = |count: u8| Reply { answers: records(count), ..Reply::default() };
        assert_eq!(answer(&query, &question, &reply(20), false)[2] & 2, 0);
        let cut = answer(&query, &question, &reply(100), false);
        assert!(cut[2] & 2 == 2 && cut.len() < 512);
        assert_eq!(answer(&query, &question, &reply(100), true)[2] & 2, 0, "a stream has room");
    }

    #[test]
    fn what_is_no_question() {
        assert_eq!(question(&[]), Err(None));
        let mut answered = query("a", A);
        answered[2] |= 0x80;
        assert_eq!(question(&answered), Err(None));
        let mut two = query("a", A);
        two[5] = 2;
        assert!(matches!(question(&two), Err(Some(bytes)) if bytes[3] & 0xf == BAD_FORMAT));
        let mut update = query("a", A);
        update[2] |= 0x28;
        assert!(matches!(question(&update), Err(Some(bytes)) if bytes[3] & 0xf == NOT_DONE));
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0..100_usize) {
            let _ = question(&bytes);
            let good = query("some.name.of.mine", SRV);
            let _ = question(&good[..cut.min(good.len())]);
            if let Ok(one) = question(&bytes) {
                let _ = answer(&bytes, &one, &Reply::default(), false);
            }
        }
    }
}
