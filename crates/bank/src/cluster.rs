//! What a node of a cluster says about its cluster: which node has which hash slot, and which are its own.

use redis::Value;

/// Hash slots of a cluster.
const HASH_SLOTS: u16 = 16_384;

/// What one node says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// First and last hash slot, and the address of their master, with its id.
    ranges: Vec<(u16, u16, String, String)>,
    /// The node's own id.
    me: String,
}

impl View {
    /// Reads the answers of `CLUSTER MYID` and `CLUSTER SLOTS`. None: it is no node of a cluster.
    pub(crate) fn read(me: String, slots: &Value) -> Option<Self> {
        let Value::Array(entries) = slots else { return None };
        let ranges = entries.iter().filter_map(range).collect();
        Some(Self { ranges, me })
    }

    /// The address of a hash slot's master; its host is empty if it is that of the node that was asked.
    pub(crate) fn owner(&self, hash_slot: u16) -> Option<&str> {
        self.find(hash_slot).map(|(_, _, address, _)| address.as_str())
    }

    /// Whether the node that was asked is a hash slot's master.
    pub(crate) fn is_mine(&self, hash_slot: u16) -> bool {
        self.find(hash_slot).is_some_and(|(_, _, _, id)| *id == self.me)
    }

    fn find(&self, hash_slot: u16) -> Option<&(u16, u16, String, String)> {
        self.ranges.iter().find(|(first, last, ..)| (*first..=*last).contains(&hash_slot))
    }
}

/// `[first, last, [host, port, id, ...], replicas...]`
fn range(entry: &Value) -> Option<(u16, u16, String, String)> {
    let Value::Array(entry) = entry else { return None };
    let [first, last, Value::Array(master), ..] = entry.as_slice() else { return None };
    let [host, port, id, ..] = master.as_slice() else { return None };
    let host = text(host).unwrap_or_default();
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some((number(first)?, number(last)?, format!("{host}:{}", number(port)?), text(id)?))
}

fn number(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// The hash slot of the keys of one of our slots: of what is in their braces.
pub(crate) fn slot_of(slot: u64) -> u16 {
    crc16(slot.to_string().as_bytes()) % HASH_SLOTS
}

/// CRC-16/XMODEM, as clusters use it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(*byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn hash_slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!([slot_of(5), slot_of(63)], [9_974, 10_499]);
    }

    #[test]
    fn a_view_knows_owners_and_its_own() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: &str, port, id: &str| {
            Value::Array(vec![bulk(host), Value::Int(port), bulk(id), Value::Array(vec![])])
        };
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let slots = Value::Array(vec![
            range(0, 8_000, node("10.0.0.1", 7_000, "a")),
            range(8_001, 16_383, node("", 7_001, "b")),
        ]);
        let view = View::read("b".to_owned(), &slots).unwrap();
        assert_eq!((view.owner(8_000), view.owner(8_001)), (Some("10.0.0.1:7000"), Some(":7001")));
        assert_eq!((view.is_mine(0), view.is_mine(16_383)), (false, true));
        assert_eq!(View::read("a".to_owned(), &Value::Int(1)), None);
    }
}
